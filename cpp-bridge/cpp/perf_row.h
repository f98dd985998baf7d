#pragma once

// Converts a finished response to a PerfRow.

#include "trtllm-bridge/src/ffi.rs.h"

#include "tensorrt_llm/executor/executor.h"

namespace trtllm_bridge
{

/// Converts a final response. Overwrites the whole row. `prompt_tokens` is 0, because a response does not contain it.
void readRow(tensorrt_llm::executor::Response const& response, PerfRow& row);

} // namespace trtllm_bridge
