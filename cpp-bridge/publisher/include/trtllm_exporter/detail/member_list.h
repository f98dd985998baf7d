#pragma once

// The list of all members of TensorRT-LLM's statistics structs in all releases. publisher.h uses it to write JSON, and
// the bridge uses it to fill its shared structs. To add a member, add it here and to the shared struct in src/ffi.rs. A
// member that a release does not have is skipped.

// V(name, field): a value. N(name, field, Struct): a nested struct, or an optional one. T(name, field): text. `name` is
// TensorRT-LLM's name and the key in JSON, `field` is the name in the bridge. A nested struct comes before the structs
// that contain it. clang-format would indent the lists like expressions.
// clang-format off
#define TRTLLM_EXPORTER_KvCacheStats(V, N, T)                                                                          \
    V(maxNumBlocks, max_num_blocks) V(freeNumBlocks, free_num_blocks) V(usedNumBlocks, used_num_blocks)                \
    V(tokensPerBlock, tokens_per_block) V(allocTotalBlocks, alloc_total_blocks) V(allocNewBlocks, alloc_new_blocks)    \
    V(reusedBlocks, reused_blocks) V(missedBlocks, missed_blocks) V(cacheHitRate, cache_hit_rate)
#define TRTLLM_EXPORTER_InflightBatchingStats(V, N, T)                                                                 \
    V(numScheduledRequests, num_scheduled_requests) V(numContextRequests, num_context_requests)                        \
    V(numGenRequests, num_gen_requests) V(numPausedRequests, num_paused_requests) V(numCtxTokens, num_ctx_tokens)      \
    V(microBatchId, micro_batch_id) V(avgNumDecodedTokensPerIter, avg_num_decoded_tokens_per_iter)                     \
    V(numCtxKvTokens, num_ctx_kv_tokens) V(numGenKvTokens, num_gen_kv_tokens)                                          \
    V(numQueuedContextRequests, num_queued_context_requests) V(numQueuedCtxTokens, num_queued_ctx_tokens)              \
    V(numQueuedGenRequests, num_queued_gen_requests) V(numQueuedGenKvTokens, num_queued_gen_kv_tokens)                 \
    V(numPausedKvTokens, num_paused_kv_tokens)
#define TRTLLM_EXPORTER_StaticBatchingStats(V, N, T)                                                                   \
    V(numScheduledRequests, num_scheduled_requests) V(numContextRequests, num_context_requests)                        \
    V(numCtxTokens, num_ctx_tokens) V(numGenTokens, num_gen_tokens) V(emptyGenSlots, empty_gen_slots)
#define TRTLLM_EXPORTER_SpecDecodingStats(V, N, T)                                                                     \
    V(numDraftTokens, num_draft_tokens) V(numAcceptedTokens, num_accepted_tokens)                                      \
    V(numRequestsWithDraftTokens, num_requests_with_draft_tokens) V(acceptanceLength, acceptance_length)               \
    V(iterLatencyMS, iter_latency_ms) V(draftOverhead, draft_overhead)
#define TRTLLM_EXPORTER_IterationStats(V, N, T)                                                                        \
    T(timestamp, timestamp) V(iter, iter) V(iterLatencyMS, iter_latency_ms)                                            \
    V(newActiveRequestsQueueLatencyMS, new_active_requests_queue_latency_ms)                                           \
    V(numNewActiveRequests, num_new_active_requests) V(numActiveRequests, num_active_requests)                         \
    V(numQueuedRequests, num_queued_requests) V(numCompletedRequests, num_completed_requests)                          \
    V(maxNumActiveRequests, max_num_active_requests) V(maxBatchSizeStatic, max_batch_size_static)                      \
    V(maxBatchSizeTunerRecommended, max_batch_size_tuner_recommended) V(maxBatchSizeRuntime, max_batch_size_runtime)   \
    V(maxNumTokensStatic, max_num_tokens_static) V(maxNumTokensTunerRecommended, max_num_tokens_tuner_recommended)     \
    V(maxNumTokensRuntime, max_num_tokens_runtime) V(gpuMemUsage, gpu_mem_usage) V(cpuMemUsage, cpu_mem_usage)         \
    V(pinnedMemUsage, pinned_mem_usage) N(kvCacheStats, kv_cache_stats, KvCacheStats)                                  \
    N(crossKvCacheStats, cross_kv_cache_stats, KvCacheStats)                                                           \
    N(inflightBatchingStats, inflight_batching_stats, InflightBatchingStats)                                           \
    N(staticBatchingStats, static_batching_stats, StaticBatchingStats)                                                 \
    N(specDecodingStats, spec_decoding_stats, SpecDecodingStats)
