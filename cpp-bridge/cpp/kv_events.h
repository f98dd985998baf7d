#pragma once

// KVCacheEvents → KvEventRows, a row for each block that an event is about.

#include "trtllm-bridge/src/ffi.rs.h"

#include "tensorrt_llm/executor/executor.h"

#include <deque>

namespace trtllm_bridge
{

/// Takes the events since the last call off the Executor, oldest first, to the end of `rows`. None where this release or
/// this Executor has none.
void takeKvEvents(tensorrt_llm::executor::Executor const& executor, std::deque<KvEventRow>& rows);

} // namespace trtllm_bridge
