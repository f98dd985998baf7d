#pragma once

// Converts options to TensorRT-LLM's ExecutorConfig. It uses only setters, because the constructors change between
// releases.

#include "trtllm-bridge/src/ffi.rs.h"

#include "tensorrt_llm/executor/executor.h"

#include <cstdint>
#include <string>
#include <vector>

namespace trtllm_bridge
{

/// Where the engine runs. Empty members are not set.
struct Placement
{
    std::vector<std::int32_t> participantIds;
    std::vector<std::int32_t> deviceIds;
    std::string workerExecutable;
};

/// Throws if an option is set that this release does not support.
[[nodiscard]] tensorrt_llm::executor::ExecutorConfig executorConfig(
    HostConfig const& config, Placement const& placement);
[[nodiscard]] tensorrt_llm::executor::ModelType modelType(HostConfig const& config);

} // namespace trtllm_bridge
