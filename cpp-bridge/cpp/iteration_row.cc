// Converts tensorrt_llm::executor::IterationStats to IterationRow.

#include "member.h"
#include "rows.h"
#include "timestamp.h"

namespace trtllm_bridge
{
namespace
{

TRTLLM_BRIDGE_MEMBER(iterLatencyMS);
TRTLLM_BRIDGE_MEMBER(newActiveRequestsQueueLatencyMS);
TRTLLM_BRIDGE_MEMBER(numNewActiveRequests);
TRTLLM_BRIDGE_MEMBER(numQueuedRequests);
TRTLLM_BRIDGE_MEMBER(numCompletedRequests);
TRTLLM_BRIDGE_MEMBER(maxBatchSizeStatic);
TRTLLM_BRIDGE_MEMBER(maxBatchSizeTunerRecommended);
TRTLLM_BRIDGE_MEMBER(maxBatchSizeRuntime);
TRTLLM_BRIDGE_MEMBER(maxNumTokensStatic);
TRTLLM_BRIDGE_MEMBER(maxNumTokensTunerRecommended);
TRTLLM_BRIDGE_MEMBER(maxNumTokensRuntime);
TRTLLM_BRIDGE_MEMBER(kvCacheStats);
TRTLLM_BRIDGE_MEMBER(crossKvCacheStats);
TRTLLM_BRIDGE_MEMBER(allocTotalBlocks);
TRTLLM_BRIDGE_MEMBER(allocNewBlocks);
TRTLLM_BRIDGE_MEMBER(reusedBlocks);
TRTLLM_BRIDGE_MEMBER(missedBlocks);
TRTLLM_BRIDGE_MEMBER(cacheHitRate);
TRTLLM_BRIDGE_MEMBER(staticBatchingStats);
TRTLLM_BRIDGE_MEMBER(inflightBatchingStats);
TRTLLM_BRIDGE_MEMBER(avgNumDecodedTokensPerIter);
TRTLLM_BRIDGE_MEMBER(numCtxKvTokens);
TRTLLM_BRIDGE_MEMBER(numGenKvTokens);
TRTLLM_BRIDGE_MEMBER(numQueuedContextRequests);
TRTLLM_BRIDGE_MEMBER(numQueuedCtxTokens);
TRTLLM_BRIDGE_MEMBER(numQueuedGenRequests);
TRTLLM_BRIDGE_MEMBER(numQueuedGenKvTokens);
TRTLLM_BRIDGE_MEMBER(numPausedKvTokens);
TRTLLM_BRIDGE_MEMBER(specDecodingStats);
TRTLLM_BRIDGE_MEMBER(numDraftTokens);
TRTLLM_BRIDGE_MEMBER(numAcceptedTokens);
TRTLLM_BRIDGE_MEMBER(numRequestsWithDraftTokens);
TRTLLM_BRIDGE_MEMBER(acceptanceLength);
TRTLLM_BRIDGE_MEMBER(draftOverhead);

constexpr std::uint64_t bit(IterationPresent group, bool exists = true)
{
    return exists ? static_cast<std::uint64_t>(group) : 0;
}

// A macro, because the two caches have the same members with two prefixes.
#define TRTLLM_BRIDGE_READ_KV(kv, row, prefix)                                                                         \
    do                                                                                                                 \
    {                                                                                                                  \
        (row).prefix##_max_num_blocks = (kv).maxNumBlocks;                                                             \
        (row).prefix##_free_num_blocks = (kv).freeNumBlocks;                                                           \
        (row).prefix##_used_num_blocks = (kv).usedNumBlocks;                                                           \
        (row).prefix##_tokens_per_block = (kv).tokensPerBlock;                                                         \
        Copy_allocTotalBlocks::from(kv, (row).prefix##_alloc_total_blocks);                                            \
        Copy_allocNewBlocks::from(kv, (row).prefix##_alloc_new_blocks);                                                \
        Copy_reusedBlocks::from(kv, (row).prefix##_reused_blocks);                                                     \
        Copy_missedBlocks::from(kv, (row).prefix##_missed_blocks);                                                     \
        Copy_cacheHitRate::from(kv, (row).prefix##_cache_hit_rate);                                                    \
    } while (false)

template <class Stats>
void readCaches(Stats const& stats, IterationRow& row)
{
    Copy_kvCacheStats::visit(stats,
        [&row](auto const& kv)
        {
            using Kv = std::decay_t<decltype(kv)>;
            TRTLLM_BRIDGE_READ_KV(kv, row, kv);
            row.present |= bit(IterationPresent::Kv) | bit(IterationPresent::KvAlloc, Copy_reusedBlocks::exists<Kv>)
                | bit(IterationPresent::KvMissed, Copy_missedBlocks::exists<Kv>);
        });
    Copy_crossKvCacheStats::visit(stats,
        [&row](auto const& kv)
        {
            using Kv = std::decay_t<decltype(kv)>;
            TRTLLM_BRIDGE_READ_KV(kv, row, cross_kv);
            row.present |= bit(IterationPresent::CrossKv)
                | bit(IterationPresent::CrossKvAlloc, Copy_reusedBlocks::exists<Kv>)
                | bit(IterationPresent::CrossKvMissed, Copy_missedBlocks::exists<Kv>);
        });
}

template <class Stats>
void readBatching(Stats const& stats, IterationRow& row)
{
    Copy_staticBatchingStats::visit(stats,
        [&row](auto const& batching)
        {
            row.static_num_scheduled_requests = batching.numScheduledRequests;
            row.static_num_context_requests = batching.numContextRequests;
            row.static_num_ctx_tokens = batching.numCtxTokens;
            row.static_num_gen_tokens = batching.numGenTokens;
            row.static_empty_gen_slots = batching.emptyGenSlots;
            row.present |= bit(IterationPresent::Static);
        });
    Copy_inflightBatchingStats::visit(stats,
        [&row](auto const& batching)
        {
            using Batching = std::decay_t<decltype(batching)>;
            row.inflight_num_scheduled_requests = batching.numScheduledRequests;
            row.inflight_num_context_requests = batching.numContextRequests;
            row.inflight_num_gen_requests = batching.numGenRequests;
            row.inflight_num_paused_requests = batching.numPausedRequests;
            row.inflight_num_ctx_tokens = batching.numCtxTokens;
            row.inflight_micro_batch_id = batching.microBatchId;
            Copy_avgNumDecodedTokensPerIter::from(batching, row.inflight_avg_num_decoded_tokens_per_iter);
            Copy_numCtxKvTokens::from(batching, row.inflight_num_ctx_kv_tokens);
            Copy_numGenKvTokens::from(batching, row.inflight_num_gen_kv_tokens);
            Copy_numQueuedContextRequests::from(batching, row.inflight_num_queued_context_requests);
            Copy_numQueuedCtxTokens::from(batching, row.inflight_num_queued_ctx_tokens);
            Copy_numQueuedGenRequests::from(batching, row.inflight_num_queued_gen_requests);
            Copy_numQueuedGenKvTokens::from(batching, row.inflight_num_queued_gen_kv_tokens);
            Copy_numPausedKvTokens::from(batching, row.inflight_num_paused_kv_tokens);
            row.present |= bit(IterationPresent::Inflight)
                | bit(IterationPresent::InflightDecoded, Copy_avgNumDecodedTokensPerIter::exists<Batching>)
                | bit(IterationPresent::InflightKvTokens, Copy_numCtxKvTokens::exists<Batching>);
        });
}

template <class Stats>
void readSpecDecoding(Stats const& stats, IterationRow& row)
{
    Copy_specDecodingStats::visit(stats,
        [&row](auto const& spec)
        {
            Copy_numDraftTokens::from(spec, row.spec_num_draft_tokens);
            Copy_numAcceptedTokens::from(spec, row.spec_num_accepted_tokens);
            Copy_numRequestsWithDraftTokens::from(spec, row.spec_num_requests_with_draft_tokens);
            Copy_acceptanceLength::from(spec, row.spec_acceptance_length);
            Copy_iterLatencyMS::from(spec, row.spec_iter_latency_ms);
            Copy_draftOverhead::from(spec, row.spec_draft_overhead);
            row.present |= bit(IterationPresent::Spec);
        });
}

/// The presence bits that depend on the release only.
template <class Stats>
constexpr std::uint64_t kAlwaysPresent = bit(IterationPresent::IterLatency, Copy_iterLatencyMS::exists<Stats>)
    | bit(IterationPresent::QueueLatency, Copy_newActiveRequestsQueueLatencyMS::exists<Stats>)
    | bit(IterationPresent::NewActiveRequests, Copy_numNewActiveRequests::exists<Stats>)
    | bit(IterationPresent::QueuedRequests, Copy_numQueuedRequests::exists<Stats>)
    | bit(IterationPresent::CompletedRequests, Copy_numCompletedRequests::exists<Stats>)
    | bit(IterationPresent::BatchSizeLimits, Copy_maxBatchSizeRuntime::exists<Stats>)
    | bit(IterationPresent::TokenLimits, Copy_maxNumTokensRuntime::exists<Stats>);

template <class Stats>
void readAny(Stats const& stats, IterationRow& row)
{
    row = IterationRow{};
    row.present = kAlwaysPresent<Stats>;
    if (auto const time = parseTimestamp(stats.timestamp))
    {
        row.timestamp_local_us = *time;
        row.present |= bit(IterationPresent::Timestamp);
    }
    row.iter = stats.iter;
    Copy_iterLatencyMS::from(stats, row.iter_latency_ms);
    Copy_newActiveRequestsQueueLatencyMS::from(stats, row.new_active_requests_queue_latency_ms);
    Copy_numNewActiveRequests::from(stats, row.num_new_active_requests);
    row.num_active_requests = stats.numActiveRequests;
    Copy_numQueuedRequests::from(stats, row.num_queued_requests);
    Copy_numCompletedRequests::from(stats, row.num_completed_requests);
    row.max_num_active_requests = stats.maxNumActiveRequests;
    Copy_maxBatchSizeStatic::from(stats, row.max_batch_size_static);
    Copy_maxBatchSizeTunerRecommended::from(stats, row.max_batch_size_tuner_recommended);
    Copy_maxBatchSizeRuntime::from(stats, row.max_batch_size_runtime);
    Copy_maxNumTokensStatic::from(stats, row.max_num_tokens_static);
    Copy_maxNumTokensTunerRecommended::from(stats, row.max_num_tokens_tuner_recommended);
    Copy_maxNumTokensRuntime::from(stats, row.max_num_tokens_runtime);
    row.gpu_mem_usage = stats.gpuMemUsage;
    row.cpu_mem_usage = stats.cpuMemUsage;
    row.pinned_mem_usage = stats.pinnedMemUsage;
    readCaches(stats, row);
    readBatching(stats, row);
    readSpecDecoding(stats, row);
}

} // namespace

void readRow(tensorrt_llm::executor::IterationStats const& stats, IterationRow& row)
{
    readAny(stats, row);
}

} // namespace trtllm_bridge
