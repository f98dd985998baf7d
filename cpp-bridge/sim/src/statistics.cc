// Fills TensorRT-LLM's structs with the numbers of a step.

#include "engine.h"

namespace tensorrt_llm::sim
{
namespace
{

using executor::SizeType32;

/// Counts are 32 bits wide, as in TensorRT-LLM, so totals wrap when the engine runs long enough.
template <class Count>
SizeType32 narrowed(Count count)
{
    return static_cast<SizeType32>(count);
}

/// The quotient of two counts; 0 if the second one is 0.
template <class Part, class Whole>
float quotient(Part part, Whole whole)
{
    return whole == 0 ? 0.0F : static_cast<float>(part) / static_cast<float>(whole);
}

constexpr std::size_t kPinnedBuffers = std::size_t{1} << 29;

executor::KvCacheStats cacheStats(trtllm_sim_record const& record)
{
    executor::KvCacheStats stats{};
    stats.maxNumBlocks = narrowed(record.cache_max);
    stats.freeNumBlocks = narrowed(record.cache_free);
    stats.usedNumBlocks = narrowed(record.cache_max - record.cache_free);
    stats.tokensPerBlock = narrowed(record.tokens_per_block);
#if TRTLLM_SIM_SINCE(0, 11)
    stats.allocTotalBlocks = narrowed(record.alloc_total);
    stats.allocNewBlocks = narrowed(record.alloc_new);
    stats.reusedBlocks = narrowed(record.reused);
#endif
#if TRTLLM_SIM_SINCE(1, 0)
    stats.missedBlocks = narrowed(record.missed);
    stats.cacheHitRate = quotient(record.reused, record.reused + record.missed);
#endif
    return stats;
}

executor::StaticBatchingStats staticStats(trtllm_sim_record const& record)
{
    executor::StaticBatchingStats batching{};
    batching.numScheduledRequests = narrowed(record.scheduled);
    batching.numContextRequests = narrowed(record.context_requests);
    batching.numCtxTokens = narrowed(record.context_tokens);
    batching.numGenTokens = narrowed(record.decoded);
    batching.emptyGenSlots = narrowed(record.empty_slots);
    return batching;
}

executor::InflightBatchingStats inflightStats(trtllm_sim_record const& record)
{
    executor::InflightBatchingStats batching{};
    batching.numScheduledRequests = narrowed(record.scheduled);
    batching.numContextRequests = narrowed(record.context_requests);
    batching.numGenRequests = narrowed(record.generation_requests);
    batching.numPausedRequests = narrowed(record.paused);
    batching.numCtxTokens = narrowed(record.context_tokens);
    batching.microBatchId = narrowed(record.micro_batch);
#if TRTLLM_SIM_SINCE(0, 11)
    batching.avgNumDecodedTokensPerIter = static_cast<float>(record.tokens_per_step);
#endif
    return batching;
}

} // namespace

executor::IterationStats iterationStats(trtllm_sim_record const& record)
{
    executor::IterationStats stats{};
    stats.iter = record.iter;
#if TRTLLM_SIM_SINCE(0, 11)
    stats.iterLatencyMS = record.latency * 1e3;
    stats.numQueuedRequests = narrowed(record.queued);
#endif
#if TRTLLM_SIM_SINCE(0, 13)
    stats.newActiveRequestsQueueLatencyMS = record.queue_latency * 1e3;
    stats.numCompletedRequests = narrowed(record.completed);
#endif
#if TRTLLM_SIM_SINCE(0, 15)
    stats.numNewActiveRequests = narrowed(record.new_active);
#endif
    stats.numActiveRequests = narrowed(record.active);
    stats.maxNumActiveRequests = narrowed(record.max_active);
#if TRTLLM_SIM_SINCE(1, 0)
    stats.maxBatchSizeStatic = narrowed(record.batch_limit);
    stats.maxBatchSizeRuntime = narrowed(record.batch_limit_runtime);
    stats.maxNumTokensStatic = narrowed(record.token_limit);
    stats.maxNumTokensRuntime = narrowed(record.token_limit);
#endif
    stats.gpuMemUsage = record.gpu_memory;
    stats.cpuMemUsage = record.cpu_memory;
    stats.pinnedMemUsage = kPinnedBuffers;
    stats.kvCacheStats = cacheStats(record);
    if (record.is_static)
    {
        stats.staticBatchingStats = staticStats(record);
    }
    else
    {
        stats.inflightBatchingStats = inflightStats(record);
    }
#if TRTLLM_SIM_SINCE(1, 0)
    if (record.has_speculation)
    {
        executor::SpecDecodingStats speculation{};
        auto const count = static_cast<double>(record.drafting);
        speculation.numDraftTokens = static_cast<std::int64_t>(record.drafted);
        speculation.numAcceptedTokens = static_cast<std::int64_t>(record.accepted);
        speculation.numRequestsWithDraftTokens = static_cast<std::int64_t>(record.drafting);
        speculation.acceptanceLength = count == 0.0 ? 0.0 : (static_cast<double>(record.accepted) + count) / count;
        speculation.iterLatencyMS = record.draft_seconds * 1e3;
        speculation.draftOverhead = record.draft_overhead;
        stats.specDecodingStats = speculation;
    }
#endif
    return stats;
}

executor::RequestStats requestStats(trtllm_sim_row const& source)
{
    using executor::RequestStage;
    constexpr RequestStage kStages[] = {RequestStage::kQUEUED, RequestStage::kCONTEXT_IN_PROGRESS,
        RequestStage::kGENERATION_IN_PROGRESS, RequestStage::kGENERATION_COMPLETE};
    executor::RequestStats row{};
    row.id = source.id;
    row.stage = kStages[source.stage];
    row.contextPrefillPosition = narrowed(source.prefill_position);
    row.numGeneratedTokens = narrowed(source.generated);
    row.scheduled = source.scheduled;
    row.paused = source.paused;
#if TRTLLM_SIM_SINCE(0, 11)
    // The context phase counts as a step, because it generates the first token.
    row.avgNumDecodedTokensPerIter = quotient(source.generated, source.steps + 1);
#endif
#if TRTLLM_SIM_SINCE(0, 15)
    row.allocTotalBlocksPerRequest = narrowed(source.alloc_total);
    row.allocNewBlocksPerRequest = narrowed(source.alloc_new);
    row.reusedBlocksPerRequest = narrowed(source.reused);
#endif
#if TRTLLM_SIM_SINCE(1, 1)
    row.missedBlocksPerRequest = narrowed(source.missed);
    row.kvCacheHitRatePerRequest = quotient(source.reused, source.reused + source.missed);
#endif
#if TRTLLM_SIM_SINCE(0, 14)
    if (source.has_transfer)
    {
        row.disServingStats.emplace();
        row.disServingStats->kvCacheTransferMS = source.transfer_ms;
#if TRTLLM_SIM_SINCE(1, 1)
        row.disServingStats->kvCacheSize = source.transfer_bytes;
#endif
    }
#endif
    return row;
}

#if TRTLLM_SIM_SINCE(1, 0)
executor::RequestPerfMetrics perfMetrics(trtllm_sim_entry const& entry, Clock const& clock)
{
    executor::RequestPerfMetrics metrics{};
    auto& timing = metrics.timingMetrics;
    timing.arrivalTime = clock.stamp(entry.arrival);
    timing.firstScheduledTime = clock.stamp(entry.first_scheduled);
    timing.firstTokenTime = clock.stamp(entry.first_token);
    timing.lastTokenTime = clock.stamp(entry.last_token);
    if (entry.transfer_bytes > 0)
    {
        timing.kvCacheTransferStart = clock.stamp(entry.transfer_start);
        timing.kvCacheTransferEnd = clock.stamp(entry.transfer_end);
        timing.kvCacheSize = entry.transfer_bytes;
    }
    metrics.kvCacheMetrics.numTotalAllocatedBlocks = narrowed(entry.alloc_total);
    metrics.kvCacheMetrics.numNewAllocatedBlocks = narrowed(entry.alloc_new);
    metrics.kvCacheMetrics.numReusedBlocks = narrowed(entry.reused);
    metrics.kvCacheMetrics.numMissedBlocks = narrowed(entry.missed);
    metrics.kvCacheMetrics.kvCacheHitRate = quotient(entry.reused, entry.reused + entry.missed);
    metrics.speculativeDecoding.totalDraftTokens = narrowed(entry.drafted);
    metrics.speculativeDecoding.totalAcceptedDraftTokens = narrowed(entry.accepted);
    metrics.speculativeDecoding.acceptanceRate = quotient(entry.accepted, entry.drafted);
    metrics.firstIter = entry.first_iter;
    metrics.lastIter = entry.last_iter;
    metrics.iter = entry.last_iter;
    return metrics;
}
#endif

} // namespace tensorrt_llm::sim
