// Moves requests from the load and the host to the queue, and from the queue to the active requests.

#include "engine.h"

#include "tensorrt_llm/common/assert.h"

#include <algorithm>
#include <string>
#include <utility>

namespace tensorrt_llm::sim
{
namespace
{

/// Time to transfer the KV cache of one prompt token between servers.
constexpr double kTransferMsPerToken = 0.002;
constexpr std::uint64_t kSharedPrefix = 0x5ed0000000000000ULL;

/// Computes the key of a block from the key of the previous block and its own content.
std::uint64_t chained(std::uint64_t before, std::uint64_t content)
{
    auto const key = mix(before ^ mix(content));
    return key == 0 ? 1 : key;
}

} // namespace

executor::IdType Engine::enqueue(executor::Request const& request)
{
    auto const tokens = static_cast<std::int64_t>(request.getInputTokenIds().size());
    std::unique_lock lock(mMutex);
    auto const id = mNextHostId++;
    if (auto const limit = mSettings.maxQueueSize)
    {
        TLLM_CHECK_WITH_INFO(mQueued + mInbox.size() < static_cast<std::size_t>(*limit),
            "the queue is full; it already has its maximum of " + std::to_string(*limit) + " requests");
    }
    if (tokens > mSettings.maxPrompt || tokens + request.getMaxTokens() > mSettings.maxSequence)
    {
        lock.unlock();
        mMailbox.put(executor::Response(id,
            "the prompt of " + std::to_string(tokens) + " tokens and " + std::to_string(request.getMaxTokens())
                + " output tokens exceed the limit of " + std::to_string(mSettings.maxPrompt) + " and together "
                + std::to_string(mSettings.maxSequence),
            request.getClientId()));
        return id;
    }
    mInbox.push_back({id, request});
    lock.unlock();
    mWake.notify_all();
    return id;
}

void Engine::cancel(executor::IdType id)
{
    std::lock_guard const lock(mMutex);
    mCancelled.push_back(id);
}

void Engine::takeArrivals()
{
    std::uint64_t count = 0;
    auto const now = mClock.now();
    auto const due = [this, now] { return mArrivals.next() && mArrivals.next()->timeMs <= now; };
    // Limits the number of requests in flight, as load generators do. Otherwise, if the load exceeds what the engine
    // can serve, the queue and the request records would grow forever. Excess requests wait outside the engine. They
    // arrive when there is room, and their queue time starts then.
    auto const admittedAt = mLoadWaits ? now : 0.0;
    for (; due() && mActive.size() + mQueue.size() < mSettings.inFlight; mArrivals.pop())
    {
        auto arrival = *mArrivals.next();
        arrival.timeMs = std::max(arrival.timeMs, admittedAt);
        mQueue.push_back(fromArrival(arrival));
        ++count;
    }
    mLoadWaits = due();
    std::lock_guard const lock(mMutex);
    mTruth.requestsArrived += count;
    mQueued = mQueue.size();
}

void Engine::takeInbox()
{
    std::vector<Incoming> inbox;
    std::vector<executor::IdType> cancelled;
    {
        std::lock_guard const lock(mMutex);
        inbox.swap(mInbox);
        cancelled.swap(mCancelled);
        mTruth.requestsArrived += inbox.size();
        mQueued = mQueue.size() + inbox.size();
    }
    for (auto const& incoming : inbox)
    {
        mQueue.push_back(fromHost(incoming.id, incoming.request, mClock.now()));
    }
    for (auto const id : cancelled)
    {
        auto const isIt = [id](Request const& request) { return request->id == id; };
        if (auto const queued = std::find_if(mQueue.begin(), mQueue.end(), isIt); queued != mQueue.end())
        {
            (*queued)->cancelled = true;
            respond(**queued, 0, true);
            mQueue.erase(queued);
        }
        else if (auto const active = std::find_if(mActive.begin(), mActive.end(), isIt); active != mActive.end())
        {
            // The request ends together with its current batch.
            (*active)->cancelled = true;
        }
    }
}

void Engine::activate()
{
    mPass.newActive = 0;
    mPass.queueLatencyMs = 0.0;
    // No request joins a static batch before all of its requests have ended.
    auto const closed = mSettings.staticBatching && !mActive.empty();
    auto const places = closed ? 0 : static_cast<std::size_t>(mSettings.limits.batchSize);
    while (!mQueue.empty() && mActive.size() < places)
    {
        mPass.queueLatencyMs += mClock.now() - mQueue.front()->arrivalMs;
        ++mPass.newActive;
        mActive.push_back(std::move(mQueue.front()));
        mQueue.pop_front();
    }
    if (!closed)
    {
        mStaticSlots = mActive.size();
    }
}

Engine::Request Engine::fromArrival(Arrival const& arrival)
{
    auto request = std::make_unique<LiveRequest>();
    request->id = mNextLoadId++;
    request->promptTokens = arrival.promptTokens;
    request->contextTarget = arrival.promptTokens;
    request->outputTokens = arrival.outputTokens;
    request->endsWith = executor::FinishReason::kEND_ID;
    request->arrivalMs = arrival.timeMs;
    request->transferMs = mSettings.options.disagg ? arrival.promptTokens * kTransferMsPerToken : 0.0;
    auto const perBlock = mSettings.options.tokensPerBlock;
    auto const shared = arrival.prefixGroup == 0 ? 0 : mSettings.options.prefixTokens / perBlock;
    auto const full = arrival.promptTokens / perBlock;
    std::uint64_t key = 0;
    for (std::int32_t block = 0; block < full; ++block)
    {
        key = chained(key, block < shared ? kSharedPrefix + arrival.prefixGroup : request->id);
        request->blockKeys.push_back(key);
    }
    return request;
}

Engine::Request Engine::fromHost(executor::IdType id, executor::Request const& asked, double arrivalMs)
{
    auto request = std::make_unique<LiveRequest>();
    auto const tokens = asked.getInputTokenIds();
    request->id = id;
    request->external = asked;
    request->promptTokens = static_cast<std::int32_t>(tokens.size());
    request->contextTarget = request->promptTokens;
    request->outputTokens = asked.getMaxTokens();
    request->arrivalMs = arrivalMs;
    request->transferMs = mSettings.options.disagg ? request->promptTokens * kTransferMsPerToken : 0.0;
    if (asked.getEndId())
    {
        auto const drawn = mRandom.skewed(mSettings.options.outputMean, 0.6);
        if (drawn < request->outputTokens)
        {
            request->outputTokens = std::max(static_cast<std::int32_t>(drawn), 1);
            request->endsWith = executor::FinishReason::kEND_ID;
        }
    }
    std::uint64_t key = 0;
    auto const perBlock = static_cast<std::size_t>(mSettings.options.tokensPerBlock);
    for (std::size_t begin = 0; begin + perBlock <= tokens.size(); begin += perBlock)
    {
        for (std::size_t i = begin; i < begin + perBlock; ++i)
        {
            key = chained(key, static_cast<std::uint64_t>(tokens[i]));
        }
        request->blockKeys.push_back(key);
    }
    return request;
}

} // namespace tensorrt_llm::sim
