#pragma once

// What really happened in a simulated engine, whatever its rings still hold. For tests and benchmarks.

#include <cstdint>

namespace tensorrt_llm::executor
{
class Executor;
} // namespace tensorrt_llm::executor

namespace tensorrt_llm::sim
{

/// Totals since construction. One snapshot is consistent: it is taken between two records.
struct Truth
{
    std::uint64_t iterations;       ///< batches launched
    std::uint64_t flushes;          ///< records written because the engine ran out of requests
    std::uint64_t requestsArrived;  ///< requests that reached the engine's queue
    std::uint64_t requestsStarted;  ///< requests that became active
    std::uint64_t requestsCompleted; ///< requests that ended, cancelled ones included
    std::uint64_t contextTokens;    ///< prompt tokens computed, so without those found in the KV cache
    std::uint64_t firstTokens;      ///< output tokens that ended a context phase
    std::uint64_t generationTokens; ///< output tokens of generation phases
    std::uint64_t draftTokens;      ///< tokens proposed by speculative decoding
    std::uint64_t acceptedTokens;   ///< proposed tokens that were kept
    std::uint64_t pauses;           ///< times a request lost its KV cache blocks to an older one
    std::uint64_t recordsPushed;    ///< iteration records written into the ring
    std::uint64_t recordsLost;      ///< of these, overwritten before anybody drained them
    std::uint64_t requestRecordsPushed;
    std::uint64_t requestRecordsLost;
    double virtualTimeMs; ///< the engine's own clock
    bool idle;            ///< no request is active or queued
};

[[nodiscard]] Truth truth(executor::Executor const& executor);

} // namespace tensorrt_llm::sim
