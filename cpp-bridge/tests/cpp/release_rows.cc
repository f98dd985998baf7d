// Tests which slots the rows of each release have. The numbers are written by hand, independent of the list of members.

#include "check.h"

#include "row.h"

#include "tensorrt_llm/executor/executor.h"

#include <initializer_list>

using trtllm_exporter::detail::Rows;
namespace tle = tensorrt_llm::executor;

namespace
{

constexpr bool since(int release)
{
    return TRTLLM_SIM_RELEASE >= release;
}

/// A bit for each slot.
using Bits = std::bitset<64>;

/// The slots from `first` to `last`, if this release or an older one added them.
Bits from(int release, std::size_t first, std::size_t last)
{
    Bits bits;
    for (auto slot = first; since(release) && slot <= last; ++slot)
    {
        bits.set(slot);
    }
    return bits;
}

Bits from(int release, std::size_t slot)
{
    return from(release, slot, slot);
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
    Rows rows;
    rows.record(stats);
    auto const row = last(rows);
    auto const expected = from(9, 0) | from(11, 1) | from(13, 2) | from(15, 3) | from(9, 4) | from(11, 5) | from(13, 6)
        | from(9, 7) | from(100, 8, 13) | from(9, 14, 16)        // the record itself
        | from(9, 17, 20) | from(11, 21, 23) | from(100, 24, 25) // the cache
        | from(11, 26, 32) | from(100, 33, 34)                   // the cross cache
        | from(9, 35, 40) | from(11, 41)                         // batches, without the newer numbers of KV tokens
        | from(9, 49, 53) | from(100, 54, 59);                   // static batches and speculation
    CHECK(row.kind == 'i' && row.count == 60 && row.present == expected);
    CHECK(row.text == "01-02-1970 00:00:01");
    CHECK(row.integer(0) == 5 && row.integer(4) == 3 && row.integer(19) == 40 && row.integer(39) == 77);
    CHECK(row.integer(23) == 0 && row.integer(32) == (since(11) ? 4 : 0));
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
    tle::RequestStatsPerIteration iteration{};
    iteration.iter = 5;
    iteration.requestStats = {stats, stats};
    Rows rows;
    rows.requests(iteration);
    auto const* at = rows.bytes().data();
    auto const first = Row(at);
    CHECK(first.kind == 'r' && first.integer(0) == 5);
    auto const row = Row(at);
    CHECK(Row(at).kind == 'q' && at == rows.bytes().data() + rows.bytes().size());
    auto const expected = from(9, 0, 3) | from(11, 4) | from(9, 5, 6) | from(15, 7, 9) | from(101, 10, 11)
        | from(14, 12) | from(101, 13);
    CHECK(row.kind == 'q' && row.present == expected);
    // TensorRT-LLM's number of this stage differs between releases. The number in the row does not.
    CHECK(row.integer(0) == 6 && row.integer(1) == 4);
    CHECK(row.number(12) == (since(14) ? 1.5 : 0.0));
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
    Rows rows;
    rows.finished(8, result);
    auto const row = last(rows);
    // The other times did not happen, and the iterations are not known.
    auto const expected = from(9, 0) | from(13, 1) | from(100, 4) | from(100, 7) | from(100, 10, 18);
    CHECK(row.kind == 'p' && row.present == expected);
    CHECK(row.integer(0) == 8 && row.integer(1) == (since(13) ? 2 : 0) && row.number(4) == (since(100) ? 1.5 : 0.0));
    rows.finished(9, result, {30, 7});
    CHECK(last(rows).present == (expected | from(9, 20, 21)));
    CHECK(last(rows).integer(20) == 30 && last(rows).integer(21) == 7);
    rows.failed(10);
    CHECK(last(rows).present == from(9, 0, 1) && last(rows).integer(0) == 10 && last(rows).integer(1) == 99);
#if TRTLLM_SIM_RELEASE >= 13
    for (auto const& [reason, position] : {std::pair{tle::FinishReason::kEND_ID, 0},
             {tle::FinishReason::kSTOP_WORDS, 1}, {static_cast<tle::FinishReason>(77), 99}})
    {
        result.finishReasons = {reason};
        rows.finished(8, result);
        CHECK(last(rows).integer(1) == position);
    }
    result.finishReasons = {tle::FinishReason::kNOT_FINISHED};
    rows.finished(8, result);
    CHECK(!last(rows).present.test(1));
    result.finishReasons.clear();
    rows.finished(8, result);
    CHECK(!last(rows).present.test(1));
#endif
}

} // namespace

int main()
{
    iterations();
    requests();
    results();
}
