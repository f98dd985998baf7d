#pragma once

// The options of a simulated engine: the text behind "sim:" as meant. Knows nothing about engines.

#include "tensorrt_llm/executor/types.h"

#include <cstdint>
#include <optional>
#include <string>

namespace tensorrt_llm::sim
{

enum class Throws
{
    kNever,
    kStandard, ///< TllmException
    kForeign,  ///< something that is no std::exception
};

struct Options
{
    // The load.
    double rate = 8.0;          ///< requests per second of the engine's own clock, on average
    double wave = 0.6;          ///< how much the rate swings around its mean, 0..1
    double wavePeriodS = 60.0;  ///< length of one swing
    std::uint64_t seed = 1;
    std::string trace;          ///< a file of arrivals instead of the random load
    std::optional<std::uint64_t> requests;   ///< the load ends after this many
    std::optional<std::uint64_t> iterations; ///< the engine hangs after this many
    std::optional<std::int32_t> inFlight;    ///< requests in the engine, beyond which the load's next one waits outside
    std::int32_t promptMean = 600;
    std::int32_t outputMean = 120;
    double prefixShare = 0.6;   ///< fraction of requests that begin with one of a few shared prefixes
    std::int32_t prefixTokens = 384;
    // The machine.
    double loadSeconds = 0.0;   ///< real seconds that constructing the engine takes
    double speed = 1.0;         ///< engine seconds per second; 0 = as fast as it can
    std::optional<std::int32_t> maxBatchSize;
    std::optional<std::int32_t> maxNumTokens;
    std::int32_t kvBlocks = 512;
    std::int32_t tokensPerBlock = 32;
    std::optional<executor::CapacitySchedulerPolicy> policy;
    std::optional<executor::BatchingType> batching;
    double iterBaseMs = 8.0;
    double ctxTokenUs = 12.0;
    double genRequestUs = 60.0;
    double jitter = 0.05;       ///< standard deviation of an iteration's time, relative
    std::int32_t specDraftLen = 0;
    double specAcceptance = 0.7;
    bool disagg = false;        ///< requests report a transfer of their KV cache
    // Its place and its statistics.
    std::int32_t rank = 0;
    std::optional<bool> orchestrated; ///< as if the host had chosen orchestrator mode, or leader mode
    Throws throws = Throws::kNever; ///< for tests of readers: what every call into the Executor throws
    bool requestStats = false;  ///< request statistics even if the host's configuration leaves them off
};

/// Reads "sim:", "sim:?key=value&key=value". Throws TllmException naming the key, the value and what is accepted.
[[nodiscard]] Options parseOptions(std::string const& enginePath);

} // namespace tensorrt_llm::sim
