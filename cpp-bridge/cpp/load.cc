#include "load.h"

#include "records.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
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
/// Enough for ten minutes of a hundred requests per second.
constexpr std::size_t kMaxRows = 65536;
/// Prompts use token ids below this number, because every model's vocabulary has at least this many tokens.
constexpr std::uint64_t kTokens = 1000;

/// The output of the splitmix64 generator for this state.
std::uint64_t splitmix64(std::uint64_t state)
{
    state += 0x9e3779b97f4a7c15ULL;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ULL;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebULL;
    return state ^ (state >> 31);
}

/// awaitResponses of 0.9, whose first parameter is an optional request id.
template <class Executor, class = void>
struct Await
{
    static auto any(Executor& executor, Milliseconds timeout)
    {
        return executor.awaitResponses(std::nullopt, std::optional<Milliseconds>(timeout));
    }
};

template <class Executor>
struct Await<Executor,
    std::void_t<decltype(std::declval<Executor&>().awaitResponses(std::declval<std::optional<Milliseconds> const&>()))>>
{
    static auto any(Executor& executor, Milliseconds timeout)
    {
        return executor.awaitResponses(std::optional<Milliseconds>(timeout));
    }
};

/// returnPerfMetrics was added with 1.0 or shortly before. Older releases have no metrics of single requests.
template <class Config, class = void>
struct PerfMetrics
{
    static void enable(Config&) {}
};

template <class Config>
struct PerfMetrics<Config, std::void_t<decltype(std::declval<Config&>().returnPerfMetrics)>>
{
    static void enable(Config& config)
    {
        config.returnPerfMetrics = true;
    }
};

tle::VecTokens promptOf(std::int32_t prompt, std::int32_t sharedPrefix, std::uint64_t seed)
{
    tle::VecTokens tokens;
    tokens.reserve(static_cast<std::size_t>(prompt));
    for (std::int32_t i = 0; i < prompt; ++i)
    {
        auto const state = static_cast<std::uint64_t>(i) ^ (i < sharedPrefix ? 0 : splitmix64(seed));
        tokens.push_back(static_cast<tle::TokenIdType>(1 + splitmix64(state) % (kTokens - 1)));
    }
    return tokens;
}

tle::Request requestOf(tle::VecTokens prompt, std::int32_t output)
{
    tle::OutputConfig outputs;
    outputs.excludeInputFromOutput = true;
    PerfMetrics<tle::OutputConfig>::enable(outputs);
    // Without an end token the request runs to its full length.
    tle::Request request(std::move(prompt), output);
    request.setOutputConfig(outputs);
    return request;
}

template <class Count>
void checkLengths(Count prompt, std::int32_t output)
{
    if (prompt < 1 || output < 1)
    {
        throw std::invalid_argument("a request needs at least one prompt token and one output token");
    }
}

} // namespace

Load::Load(tle::Executor& executor)
    : mExecutor(executor)
{
}

Load::~Load()
{
    stop();
}

void Load::checkAcceptsRequests()
{
    if (mExecutor.canEnqueueRequests())
    {
        return;
    }
    // This call throws TensorRT-LLM's own exception, which names the reason.
    static_cast<void>(mExecutor.getNumResponsesReady());
    throw std::runtime_error("this executor does not accept requests");
}

void Load::start(LoadConfig const& config)
{
    checkLengths(config.prompt_tokens, config.output_tokens);
    checkAcceptsRequests();
    {
        std::lock_guard const lock(mMutex);
        mConfig = config;
        mLeft = config.requests == 0 ? std::numeric_limits<std::uint64_t>::max() : config.requests;
    }
    ensureThread();
}

std::uint64_t Load::enqueue(std::int32_t promptTokens, std::int32_t outputTokens)
{
    checkLengths(promptTokens, outputTokens);
    checkAcceptsRequests();
    std::uint64_t id{};
    {
        std::lock_guard const lock(mMutex);
        id = enqueueLocked(promptOf(promptTokens, 0, ++mPrompts), outputTokens);
    }
    ensureThread();
    return id;
}

