// Writes the statistics of one iteration. It reproduces the quirks of TensorRT-LLM; see engine_loop.cc.

#include "engine.h"

#include <utility>

namespace tensorrt_llm::sim
{
namespace
{

using executor::SizeType32;

/// Memory of buffers other than the KV cache, as TensorRT-LLM's memory counters report it.
constexpr std::size_t kGpuBuffers = std::size_t{3} << 29;
constexpr std::size_t kCpuBuffers = 68172;
constexpr std::size_t kPinnedBuffers = std::size_t{1} << 29;

SizeType32 narrowed(std::size_t count)
{
    return static_cast<SizeType32>(count);
}

struct Tokens
{
    std::int64_t generated{0};
    std::int64_t draft{0};
    std::int64_t drafting{0};
};

Tokens count(Batch const& batch)
{
    Tokens tokens;
    for (auto const& step : batch.generation)
    {
        tokens.generated += step.tokens;
        tokens.draft += step.draft;
        tokens.drafting += step.draft > 0 ? 1 : 0;
    }
    return tokens;
}

executor::RequestStats rowOf(LiveRequest const& request, executor::RequestStage stage)
{
    executor::RequestStats row{};
    row.id = request.id;
    row.stage = stage;
    row.contextPrefillPosition = request.contextDone;
    row.numGeneratedTokens = request.generated;
#if TRTLLM_SIM_SINCE(0, 11)
    row.avgNumDecodedTokensPerIter = request.decodedPerIteration();
#endif
    row.scheduled = request.scheduled;
    row.paused = request.paused;
#if TRTLLM_SIM_SINCE(0, 15)
    row.allocTotalBlocksPerRequest = request.allocTotal;
    row.allocNewBlocksPerRequest = request.allocNew;
    row.reusedBlocksPerRequest = request.reused;
#endif
#if TRTLLM_SIM_SINCE(1, 1)
    row.missedBlocksPerRequest = request.missed;
    row.kvCacheHitRatePerRequest = request.hitRate();
#endif
#if TRTLLM_SIM_SINCE(0, 14)
    if (request.transferMs > 0.0 && stage != executor::RequestStage::kQUEUED)
    {
        row.disServingStats.emplace();
        row.disServingStats->kvCacheTransferMS = request.transferMs;
#if TRTLLM_SIM_SINCE(1, 1)
        row.disServingStats->kvCacheSize = static_cast<std::size_t>(request.promptTokens) * kBytesPerToken;
#endif
    }
#endif
    return row;
}

#if TRTLLM_SIM_SINCE(1, 0)
executor::SpecDecodingStats specDecodingStats(
    Tokens const& tokens, std::size_t requests, double draftMs, double batchMs)
{
    auto const count = static_cast<std::int64_t>(requests);
    executor::SpecDecodingStats stats{};
    stats.numDraftTokens = tokens.draft;
    stats.numAcceptedTokens = tokens.generated - count;
    stats.numRequestsWithDraftTokens = tokens.drafting;
    stats.acceptanceLength = count == 0 ? 0.0 : static_cast<double>(tokens.generated) / static_cast<double>(count);
    stats.iterLatencyMS = draftMs;
    stats.draftOverhead = batchMs > 0.0 ? draftMs / batchMs : 0.0;
    return stats;
}
#endif

} // namespace

void Engine::record(Batch const& batch, bool flush)
{
    StatsRing<executor::IterationStats>::Counts iterations{};
    StatsRing<executor::RequestStatsPerIteration>::Counts requests{};
    if (mIterations.enabled())
    {
        iterations = mIterations.push(iterationStats(batch));
    }
    if (mRequests.enabled())
    {
        requests = mRequests.push(requestStats());
    }
    auto const tokens = count(batch);
    std::lock_guard const lock(mMutex);
    // Counted with the first record that reports them. The record after a flush record repeats its completions.
    mTruth.requestsCompleted += static_cast<std::uint64_t>(std::exchange(mUncounted, 0));
    mTruth.flushes += flush ? 1 : 0;
    mTruth.iterations += flush ? 0 : 1;
    mTruth.requestsStarted += flush ? 0 : static_cast<std::uint64_t>(mPass.newActive);
    mTruth.contextTokens += static_cast<std::uint64_t>(batch.contextTokens());
    mTruth.generationTokens += static_cast<std::uint64_t>(tokens.generated);
    mTruth.draftTokens += static_cast<std::uint64_t>(tokens.draft);
    mTruth.acceptedTokens += static_cast<std::uint64_t>(tokens.generated) - batch.generation.size();
    mTruth.pauses += static_cast<std::uint64_t>(batch.paused);
    mTruth.recordsPushed = iterations.pushed;
    mTruth.recordsLost = iterations.lost;
    mTruth.requestRecordsPushed = requests.pushed;
    mTruth.requestRecordsLost = requests.lost;
    mTruth.virtualTimeMs = mClock.now();
    mTruth.idle = false;
}

executor::IterationStats Engine::iterationStats(Batch const& batch)
{
    executor::IterationStats stats{};
    stats.timestamp = mTimestamp.now();
    stats.iter = mIter;
#if TRTLLM_SIM_SINCE(0, 11)
    stats.iterLatencyMS = mPass.iterLatencyMs;
#endif
#if TRTLLM_SIM_SINCE(0, 13)
    stats.newActiveRequestsQueueLatencyMS = mPass.queueLatencyMs;
#endif
#if TRTLLM_SIM_SINCE(0, 15)
    stats.numNewActiveRequests = mPass.newActive;
#endif
    stats.numActiveRequests = narrowed(mActive.size());
#if TRTLLM_SIM_SINCE(0, 13)
    stats.numCompletedRequests = mPass.completed;
#endif
#if TRTLLM_SIM_SINCE(0, 11)
    {
        std::lock_guard const lock(mMutex);
        stats.numQueuedRequests = narrowed(mQueue.size() + mInbox.size());
    }
#endif
    stats.maxNumActiveRequests = mSettings.limits.batchSize;
#if TRTLLM_SIM_SINCE(1, 0)
    stats.maxBatchSizeStatic = mSettings.limits.batchSize;
    stats.maxBatchSizeRuntime = mSettings.limits.batchSize;
    stats.maxNumTokensStatic = mSettings.limits.tokens;
    stats.maxNumTokensRuntime = mSettings.limits.tokens;
#endif
    auto const cacheTokens = static_cast<std::size_t>(mSettings.kvBlocks)
        * static_cast<std::size_t>(mSettings.options.tokensPerBlock);
    stats.gpuMemUsage = kGpuBuffers + cacheTokens * kBytesPerToken;
    stats.cpuMemUsage = kCpuBuffers;
    stats.pinnedMemUsage = kPinnedBuffers;
    stats.kvCacheStats = mCache.stats();

    auto const tokens = count(batch);
    if (mSettings.staticBatching)
    {
        executor::StaticBatchingStats batching{};
        batching.numScheduledRequests = narrowed(batch.size());
        batching.numContextRequests = narrowed(batch.context.size());
        batching.numCtxTokens = batch.contextTokens();
        batching.numGenTokens = static_cast<SizeType32>(tokens.generated);
        batching.emptyGenSlots = batch.size() == 0 ? 0 : narrowed(mStaticSlots - mActive.size());
        stats.staticBatchingStats = batching;
    }
    else
    {
        executor::InflightBatchingStats batching{};
        batching.numScheduledRequests = narrowed(batch.size());
        batching.numContextRequests = narrowed(batch.context.size());
        batching.numGenRequests = narrowed(batch.generation.size());
        batching.numPausedRequests = batch.paused;
        batching.numCtxTokens = batch.contextTokens();
#if TRTLLM_SIM_SINCE(0, 11)
        batching.avgNumDecodedTokensPerIter = decodedPerIteration(batch);
#endif
        stats.inflightBatchingStats = batching;
    }
#if TRTLLM_SIM_SINCE(1, 0)
    if (mSettings.options.specDraftLen > 0)
    {
        stats.specDecodingStats
            = specDecodingStats(tokens, batch.generation.size(), draftMs(batch), batch.size() == 0 ? 0.0 : mBatchMs);
    }
#endif
    return stats;
}

float Engine::decodedPerIteration(Batch const& batch)
{
    auto sum = 0.0F;
    for (auto const& step : batch.generation)
    {
        sum += step.request->decodedPerIteration();
    }
    return batch.generation.empty() ? 0.0F : sum / static_cast<float>(batch.generation.size());
}

executor::RequestStatsPerIteration Engine::requestStats()
{
    executor::RequestStatsPerIteration stats{};
    stats.iter = mIter;
    stats.requestStats.reserve(mActive.size() + mQueue.size() + mFinished.size());
    for (auto const& request : mActive)
    {
        stats.requestStats.push_back(rowOf(*request,
            request->inGeneration ? executor::RequestStage::kGENERATION_IN_PROGRESS
                                  : executor::RequestStage::kCONTEXT_IN_PROGRESS));
    }
    for (auto const& request : mQueue)
    {
        stats.requestStats.push_back(rowOf(*request, executor::RequestStage::kQUEUED));
    }
    for (auto const& request : mFinished)
    {
        stats.requestStats.push_back(rowOf(*request, executor::RequestStage::kGENERATION_COMPLETE));
    }
    mFinished.clear();
    return stats;
}

} // namespace tensorrt_llm::sim
