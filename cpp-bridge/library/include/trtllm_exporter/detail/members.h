#pragma once

// The members of TensorRT-LLM's statistics structs in all releases: the one list for the JSON of publisher.h, for the
// rows of exporter.h and of the bridge, and for their decoder in Rust, which rows/build.rs generates from this file. To add
// a member, add it here. A member that a release does not have is skipped.

#include <algorithm>
#include <cstddef>
#include <type_traits>

// V(slot, member): a number. N(slot, member, Table): a nested struct, or an optional one; its slots begin at `slot`.
// T(member): text, which has no slot. The member's name is also its key in JSON. A slot number never changes its meaning,
// because header and library may have different versions; use the first free number of the row for a new member.
// The tables have the names of the exporter's structs. clang-format would indent them like expressions.
// clang-format off
#define TRTLLM_EXPORTER_KvCacheStats(V, N, T)                                                                          \
    V(0, maxNumBlocks) V(1, freeNumBlocks) V(2, usedNumBlocks) V(3, tokensPerBlock) V(4, allocTotalBlocks)             \
    V(5, allocNewBlocks) V(6, reusedBlocks) V(7, missedBlocks) V(8, cacheHitRate)
#define TRTLLM_EXPORTER_InflightBatchingStats(V, N, T)                                                                 \
    V(0, numScheduledRequests) V(1, numContextRequests) V(2, numGenRequests) V(3, numPausedRequests)                   \
    V(4, numCtxTokens) V(5, microBatchId) V(6, avgNumDecodedTokensPerIter) V(7, numCtxKvTokens) V(8, numGenKvTokens)   \
    V(9, numQueuedContextRequests) V(10, numQueuedCtxTokens) V(11, numQueuedGenRequests) V(12, numQueuedGenKvTokens)   \
    V(13, numPausedKvTokens)
#define TRTLLM_EXPORTER_StaticBatchingStats(V, N, T)                                                                   \
    V(0, numScheduledRequests) V(1, numContextRequests) V(2, numCtxTokens) V(3, numGenTokens) V(4, emptyGenSlots)
#define TRTLLM_EXPORTER_SpecDecodingStats(V, N, T)                                                                     \
    V(0, numDraftTokens) V(1, numAcceptedTokens) V(2, numRequestsWithDraftTokens) V(3, acceptanceLength)               \
    V(4, iterLatencyMS) V(5, draftOverhead)
#define TRTLLM_EXPORTER_IterationStats(V, N, T)                                                                        \
    T(timestamp) V(0, iter) V(1, iterLatencyMS) V(2, newActiveRequestsQueueLatencyMS) V(3, numNewActiveRequests)       \
    V(4, numActiveRequests) V(5, numQueuedRequests) V(6, numCompletedRequests) V(7, maxNumActiveRequests)              \
    V(8, maxBatchSizeStatic) V(9, maxBatchSizeTunerRecommended) V(10, maxBatchSizeRuntime) V(11, maxNumTokensStatic)   \
    V(12, maxNumTokensTunerRecommended) V(13, maxNumTokensRuntime) V(14, gpuMemUsage) V(15, cpuMemUsage)               \
    V(16, pinnedMemUsage) N(17, kvCacheStats, KvCacheStats) N(26, crossKvCacheStats, KvCacheStats)                     \
    N(35, inflightBatchingStats, InflightBatchingStats) N(49, staticBatchingStats, StaticBatchingStats)                \
    N(54, specDecodingStats, SpecDecodingStats)
#define TRTLLM_EXPORTER_DisServingRequestStats(V, N, T)                                                                \
    V(0, kvCacheTransferMS) V(1, kvCacheSize)
#define TRTLLM_EXPORTER_RequestStats(V, N, T)                                                                          \
    V(0, id) V(1, stage) V(2, contextPrefillPosition) V(3, numGeneratedTokens) V(4, avgNumDecodedTokensPerIter)        \
    V(5, scheduled) V(6, paused) V(7, allocTotalBlocksPerRequest) V(8, allocNewBlocksPerRequest)                       \
    V(9, reusedBlocksPerRequest) V(10, missedBlocksPerRequest) V(11, kvCacheHitRatePerRequest)                         \
    N(12, disServingStats, DisServingRequestStats)
#define TRTLLM_EXPORTER_TimingMetrics(V, N, T)                                                                         \
    V(0, arrivalTime) V(1, firstScheduledTime) V(2, firstTokenTime) V(3, lastTokenTime) V(4, kvCacheTransferStart)     \
    V(5, kvCacheTransferEnd) V(6, kvCacheSize)
#define TRTLLM_EXPORTER_RequestKvCacheMetrics(V, N, T)                                                                 \
    V(0, numTotalAllocatedBlocks) V(1, numNewAllocatedBlocks) V(2, numReusedBlocks) V(3, numMissedBlocks)              \
    V(4, kvCacheHitRate)
#define TRTLLM_EXPORTER_SpeculativeDecodingMetrics(V, N, T)                                                            \
    V(0, acceptanceRate) V(1, totalAcceptedDraftTokens) V(2, totalDraftTokens)
// Slots 0, 1, 20 and 21 of its row have other meanings; see Rows::finished.
#define TRTLLM_EXPORTER_RequestPerfMetrics(V, N, T)                                                                    \
    V(2, firstIter) V(3, lastIter) N(4, timingMetrics, TimingMetrics) N(11, kvCacheMetrics, RequestKvCacheMetrics)     \
    N(16, speculativeDecoding, SpeculativeDecodingMetrics) V(19, iter)
// clang-format on

