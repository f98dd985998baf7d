//! The statistics of TensorRT-LLM: every field once, with its properties. `structs.rs` shows what a line becomes, and
//! [`schema`](crate::schema) says what each property means. Fields have TensorRT-LLM's names, and are absent if they were not sent.

use serde::de::Deserializer;

use super::by_id::ById;
use super::kind::{Kind, Part};
use super::lenient;
use super::names::{FinishReason, LifecycleKind, RequestStage, SchedulerMode};
use super::schema::{Field, Rejected, Schema};
use super::step_times::{STEPS, StepTimes};
use super::structs::schema;
use super::timestamp::RecordTime;

/// The structs that the C++ Executor has. `$apply` is the macro that makes something from them: `schema` the structs themselves, and
/// another crate the conversion from the C++ Executor's structs.
#[macro_export]
macro_rules! executor_statistics {
    ($apply:ident) => {
        $apply! { EXECUTOR:
            /// One IterationStats record. Source: executor, trtllm-serve `GET /metrics`, `get_stats()`, the socket.
            ///
            /// The overlap scheduler of the PyTorch engine writes it one pass after its batch was launched. Numbers of the queue, of
            /// completed requests, of memory and of the KV cache are from this later moment, and host and device steps are those of the
            /// batch before. Only numbers of one moment belong together (upstream: `PyExecutor._executor_loop_overlap`).
            pub struct IterationStats: Iterations {
                /// When the C++ executor wrote the record, or when the PyTorch engine started the batch. Absent if it was sent as
                /// `""`.
                @cpp timestamp: RecordTime = "timestamp" [WallClock];
                /// Iteration number, counted by the engine from its start.
                @cpp iter: u64 = "iter" [Sequence];
                /// The C++ executor reports the duration of the previous pass of its loop.
                @cpp iter_latency_ms: f64 = "iterLatencyMS" [Milliseconds];
                /// The *sum* over the requests that became active in this iteration. The PyTorch engine sends seconds,
                /// summed since its start.
                @cpp new_active_requests_queue_latency_ms: f64 = "newActiveRequestsQueueLatencyMS" [Milliseconds];
                /// Requests that became active in this iteration.
                @cpp num_new_active_requests: i64 = "numNewActiveRequests" [Count];
                @cpp num_active_requests: i64 = "numActiveRequests" [Count];
                /// Requests in the executor's own queue, not yet active.
                @cpp num_queued_requests: i64 = "numQueuedRequests" [Count];
                /// Requests completed in this iteration.
                @cpp num_completed_requests: i64 = "numCompletedRequests" [Count];
                @cpp max_num_active_requests: i64 = "maxNumActiveRequests" [Count];
                @cpp max_batch_size_static: i64 = "maxBatchSizeStatic" [Count when(Cpp)];
                @cpp max_batch_size_tuner_recommended: i64 = "maxBatchSizeTunerRecommended" [Count when(Cpp)];
                @cpp max_batch_size_runtime: i64 = "maxBatchSizeRuntime" [Count when(Cpp)];
                @cpp max_num_tokens_static: i64 = "maxNumTokensStatic" [Count when(Cpp)];
                @cpp max_num_tokens_tuner_recommended: i64 = "maxNumTokensTunerRecommended" [Count when(Cpp)];
                @cpp max_num_tokens_runtime: i64 = "maxNumTokensRuntime" [Count when(Cpp)];
                /// The C++ backend reports the memory of its process's buffer managers. The PyTorch backend reports the
                /// memory of all processes on the GPU.
                @cpp gpu_mem_usage: i64 = "gpuMemUsage" [Bytes];
                @cpp cpu_mem_usage: i64 = "cpuMemUsage" [Bytes];
                @cpp pinned_mem_usage: i64 = "pinnedMemUsage" [Bytes];
                @cpp kv_cache_stats: KvCacheStats = "kvCacheStats" [Part];
                /// Sent only for encoder-decoder models. The C++ JSON serializer omits this field.
                @cpp cross_kv_cache_stats: KvCacheStats = "crossKvCacheStats" [Part when(CrossAttention)];
                @cpp static_batching_stats: StaticBatchingStats = "staticBatchingStats" [Part when(Cpp)];
                @cpp inflight_batching_stats: InflightBatchingStats = "inflightBatchingStats" [Part];
                /// Sent only by the PyTorch backend.
                @cpp spec_decoding_stats: SpecDecodingStats =
                    "specDecodingStats" | "specdec_stats" [Part when(Speculation)];
                /// Sent only by trtllm-serve with `enable_iter_req_stats`.
                request_stats: Vec<RequestStats> = "requestStats" [Requests when(Rows)];
                /// Rank in attention data parallelism. Each rank sends its own record for an iteration, with the same `iter`.
                attention_dp_rank: i64 = "attentionDpRank" [Rank when(AttentionDp)];
                rank: i64 = "rank" [Rank when(AttentionDp)];
                /// One pass of the host loop. Under the overlap scheduler, the pass waited for the batch before.
                host_step_time_ms: f64 = "hostStepTimeMS" [Milliseconds when(PyTorch)];
                prev_device_step_time_ms: f64 = "prevDeviceStepTimeMS" [Milliseconds when(PyTorch)];
                gpu_forward_time_ms: f64 = "gpuForwardTimeMS" [Milliseconds when(PyTorch)];
                scheduler_mode: SchedulerMode = "schedulerMode" [Name when(PyTorch)];
                /// Sequence number of the record (the statistics frame). A gap means that records were lost.
                stats_sequence: u64 = "statsSequence" [Sequence when(PyTorch)];
                /// Number of records that the engine has dropped itself since its start.
                stats_dropped_frames: u64 = "statsDroppedFrames" [UnsignedCount when(PyTorch)];
                /// Statistics for each attention window size.
                kv_cache_iteration_stats: ById<KvCacheIterationStats> = "kvCacheIterationStats" [Parts when(Windows)];
                /// Statistics for each pool group on the GPU. A pool that several windows share appears once. Only KV cache manager
                /// V2 sends this field and all fields below.
                kv_cache_iteration_stats_by_pool_group: ById<KvCacheIterationStats> =
                    "kvCacheIterationStatsByPoolGroup" [Parts when(V2)];
                /// Statistics for each pool group on host and disk. These groups differ from the pool groups on the GPU.
                kv_cache_iteration_stats_by_cold_pool_group: ById<KvCacheIterationStats> =
                    "kvCacheIterationStatsByColdPoolGroup" [Parts when(V2)];
                /// Statistics for each life cycle (a group of layers) that looked up blocks in this iteration.
                kv_cache_iteration_stats_by_lifecycle: ById<KvCacheLifecycleStats> =
                    "kvCacheIterationStatsByLifecycle" [Parts when(V2)];
                /// Requests whose KV cache was evicted in this iteration.
                iter_suspended_requests: i64 = "iterSuspendedRequests" [Count when(V2)];
                iter_resumed_requests: i64 = "iterResumedRequests" [Count when(V2)];
                iter_disk_prefetch_blocks: i64 = "iterDiskPrefetchBlocks" [Count when(V2)];
                /// Prompt tokens found in the KV cache in this iteration, by level: GPU first.
                iter_cached_tokens_by_level: Vec<i64> = "iterCachedTokensByLevel" [Levels when(V2)];
                /// Denoising steps since the start of VisualGen, which writes a record when a request comes, starts or ends. No other engine
                /// sends this field.
                current_steps_processed: i64 = "currentStepsProcessed" [Count
                    none("only VisualGen sends it; a record with it is not an iteration")];
                /// The name of each level, e.g. `gpu`, `host`, `disk`.
                kv_cache_level_tiers: Vec<String> = "kvCacheLevelTiers" [LevelNames when(V2)];
            }

            /// Blocks of one KV cache. `alloc*`, `reused` and `missed` are cumulative since the cache was created.
            #[derive(Copy)]
            pub struct KvCacheStats: Iterations, free_num_blocks <= max_num_blocks {
                @cpp max_num_blocks: i64 = "maxNumBlocks" [Count all];
                /// Includes blocks that are kept only for reuse.
                @cpp free_num_blocks: i64 = "freeNumBlocks" [Count all];
                @cpp used_num_blocks: i64 = "usedNumBlocks" [Count all];
                @cpp tokens_per_block: i64 = "tokensPerBlock" [BlockTokens];
                /// Used share of the blocks. Only the iteration log has it (`kv_cache_util`), which has no numbers of
                /// blocks.
                used_share: f64 = "usedShare" [Share largest when(PyTorch)];
                @cpp alloc_total_blocks: i64 = "allocTotalBlocks" [Cumulative];
                @cpp alloc_new_blocks: i64 = "allocNewBlocks" [Cumulative];
                @cpp reused_blocks: i64 = "reusedBlocks" [Cumulative sum];
                @cpp missed_blocks: i64 = "missedBlocks" [Cumulative sum];
                /// Cumulative hit rate.
                @cpp cache_hit_rate: f64 = "cacheHitRate" [Share = hit_ratio
                    none("counted since the engine's start, in older PyTorch releases including warm-up; nv_trt_llm_kv_cache_hit_ratio is computed from the blocks instead (the name set trtllm exports the field unchanged)")];
            }

            /// Statistics of in-flight batching. Other projects call the context and generation phases prefill and decode.
            #[derive(Copy)]
            pub struct InflightBatchingStats: Iterations {
                @cpp num_scheduled_requests: i64 = "numScheduledRequests" [Count sum load];
                @cpp num_context_requests: i64 = "numContextRequests" [Count sum load];
                @cpp num_gen_requests: i64 = "numGenRequests" [Count sum load];
                @cpp num_paused_requests: i64 = "numPausedRequests" [Count sum load];
                /// Context tokens computed in this iteration. Tokens found in the cache are not included.
                @cpp num_ctx_tokens: i64 = "numCtxTokens" [Count sum load];
                @cpp micro_batch_id: i64 = "microBatchId" [Count];
                /// Tokens per generation request. Some releases of the PyTorch backend send 0.
                @cpp avg_num_decoded_tokens_per_iter: f64 = "avgNumDecodedTokensPerIter" [Mean];
                @cpp num_ctx_kv_tokens: i64 = "numCtxKvTokens" [Count sum load when(PyTorch)];
                @cpp num_gen_kv_tokens: i64 = "numGenKvTokens" [Count sum load when(PyTorch)];
                @cpp num_queued_context_requests: i64 = "numQueuedContextRequests" [Count load when(PyTorch)];
                @cpp num_queued_ctx_tokens: i64 = "numQueuedCtxTokens" [Count load when(PyTorch)];
                @cpp num_queued_gen_requests: i64 = "numQueuedGenRequests" [Count load when(PyTorch)];
                @cpp num_queued_gen_kv_tokens: i64 = "numQueuedGenKvTokens" [Count load when(PyTorch)];
                @cpp num_paused_kv_tokens: i64 = "numPausedKvTokens" [Count sum load when(PyTorch)];
            }

            /// Statistics of static batching. PyTorch always sends this object, with zeros if it does not batch statically.
            #[derive(Copy)]
            pub struct StaticBatchingStats: Cpp {
                @cpp num_scheduled_requests: i64 = "numScheduledRequests" [Count load];
                @cpp num_context_requests: i64 = "numContextRequests" [Count load];
                @cpp num_ctx_tokens: i64 = "numCtxTokens" [Count load];
                @cpp num_gen_tokens: i64 = "numGenTokens" [Count load];
                /// Unused generation slots of the padded batch.
                @cpp empty_gen_slots: i64 = "emptyGenSlots" [Count load];
            }

            /// Statistics of speculative decoding, summed over the generation requests of this iteration.
            #[derive(Copy)]
            pub struct SpecDecodingStats: Speculation {
                @cpp num_draft_tokens: i64 = "numDraftTokens" [Count events];
                @cpp num_accepted_tokens: i64 = "numAcceptedTokens" [Count events];
                @cpp num_requests_with_draft_tokens: i64 = "numRequestsWithDraftTokens" [Count events];
                /// Tokens per step: the accepted draft tokens plus one.
                @cpp acceptance_length: f64 = "acceptanceLength" [Mean = tokens_per_step];
                /// Time spent drafting.
                @cpp iter_latency_ms: f64 = "iterLatencyMS" [Milliseconds];
                /// Draft time divided by iteration time.
                @cpp draft_overhead: f64 = "draftOverhead" [Share];
            }

            /// One request at one iteration. Source: RequestStatsPerIteration, or `requestStats` inside a record.
            pub struct RequestStats: Rows {
                @cpp id: u64 = "id" [RowId
                    none("one series per request would be unbounded; the exporter uses it to match a request's rows of different iterations")];
                @cpp stage: RequestStage = "stage" [Name];
                /// Tokens of the prompt processed so far (chunked context).
                @cpp context_prefill_position: i64 = "contextPrefillPosition" [Count];
                @cpp num_generated_tokens: i64 = "numGeneratedTokens" [Count];
                @cpp avg_num_decoded_tokens_per_iter: f64 = "avgNumDecodedTokensPerIter" [Mean];
                @cpp scheduled: bool = "scheduled" [Name];
                @cpp paused: bool = "paused" [Name];
                @cpp dis_serving_stats: DisServingRequestStats = "disServingStats" [Part];
                @cpp alloc_total_blocks_per_request: i64 = "allocTotalBlocksPerRequest" [Count];
                @cpp alloc_new_blocks_per_request: i64 = "allocNewBlocksPerRequest" [Count];
                @cpp reused_blocks_per_request: i64 = "reusedBlocksPerRequest" [Count];
                @cpp missed_blocks_per_request: i64 = "missedBlocksPerRequest" [Count];
                @cpp kv_cache_hit_rate_per_request: f64 = "kvCacheHitRatePerRequest" [Share
                    none("nv_trt_llm_request_kv_cache_hit_ratio is computed from the blocks, because upstream sends 0 for a request without lookups, which has no ratio")];
            }

            /// The KV cache transfer of a request that a context and a generation server handle together.
            #[derive(Copy)]
            pub struct DisServingRequestStats: Rows {
                @cpp kv_cache_transfer_ms: f64 = "kvCacheTransferMS" [Milliseconds];
                @cpp kv_cache_size: i64 = "kvCacheSize" [Bytes];
            }

            pub struct RequestPerfMetrics: Entries {
                @cpp first_iter: u64 = "firstIter" [UnsignedCount];
                @cpp last_iter: u64 = "lastIter" [UnsignedCount];
                @cpp iter: u64 = "iter" [UnsignedCount none("equals lastIter for a finished request")];
                @cpp timing_metrics: TimingMetrics = "timingMetrics" [Part];
                @cpp kv_cache_metrics: RequestKvCacheMetrics = "kvCacheMetrics" [Part];
                @cpp speculative_decoding: SpeculativeDecodingMetrics = "speculativeDecoding" [Part];
            }

            /// Seconds on one clock. The engine sends 0 for a time that it did not measure, so read the fields through
            /// [`TimingMetrics::measured`].
            #[derive(Copy)]
            pub struct TimingMetrics: Entries {
                /// When the HTTP server received the request.
                server_arrival_time: f64 = "serverArrivalTime" [Seconds];
                /// When the HTTP server sent the first token.
                server_first_token_time: f64 = "serverFirstTokenTime" [Seconds];
                @cpp arrival_time: f64 = "arrivalTime" [Seconds];
                @cpp first_scheduled_time: f64 = "firstScheduledTime" [Seconds];
                @cpp first_token_time: f64 = "firstTokenTime" [Seconds];
                @cpp last_token_time: f64 = "lastTokenTime" [Seconds];
                @cpp kv_cache_transfer_start: f64 = "kvCacheTransferStart" [Seconds];
                @cpp kv_cache_transfer_end: f64 = "kvCacheTransferEnd" [Seconds];
                @cpp kv_cache_size: u64 = "kvCacheSize" [UnsignedBytes];
            }

            /// KV cache blocks of one request over its lifetime.
            #[derive(Copy)]
            pub struct RequestKvCacheMetrics: Entries {
                @cpp num_total_allocated_blocks: i64 = "numTotalAllocatedBlocks" [Count];
                @cpp num_new_allocated_blocks: i64 = "numNewAllocatedBlocks" [Count];
                @cpp num_reused_blocks: i64 = "numReusedBlocks" [Count];
                @cpp num_missed_blocks: i64 = "numMissedBlocks" [Count];
                @cpp kv_cache_hit_rate: f64 = "kvCacheHitRate" [Share
                    none("computed from the blocks, as for kvCacheHitRatePerRequest")];
            }

            /// Speculative decoding of one request over its lifetime.
            #[derive(Copy)]
            pub struct SpeculativeDecodingMetrics: Entries {
                @cpp acceptance_rate: f64 = "acceptanceRate" [Share];
                @cpp total_accepted_draft_tokens: i64 = "totalAcceptedDraftTokens" [Count];
                @cpp total_draft_tokens: i64 = "totalDraftTokens" [Count];
            }
        }
    };
}

