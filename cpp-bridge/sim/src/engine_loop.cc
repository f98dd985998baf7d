// The execution thread. Its order of events is upstream's, because readers of the statistics depend on it:
// finish the launched batch, write a flush record if nothing is left, wait for work, take it in, launch, write a record.
// The batch of a record has only been launched, so its latency is that of the batch before.

#include "engine.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tensorrt_llm::sim
{
namespace
{

/// Producing one draft token costs this much of a target iteration.
constexpr double kDraftShare = 0.06;
constexpr executor::IdType kFirstLoadId = executor::IdType{1} << 32;

} // namespace

Engine::Engine(Settings const& settings)
    : mSettings(settings)
    , mClock(settings.options.speed)
    , mArrivals(settings.options, settings.maxSequence, settings.maxPrompt)
    , mRandom(mix(settings.options.seed) ^ 1)
    , mCache(settings.kvBlocks, settings.options.tokensPerBlock, settings.blockReuse)
    , mScheduler(settings.limits)
    , mNextLoadId(kFirstLoadId)
    , mIterations(settings.iterationRing)
    , mRequests(settings.requestRing)
#if TRTLLM_SIM_SINCE(1, 1)
    , mCacheEvents(
          settings.eventBuffer > 0 ? std::make_shared<CacheEvents>(settings.eventBuffer, settings.kvBlocks) : nullptr)
#endif
    , mThread([this] { run(); })
{
}

Engine::~Engine()
{
    stop();
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

#if TRTLLM_SIM_SINCE(1, 1)
std::shared_ptr<CacheEvents> Engine::cacheEvents() const
{
    return mCacheEvents;
}
#endif

Truth Engine::truth() const
{
    std::lock_guard const lock(mMutex);
    return mTruth;
}

void Engine::run()
{
#if TRTLLM_SIM_SINCE(1, 1)
    mCache.tell(mCacheEvents);
#endif
    auto passStart = mClock.now();
    while (true)
    {
        auto const hadWork = !mActive.empty();
        if (hadWork)
        {
            if (!finishBatch())
            {
                return;
            }
            mPass.iterLatencyMs = mClock.now() - passStart;
        }
        if (atIterationLimit())
        {
            hold();
            return;
        }
        if (hadWork && mActive.empty())
        {
            // The pass that runs out of requests: its counts are written now and, after the wait, once more.
            mPass.iterLatencyMs = 0.0;
            mPass.queueLatencyMs = 0.0;
            record(Batch{}, true);
        }
        // Before the wait: it becomes part of the latency that the second record after it tells.
        passStart = mClock.now();
        if (mActive.empty() && !waitForWork())
        {
            return;
        }
        takeArrivals();
        takeInbox();
        activate();
        if (mActive.empty())
        {
            continue;
        }
        launch();
        record(mBatch, false);
    }
}

bool Engine::atIterationLimit() const
{
    auto const& limit = mSettings.options.iterations;
    return limit && mIter >= *limit;
}

bool Engine::finishBatch()
{
    if (!waitUntil(mClock.now() + mBatchMs))
    {
        return false;
    }
    for (auto const& chunk : mBatch.context)
    {
        applyContext(chunk);
    }
    for (auto const& step : mBatch.generation)
    {
        applyStep(step);
    }
    mBatch = Batch{};
    ++mIter;
    auto finished = takeFinished();
    mPass.completed = static_cast<std::int32_t>(finished.size());
    mUncounted = mPass.completed;
    if (mRequests.enabled())
    {
        std::move(finished.begin(), finished.end(), std::back_inserter(mFinished));
    }
    return true;
}

bool Engine::waitUntil(double timeMs)
{
    std::unique_lock lock(mMutex);
    if (mClock.paced())
    {
        mWake.wait_until(lock, mClock.wallOf(timeMs), [this] { return mStopped; });
    }
    mClock.moveTo(timeMs);
    return !mStopped;
}

bool Engine::waitForWork()
{
    auto const called = [this] { return mStopped || !mInbox.empty(); };
    while (mQueue.empty())
    {
        {
            std::unique_lock lock(mMutex);
            mTruth.idle = true;
            auto const& next = mArrivals.next();
            if (!called() && !next)
            {
                mWake.wait(lock, called);
            }
            else if (!called() && mClock.paced())
            {
                mWake.wait_until(lock, mClock.wallOf(next->timeMs), called);
            }
            if (mStopped)
            {
                return false;
            }
            if (!mInbox.empty())
            {
                mClock.moveTo(mClock.wallNow());
                return true;
            }
            mClock.moveTo(next->timeMs);
        }
        takeArrivals();
    }
    return true;
}

void Engine::hold()
{
    std::unique_lock lock(mMutex);
    mWake.wait(lock, [this] { return mStopped; });
}

void Engine::launch()
{
    mBatch = mScheduler.schedule(mActive, mCache);
    for (auto& step : mBatch.generation)
    {
        // A draft is kept up to the first token that the model would not have chosen.
        while (step.tokens <= step.draft && mRandom.uniform() < mSettings.options.specAcceptance)
        {
            ++step.tokens;
        }
    }
    for (auto const& chunk : mBatch.context)
    {
        if (chunk.request->firstScheduledMs < 0.0)
        {
            chunk.request->firstScheduledMs = mClock.now();
        }
    }
    mBatchMs = durationOf(mBatch);
}

double Engine::durationOf(Batch const& batch)
{
    auto const& options = mSettings.options;
    auto const mean = options.iterBaseMs + batch.contextTokens() * options.ctxTokenUs * 1e-3
        + static_cast<double>(batch.generation.size()) * options.genRequestUs * 1e-3;
    auto const spread = std::clamp(1.0 + options.jitter * mRandom.normal(), 0.3, 3.0);
    return mean * spread + draftMs(batch);
}

double Engine::draftMs(Batch const& batch) const
{
    auto const drafting = std::any_of(
        batch.generation.begin(), batch.generation.end(), [](Batch::Step const& step) { return step.draft > 0; });
    return drafting ? mSettings.options.specDraftLen * kDraftShare * mSettings.options.iterBaseMs : 0.0;
}

} // namespace tensorrt_llm::sim
