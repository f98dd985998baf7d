// The thread of the engine. It waits until the next step is due, submits the host's requests, and sends back the results.

#include "engine.h"

#include "tensorrt_llm/common/assert.h"
#include "tensorrt_llm/common/tllmException.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <utility>

namespace tensorrt_llm::sim
{
namespace
{

constexpr std::uint64_t kVocabulary = 32000;

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

executor::TokenIdType tokenAt(executor::IdType id, std::int32_t position)
{
    auto hash = (id << 32 ^ static_cast<std::uint64_t>(position)) * 0x9e3779b97f4a7c15ULL;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
    return static_cast<executor::TokenIdType>((hash >> 32) % kVocabulary);
}

} // namespace

trtllm_sim_opened openEngine(std::string const& enginePath, executor::ExecutorConfig const& config)
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
    return opened;
}

Engine::Engine(trtllm_sim_opened const& opened, executor::ExecutorConfig const& config)
    : mOpened(opened)
    , mClock(opened.speed)
    , mIterations(static_cast<std::size_t>(config.getIterStatsMaxIterations()))
    , mRequests(static_cast<std::size_t>(config.getRequestStatsMaxIterations()))
    , mThread([this] { run(); })
{
}

Engine::~Engine()
{
    stop();
    trtllm_sim_close(mOpened.engine);
}

void Engine::stop()
{
    {
        std::lock_guard const lock(mMutex);
        mStopped = true;
    }
    mWake.notify_all();
    mMailbox.close();
    if (mThread.joinable())
    {
        mThread.join();
    }
}

Mailbox& Engine::mailbox()
{
    return mMailbox;
}

std::deque<executor::IterationStats> Engine::drainIterations()
{
    return mIterations.drain();
}

std::deque<executor::RequestStatsPerIteration> Engine::drainRequests()
{
    return mRequests.drain();
}

Truth Engine::truth() const
{
    std::lock_guard const lock(mMutex);
    auto const records = mIterations.counts();
    auto const requests = mRequests.counts();
    return Truth{mState.iterations, mState.flushes, mState.arrived, mState.started, mState.completed,
        mState.context_tokens, mState.first_tokens, mState.decoded_tokens, mState.pauses, records.pushed, records.lost,
        requests.pushed, requests.lost, mState.is_idle};
}

executor::IdType Engine::enqueue(executor::Request const& request)
{
    auto const tokens = static_cast<std::int64_t>(request.getInputTokenIds().size());
    std::unique_lock lock(mMutex);
    auto const id = mNextHostId++;
    if (tokens > mOpened.max_prompt || tokens + request.getMaxTokens() > mOpened.max_sequence)
    {
        lock.unlock();
        mMailbox.put(executor::Response(id,
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

void Engine::run()
{
    while (waitForNext())
    {
        step();
    }
}

/// Waits until the next step is due, or until the host sends a request while no iteration runs. False after stop().
bool Engine::waitForNext()
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

void Engine::step()
{
    trtllm_sim_sink sink{};
    sink.context = this;
    sink.record = [](void* context, trtllm_sim_record const* record)
    {
        auto& engine = *static_cast<Engine*>(context);
        auto stats = iterationStats(*record);
        stats.timestamp = engine.mTimestamp.now();
        engine.mIterations.push(std::move(stats));
    };
    sink.rows = [](void* context, std::uint64_t iter, trtllm_sim_row const* rows, std::size_t count)
    {
        executor::RequestStatsPerIteration stats{};
        stats.iter = iter;
        stats.requestStats.reserve(count);
        std::transform(rows, rows + count, std::back_inserter(stats.requestStats), requestStats);
        static_cast<Engine*>(context)->mRequests.push(std::move(stats));
    };
    sink.entry = [](void* context, trtllm_sim_entry const* entry)
    { static_cast<Engine*>(context)->respond(entry->id, entry); };
    sink.unanswered = [](void* context, std::uint64_t id) { static_cast<Engine*>(context)->respond(id, nullptr); };
    trtllm_sim_state state{};
    trtllm_sim_step(mOpened.engine, mNow, &sink, &state);
    std::lock_guard const lock(mMutex);
    mState = state;
}

/// Sends the host the whole answer of its request. `entry` is null if the request failed. Ignores requests of the simulated
/// load.
void Engine::respond(executor::IdType id, trtllm_sim_entry const* entry)
{
    auto const found = mHosted.find(id);
    if (found == mHosted.end())
    {
        return;
    }
    auto const output = found->second.getOutputConfig();
    executor::VecTokens tokens;
    if (!output.excludeInputFromOutput)
    {
        tokens = found->second.getInputTokenIds();
    }
    auto const generated = entry == nullptr ? 0 : static_cast<std::int32_t>(entry->output_tokens);
    for (std::int32_t position = 0; position < generated; ++position)
    {
        tokens.push_back(tokenAt(id, position));
    }
    executor::Result result{};
    result.isFinal = true;
    result.outputTokenIds = {std::move(tokens)};
#if TRTLLM_SIM_SINCE(0, 13)
    // No request of a host has an end token, so an answer ends by its length.
    result.finishReasons
        = {entry == nullptr ? executor::FinishReason::kNOT_FINISHED : executor::FinishReason::kLENGTH};
#endif
#if TRTLLM_SIM_SINCE(1, 0)
    if (entry != nullptr && output.returnPerfMetrics)
    {
        result.requestPerfMetrics = perfMetrics(*entry);
    }
#endif
    mMailbox.put(executor::Response(id, std::move(result)));
    mHosted.erase(found);
}

} // namespace tensorrt_llm::sim