executor_statistics!(schema);

// What no struct of the C++ Executor has.
schema! { OTHERS:
    /// KV cache pools of one attention window or pool group. Fields `iter*` count events since the previous record.
    #[derive(Copy)]
    pub struct KvCacheIterationStats: Windows {
        /// Bytes of a block, summed over the pools of a pool group. TensorRT-LLM sends a list, one number per pool.
        slot_size: i64 = "slotSize" [BlockBytes];
        primary_max_num_blocks: i64 = "primaryMaxNumBlocks" [Count sum];
        primary_free_num_blocks: i64 = "primaryFreeNumBlocks" [Count sum];
        primary_used_num_blocks: i64 = "primaryUsedNumBlocks" [Count sum];
        primary_evictable_num_blocks: i64 = "primaryEvictableNumBlocks" [Count sum];
        primary_peak_free_num_blocks: i64 = "primaryPeakFreeNumBlocks" [Count sum];
        primary_peak_used_num_blocks: i64 = "primaryPeakUsedNumBlocks" [Count sum];
        primary_peak_evictable_num_blocks: i64 = "primaryPeakEvictableNumBlocks" [Count sum];
        secondary_max_num_blocks: i64 = "secondaryMaxNumBlocks" [Count sum];
        secondary_free_num_blocks: i64 = "secondaryFreeNumBlocks" [Count sum];
        secondary_used_num_blocks: i64 = "secondaryUsedNumBlocks" [Count sum];
        secondary_evictable_num_blocks: i64 = "secondaryEvictableNumBlocks" [Count sum];
        secondary_peak_free_num_blocks: i64 = "secondaryPeakFreeNumBlocks" [Count sum];
        secondary_peak_used_num_blocks: i64 = "secondaryPeakUsedNumBlocks" [Count sum];
        secondary_peak_evictable_num_blocks: i64 = "secondaryPeakEvictableNumBlocks" [Count sum];
        iter_alloc_total_blocks: i64 = "iterAllocTotalBlocks" [Count events];
        iter_alloc_new_blocks: i64 = "iterAllocNewBlocks" [Count events];
        iter_reused_blocks: i64 = "iterReusedBlocks" [Count events];
        iter_full_reused_blocks: i64 = "iterFullReusedBlocks" [Count events];
        iter_partial_reused_blocks: i64 = "iterPartialReusedBlocks" [Count events];
        iter_missed_blocks: i64 = "iterMissedBlocks" [Count events];
        iter_cache_hit_rate: f64 = "iterCacheHitRate" [Share
            none("covers one window; nv_trt_llm_kv_cache_iteration_hit_ratio covers all windows and is computed from the blocks")];
        iter_gen_alloc_blocks: i64 = "iterGenAllocBlocks" [Count events];
        iter_onboard_blocks: i64 = "iterOnboardBlocks" [Count events];
        iter_onboard_bytes: i64 = "iterOnboardBytes" [Bytes events];
        iter_offload_blocks: i64 = "iterOffloadBlocks" [Count events];
        iter_offload_bytes: i64 = "iterOffloadBytes" [Bytes events];
        iter_intra_device_copy_blocks: i64 = "iterIntraDeviceCopyBlocks" [Count events];
        iter_intra_device_copy_bytes: i64 = "iterIntraDeviceCopyBytes" [Bytes events];
        iter_host_dropped_blocks: i64 = "iterHostDroppedBlocks" [Count events];
        iter_host_dropped_bytes: i64 = "iterHostDroppedBytes" [Bytes events];
    }

    /// Blocks that one life cycle found in the cache since the previous record. A life cycle is a group of layers that keep
    /// their blocks for the same time.
    pub struct KvCacheLifecycleStats: V2 {
        /// An absent kind means attention.
        kind: LifecycleKind = "kind" [Name];
        iter_reused_blocks: i64 = "iterReusedBlocks" [Count events];
        iter_full_reused_blocks: i64 = "iterFullReusedBlocks" [Count events];
        iter_partial_reused_blocks: i64 = "iterPartialReusedBlocks" [Count events];
        iter_missed_blocks: i64 = "iterMissedBlocks" [Count events];
        /// Blocks by the cache level from which they were read, GPU first.
        iter_full_reused_blocks_by_level: Vec<i64> = "iterFullReusedBlocksByLevel" [Levels];
        iter_partial_reused_blocks_by_level: Vec<i64> = "iterPartialReusedBlocksByLevel" [Levels];
        /// Sent only for state space models.
        snapshot_stats: SsmSnapshotStats = "snapshotStats" [Part];
    }

    /// Snapshots of the state of a state space model that requests looked up since the previous record.
    #[derive(Copy)]
    pub struct SsmSnapshotStats: V2 {
        iter_snapshot_lookups: i64 = "iterSnapshotLookups" [Count events];
        iter_snapshot_misses: i64 = "iterSnapshotMisses" [Count events];
        /// Prompt tokens that a snapshot covers.
        iter_reused_tokens: i64 = "iterReusedTokens" [Count events];
        iter_unreused_tokens: i64 = "iterUnreusedTokens" [Count events];
        /// Lookups that found a snapshot at the end of a block.
        iter_aligned_snapshot_hits: i64 = "iterAlignedSnapshotHits" [Count events];
        iter_unaligned_snapshot_hits: i64 = "iterUnalignedSnapshotHits" [Count events];
    }

    /// All requests of the engine at one iteration.
    pub struct RequestStatsPerIteration: Rows {
        iter: u64 = "iter" [Sequence
            none("the exporter uses it to find the iteration's record, whose time applies to the rows")];
        request_stats: Vec<RequestStats> = "requestStats" [Requests];
    }

    /// One finished request. Source: trtllm-serve `GET /perf_metrics`, the socket, `observe()`.
    pub struct PerfMetricsEntry: Entries {
        /// The id of the request in the process that answers it. The request has a different id in
        /// [`RequestStats`]. An id that is not a number is ignored.
        request_id: u64 = "requestId" [Id
            none("one series per request would be unbounded; it becomes the exemplar of the request's histogram buckets")];
        /// The executor's id, as in [`RequestStats`]. Only a process that hosts the Executor knows it.
        executor_id: u64 = "executorId" [Id none("as above; the exporter uses it to find the rows of the request")];
        /// In disaggregated serving, the orchestrator's id, which both engines of the request use instead of their own ids.
        disagg_request_id: u64 = "disaggRequestId" [Id none("as above, in disaggregated serving")];
        /// True if the entry is from the generation server of disaggregated serving.
        ctx_request_id: bool = "ctxRequestId" [Presence];
        perf_metrics: RequestPerfMetrics = "perfMetrics" [LenientPart];
        /// The steps of the request, if the engine measures them.
        time_breakdown_metrics: StepTimes = "timeBreakdownMetrics" [Part];
        /// Why the request ended, if the publisher knows the response.
        finish_reason: FinishReason = "finishReason" [Name];
        /// Tokens of the prompt, if the publisher knows the request.
        prompt_tokens: u64 = "promptTokens" [UnsignedCount];
        /// Tokens of the response, if the publisher knows the response.
        output_tokens: u64 = "outputTokens" [UnsignedCount];
        /// Tokens of the prompt that were found in the KV cache, if the publisher knows the response.
        cached_tokens: u64 = "cachedTokens" [UnsignedCount];
        /// The context server's entry, if this one is from a disaggregated server and so has no metrics of its own.
        ctx_perf_metrics: Box<PerfMetricsEntry> = "ctxPerfMetrics" [NestedEntry];
        /// The generation server's entry.
        gen_perf_metrics: Box<PerfMetricsEntry> = "genPerfMetrics" [NestedEntry];
        /// When the disaggregated server received the request.
        disagg_server_arrival_time: f64 = "disaggServerArrivalTime" [Seconds];
        /// When the disaggregated server sent the first token.
        disagg_server_first_token_time: f64 = "disaggServerFirstTokenTime" [Seconds];
    }
}

