#pragma once

// A host's options as TensorRT-LLM's configuration. Setters only: its constructors change between releases.

#include "trtllm-bridge/src/ffi.rs.h"

#include "tensorrt_llm/executor/executor.h"

#include <cstdint>
#include <string>
#include <vector>

namespace trtllm_bridge
{

/// Where the engine runs; empty = not given.
struct Placement
{
    std::vector<std::int32_t> participantIds;
    std::vector<std::int32_t> deviceIds;
    std::string workerExecutable;
};

/// Throws if an option was given that this release cannot set.
[[nodiscard]] tensorrt_llm::executor::ExecutorConfig executorConfig(
    HostConfig const& config, Placement const& placement);
[[nodiscard]] tensorrt_llm::executor::ModelType modelType(HostConfig const& config);

} // namespace trtllm_bridge
