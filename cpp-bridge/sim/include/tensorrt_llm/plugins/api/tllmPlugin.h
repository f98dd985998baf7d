#pragma once

// Simulated SDK: hosts register the TensorRT plugins before they construct an Executor; here there are none.

extern "C" bool initTrtLlmPlugins(void* logger = nullptr, char const* libNamespace = "tensorrt_llm");
