// Converts tensorrt_llm::executor::Response to PerfRow.

#include "perf_row.h"

#include "member.h"

#include <chrono>

namespace trtllm_bridge
{
namespace
{

namespace tle = tensorrt_llm::executor;

TRTLLM_BRIDGE_MEMBER(finishReasons);
TRTLLM_BRIDGE_MEMBER(requestPerfMetrics);
TRTLLM_BRIDGE_MEMBER(timingMetrics);
TRTLLM_BRIDGE_MEMBER(kvCacheMetrics);
TRTLLM_BRIDGE_MEMBER(speculativeDecoding);
TRTLLM_BRIDGE_MEMBER(kvCacheTransferStart);
TRTLLM_BRIDGE_MEMBER(kvCacheSize);
TRTLLM_BRIDGE_MEMBER(firstIter);

constexpr std::uint64_t bit(PerfPresent group)
{
    return static_cast<std::uint64_t>(group);
}

/// Returns false for a time that did not happen. TensorRT-LLM sets it to the clock's zero.
template <class TimePoint>
bool readTime(TimePoint const& time, double& seconds)
{
    seconds = std::chrono::duration<double>(time.time_since_epoch()).count();
    return time != TimePoint{};
}

template <class Timing>
void readTiming(Timing const& timing, PerfRow& row)
{
    row.present |= readTime(timing.arrivalTime, row.arrival_s) ? bit(PerfPresent::Arrival) : 0;
    row.present |= readTime(timing.firstScheduledTime, row.first_scheduled_s) ? bit(PerfPresent::FirstScheduled) : 0;
    row.present |= readTime(timing.firstTokenTime, row.first_token_s) ? bit(PerfPresent::FirstToken) : 0;
    row.present |= readTime(timing.lastTokenTime, row.last_token_s) ? bit(PerfPresent::LastToken) : 0;
    if constexpr (Copy_kvCacheTransferStart::exists<Timing>)
    {
        auto const started = readTime(timing.kvCacheTransferStart, row.kv_cache_transfer_start_s);
        auto const ended = readTime(timing.kvCacheTransferEnd, row.kv_cache_transfer_end_s);
        row.present |= started && ended ? bit(PerfPresent::KvTransfer) : 0;
        Copy_kvCacheSize::from(timing, row.kv_cache_size);
    }
}

template <class Metrics>
void readMetrics(Metrics const& metrics, PerfRow& row)
{
    if constexpr (Copy_timingMetrics::exists<Metrics>)
    {
        readTiming(metrics.timingMetrics, row);
    }
    if constexpr (Copy_kvCacheMetrics::exists<Metrics>)
    {
        auto const& cache = metrics.kvCacheMetrics;
        row.num_total_allocated_blocks = cache.numTotalAllocatedBlocks;
        row.num_new_allocated_blocks = cache.numNewAllocatedBlocks;
        row.num_reused_blocks = cache.numReusedBlocks;
        row.num_missed_blocks = cache.numMissedBlocks;
        row.kv_cache_hit_rate = cache.kvCacheHitRate;
        row.present |= bit(PerfPresent::Kv);
    }
    if constexpr (Copy_speculativeDecoding::exists<Metrics>)
    {
        auto const& decoding = metrics.speculativeDecoding;
        row.acceptance_rate = decoding.acceptanceRate;
        row.total_accepted_draft_tokens = decoding.totalAcceptedDraftTokens;
        row.total_draft_tokens = decoding.totalDraftTokens;
        // All members are zero if the engine does not use speculative decoding.
        row.present |= decoding.totalDraftTokens > 0 ? bit(PerfPresent::Spec) : 0;
    }
    if constexpr (Copy_firstIter::exists<Metrics>)
    {
        if (metrics.firstIter && metrics.lastIter)
        {
            row.first_iter = *metrics.firstIter;
            row.last_iter = *metrics.lastIter;
            row.present |= bit(PerfPresent::Iterations);
        }
    }
}

template <class Result>
void readResult(Result const& result, PerfRow& row)
{
    row.output_tokens
        = result.outputTokenIds.empty() ? 0 : static_cast<std::int32_t>(result.outputTokenIds.front().size());
    if constexpr (Copy_finishReasons::exists<Result>)
    {
        if (!result.finishReasons.empty())
        {
            row.finish_reason = static_cast<std::uint8_t>(result.finishReasons.front());
            row.present |= bit(PerfPresent::FinishReason);
        }
    }
    Copy_requestPerfMetrics::visit(result, [&row](auto const& metrics) { readMetrics(metrics, row); });
}

} // namespace

void readRow(tle::Response const& response, PerfRow& row)
{
    row = PerfRow{};
    row.id = response.getRequestId();
    row.failed = response.hasError();
    if (!row.failed)
    {
        readResult(response.getResult(), row);
    }
}

} // namespace trtllm_bridge
