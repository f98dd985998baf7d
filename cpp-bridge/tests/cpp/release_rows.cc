// Tests which members the rows of each release have. The table is written by hand, independent of the bridge's code.

#include "check.h"
#include "perf_row.h"
#include "rows.h"

using namespace trtllm_bridge;
namespace tle = tensorrt_llm::executor;

namespace
{

constexpr bool since(int release)
{
    return TRTLLM_SIM_RELEASE >= release;
}

template <class Bit>
std::uint64_t from(int release, Bit bit)
{
    return since(release) ? static_cast<std::uint64_t>(bit) : 0;
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
    IterationRow row{};
    row.num_completed_requests = 9;
    readRow(stats, row);
    using Bit = IterationPresent;
    auto const expected = from(9, Bit::Timestamp) | from(9, Bit::Kv) | from(9, Bit::Static) | from(9, Bit::Inflight)
        | from(11, Bit::IterLatency) | from(11, Bit::QueuedRequests) | from(11, Bit::KvAlloc) | from(11, Bit::CrossKv)
        | from(11, Bit::CrossKvAlloc) | from(11, Bit::InflightDecoded) | from(13, Bit::QueueLatency)
        | from(13, Bit::CompletedRequests) | from(15, Bit::NewActiveRequests) | from(100, Bit::BatchSizeLimits)
        | from(100, Bit::TokenLimits) | from(100, Bit::KvMissed) | from(100, Bit::CrossKvMissed)
        | from(100, Bit::Spec);
    CHECK(row.present == expected);
    CHECK(row.iter == 5 && row.num_active_requests == 3 && row.timestamp_local_us == (86400 + 1) * 1000000LL);
    CHECK(row.kv_used_num_blocks == 40 && row.inflight_num_ctx_tokens == 77 && row.num_completed_requests == 0);
    CHECK(row.cross_kv_reused_blocks == (since(11) ? 4 : 0));
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
    RequestRow row{};
    readRow(stats, 5, row);
    using Bit = RequestPresent;
    auto const expected = from(11, Bit::Decoded) | from(14, Bit::DisServing) | from(15, Bit::KvAlloc)
        | from(101, Bit::KvMissed) | from(101, Bit::DisServingSize);
    CHECK(row.present == expected);
    // TensorRT-LLM's number of this stage differs between releases. The number in the row does not.
    CHECK(row.id == 6 && row.iter == 5 && row.stage == static_cast<std::uint8_t>(Stage::GenerationComplete));
    CHECK(row.kv_cache_transfer_ms == (since(14) ? 1.5 : 0.0));
}

void responses()
{
    tle::Result result{};
    result.isFinal = true;
    result.outputTokenIds = {{1, 2, 3}};
#if TRTLLM_SIM_RELEASE >= 13
    result.finishReasons = {tle::FinishReason::kLENGTH};
#endif
#if TRTLLM_SIM_RELEASE >= 100
    result.requestPerfMetrics = tle::RequestPerfMetrics{};
    auto& timing = result.requestPerfMetrics->timingMetrics;
    timing.arrivalTime += std::chrono::milliseconds(1500);
    timing.lastTokenTime += std::chrono::milliseconds(2500);
#endif
    PerfRow row{};
    readRow(tle::Response(8, result), row);
    using Bit = PerfPresent;
    auto const expected = from(13, Bit::FinishReason) | from(100, Bit::Arrival) | from(100, Bit::LastToken)
        | from(100, Bit::Kv);
    CHECK(row.present == expected);
    CHECK(row.id == 8 && row.output_tokens == 3 && !row.failed && row.finish_reason == (since(13) ? 3 : 0));
    CHECK(row.arrival_s == (since(100) ? 1.5 : 0.0) && row.first_token_s == 0.0);
    readRow(tle::Response(9, "no"), row);
    CHECK(row.id == 9 && row.failed && row.present == 0 && row.output_tokens == 0);
}

} // namespace

int main()
{
    iterations();
    requests();
    responses();
}
