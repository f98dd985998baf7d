// Tests which members the records of each release have. The expected releases are written by hand here, independent of
// detail/member_list.h.

#include "check.h"

#include "present.h"

#include "tensorrt_llm/executor/executor.h"

namespace tle = tensorrt_llm::executor;
using trtllm_bridge::FinishReason;

namespace
{

constexpr bool since(int release)
{
    return TRTLLM_SIM_RELEASE >= release;
}

/// All of `members` are present if this release or an older one added them, and absent if not.
template <class... Members>
bool added(int release, Members... members)
{
    return ((present(members) == since(release)) && ...);
}

bool cacheOf(trtllm_bridge::KvCacheStats const& cache, int release)
{
    return cache.present == since(release)
        && (!cache.present
            || (added(9, cache.max_num_blocks, cache.free_num_blocks, cache.used_num_blocks, cache.tokens_per_block)
                && added(11, cache.alloc_total_blocks, cache.alloc_new_blocks, cache.reused_blocks)
                && added(100, cache.missed_blocks, cache.cache_hit_rate)));
}

void iterations()
{
    tle::IterationStats stats{};
    stats.timestamp = "01-02-1970 00:00:01";
    stats.iter = 5;
    stats.numActiveRequests = 3;
    stats.kvCacheStats = tle::KvCacheStats{};
    stats.kvCacheStats->usedNumBlocks = 40;
    stats.staticBatchingStats = tle::StaticBatchingStats{};
    stats.inflightBatchingStats = tle::InflightBatchingStats{};
    stats.inflightBatchingStats->numCtxTokens = 77;
#if TRTLLM_SIM_RELEASE >= 11
    stats.crossKvCacheStats = tle::KvCacheStats{};
    stats.crossKvCacheStats->reusedBlocks = 4;
#endif
#if TRTLLM_SIM_RELEASE >= 100
    stats.specDecodingStats = tle::SpecDecodingStats{};
#endif
    trtllm_bridge::IterationStats record;
    trtllm_bridge::fill(record, stats);
    CHECK(textOf(record) == "01-02-1970 00:00:01" && record.iter == 5 && record.num_active_requests == 3);
    CHECK(added(9, record.num_active_requests, record.max_num_active_requests, record.gpu_mem_usage,
        record.cpu_mem_usage, record.pinned_mem_usage));
    CHECK(added(11, record.iter_latency_ms, record.num_queued_requests));
    CHECK(added(13, record.new_active_requests_queue_latency_ms, record.num_completed_requests));
    CHECK(added(15, record.num_new_active_requests));
    CHECK(added(100, record.max_batch_size_static, record.max_batch_size_tuner_recommended,
        record.max_batch_size_runtime, record.max_num_tokens_static, record.max_num_tokens_tuner_recommended,
        record.max_num_tokens_runtime));
    CHECK(cacheOf(record.kv_cache_stats, 9) && cacheOf(record.cross_kv_cache_stats, 11));
    CHECK(record.kv_cache_stats.used_num_blocks == 40);
    CHECK(!since(11) || record.cross_kv_cache_stats.reused_blocks == 4);
    auto const& batch = record.inflight_batching_stats;
    CHECK(batch.present && batch.num_ctx_tokens == 77 && added(11, batch.avg_num_decoded_tokens_per_iter));
    // No release of the simulated SDK has the newer counts of KV tokens.
    CHECK(added(9, batch.num_scheduled_requests, batch.num_context_requests, batch.num_gen_requests,
        batch.num_paused_requests, batch.micro_batch_id));
    CHECK(!present(batch.num_ctx_kv_tokens) && !present(batch.num_paused_kv_tokens));
    auto const& fixed = record.static_batching_stats;
    CHECK(fixed.present
        && added(9, fixed.num_scheduled_requests, fixed.num_context_requests, fixed.num_ctx_tokens,
            fixed.num_gen_tokens, fixed.empty_gen_slots));
    CHECK(record.spec_decoding_stats.present == since(100));
}

void requests()
{
    tle::RequestStats stats{};
    stats.id = 6;
    stats.stage = tle::RequestStage::kGENERATION_COMPLETE;
#if TRTLLM_SIM_RELEASE >= 14
    stats.disServingStats.emplace();
    stats.disServingStats->kvCacheTransferMS = 1.5;
#endif
    trtllm_bridge::RequestStats row;
    trtllm_bridge::fill(row, stats);
    CHECK(row.id == 6 && row.stage == trtllm_bridge::RequestStage::GenerationComplete);
    CHECK(added(9, row.context_prefill_position, row.num_generated_tokens, row.scheduled, row.paused));
    CHECK(added(11, row.avg_num_decoded_tokens_per_iter));
    CHECK(added(15, row.alloc_total_blocks_per_request, row.alloc_new_blocks_per_request));
    CHECK(added(15, row.reused_blocks_per_request));
    CHECK(added(101, row.missed_blocks_per_request, row.kv_cache_hit_rate_per_request));
    CHECK(row.dis_serving_stats.present == since(14));
    if (row.dis_serving_stats.present)
    {
        CHECK(row.dis_serving_stats.kv_cache_transfer_ms == 1.5 && added(101, row.dis_serving_stats.kv_cache_size));
    }
}

void results()
{
    tle::Result result{};
    result.isFinal = true;
#if TRTLLM_SIM_RELEASE >= 13
    result.finishReasons = {tle::FinishReason::kLENGTH};
#endif
#if TRTLLM_SIM_RELEASE >= 100
    result.requestPerfMetrics = tle::RequestPerfMetrics{};
    auto& timing = result.requestPerfMetrics->timingMetrics;
    timing.arrivalTime += std::chrono::milliseconds(1500);
    timing.lastTokenTime += std::chrono::milliseconds(2500);
#endif
    trtllm_bridge::FinishedRequest request{};
    trtllm_bridge::fillResult(request, result);
    CHECK(request.finish_reason == (since(13) ? FinishReason::Length : FinishReason::Absent));
    auto const& metrics = request.perf_metrics;
    CHECK(metrics.present == since(100));
    if (metrics.present)
    {
        CHECK(metrics.timing_metrics.arrival_time == 1.5 && metrics.timing_metrics.last_token_time == 2.5);
        // The other events did not happen, and the iterations are not known.
        CHECK(!present(metrics.timing_metrics.first_token_time) && !present(metrics.first_iter));
        CHECK(metrics.kv_cache_metrics.present && metrics.speculative_decoding.present);
    }
#if TRTLLM_SIM_RELEASE >= 13
    for (auto const& [reason, expected] : {std::pair{tle::FinishReason::kEND_ID, FinishReason::EndId},
             {tle::FinishReason::kSTOP_WORDS, FinishReason::StopWords},
             {tle::FinishReason::kNOT_FINISHED, FinishReason::Absent},
             {static_cast<tle::FinishReason>(77), FinishReason::Other}})
    {
        result.finishReasons = {reason};
        trtllm_bridge::fillResult(request, result);
        CHECK(request.finish_reason == expected);
    }
    result.finishReasons.clear();
    trtllm_bridge::fillResult(request, result);
    CHECK(request.finish_reason == FinishReason::Absent);
#endif
}

} // namespace

int main()
{
    iterations();
    requests();
    results();
}
