#pragma once

// What a simulated engine did, independent of the records in its rings. For tests and benchmarks.

#include <cstdint>

namespace tensorrt_llm::executor
{
class Executor;
} // namespace tensorrt_llm::executor

namespace tensorrt_llm::sim
{

/// Totals since construction. A snapshot is consistent, because it is taken between two records.
struct Truth
{
    std::uint64_t iterations;        ///< batches that the engine ran
    std::uint64_t flushes;           ///< flush records, which the engine writes when it becomes idle
    std::uint64_t requestsArrived;   ///< requests that reached the engine's queue
    std::uint64_t requestsStarted;   ///< requests that became active
    std::uint64_t requestsCompleted; ///< requests that ended, including cancelled ones
    std::uint64_t contextTokens;     ///< prompt tokens computed, without tokens reused from the KV cache
    std::uint64_t firstTokens;       ///< output tokens of context phases
    std::uint64_t generationTokens;  ///< output tokens of generation phases
    std::uint64_t pauses;            ///< how often a request was paused because an older one needed its KV cache blocks
    std::uint64_t recordsPushed;     ///< iteration records written into the ring
    std::uint64_t recordsLost;       ///< iteration records that were overwritten before they were drained
    std::uint64_t requestRecordsPushed;
    std::uint64_t requestRecordsLost;
    bool idle; ///< true if no request is active or queued
};

[[nodiscard]] Truth truth(executor::Executor const& executor);

} // namespace tensorrt_llm::sim