namespace trtllm_exporter
{
inline namespace development
{
namespace detail
{

/// Calls use(get(record)) if the struct has the member.
template <class Struct, class Get, class Use>
void visitMember(Struct const& record, Get const& get, Use const& use)
{
    if constexpr (std::is_invocable_v<Get, Struct const&>)
    {
        use(get(record));
    }
}

#define TRTLLM_EXPORTER_GET(member) [](auto const& from) -> decltype((from.member)) { return from.member; }
#define TRTLLM_EXPORTER_VALUE(slot, member)                                                                            \
    visitMember(record, TRTLLM_EXPORTER_GET(member),                                                                   \
        [&](auto const& value) { visitor.value(base + (slot), ",\"" #member "\":", value); });
#define TRTLLM_EXPORTER_NESTED(slot, member, Table)                                                                    \
    visitMember(record, TRTLLM_EXPORTER_GET(member),                                                                   \
        [&](auto const& value) { visitor.template nested<Table>(base + (slot), ",\"" #member "\":", value); });
#define TRTLLM_EXPORTER_TEXT(member)                                                                                   \
    visitMember(                                                                                                       \
        record, TRTLLM_EXPORTER_GET(member), [&](auto const& value) { visitor.text(",\"" #member "\":", value); });
#define TRTLLM_EXPORTER_VALUE_END(slot, member) , std::size_t{slot} + 1
#define TRTLLM_EXPORTER_NESTED_END(slot, member, Table) , std::size_t{slot} + Table::kSlots
#define TRTLLM_EXPORTER_TEXT_END(member)
/// visit() calls the visitor for each member that `record` has. kSlots is the length of a row.
#define TRTLLM_EXPORTER_TABLE(name)                                                                                    \
    struct name                                                                                                        \
    {                                                                                                                  \
        static constexpr std::size_t kSlots = std::max({std::size_t{0} TRTLLM_EXPORTER_##name(                         \
            TRTLLM_EXPORTER_VALUE_END, TRTLLM_EXPORTER_NESTED_END, TRTLLM_EXPORTER_TEXT_END)});                        \
        template <class Struct, class Visitor>                                                                         \
        static void visit([[maybe_unused]] std::size_t base, Struct const& record, Visitor& visitor)                   \
        {                                                                                                              \
            TRTLLM_EXPORTER_##name(TRTLLM_EXPORTER_VALUE, TRTLLM_EXPORTER_NESTED, TRTLLM_EXPORTER_TEXT)                \
        }                                                                                                              \
    };
TRTLLM_EXPORTER_TABLE(KvCacheStats)
TRTLLM_EXPORTER_TABLE(InflightBatchingStats)
TRTLLM_EXPORTER_TABLE(StaticBatchingStats)
TRTLLM_EXPORTER_TABLE(SpecDecodingStats)
TRTLLM_EXPORTER_TABLE(IterationStats)
TRTLLM_EXPORTER_TABLE(DisServingRequestStats)
TRTLLM_EXPORTER_TABLE(RequestStats)
TRTLLM_EXPORTER_TABLE(TimingMetrics)
TRTLLM_EXPORTER_TABLE(RequestKvCacheMetrics)
TRTLLM_EXPORTER_TABLE(SpeculativeDecodingMetrics)
TRTLLM_EXPORTER_TABLE(RequestPerfMetrics)
#undef TRTLLM_EXPORTER_GET
#undef TRTLLM_EXPORTER_VALUE
#undef TRTLLM_EXPORTER_NESTED
#undef TRTLLM_EXPORTER_TEXT
#undef TRTLLM_EXPORTER_VALUE_END
#undef TRTLLM_EXPORTER_NESTED_END
#undef TRTLLM_EXPORTER_TEXT_END
#undef TRTLLM_EXPORTER_TABLE
#undef TRTLLM_EXPORTER_KvCacheStats
#undef TRTLLM_EXPORTER_InflightBatchingStats
#undef TRTLLM_EXPORTER_StaticBatchingStats
#undef TRTLLM_EXPORTER_SpecDecodingStats
#undef TRTLLM_EXPORTER_IterationStats
#undef TRTLLM_EXPORTER_DisServingRequestStats
#undef TRTLLM_EXPORTER_RequestStats
#undef TRTLLM_EXPORTER_TimingMetrics
#undef TRTLLM_EXPORTER_RequestKvCacheMetrics
#undef TRTLLM_EXPORTER_SpeculativeDecodingMetrics
#undef TRTLLM_EXPORTER_RequestPerfMetrics

// Has_<member> is true if a struct has the member. These members identify the kind of a record.
#define TRTLLM_EXPORTER_HAS(member)                                                                                    \
    template <class T, class = void>                                                                                   \
    struct Has_##member : std::false_type                                                                              \
    {                                                                                                                  \
    };                                                                                                                 \
    template <class T>                                                                                                 \
    struct Has_##member<T, std::void_t<decltype(&T::member)>> : std::true_type                                         \
    {                                                                                                                  \
    };
TRTLLM_EXPORTER_HAS(iter)
TRTLLM_EXPORTER_HAS(numActiveRequests)
TRTLLM_EXPORTER_HAS(timingMetrics)
TRTLLM_EXPORTER_HAS(requestStats)
TRTLLM_EXPORTER_HAS(requestPerfMetrics)
TRTLLM_EXPORTER_HAS(getResult)
TRTLLM_EXPORTER_HAS(isFinal)
TRTLLM_EXPORTER_HAS(finishReasons)
#undef TRTLLM_EXPORTER_HAS

} // namespace detail
} // namespace development
} // namespace trtllm_exporter
