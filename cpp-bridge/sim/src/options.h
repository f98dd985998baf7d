#pragma once

// The options of a simulated engine, parsed from the text after "sim:". Knows nothing about engines.

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
    kForeign,  ///< an exception that is not a std::exception
};

struct Options
{
    // The load.
    double rate = 8.0;         ///< average number of requests per simulated second
    double wave = 0.6;         ///< amplitude of the rate's swing around its mean, 0 to 1
    double wavePeriodS = 60.0; ///< period of the swing
    std::uint64_t seed = 1;
    std::string trace;                       ///< path of a file with arrivals, instead of the random load
    std::optional<std::uint64_t> requests;   ///< the load ends after this many
    std::optional<std::uint64_t> iterations; ///< the engine hangs after this many
    std::optional<std::int32_t> inFlight;    ///< maximum of the load's requests in the engine; others wait outside
    std::int32_t promptMean = 600;
    std::int32_t outputMean = 120;
    double prefixShare = 0.6; ///< fraction of requests that start with a shared prefix
    std::int32_t prefixTokens = 384;
    // The machine.
    double loadSeconds = 0.0; ///< real seconds that the engine's constructor takes
    double speed = 1.0; ///< simulated seconds per real second; 0: as fast as possible
    std::optional<std::int32_t> maxBatchSize;
    std::optional<std::int32_t> maxNumTokens;
    std::int32_t kvBlocks = 512;
    std::int32_t tokensPerBlock = 32;
    std::optional<executor::CapacitySchedulerPolicy> policy;
    std::optional<executor::BatchingType> batching;
    double iterBaseMs = 8.0;
    double ctxTokenUs = 12.0;
    double genRequestUs = 60.0;
    double jitter = 0.05; ///< relative standard deviation of an iteration's duration
    std::int32_t specDraftLen = 0;
    double specAcceptance = 0.7;
    bool disagg = false; ///< requests report a KV cache transfer
    // The rank and the statistics.
    std::int32_t rank = 0;
    std::optional<bool> orchestrated; ///< overrides the host's mode: orchestrator (true) or leader (false)
    Throws throws = Throws::kNever;   ///< which exception every call of the Executor throws, for tests
    bool requestStats = false;        ///< enables request statistics even if the host's configuration does not
};

/// Parses "sim:" and "sim:?key=value&key=value". Throws a TllmException that names the key, the value and the valid
/// values.
[[nodiscard]] Options parseOptions(std::string const& enginePath);

} // namespace tensorrt_llm::sim
