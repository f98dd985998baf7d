#pragma once

// Converts TensorRT-LLM's records to rows. Overwrites the whole row.

#include "trtllm-bridge/src/ffi.rs.h"

#include "tensorrt_llm/executor/types.h"

namespace trtllm_bridge
{

void readRow(tensorrt_llm::executor::IterationStats const& stats, IterationRow& row);
void readRow(tensorrt_llm::executor::RequestStats const& stats, std::uint64_t iter, RequestRow& row);

} // namespace trtllm_bridge
