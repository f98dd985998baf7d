// Tests records that are compiled against headers with new members, another order of members, and some members missing.

#include "check.h"

#include "present.h"

#include "tensorrt_llm/executor/types.h"

namespace tle = tensorrt_llm::executor;

int main()
{
    tle::IterationStats stats{};
    stats.iterLatencyMS = 12.5;
    stats.kvCacheStats = tle::KvCacheStats{};
    stats.kvCacheStats->missedBlocks = 3;
    stats.kvCacheStats->cacheHitRate = 0.25F;
    stats.crossKvCacheStats = tle::KvCacheStats{};
    stats.crossKvCacheStats->reusedBlocks = 4;
    stats.inflightBatchingStats = tle::InflightBatchingStats{};
    stats.inflightBatchingStats->numPausedKvTokens = 11;
    trtllm_bridge::IterationStats record;
    trtllm_bridge::fill(record, stats);
    // The PyTorch backend sends empty timestamps.
    CHECK(textOf(record).empty());
    CHECK(record.iter_latency_ms == 12.5 && record.kv_cache_stats.reused_blocks == 0);
    CHECK(record.kv_cache_stats.missed_blocks == 3 && record.kv_cache_stats.cache_hit_rate == 0.25);
    CHECK(record.cross_kv_cache_stats.reused_blocks == 4 && record.inflight_batching_stats.num_paused_kv_tokens == 11);
    CHECK(!record.static_batching_stats.present && !record.spec_decoding_stats.present);
    CHECK(!present(record.max_batch_size_static) && !present(record.max_num_tokens_static));
    stats.iterLatencyMS = std::numeric_limits<double>::infinity();
    trtllm_bridge::fill(record, stats);
    CHECK(!present(record.iter_latency_ms));

    tle::RequestStats request{};
    request.stage = tle::RequestStage::kENCODER_IN_PROGRESS;
    request.disServingStats = tle::DisServingRequestStats{1.5, 4096};
    trtllm_bridge::RequestStats row;
    trtllm_bridge::fill(row, request);
    CHECK(row.stage == trtllm_bridge::RequestStage::EncoderInProgress && row.dis_serving_stats.present);
    CHECK(row.dis_serving_stats.kv_cache_transfer_ms == 1.5 && row.dis_serving_stats.kv_cache_size == 4096);
    request.stage = tle::RequestStage::kSOMETHING_NEW;
    trtllm_bridge::fill(row, request);
    CHECK(row.stage == trtllm_bridge::RequestStage::Unknown);
}
