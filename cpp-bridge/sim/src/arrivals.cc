// The load generator: a Poisson process whose rate swings around its mean, or a trace.

#include "arrivals.h"

#include "tensorrt_llm/common/tllmException.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

namespace tensorrt_llm::sim
{
namespace
{

constexpr double kPromptSigma = 0.7;
constexpr double kOutputSigma = 0.6;
constexpr std::uint32_t kPrefixGroups = 4;
/// Limits random lengths to this multiple of the mean, so that one request cannot fill the whole cache.
constexpr std::int32_t kLongest = 6;

/// Reads a trace. A line has seconds, prompt tokens, output tokens and, if the prompt starts with a shared prefix, the
/// number of the prefix. Blanks or commas separate the fields, and '#' starts a comment.
std::vector<Arrival> readTrace(std::string const& file)
{
    std::ifstream input(file);
    if (!input)
    {
        TLLM_THROW("sim: cannot read trace=" + file + "; name a readable file");
    }
    std::vector<Arrival> trace;
    std::string line;
    for (int number = 1; std::getline(input, line); ++number)
    {
        line.erase(std::min(line.find('#'), line.size()));
        std::replace(line.begin(), line.end(), ',', ' ');
        if (line.find_first_not_of(" \t\r") == std::string::npos)
        {
            continue;
        }
        std::istringstream fields(line);
        double seconds{};
        Arrival arrival{};
        fields >> seconds >> arrival.promptTokens >> arrival.outputTokens;
        auto const complete = !fields.fail();
        fields >> arrival.prefixGroup;
        if (!complete || !std::isfinite(seconds) || seconds < 0.0 || arrival.promptTokens < 1
            || arrival.outputTokens < 1)
        {
            TLLM_THROW("sim: option trace=" + file + ": line " + std::to_string(number)
                + " is invalid; write seconds, prompt tokens, output tokens");
        }
        arrival.timeMs = seconds * 1e3;
        trace.push_back(arrival);
    }
    std::stable_sort(
        trace.begin(), trace.end(), [](Arrival const& a, Arrival const& b) { return a.timeMs < b.timeMs; });
    return trace;
}

std::int32_t length(double drawn, std::int32_t mean)
{
    return static_cast<std::int32_t>(std::clamp(drawn, 1.0, static_cast<double>(mean) * kLongest));
}

} // namespace

Arrivals::Arrivals(Options const& options, std::int32_t maxSequence, std::int32_t maxPrompt)
    : mOptions(options)
    , mMaxSequence(maxSequence)
    , mMaxPrompt(maxPrompt)
    , mRandom(options.seed)
{
    if (!mOptions.trace.empty())
    {
        mTrace = readTrace(mOptions.trace);
    }
    pop();
}

std::optional<Arrival> const& Arrivals::next() const
{
    return mNext;
}

void Arrivals::pop()
{
    mNext.reset();
    auto const limit = mOptions.requests.value_or(~std::uint64_t{0});
    auto const exhausted = mOptions.trace.empty() ? mOptions.rate <= 0.0 : mDrawn >= mTrace.size();
    if (mDrawn >= limit || exhausted)
    {
        return;
    }
    mNext = mOptions.trace.empty() ? draw() : mTrace[static_cast<std::size_t>(mDrawn)];
    ++mDrawn;
    clamp(*mNext);
}

Arrival Arrivals::draw()
{
    auto const peak = mOptions.rate * (1.0 + mOptions.wave);
    double rate = 0.0;
    // Thinning: draws candidates at the highest rate, and accepts each with the ratio of its current rate to the
    // highest.
    do
    {
        mTimeMs += mRandom.exponential(1e3 / peak);
        auto const phase = mTimeMs / (mOptions.wavePeriodS * 1e3);
        rate = mOptions.rate * (1.0 + mOptions.wave * std::sin(6.283185307179586 * phase));
    } while (mRandom.uniform() * peak > rate);

    Arrival arrival{};
    arrival.timeMs = mTimeMs;
    arrival.promptTokens = length(mRandom.skewed(mOptions.promptMean, kPromptSigma), mOptions.promptMean);
    arrival.outputTokens = length(mRandom.skewed(mOptions.outputMean, kOutputSigma), mOptions.outputMean);
    if (mRandom.uniform() < mOptions.prefixShare)
    {
        arrival.prefixGroup = 1 + static_cast<std::uint32_t>(mRandom.bits() % kPrefixGroups);
    }
    return arrival;
}

void Arrivals::clamp(Arrival& arrival) const
{
    arrival.promptTokens = std::min(arrival.promptTokens, mMaxPrompt);
    arrival.outputTokens = std::min(arrival.outputTokens, mMaxSequence - arrival.promptTokens);
}

} // namespace tensorrt_llm::sim
