// The engine. Its thread waits until the next step is due, submits the host's requests, and sends back the results.

#include "engine.h"

#include "tensorrt_llm/common/assert.h"
#include "tensorrt_llm/common/tllmException.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <string>
#include <utility>

namespace tensorrt_llm::executor
{
namespace
{

/// Reads the options in the file simulated.engine of an engine directory.
std::string described(std::string const& directory)
{
    std::ifstream file(directory + "/simulated.engine");
    std::string line;
    if (!std::getline(file, line) || line.substr(0, 4) != "sim:")
    {
        TLLM_THROW("the simulated TensorRT-LLM cannot load the engine directory " + directory
            + "; use sim:?rate=8 as the engine, write such a line to its file simulated.engine, or build with"
              " TENSORRT_LLM_ROOT set to a real TensorRT-LLM");
    }
    return line;
}

/// Makes an engine for the options and for the host's configuration.
trtllm_sim_opened opened(std::string const& enginePath, ExecutorConfig const& config)
{
    auto const options = enginePath.substr(0, 4) == "sim:" ? enginePath : described(enginePath);
    trtllm_sim_opened opened{};
    std::array<char, 2048> error{};
    auto const rows = config.getRequestStatsMaxIterations() > 0;
    if (!trtllm_sim_open(
            options.data(), options.size(), TRTLLM_SIM_RELEASE, rows, &opened, error.data(), error.size()))
    {
        TLLM_THROW(std::string(error.data()));
    }
    // A real engine also reads its weights in the constructor, after its options are checked.
    std::this_thread::sleep_for(std::chrono::duration<double>(opened.load_seconds));
    return opened;
}

} // namespace

Executor::Impl::Impl(std::string const& enginePath, ExecutorConfig const& config)
    : iterations(static_cast<std::size_t>(config.getIterStatsMaxIterations()))
    , requests(static_cast<std::size_t>(config.getRequestStatsMaxIterations()))
    , mOpened(opened(enginePath, config))
    , mClock(mOpened.speed)
    , mThread([this] { run(); })
{
}

Executor::Impl::~Impl()
{
    stop();
    trtllm_sim_close(mOpened.engine);
}

/// Ends the thread. May be called twice.
void Executor::Impl::stop()
{
    {
        std::lock_guard const lock(mMutex);
        mStopped = true;
    }
    mWake.notify_all();
    mailbox.close();
    if (mThread.joinable())
    {
        mThread.join();
    }
}

void Executor::Impl::throwIfAsked() const
{
    switch (mOpened.throws)
    {
    case 1: TLLM_THROW("sim: throws=standard");
    case 2: throw 42;
    default: break;
    }
}

Executor::Impl& Executor::Impl::engineFor(char const* method)
{
    throwIfAsked();
    TLLM_CHECK_WITH_INFO(!mShutdownCalled, "Shutdown called");
    if (mOpened.rank != 0)
    {
        TLLM_THROW(std::string("With LEADER communication mode, only leader rank is expected to call ") + method);
    }
    return *this;
}

bool Executor::Impl::canEnqueueRequests() const
{
    throwIfAsked();
    return !mShutdownCalled && mOpened.rank == 0;
}

void Executor::Impl::shutdown()
{
    throwIfAsked();
    TLLM_CHECK_WITH_INFO(!mShutdownCalled.exchange(true), "Shutdown called");
    stop();
}

sim::Truth Executor::Impl::truth() const
{
    std::lock_guard const lock(mMutex);
    auto const written = iterations.counts();
    auto const rows = requests.counts();
    return {mState.iterations, mState.flushes, mState.arrived, mState.started, mState.completed, mState.context_tokens,
        mState.first_tokens, mState.decoded_tokens, mState.pauses, written.pushed, written.lost, rows.pushed, rows.lost,
        mState.is_idle};
}

IdType Executor::Impl::enqueue(Request const& request)
{
    auto const tokens = static_cast<std::int64_t>(request.getInputTokenIds().size());
    std::unique_lock lock(mMutex);
    auto const id = mNextHostId++;
    if (tokens > mOpened.max_prompt || tokens + request.getMaxTokens() > mOpened.max_sequence)
    {
        lock.unlock();
        mailbox.put(Response(id,
            "the prompt of " + std::to_string(tokens) + " tokens and " + std::to_string(request.getMaxTokens())
                + " output tokens exceed the limit of " + std::to_string(mOpened.max_prompt) + " and together "
                + std::to_string(mOpened.max_sequence)));
        return id;
    }
    mInbox.emplace_back(id, request);
    lock.unlock();
    mWake.notify_all();
    return id;
}

void Executor::Impl::run()
{
    while (waitForNext())
    {
        step();
    }
}

/// Waits until the next step is due, or until the host sends a request while no iteration runs. False after stop().
bool Executor::Impl::waitForNext()
{
    Inbox inbox;
    {
        std::unique_lock lock(mMutex);
        auto const hangs = mState.iterations >= mOpened.iterations;
        auto const next = mState.next;
        auto const called = [this, hangs]
        { return mStopped || (!hangs && !mState.is_iterating && !mInbox.empty()); };
        if (hangs || next < 0.0)
        {
            mWake.wait(lock, called);
        }
        else if (mClock.paced() && !called())
        {
            mWake.wait_until(lock, mClock.wallOf(next), called);
        }
        if (mStopped)
        {
            return false;
        }
        auto const early = next < 0.0 || (mClock.paced() && mClock.wallNow() < next);
        mNow = std::max(mNow, early ? mClock.wallNow() : next);
        inbox.swap(mInbox);
    }
    for (auto const& [id, request] : inbox)
    {
        auto const tokens = request.getInputTokenIds();
        mHosted.emplace(id, request);
        trtllm_sim_submit(mOpened.engine, mNow, id, tokens.data(), tokens.size(),
            static_cast<std::uint32_t>(request.getMaxTokens()));
    }
    return true;
}

void Executor::Impl::step()
{
    trtllm_sim_sink sink{};
    sink.context = this;
    sink.record = [](void* context, trtllm_sim_record const* record)
    {
        auto& engine = *static_cast<Impl*>(context);
        auto stats = sim::iterationStats(*record);
        stats.timestamp = engine.mTimestamp.now();
        engine.iterations.push(std::move(stats));
    };
    sink.rows = [](void* context, std::uint64_t iter, trtllm_sim_row const* rows, std::size_t count)
    {
        RequestStatsPerIteration stats{};
        stats.iter = iter;
        stats.requestStats.reserve(count);
        std::transform(rows, rows + count, std::back_inserter(stats.requestStats), sim::requestStats);
        static_cast<Impl*>(context)->requests.push(std::move(stats));
    };
    sink.entry = [](void* context, trtllm_sim_entry const* entry)
    { static_cast<Impl*>(context)->respond(entry->id, entry); };
    sink.unanswered = [](void* context, std::uint64_t id) { static_cast<Impl*>(context)->respond(id, nullptr); };
    trtllm_sim_state state{};
    trtllm_sim_step(mOpened.engine, mNow, &sink, &state);
    std::lock_guard const lock(mMutex);
    mState = state;
}

/// Sends the host the whole answer of its request. `entry` is null if the request failed. Ignores requests of the simulated
/// load.
void Executor::Impl::respond(IdType id, trtllm_sim_entry const* entry)
{
    auto const found = mHosted.find(id);
    if (found == mHosted.end())
    {
        return;
    }
    if (entry == nullptr)
    {
        mailbox.put(Response(id, "the simulated engine failed the request"));
        mHosted.erase(found);
        return;
    }
    auto const output = found->second.getOutputConfig();
    VecTokens tokens;
    if (!output.excludeInputFromOutput)
    {
        tokens = found->second.getInputTokenIds();
    }
    tokens.resize(tokens.size() + entry->output_tokens);
    Result result{};
    result.isFinal = true;
    result.outputTokenIds = {std::move(tokens)};
#if TRTLLM_SIM_SINCE(0, 13)
    result.finishReasons = {FinishReason::kLENGTH}; // no request of a host has an end token
#endif
#if TRTLLM_SIM_SINCE(1, 0)
    if (output.returnPerfMetrics)
    {
        result.requestPerfMetrics = sim::perfMetrics(*entry, mClock);
    }
#endif
    mailbox.put(Response(id, std::move(result)));
    mHosted.erase(found);
}

} // namespace tensorrt_llm::executor
