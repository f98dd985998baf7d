// Tests rows that are compiled against the headers of the first release with an Executor.

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
    stats.timestamp = "01-02-1970 00:00:01";
    stats.iter = 5;
    stats.kvCacheStats = tle::KvCacheStats{100, 60, 40, 32};
    stats.inflightBatchingStats = tle::InflightBatchingStats{3, 1, 2, 0, 77, 1};
    Rows rows;
    rows.record(stats);
    auto const row = last(rows);
    // Its own numbers, four of the cache, and six of the batch.
    std::bitset<64> expected;
    for (auto const slot : {0, 4, 7, 14, 15, 16, 17, 18, 19, 20, 35, 36, 37, 38, 39, 40})
    {
        expected.set(static_cast<std::size_t>(slot));
    }
    CHECK(row.present == expected);
    CHECK(row.text == "01-02-1970 00:00:01" && row.integer(0) == 5);
    CHECK(row.integer(19) == 40 && row.integer(39) == 77);

    tle::RequestStats request{};
    request.stage = tle::RequestStage::kCONTEXT_IN_PROGRESS;
    rows.requests(RequestsOf{1, {request}});
    // Neither blocks nor a transfer. TensorRT-LLM's number of the stage differs between releases, that of the row does not.
    CHECK(last(rows).present == 0b1101111 && last(rows).integer(1) == 2);
}