/// The entry of one server in the entry of an orchestrator. The entries nested in it are dropped.
#[derive(Debug)]
pub struct NestedEntry;

impl Kind<Box<PerfMetricsEntry>> for NestedEntry {
    fn read<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Box<PerfMetricsEntry>>, D::Error> {
        let entry: Option<PerfMetricsEntry> = lenient::object(value, || None)?;
        // They would take many times the memory of their text.
        Ok(entry.map(|entry| Box::new(PerfMetricsEntry { ctx_perf_metrics: None, gen_perf_metrics: None, ..entry })))
    }

    fn is_possible(nested: &Option<Box<PerfMetricsEntry>>) -> bool {
        nested.as_ref().is_none_or(|nested| nested.is_plausible())
    }

    fn repair(nested: &mut Option<Box<PerfMetricsEntry>>, key: &'static str, rejected: &mut Rejected) {
        let mut part = nested.take().map(|nested| *nested);
        Part::repair(&mut part, key, rejected);
        *nested = part.map(Box::new);
    }

    fn weight(nested: &Option<Box<PerfMetricsEntry>>) -> usize {
        nested.as_ref().map_or(0, |nested| size_of::<PerfMetricsEntry>() + nested.weight())
    }
}

/// Every field of every struct.
pub fn fields() -> impl Iterator<Item = &'static Field> {
    [EXECUTOR, OTHERS, STEPS].into_iter().flatten().copied().flatten()
}

