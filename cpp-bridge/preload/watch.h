#pragma once

// Reports a preload that has no effect: this process loads TensorRT-LLM, but uses no Executor that the preload can see.

namespace trtllm_preload
{

/// Call it in every hook.
void executorSeen() noexcept;

} // namespace trtllm_preload
