#pragma once

#include "tensorrt_llm/sim/release.h"

namespace tensorrt_llm::executor
{

/// The release that this simulated SDK imitates, with a suffix that marks it as simulated.
#if TRTLLM_SIM_SINCE(1, 2) // has the structs of 1.1, as far as public headers show
static char const* const kTensorRtLlmVersion = "1.2.0+simulated";
#elif TRTLLM_SIM_SINCE(1, 1)
static char const* const kTensorRtLlmVersion = "1.1.0+simulated";
#elif TRTLLM_SIM_SINCE(1, 0)
static char const* const kTensorRtLlmVersion = "1.0.0+simulated";
#elif TRTLLM_SIM_SINCE(0, 15)
static char const* const kTensorRtLlmVersion = "0.15.0+simulated";
#elif TRTLLM_SIM_SINCE(0, 13)
static char const* const kTensorRtLlmVersion = "0.13.0+simulated";
#elif TRTLLM_SIM_SINCE(0, 11)
static char const* const kTensorRtLlmVersion = "0.11.0+simulated";
#else
static char const* const kTensorRtLlmVersion = "0.9.0+simulated";
#endif

} // namespace tensorrt_llm::executor
