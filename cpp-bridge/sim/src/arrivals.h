#pragma once

// When requests come and how long they are: random by a seed, or read from a file. Knows nothing about batching.

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
    std::uint32_t prefixGroup; ///< 0 = the prompt shares nothing
};

class Arrivals
{
public:
    /// Lengths are clamped: prompts to `maxPrompt`, prompt and output together to `maxSequence` tokens.
    Arrivals(Options const& options, std::int32_t maxSequence, std::int32_t maxPrompt);

    /// The next request to come, if the load has not ended.
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
