// Tests rows that are compiled against headers with new members, another order of members, and some members missing.

#include "check.h"

#include "row.h"

#include "tensorrt_llm/executor/types.h"

using trtllm_exporter::detail::Rows;
namespace tle = tensorrt_llm::executor;

/// Like RequestStatsPerIteration, which these headers do not have.
struct RequestsOf
{
    std::uint64_t iter;
    std::vector<tle::RequestStats> requestStats;
};

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
    Rows rows;
    rows.record(stats);
    auto const row = last(rows);
    // The PyTorch backend sends empty timestamps.
    CHECK(row.text.empty());
    CHECK(row.present.test(1) && row.number(1) == 12.5);
    CHECK(row.present.test(24) && row.integer(24) == 3 && row.present.test(25) && row.number(25) == 0.25);
    CHECK(row.present.test(32) && row.integer(32) == 4 && row.present.test(23) && row.integer(23) == 0);
    CHECK(row.present.test(48) && row.integer(48) == 11);
    CHECK(!row.present.test(49) && !row.present.test(54) && !row.present.test(8) && !row.present.test(11));

    tle::RequestStats request{};
    request.stage = tle::RequestStage::kENCODER_IN_PROGRESS;
    request.disServingStats = tle::DisServingRequestStats{1.5, 4096};
    rows.requests(RequestsOf{1, {request}});
    CHECK(last(rows).integer(1) == 1 && last(rows).number(12) == 1.5 && last(rows).integer(13) == 4096);
    request.stage = tle::RequestStage::kSOMETHING_NEW;
    rows.requests(RequestsOf{1, {request}});
    CHECK(last(rows).integer(1) == -1);
}
