// Tests records that are compiled against the headers of the first release with an Executor.

#include "check.h"

#include "present.h"

#include "tensorrt_llm/executor/types.h"

namespace tle = tensorrt_llm::executor;

int main()
{
    tle::IterationStats stats{};
    stats.timestamp = "01-02-1970 00:00:01";
    stats.iter = 5;
    stats.kvCacheStats = tle::KvCacheStats{100, 60, 40, 32};
    stats.inflightBatchingStats = tle::InflightBatchingStats{3, 1, 2, 0, 77, 1};
    trtllm_bridge::IterationStats record;
    trtllm_bridge::fill(record, stats);
    CHECK(textOf(record) == "01-02-1970 00:00:01" && record.iter == 5);
    CHECK(record.kv_cache_stats.present && record.kv_cache_stats.used_num_blocks == 40);
    CHECK(record.inflight_batching_stats.present && record.inflight_batching_stats.num_ctx_tokens == 77);
    CHECK(present(record.num_active_requests) && present(record.gpu_mem_usage));
    CHECK(!present(record.iter_latency_ms) && !present(record.num_queued_requests));
    CHECK(!present(record.max_batch_size_static));
    CHECK(!present(record.kv_cache_stats.reused_blocks) && !present(record.kv_cache_stats.cache_hit_rate));
    CHECK(!present(record.inflight_batching_stats.avg_num_decoded_tokens_per_iter));
    CHECK(!record.cross_kv_cache_stats.present && !record.static_batching_stats.present);
    CHECK(!record.spec_decoding_stats.present);

    tle::RequestStats stage{};
    stage.stage = tle::RequestStage::kCONTEXT_IN_PROGRESS;
    trtllm_bridge::RequestStats request;
    trtllm_bridge::fill(request, stage);
    // TensorRT-LLM's number of the stage differs between releases; the bridge's number does not.
    CHECK(request.stage == trtllm_bridge::RequestStage::ContextInProgress && present(request.paused));
    CHECK(!present(request.avg_num_decoded_tokens_per_iter) && !present(request.reused_blocks_per_request));
    CHECK(!request.dis_serving_stats.present);
}