#define TRTLLM_EXPORTER_DisServingRequestStats(V, N, T)                                                                \
    V(kvCacheTransferMS, kv_cache_transfer_ms) V(kvCacheSize, kv_cache_size)
#define TRTLLM_EXPORTER_RequestStats(V, N, T)                                                                          \
    V(id, id) V(stage, stage) V(contextPrefillPosition, context_prefill_position)                                      \
    V(numGeneratedTokens, num_generated_tokens) V(avgNumDecodedTokensPerIter, avg_num_decoded_tokens_per_iter)         \
    V(scheduled, scheduled) V(paused, paused) V(allocTotalBlocksPerRequest, alloc_total_blocks_per_request)            \
    V(allocNewBlocksPerRequest, alloc_new_blocks_per_request) V(reusedBlocksPerRequest, reused_blocks_per_request)     \
    V(missedBlocksPerRequest, missed_blocks_per_request) V(kvCacheHitRatePerRequest, kv_cache_hit_rate_per_request)    \
    N(disServingStats, dis_serving_stats, DisServingRequestStats)
#define TRTLLM_EXPORTER_TimingMetrics(V, N, T)                                                                         \
    V(arrivalTime, arrival_time) V(firstScheduledTime, first_scheduled_time) V(firstTokenTime, first_token_time)       \
    V(lastTokenTime, last_token_time) V(kvCacheTransferStart, kv_cache_transfer_start)                                 \
    V(kvCacheTransferEnd, kv_cache_transfer_end) V(kvCacheSize, kv_cache_size)
#define TRTLLM_EXPORTER_RequestKvCacheMetrics(V, N, T)                                                                 \
    V(numTotalAllocatedBlocks, num_total_allocated_blocks) V(numNewAllocatedBlocks, num_new_allocated_blocks)          \
    V(numReusedBlocks, num_reused_blocks) V(numMissedBlocks, num_missed_blocks) V(kvCacheHitRate, kv_cache_hit_rate)
#define TRTLLM_EXPORTER_SpeculativeDecodingMetrics(V, N, T)                                                            \
    V(acceptanceRate, acceptance_rate) V(totalAcceptedDraftTokens, total_accepted_draft_tokens)                        \
    V(totalDraftTokens, total_draft_tokens)
#define TRTLLM_EXPORTER_RequestPerfMetrics(V, N, T)                                                                    \
    V(firstIter, first_iter) V(lastIter, last_iter) N(timingMetrics, timing_metrics, TimingMetrics)                    \
    N(kvCacheMetrics, kv_cache_metrics, RequestKvCacheMetrics)                                                         \
    N(speculativeDecoding, speculative_decoding, SpeculativeDecodingMetrics) V(iter, iter)
// clang-format on
/// Expands to X(Struct) for each struct, nested structs first.
#define TRTLLM_EXPORTER_STRUCTS(X)                                                                                     \
    X(KvCacheStats)                                                                                                    \
    X(InflightBatchingStats)                                                                                           \
    X(StaticBatchingStats)                                                                                             \
    X(SpecDecodingStats)                                                                                               \
    X(IterationStats)                                                                                                  \
    X(DisServingRequestStats)                                                                                          \
    X(RequestStats)                                                                                                    \
    X(TimingMetrics)                                                                                                   \
    X(RequestKvCacheMetrics)                                                                                           \
    X(SpeculativeDecodingMetrics)                                                                                      \
    X(RequestPerfMetrics)
