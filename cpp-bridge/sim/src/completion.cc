// Updates the requests of a finished batch: their progress, tokens, responses and end.

#include "engine.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tensorrt_llm::sim
{
namespace
{

constexpr std::uint64_t kVocabulary = 32000;
#if TRTLLM_SIM_SINCE(1, 0)
constexpr auto kCancelled = executor::FinishReason::kCANCELLED;
#else
constexpr auto kCancelled = executor::FinishReason::kNOT_FINISHED;
#endif

executor::TokenIdType tokenAt(LiveRequest const& request, std::int32_t position)
{
    auto const hash = mix(request.id ^ mix(static_cast<std::uint64_t>(position)));
    return static_cast<executor::TokenIdType>(hash % kVocabulary);
}

bool hasEnded(LiveRequest const& request)
{
    return request.cancelled || request.remaining() <= 0;
}

} // namespace

void Engine::applyContext(Batch::Chunk const& chunk)
{
    auto& request = *chunk.request;
    request.contextDone += chunk.tokens;
    if (request.contextDone < request.contextTarget)
    {
        return;
    }
    mCache.publishContext(request);
    request.inGeneration = true;
    // The context phase produces one token, also when a paused request repeats it.
    ++request.generated;
    ++request.decodeSteps;
    request.lastTokenMs = mClock.now();
    if (request.firstTokenMs < 0.0)
    {
        request.firstTokenMs = mClock.now();
        request.firstIter = mIter;
    }
    {
        std::lock_guard const lock(mMutex);
        ++mTruth.firstTokens;
    }
    respond(request, 1, hasEnded(request));
}

void Engine::applyStep(Batch::Step const& step)
{
    auto& request = *step.request;
    request.generated += step.tokens;
    ++request.decodeSteps;
    request.draftTokens += step.draft;
    request.acceptedTokens += step.tokens - 1;
    request.lastTokenMs = mClock.now();
    respond(request, step.tokens, hasEnded(request));
}

std::vector<Engine::Request> Engine::takeFinished()
{
    std::vector<Request> finished;
    for (auto& request : mActive)
    {
        if (hasEnded(*request))
        {
            if (!request->answered)
            {
                respond(*request, 0, true);
            }
            mCache.release(*request);
            finished.push_back(std::move(request));
        }
    }
    mActive.erase(std::remove(mActive.begin(), mActive.end(), nullptr), mActive.end());
    return finished;
}

void Engine::respond(LiveRequest& request, std::int32_t newTokens, bool final)
{
    if (!request.external || (!final && !request.external->getStreaming()))
    {
        return;
    }
    request.answered = final;
    auto const streaming = request.external->getStreaming();
    executor::Result result{};
    result.isFinal = final;
#if TRTLLM_SIM_SINCE(0, 14)
    result.isSequenceFinal = final;
#endif
#if TRTLLM_SIM_SINCE(0, 13)
    result.decodingIter = request.decodeSteps;
#endif
#if TRTLLM_SIM_SINCE(1, 0)
    result.avgDecodedTokensPerIter = request.decodedPerIteration();
#endif
    executor::VecTokens tokens;
    if (!streaming && !request.external->getOutputConfig().excludeInputFromOutput)
    {
        tokens = request.external->getInputTokenIds();
    }
    for (auto position = streaming ? request.generated - newTokens : 0; position < request.generated; ++position)
    {
        tokens.push_back(tokenAt(request, position));
    }
    auto reason = executor::FinishReason::kNOT_FINISHED;
    if (final)
    {
        reason = request.cancelled ? kCancelled : request.endsWith;
    }
    if (reason == executor::FinishReason::kEND_ID && !tokens.empty())
    {
        tokens.back() = request.external->getEndId().value_or(tokens.back());
    }
    result.outputTokenIds = {std::move(tokens)};
#if TRTLLM_SIM_SINCE(0, 13)
    result.finishReasons = {reason};
#endif
#if TRTLLM_SIM_SINCE(1, 0)
    if (final && request.external->getOutputConfig().returnPerfMetrics)
    {
        result.requestPerfMetrics = perfMetrics(request);
    }
#endif
    mMailbox.put(executor::Response(request.id, std::move(result), request.external->getClientId()));
}

#if TRTLLM_SIM_SINCE(1, 0)
executor::RequestPerfMetrics Engine::perfMetrics(LiveRequest const& request) const
{
    executor::RequestPerfMetrics metrics{};
    auto const stamp = [this](double timeMs) { return mClock.stamp(std::max(timeMs, 0.0)); };
    auto& timing = metrics.timingMetrics;
    timing.arrivalTime = stamp(request.arrivalMs);
    timing.firstScheduledTime = stamp(request.firstScheduledMs);
    timing.firstTokenTime = stamp(request.firstTokenMs);
    timing.lastTokenTime = stamp(request.lastTokenMs);
    if (request.transferMs > 0.0)
    {
        timing.kvCacheTransferStart = stamp(request.arrivalMs);
        timing.kvCacheTransferEnd = stamp(request.arrivalMs + request.transferMs);
        timing.kvCacheSize = static_cast<std::size_t>(request.promptTokens) * kBytesPerToken;
    }
    metrics.kvCacheMetrics.numTotalAllocatedBlocks = request.allocTotal;
    metrics.kvCacheMetrics.numNewAllocatedBlocks = request.allocNew;
    metrics.kvCacheMetrics.numReusedBlocks = request.reused;
    metrics.kvCacheMetrics.numMissedBlocks = request.missed;
    metrics.kvCacheMetrics.kvCacheHitRate = request.hitRate();
    metrics.speculativeDecoding.totalDraftTokens = request.draftTokens;
    metrics.speculativeDecoding.totalAcceptedDraftTokens = request.acceptedTokens;
    if (request.draftTokens > 0)
    {
        metrics.speculativeDecoding.acceptanceRate
            = static_cast<float>(request.acceptedTokens) / static_cast<float>(request.draftTokens);
    }
    metrics.firstIter = request.firstIter;
    metrics.lastIter = mIter;
    metrics.iter = mIter;
    return metrics;
}
#endif

} // namespace tensorrt_llm::sim
