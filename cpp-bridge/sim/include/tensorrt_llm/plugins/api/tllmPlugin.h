#pragma once

// Simulated SDK: hosts register the TensorRT plugins before they construct an Executor. This SDK has no plugins.

extern "C" bool initTrtLlmPlugins(void* logger = nullptr, char const* libNamespace = "tensorrt_llm");