std::uint64_t Load::enqueue(std::int32_t const* prompt, std::size_t count, std::int32_t outputTokens)
{
    checkLengths(count, outputTokens);
    checkAcceptsRequests();
    std::uint64_t id{};
    {
        std::lock_guard const lock(mMutex);
        id = enqueueLocked(tle::VecTokens(prompt, prompt + count), outputTokens);
    }
    ensureThread();
    return id;
}

void Load::ensureThread()
{
    {
        std::lock_guard const lock(mMutex);
        if (mThread.joinable() && mCounts.running)
        {
            return;
        }
    }
    // The thread ends by itself when the Executor stops accepting requests.
    if (mThread.joinable())
    {
        mThread.join();
    }
    {
        std::lock_guard const lock(mMutex);
        mStopped = false;
        mCounts.running = true;
    }
    mThread = std::thread([this] { run(); });
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

Load::Counts Load::counts() const
{
    std::lock_guard const lock(mMutex);
    return mCounts;
}

std::size_t Load::drain(FinishedRequest* requests, std::size_t count)
{
    std::lock_guard const lock(mMutex);
    auto const written = std::min(count, mRows.size());
    std::copy_n(mRows.begin(), written, requests);
    mRows.erase(mRows.begin(), mRows.begin() + static_cast<std::ptrdiff_t>(written));
    return written;
}

void Load::run()
{
    auto running = true;
    while (running)
    {
        try
        {
            if (!mExecutor.canEnqueueRequests())
            {
                break;
            }
            topUp();
            collect();
        }
        catch (std::exception const& error)
        {
            pause(error.what());
        }
        catch (...)
        {
            pause("an exception that is not a std::exception");
        }
        std::lock_guard const lock(mMutex);
        running = !mStopped;
    }
    std::lock_guard const lock(mMutex);
    mCounts.running = false;
}

void Load::pause(char const* error)
{
    std::unique_lock lock(mMutex);
    ++mCounts.refused;
    mCounts.lastError = error;
    mCounts.lastError.erase(std::min(mCounts.lastError.find('\n'), mCounts.lastError.size()));
    mStopping.wait_for(lock, kPauseAfterFailure, [this] { return mStopped; });
}

void Load::topUp()
{
    std::lock_guard const lock(mMutex);
    while (!mStopped && mLeft > 0 && mPromptTokens.size() < mConfig.in_flight)
    {
        auto prompt = promptOf(mConfig.prompt_tokens, mConfig.shared_prefix_tokens, ++mPrompts);
        static_cast<void>(enqueueLocked(std::move(prompt), mConfig.output_tokens));
        --mLeft;
    }
}

std::uint64_t Load::enqueueLocked(tle::VecTokens prompt, std::int32_t output)
{
    auto const length = static_cast<std::int32_t>(prompt.size());
    // The caller holds the lock, so that take() cannot see the response before the request is registered.
    auto const id = mExecutor.enqueueRequest(requestOf(std::move(prompt), output));
    mPromptTokens.emplace(id, length);
    ++mCounts.enqueued;
    return id;
}

void Load::collect()
{
    auto const responses = Await<tle::Executor>::any(mExecutor, kAwaitTimeout);
    std::lock_guard const lock(mMutex);
    for (auto const& response : responses)
    {
        take(response);
    }
}

void Load::take(tle::Response const& response)
{
    if (!response.hasError() && !response.getResult().isFinal)
    {
        return;
    }
    auto const id = response.getRequestId();
    auto const sent = mPromptTokens.find(id);
    FinishedRequest row{};
    row.request_id = id;
    clear(row.prompt_tokens);
    clear(row.output_tokens);
    ++mCounts.finished;
    if (response.hasError())
    {
        row.finish_reason = FinishReason::Other;
        ++mCounts.failed;
        mCounts.lastError = response.getErrorMsg();
    }
    else
    {
        auto const& result = response.getResult();
        fillResult(row, result);
        put(row.output_tokens, result.outputTokenIds.empty() ? 0 : result.outputTokenIds.front().size());
        if (sent != mPromptTokens.end())
        {
            put(row.prompt_tokens, sent->second);
        }
    }
    if (sent != mPromptTokens.end())
    {
        mPromptTokens.erase(sent);
    }
    if (mRows.size() == kMaxRows)
    {
        mRows.pop_front();
        ++mCounts.rowsLost;
    }
    mRows.push_back(row);
}

} // namespace trtllm_bridge
