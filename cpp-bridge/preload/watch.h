#pragma once

// Reports a preload that has no effect: this process loads TensorRT-LLM, but uses no Executor that the preload can see.

namespace trtllm_preload
{

/// Called when a hook runs: the preload has an effect.
void executorSeen() noexcept;

} // namespace trtllm_preload
