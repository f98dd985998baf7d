// Tests rows that are compiled against headers with new members, another order of members, and some members missing.

#include "check.h"
#include "rows.h"

using namespace trtllm_bridge;
namespace tle = tensorrt_llm::executor;

namespace
{

bool has(IterationRow const& row, IterationPresent bit)
{
    return (row.present & static_cast<std::uint64_t>(bit)) != 0;
}

} // namespace

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
    IterationRow row{};
    readRow(stats, row);
    // The PyTorch backend sends empty timestamps, which count as absent.
    CHECK(!has(row, IterationPresent::Timestamp));
    CHECK(has(row, IterationPresent::IterLatency) && row.iter_latency_ms == 12.5);
    CHECK(has(row, IterationPresent::KvMissed) && row.kv_missed_blocks == 3 && row.kv_cache_hit_rate == 0.25F);
    CHECK(has(row, IterationPresent::CrossKvAlloc) && row.cross_kv_reused_blocks == 4 && row.kv_reused_blocks == 0);
    CHECK(has(row, IterationPresent::InflightKvTokens) && row.inflight_num_paused_kv_tokens == 11);
    CHECK(!has(row, IterationPresent::Static) && !has(row, IterationPresent::Spec));
    CHECK(!has(row, IterationPresent::BatchSizeLimits) && !has(row, IterationPresent::TokenLimits));

    tle::RequestStats request{};
    request.stage = tle::RequestStage::kENCODER_IN_PROGRESS;
    request.disServingStats = tle::DisServingRequestStats{1.5, 4096};
    RequestRow requestRow{};
    readRow(request, 1, requestRow);
    CHECK(requestRow.stage == static_cast<std::uint8_t>(Stage::EncoderInProgress));
    CHECK(requestRow.kv_cache_transfer_ms == 1.5 && requestRow.kv_cache_size == 4096);
    request.stage = tle::RequestStage::kSOMETHING_NEW;
    readRow(request, 1, requestRow);
    CHECK(requestRow.stage == static_cast<std::uint8_t>(Stage::Unknown));
}
