#pragma once

// Simulated SDK: the runtime checks of TensorRT-LLM.

#include "tensorrt_llm/common/tllmException.h"

#define TLLM_CHECK_WITH_INFO(condition, info)                                                                          \
    do                                                                                                                 \
    {                                                                                                                  \
        if (!(condition))                                                                                              \
        {                                                                                                              \
            ::tensorrt_llm::common::throwRuntimeError(__FILE__, __LINE__, (info));                                     \
        }                                                                                                              \
    } while (false)

#define TLLM_CHECK(condition) TLLM_CHECK_WITH_INFO(condition, #condition)
