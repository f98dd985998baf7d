#include "load.h"

#include "records.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace trtllm_bridge
{
namespace
{

namespace tle = tensorrt_llm::executor;
using Milliseconds = std::chrono::milliseconds;

/// How long the thread waits for responses. stop() may have to wait this long for the thread.
constexpr Milliseconds kAwaitTimeout{20};
constexpr Milliseconds kPauseAfterFailure{100};
/// Most ended requests that are stored: ten minutes at a hundred requests per second. Then the oldest are dropped.
constexpr std::size_t kMaxEnded = 65536;
/// Prompts use token ids below this number, because every model's vocabulary has at least this many tokens.
constexpr std::uint64_t kTokens = 1000;

/// The responses of all requests. In 0.9, the first parameter of awaitResponses is an optional request id.
template <class Executor>
auto responsesOf(Executor& executor)
{
    std::optional<Milliseconds> const timeout(kAwaitTimeout);
    auto const await = [&](auto& from) -> decltype(from.awaitResponses(timeout)) { return from.awaitResponses(timeout); };
    if constexpr (std::is_invocable_v<decltype(await), Executor&>)
    {
        return await(executor);
    }
    else
    {
        return executor.awaitResponses(std::nullopt, timeout);
    }
}

/// Releases before 1.0 have no metrics of single requests.
template <class Config>
void enablePerfMetrics([[maybe_unused]] Config& config)
{
    if constexpr (trtllm_exporter::detail::Has_returnPerfMetrics<Config>::value)
    {
        config.returnPerfMetrics = true;
    }
}

/// Random tokens, so that no prompt shares cache blocks with another one.
tle::VecTokens promptOf(std::int32_t length, std::uint64_t seed)
{
    tle::VecTokens tokens(static_cast<std::size_t>(length));
    auto state = seed << 32;
    for (auto& token : tokens)
    {
        // The generator splitmix64.
        auto mixed = state += 0x9e3779b97f4a7c15ULL;
        mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ULL;
        mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebULL;
        token = static_cast<tle::TokenIdType>(1 + (mixed ^ (mixed >> 31)) % (kTokens - 1));
    }
    return tokens;
}

LoadConfig checked(LoadConfig const& config)
{
    if (config.prompt_tokens < 1 || config.output_tokens < 1)
    {
        throw std::invalid_argument("a request needs at least one prompt token and one output token");
    }
    return config;
}

} // namespace

Load::Load(tle::Executor& executor, LoadConfig const& config)
    : mExecutor(executor)
    , mConfig(checked(config))
    , mThread([this] { run(); })
{
}

Load::~Load()
{
    stop();
}

void Load::stop()
{
    {
        std::lock_guard const lock(mMutex);
        mStopped = true;
    }
    mStopping.notify_all();
    if (mThread.joinable())
    {
        mThread.join();
    }
}

std::size_t Load::drain(FinishedRequest* requests, std::size_t count)
{
    std::lock_guard const lock(mMutex);
    auto const written = std::min(count, mEnded.size());
    std::copy_n(mEnded.begin(), written, requests);
    mEnded.erase(mEnded.begin(), mEnded.begin() + static_cast<std::ptrdiff_t>(written));
    return written;
}

void Load::run()
{
    for (auto running = true; running;)
    {
        try
        {
            if (!mExecutor.canEnqueueRequests())
            {
                return;
            }
            while (mSent < mConfig.requests && mInFlight < mConfig.in_flight)
            {
                enqueue();
            }
            collect();
            std::lock_guard const lock(mMutex);
            running = !mStopped;
        }
        catch (...) // the engine rejected a request, or was shut down
        {
            std::unique_lock lock(mMutex);
            running = !mStopping.wait_for(lock, kPauseAfterFailure, [this] { return mStopped; });
        }
    }
}

void Load::enqueue()
{
    tle::OutputConfig outputs;
    outputs.excludeInputFromOutput = true;
    enablePerfMetrics(outputs);
    // Without an end token the request runs to its full length.
    tle::Request request(promptOf(mConfig.prompt_tokens, mSent + 1), mConfig.output_tokens);
    request.setOutputConfig(outputs);
    static_cast<void>(mExecutor.enqueueRequest(request));
    ++mSent;
    ++mInFlight;
}

void Load::collect()
{
    for (auto const& response : responsesOf(mExecutor))
    {
        if (!response.hasError() && !response.getResult().isFinal)
        {
            continue;
        }
        --mInFlight;
        FinishedRequest ended{};
        ended.request_id = response.getRequestId();
        put(ended.prompt_tokens, mConfig.prompt_tokens);
        clear(ended.output_tokens);
        if (response.hasError())
        {
            ended.finish_reason = FinishReason::Other;
        }
        else
        {
            auto const& result = response.getResult();
            fillResult(ended, result);
            put(ended.output_tokens, result.outputTokenIds.empty() ? 0 : result.outputTokenIds.front().size());
        }
        std::lock_guard const lock(mMutex);
        if (mEnded.size() == kMaxEnded)
        {
            mEnded.pop_front();
        }
        mEnded.push_back(ended);
    }
}

} // namespace trtllm_bridge
