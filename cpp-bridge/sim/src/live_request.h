#pragma once

// One request on its way through the engine: what it asked for, how far it is and what it cost.

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
    std::optional<executor::Request> external; ///< what a host enqueued; the load generator's own have none

    std::int32_t promptTokens{};
    std::int32_t outputTokens{}; ///< it ends after this many
    executor::FinishReason endsWith{executor::FinishReason::kLENGTH};
    /// Identity of each full prompt block: equal keys hold equal tokens after equal predecessors.
    std::vector<std::uint64_t> blockKeys;

    // Virtual time, in milliseconds.
    double arrivalMs{};
    double firstScheduledMs{-1.0};
    double firstTokenMs{-1.0};
    double lastTokenMs{-1.0};
    double transferMs{}; ///< disaggregated serving: how long its KV cache took to arrive

    bool inGeneration{false};
    std::int32_t contextTarget{}; ///< tokens its context phase must cover: the prompt, after a pause also the output
    std::int32_t contextDone{};
    std::int32_t generated{};
    std::int32_t decodeSteps{}; ///< iterations that produced its tokens
    bool scheduled{false};      ///< is part of the batch launched last
    bool paused{false};         ///< lost its blocks and waits to run again
    bool cancelled{false};
    bool answered{false};       ///< the host has its final response
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
