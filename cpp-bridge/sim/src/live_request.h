#pragma once

// A request inside the engine: its parameters, its progress and its cost.

#include "tensorrt_llm/executor/executor.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace tensorrt_llm::sim
{

using BlockId = std::int32_t;

struct LiveRequest
{
    executor::IdType id{};
    std::optional<executor::Request> external; ///< the host's request; empty for requests of the load generator

    std::int32_t promptTokens{};
    std::int32_t outputTokens{}; ///< the request ends after this many tokens
    executor::FinishReason endsWith{executor::FinishReason::kLENGTH};
    /// A key for each full block of the prompt. Blocks have equal keys if they and all blocks before them are equal.
    std::vector<std::uint64_t> blockKeys;

    // Simulated times in milliseconds.
    double arrivalMs{};
    double firstScheduledMs{-1.0};
    double firstTokenMs{-1.0};
    double lastTokenMs{-1.0};
    double transferMs{}; ///< disaggregated serving: duration of the KV cache transfer

    bool inGeneration{false};
    std::int32_t contextTarget{}; ///< tokens to compute: the prompt and, after a pause, the output so far
    std::int32_t contextDone{};
    std::int32_t generated{};
    std::int32_t decodeSteps{}; ///< number of iterations in the generation phase
    bool scheduled{false};      ///< is part of the latest batch
    bool paused{false};         ///< has lost its blocks and waits to run again
    bool cancelled{false};
    bool answered{false}; ///< the host got the final response
    std::optional<std::uint64_t> firstIter;

    std::vector<BlockId> blocks;
    std::int32_t allocTotal{};
    std::int32_t allocNew{};
    std::int32_t reused{};
    std::int32_t missed{};
    std::int32_t draftTokens{};
    std::int32_t acceptedTokens{};

    [[nodiscard]] std::int32_t remaining() const
    {
        return outputTokens - generated;
    }

    [[nodiscard]] float decodedPerIteration() const
    {
        return decodeSteps == 0 ? 0.0F : static_cast<float>(generated) / static_cast<float>(decodeSteps);
    }

    [[nodiscard]] float hitRate() const
    {
        auto const looked = reused + missed;
        return looked == 0 ? 0.0F : static_cast<float>(reused) / static_cast<float>(looked);
    }
};

} // namespace tensorrt_llm::sim
