#pragma once

// From a finished response to the row that crosses to Rust.

#include "trtllm-bridge/src/ffi.rs.h"

#include "tensorrt_llm/executor/executor.h"

namespace trtllm_bridge
{

/// Of a final response; overwrites the whole row. The length of the prompt is not in a response and stays 0.
void readRow(tensorrt_llm::executor::Response const& response, PerfRow& row);

} // namespace trtllm_bridge
