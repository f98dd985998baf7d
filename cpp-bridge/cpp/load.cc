// The thread that drives an engine of our own.

#include "load.h"

#include "perf_row.h"

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

/// A stop waits no longer than this for the thread.
constexpr Milliseconds kPatience{20};
constexpr Milliseconds kAfterFailure{100};
/// Ten minutes of a hundred requests a second.
constexpr std::size_t kMostRows = 65536;
/// Every vocabulary has this many tokens.
constexpr std::uint64_t kTokens = 1000;

/// The output of the generator splitmix64 for this state.
std::uint64_t mixed(std::uint64_t state)
{
    state += 0x9e3779b97f4a7c15ULL;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9ULL;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebULL;
    return state ^ (state >> 31);
}

/// Of 0.9, whose first parameter is a request's id.
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

/// Came with 1.0 or shortly before; older releases tell nothing about single requests here.
template <class Config, class = void>
struct PerfMetrics
{
    static void ask(Config&) {}
};

template <class Config>
struct PerfMetrics<Config, std::void_t<decltype(std::declval<Config&>().returnPerfMetrics)>>
{
    static void ask(Config& config)
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
        auto const state = static_cast<std::uint64_t>(i) ^ (i < sharedPrefix ? 0 : mixed(seed));
        tokens.push_back(static_cast<tle::TokenIdType>(1 + mixed(state) % (kTokens - 1)));
    }
    return tokens;
}

tle::Request requestOf(tle::VecTokens prompt, std::int32_t output)
{
    tle::OutputConfig outputs;
    outputs.excludeInputFromOutput = true;
    PerfMetrics<tle::OutputConfig>::ask(outputs);
    // No end token: it runs to its full length.
    tle::Request request(std::move(prompt), output);
    request.setOutputConfig(outputs);
    return request;
}

template <class Count>
void checkLengths(Count prompt, std::int32_t output)
{
    if (prompt < 1 || output < 1)
    {
        throw std::invalid_argument("a request needs a prompt and an output of at least one token");
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

void Load::ensureResponsible()
{
    if (mExecutor.canEnqueueRequests())
    {
        return;
    }
    // Says in upstream's words why not.
    static_cast<void>(mExecutor.getNumResponsesReady());
    throw std::runtime_error("this executor takes no requests");
}

void Load::start(LoadConfig const& config)
{
    checkLengths(config.prompt_tokens, config.output_tokens);
    ensureResponsible();
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
    ensureResponsible();
    std::uint64_t id{};
    {
        std::lock_guard const lock(mMutex);
        id = enqueueLocked(promptOf(promptTokens, 0, ++mDrawn), outputTokens);
    }
    ensureThread();
    return id;
}

std::uint64_t Load::enqueue(std::int32_t const* prompt, std::size_t count, std::int32_t outputTokens)
{
    checkLengths(count, outputTokens);
    ensureResponsible();
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
    // It may have ended by itself.
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

std::size_t Load::drain(PerfRow* rows, std::size_t count)
{
    std::lock_guard const lock(mMutex);
    std::size_t written = 0;
    for (; written < count && !mRows.empty(); mRows.pop_front())
    {
        rows[written++] = mRows.front();
    }
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
            pause("an exception that is no std::exception");
        }
        std::lock_guard const lock(mMutex);
        running = !mStopped;
    }
    std::lock_guard const lock(mMutex);
    mCounts.running = false;
}

void Load::pause(char const* why)
{
    std::unique_lock lock(mMutex);
    ++mCounts.refused;
    mCounts.lastError = why;
    mCounts.lastError.erase(std::min(mCounts.lastError.find('\n'), mCounts.lastError.size()));
    mStopping.wait_for(lock, kAfterFailure, [this] { return mStopped; });
}

void Load::topUp()
{
    std::lock_guard const lock(mMutex);
    while (!mStopped && mLeft > 0 && mPromptTokens.size() < mConfig.in_flight)
    {
        static_cast<void>(
            enqueueLocked(promptOf(mConfig.prompt_tokens, mConfig.shared_prefix_tokens, ++mDrawn), mConfig.output_tokens));
        --mLeft;
    }
}

std::uint64_t Load::enqueueLocked(tle::VecTokens prompt, std::int32_t output)
{
    auto const length = static_cast<std::int32_t>(prompt.size());
    // Under the lock, so that a response never meets a request that is not known yet.
    auto const id = mExecutor.enqueueRequest(requestOf(std::move(prompt), output));
    mPromptTokens.emplace(id, length);
    ++mCounts.enqueued;
    return id;
}

void Load::collect()
{
    auto const responses = Await<tle::Executor>::any(mExecutor, kPatience);
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
    PerfRow row{};
    readRow(response, row);
    if (auto const sent = mPromptTokens.find(row.id); sent != mPromptTokens.end())
    {
        row.prompt_tokens = sent->second;
        mPromptTokens.erase(sent);
    }
    ++mCounts.finished;
    if (row.failed)
    {
        ++mCounts.failed;
        mCounts.lastError = response.getErrorMsg();
    }
    if (mRows.size() == kMostRows)
    {
        mRows.pop_front();
        ++mCounts.rowsLost;
    }
    mRows.push_back(row);
}

} // namespace trtllm_bridge
