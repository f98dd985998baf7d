#pragma once

// Converts KVCacheEvents to KvEventRows, one row per block of an event.

#include "trtllm-bridge/src/ffi.rs.h"

#include "tensorrt_llm/executor/executor.h"

#include <deque>

namespace trtllm_bridge
{

/// Appends the events since the last call to `rows`, oldest first. Appends nothing if this release has no events, or if
/// they are disabled.
void takeKvEvents(tensorrt_llm::executor::Executor const& executor, std::deque<KvEventRow>& rows);

} // namespace trtllm_bridge
