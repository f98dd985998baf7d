// Tests rows that are compiled against the headers of the first release with an Executor.

#include "check.h"
#include "rows.h"

using namespace trtllm_bridge;
namespace tle = tensorrt_llm::executor;

int main()
{
    tle::IterationStats stats{};
    stats.timestamp = "01-02-1970 00:00:01";
    stats.iter = 5;
    stats.kvCacheStats = tle::KvCacheStats{100, 60, 40, 32};
    stats.inflightBatchingStats = tle::InflightBatchingStats{3, 1, 2, 0, 77, 1};
    IterationRow row{};
    row.num_completed_requests = 9;
    readRow(stats, row);
    auto const expected = static_cast<std::uint64_t>(IterationPresent::Timestamp)
        | static_cast<std::uint64_t>(IterationPresent::Kv) | static_cast<std::uint64_t>(IterationPresent::Inflight);
    CHECK(row.present == expected);
    CHECK(row.timestamp_local_us == (86400 + 1) * 1000000LL && row.iter == 5);
    CHECK(row.kv_used_num_blocks == 40 && row.inflight_num_ctx_tokens == 77);
    CHECK(row.num_completed_requests == 0);

    tle::RequestStats request{};
    request.stage = tle::RequestStage::kCONTEXT_IN_PROGRESS;
    RequestRow requestRow{};
    readRow(request, 5, requestRow);
    CHECK(requestRow.present == 0 && requestRow.iter == 5);
    // TensorRT-LLM's number of this stage differs between releases. The number in the row does not.
    CHECK(requestRow.stage == static_cast<std::uint8_t>(Stage::ContextInProgress));
}