/// Keys that are not read, each with the reason.
pub static NOT_READ: &[(&str, &str)] = &[
    ("poolGroupId", "identifies a row; the exporter sums over rows, because the engine would choose the label values"),
    ("coldPoolGroupId", "as above"),
    ("lifeCycleId", "as above"),
    ("windowSize", "as above"),
    ("windowSizes", "as above"),
    (
        "iterCacheHitRate of a life cycle",
        "nv_trt_llm_kv_cache_iteration_hit_ratio covers all life cycles and is computed from the blocks",
    ),
    ("iterSnapshotHits", "the sum of iterAlignedSnapshotHits and iterUnalignedSnapshotHits"),
    (
        "iterSnapshotHitRate",
        "covers one life cycle; compute it from nv_trt_llm_ssm_snapshot_hits_total and nv_trt_llm_ssm_snapshot_lookups_total",
    ),
    ("peftCacheIterationStats", "LoRA adapter statistics; proposed upstream, not released"),
    ("currentRequestId", "the request on which VisualGen works; a label for it would be unbounded"),
    ("currentRequestStepIdx", "as above, its step"),
    (
        "ctx_server",
        "the context server's address, in entries of a disaggregated server; a label for it would be unbounded",
    ),
    ("gen_server", "as above, of the generation server"),
    ("disagg_ctx_dispatch_time", "when the orchestrator sent the request on; the times of both servers are read"),
    ("status", "always \"complete\": other requests have no entry"),
    ("schema_version", "the keys themselves are tried, no version number"),
    ("forward_start_time of a step", "time of the host; the time of the GPU is read"),
    ("forward_end_time of a step", "as above"),
    ("sample_start_time of a step", "as above"),
    ("sample_end_time of a step", "as above"),
    ("scheduled_time of a step", "time of the host; the request's own first_scheduled_time is read"),
    ("prev_batch_token_time of a step", "the token_time of the step before, which is read"),
    ("ctx_gpu_forward_time", "the sum over chunks, which are read one by one"),
    ("ctx_gpu_sample_time", "as above"),
];
