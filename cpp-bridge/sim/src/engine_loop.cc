// The execution thread. It does everything in the same order as TensorRT-LLM, because the records depend on the order:
// finish the running batch, write a flush record if there are no requests left, wait for requests, start a batch, write
// a record. The record's own batch has only started, so the record has the latency of the previous batch.

#include "engine.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tensorrt_llm::sim
{
namespace
{

/// Cost of one draft token, as a fraction of an iteration of the target model.
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
    mCache.reportTo(mCacheEvents);
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
            // There are no requests left. The counts are written now, and again after the wait.
            mPass.iterLatencyMs = 0.0;
            mPass.queueLatencyMs = 0.0;
            record(Batch{}, true);
        }
        // Taken before the wait, so the latency in the second record after the wait includes the wait.
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
        // Draft tokens are accepted up to the first one that the model would not have chosen.
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
