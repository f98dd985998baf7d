#pragma once

// Generates arrival times and lengths of requests, from a random seed or from a file. Knows nothing about batching.

#include "options.h"
#include "random.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace tensorrt_llm::sim
{

struct Arrival
{
    double timeMs;
    std::int32_t promptTokens;
    std::int32_t outputTokens;
    std::uint32_t prefixGroup; ///< 0: the prompt has no shared prefix
};

class Arrivals
{
public:
    /// Limits prompts to `maxPrompt` tokens, and prompt and output together to `maxSequence` tokens.
    Arrivals(Options const& options, std::int32_t maxSequence, std::int32_t maxPrompt);

    /// The next request. Empty if the load has ended.
    [[nodiscard]] std::optional<Arrival> const& next() const;
    void pop();

private:
    [[nodiscard]] Arrival draw();
    void clamp(Arrival& arrival) const;

    Options mOptions;
    std::int32_t mMaxSequence;
    std::int32_t mMaxPrompt;
    Random mRandom;
    std::vector<Arrival> mTrace;
    std::uint64_t mDrawn{0};
    double mTimeMs{0.0};
    std::optional<Arrival> mNext;
};

} // namespace tensorrt_llm::sim
