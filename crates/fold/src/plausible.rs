//! Finds values that no engine can have, e.g. of a publisher with a bug. Such a value is left out and counted, and the rest of
//! its record counts: one absurd number in a sum could not be corrected later. A key (the number of an iteration, a rank, an
//! id) cannot be left out, because the record would belong to another iteration or engine, so such a record is refused.
//! The limits move to the schema when there is one.

use std::collections::BTreeMap;

use trtllm_records::iteration::{
    InflightBatchingStats, KvCacheIterationStats, KvCacheLifecycleStats, KvCacheStats, SpecDecodingStats,
    SsmSnapshotStats, StaticBatchingStats,
};
use trtllm_records::lenient::Unreadable;
use trtllm_records::perf_metrics::{
    RequestKvCacheMetrics, RequestPerfMetrics, SpeculativeDecodingMetrics, TimingMetrics,
};
use trtllm_records::request::DisServingRequestStats;
use trtllm_records::rows::PoolRows;
use trtllm_records::step_times::Steps;
use trtllm_records::{IterationStats, PerfMetricsEntry, RequestStats, RequestStatsPerIteration, StepTimes};

mod limits;

use limits::{Bits, Cumulative, Ids, Limit as _, Magnitude, Numbers, Shares};

/// Most bits of a number of requests, tokens, blocks or iterations. 2^40 iterations take 30 years at 1000 per second.
const COUNT: Bits = Bits(40);
/// Like [`COUNT`], for numbers that are never negative in the model.
const NUMBER: Numbers = Numbers(40);
/// Cumulative counts. The C++ executor narrows them to 32 bits, so they can be negative.
const CUMULATIVE: Cumulative = Cumulative(-(1 << 31)..=1 << 53);
/// Most bits of a number of bytes: 1 EiB.
const BYTES: Bits = Bits(60);
const UNSIGNED_BYTES: Numbers = Numbers(60);
/// Most bits of the tokens of one block. Blocks of a million tokens would share nothing.
const BLOCK_TOKENS: Bits = Bits(20);
/// Limit of times, which are milliseconds or seconds, and of means. 1e12 seconds are 30,000 years. A clock that was set back
/// may give a negative time. It is accepted here and not observed later.
const TIME: Magnitude = Magnitude(1e12);
/// Parts of a whole. A little above 1 is a rounded 1.
const SHARE: Shares = Shares(0.0..=1.000_01);
const ID: Ids = Ids;

/// A record, row or entry has an impossible key, so it cannot be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Implausible;

/// What was left out because it is impossible.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rejected {
    /// Number of values by field. The names are upstream's, and all are in this file.
    pub values: BTreeMap<&'static str, u64>,
    /// Rows of requests whose id is impossible.
    pub rows: u64,
}

impl Rejected {
    fn value(&mut self, field: &'static str) {
        *self.values.entry(field).or_default() += 1;
    }
}

/// A part of a message whose values have limits.
pub(crate) trait Limited {
    /// Whether all values are possible. This has few branches, because a record has dozens of numbers and almost all of them are
    /// valid.
    fn is_plausible(&self) -> bool;

    /// Removes each impossible value.
    fn repair(&mut self, rejected: &mut Rejected);

    /// Whether the keys are possible.
    fn has_keys(&self) -> bool {
        true
    }
}

/// `message` itself if all its values are possible. Otherwise a copy without its impossible values, in `repaired`.
///
/// # Errors
/// If a key is impossible.
pub(crate) fn check<'m, M: Limited + Clone>(
    message: &'m M,
    repaired: &'m mut Option<Box<M>>,
    rejected: &mut Rejected,
) -> Result<&'m M, Implausible> {
    if message.is_plausible() {
        return Ok(message);
    }
    if !message.has_keys() {
        return Err(Implausible);
    }
    let copy = repaired.insert(Box::new(message.clone()));
    copy.repair(rejected);
    Ok(copy)
}

/// Lists the fields of a struct once, with their limits and upstream's names. `keys` are never removed. `parts` have limits of
/// their own.
macro_rules! limited {
    ($Struct:ident {
        $((keys $($key_limit:ident: [$($key:ident),* $(,)?]),* $(,)?))?
        $($limit:ident: [$($field:ident = $name:literal),* $(,)?]),* $(,)?
        $(; parts [$($part:ident = $part_name:literal),* $(,)?])?
    }) => {
        impl Limited for $Struct {
            fn is_plausible(&self) -> bool {
                true $($(&& $key_limit.all([$(self.$key),*]))*)?
                    $(&& $limit.all([$(self.$field),*]))*
                    $($(&& self.$part.as_ref().is_none_or(Part::is_possible))*)?
            }

            fn repair(&mut self, rejected: &mut Rejected) {
                $($(if !$limit.all([self.$field]) {
                    self.$field = None;
                    rejected.value($name);
                })*)*
                $($(if self.$part.as_mut().is_some_and(|part| !part.repair_part($part_name, rejected)) {
                    self.$part = None;
                    rejected.value($part_name);
                })*)?
            }

            fn has_keys(&self) -> bool {
                true $($(&& $key_limit.all([$(self.$key),*]))*)?
            }
        }
    };
}

limited! { IterationStats {
    (keys NUMBER: [iter, stats_sequence], COUNT: [rank, attention_dp_rank])
    NUMBER: [stats_dropped_frames = "statsDroppedFrames"],
    COUNT: [
        num_new_active_requests = "numNewActiveRequests",
        num_active_requests = "numActiveRequests",
        num_queued_requests = "numQueuedRequests",
        num_completed_requests = "numCompletedRequests",
        max_num_active_requests = "maxNumActiveRequests",
        max_batch_size_static = "maxBatchSizeStatic",
        max_batch_size_tuner_recommended = "maxBatchSizeTunerRecommended",
        max_batch_size_runtime = "maxBatchSizeRuntime",
        max_num_tokens_static = "maxNumTokensStatic",
        max_num_tokens_tuner_recommended = "maxNumTokensTunerRecommended",
        max_num_tokens_runtime = "maxNumTokensRuntime",
        iter_suspended_requests = "iterSuspendedRequests",
        iter_resumed_requests = "iterResumedRequests",
        iter_disk_prefetch_blocks = "iterDiskPrefetchBlocks",
        current_steps_processed = "currentStepsProcessed",
    ],
    BYTES: [gpu_mem_usage = "gpuMemUsage", cpu_mem_usage = "cpuMemUsage", pinned_mem_usage = "pinnedMemUsage"],
    TIME: [
        iter_latency_ms = "iterLatencyMS",
        new_active_requests_queue_latency_ms = "newActiveRequestsQueueLatencyMS",
        host_step_time_ms = "hostStepTimeMS",
        prev_device_step_time_ms = "prevDeviceStepTimeMS",
        gpu_forward_time_ms = "gpuForwardTimeMS",
    ];
    parts [
        inflight_batching_stats = "inflightBatchingStats",
        static_batching_stats = "staticBatchingStats",
        spec_decoding_stats = "specDecodingStats",
        kv_cache_stats = "kvCacheStats",
        cross_kv_cache_stats = "crossKvCacheStats",
        kv_cache_iteration_stats = "kvCacheIterationStats",
        kv_cache_iteration_stats_by_pool_group = "kvCacheIterationStatsByPoolGroup",
        kv_cache_iteration_stats_by_cold_pool_group = "kvCacheIterationStatsByColdPoolGroup",
        kv_cache_iteration_stats_by_lifecycle = "kvCacheIterationStatsByLifecycle",
        iter_cached_tokens_by_level = "iterCachedTokensByLevel",
        request_stats = "requestStats",
    ]
} }

limited! { InflightBatchingStats {
    COUNT: [
        num_scheduled_requests = "numScheduledRequests",
        num_context_requests = "numContextRequests",
        num_gen_requests = "numGenRequests",
        num_paused_requests = "numPausedRequests",
        num_ctx_tokens = "numCtxTokens",
        micro_batch_id = "microBatchId",
        num_ctx_kv_tokens = "numCtxKvTokens",
        num_gen_kv_tokens = "numGenKvTokens",
        num_queued_context_requests = "numQueuedContextRequests",
        num_queued_ctx_tokens = "numQueuedCtxTokens",
        num_queued_gen_requests = "numQueuedGenRequests",
        num_queued_gen_kv_tokens = "numQueuedGenKvTokens",
        num_paused_kv_tokens = "numPausedKvTokens",
    ],
    TIME: [avg_num_decoded_tokens_per_iter = "avgNumDecodedTokensPerIter"],
} }

limited! { StaticBatchingStats {
    COUNT: [
        num_scheduled_requests = "numScheduledRequests",
        num_context_requests = "numContextRequests",
        num_ctx_tokens = "numCtxTokens",
        num_gen_tokens = "numGenTokens",
        empty_gen_slots = "emptyGenSlots",
    ],
} }

limited! { SpecDecodingStats {
    COUNT: [
        num_draft_tokens = "numDraftTokens",
        num_accepted_tokens = "numAcceptedTokens",
        num_requests_with_draft_tokens = "numRequestsWithDraftTokens",
    ],
    TIME: [acceptance_length = "acceptanceLength", iter_latency_ms = "iterLatencyMS"],
    SHARE: [draft_overhead = "draftOverhead"],
} }

limited! { KvCacheStats {
    COUNT: [max_num_blocks = "maxNumBlocks", free_num_blocks = "freeNumBlocks", used_num_blocks = "usedNumBlocks"],
    BLOCK_TOKENS: [tokens_per_block = "tokensPerBlock"],
    CUMULATIVE: [
        alloc_total_blocks = "allocTotalBlocks",
        alloc_new_blocks = "allocNewBlocks",
        reused_blocks = "reusedBlocks",
        missed_blocks = "missedBlocks",
    ],
    SHARE: [cache_hit_rate = "cacheHitRate"],
} }

limited! { KvCacheIterationStats {
    COUNT: [
        // In bytes, but even large blocks have only some MiB. Products with numbers of blocks saturate.
        slot_size = "slotSize",
        primary_max_num_blocks = "primaryMaxNumBlocks",
        primary_free_num_blocks = "primaryFreeNumBlocks",
        primary_used_num_blocks = "primaryUsedNumBlocks",
        primary_evictable_num_blocks = "primaryEvictableNumBlocks",
        primary_peak_free_num_blocks = "primaryPeakFreeNumBlocks",
        primary_peak_used_num_blocks = "primaryPeakUsedNumBlocks",
        primary_peak_evictable_num_blocks = "primaryPeakEvictableNumBlocks",
        secondary_max_num_blocks = "secondaryMaxNumBlocks",
        secondary_free_num_blocks = "secondaryFreeNumBlocks",
        secondary_used_num_blocks = "secondaryUsedNumBlocks",
        secondary_evictable_num_blocks = "secondaryEvictableNumBlocks",
        secondary_peak_free_num_blocks = "secondaryPeakFreeNumBlocks",
        secondary_peak_used_num_blocks = "secondaryPeakUsedNumBlocks",
        secondary_peak_evictable_num_blocks = "secondaryPeakEvictableNumBlocks",
        iter_alloc_total_blocks = "iterAllocTotalBlocks",
        iter_alloc_new_blocks = "iterAllocNewBlocks",
        iter_reused_blocks = "iterReusedBlocks",
        iter_full_reused_blocks = "iterFullReusedBlocks",
        iter_partial_reused_blocks = "iterPartialReusedBlocks",
        iter_missed_blocks = "iterMissedBlocks",
        iter_gen_alloc_blocks = "iterGenAllocBlocks",
        iter_onboard_blocks = "iterOnboardBlocks",
        iter_offload_blocks = "iterOffloadBlocks",
        iter_intra_device_copy_blocks = "iterIntraDeviceCopyBlocks",
        iter_host_dropped_blocks = "iterHostDroppedBlocks",
    ],
    BYTES: [
        iter_onboard_bytes = "iterOnboardBytes",
        iter_offload_bytes = "iterOffloadBytes",
        iter_intra_device_copy_bytes = "iterIntraDeviceCopyBytes",
        iter_host_dropped_bytes = "iterHostDroppedBytes",
    ],
    SHARE: [iter_cache_hit_rate = "iterCacheHitRate"],
} }

limited! { KvCacheLifecycleStats {
    COUNT: [
        iter_reused_blocks = "iterReusedBlocks",
        iter_full_reused_blocks = "iterFullReusedBlocks",
        iter_partial_reused_blocks = "iterPartialReusedBlocks",
        iter_missed_blocks = "iterMissedBlocks",
    ];
    parts [
        iter_full_reused_blocks_by_level = "iterFullReusedBlocksByLevel",
        iter_partial_reused_blocks_by_level = "iterPartialReusedBlocksByLevel",
        snapshot_stats = "snapshotStats",
    ]
} }

limited! { SsmSnapshotStats {
    COUNT: [
        iter_snapshot_lookups = "iterSnapshotLookups",
        iter_snapshot_misses = "iterSnapshotMisses",
        iter_aligned_snapshot_hits = "iterAlignedSnapshotHits",
        iter_unaligned_snapshot_hits = "iterUnalignedSnapshotHits",
        iter_reused_tokens = "iterReusedTokens",
        iter_unreused_tokens = "iterUnreusedTokens",
    ],
} }

limited! { RequestStats {
    (keys ID: [id])
    COUNT: [
        context_prefill_position = "contextPrefillPosition",
        num_generated_tokens = "numGeneratedTokens",
        alloc_total_blocks_per_request = "allocTotalBlocksPerRequest",
        alloc_new_blocks_per_request = "allocNewBlocksPerRequest",
        reused_blocks_per_request = "reusedBlocksPerRequest",
        missed_blocks_per_request = "missedBlocksPerRequest",
    ],
    TIME: [avg_num_decoded_tokens_per_iter = "avgNumDecodedTokensPerIter"],
    SHARE: [kv_cache_hit_rate_per_request = "kvCacheHitRatePerRequest"];
    parts [dis_serving_stats = "disServingStats"]
} }

limited! { DisServingRequestStats {
    TIME: [kv_cache_transfer_ms = "kvCacheTransferMS"],
    BYTES: [kv_cache_size = "kvCacheSize"],
} }

limited! { PerfMetricsEntry {
    NUMBER: [prompt_tokens = "promptTokens", output_tokens = "outputTokens", cached_tokens = "cachedTokens"],
    TIME: [
        disagg_server_arrival_time = "disaggServerArrivalTime",
        disagg_server_first_token_time = "disaggServerFirstTokenTime",
    ];
    parts [
        perf_metrics = "perfMetrics",
        time_breakdown_metrics = "timeBreakdownMetrics",
        ctx_perf_metrics = "ctxPerfMetrics",
        gen_perf_metrics = "genPerfMetrics",
    ]
} }

limited! { RequestPerfMetrics {
    NUMBER: [first_iter = "firstIter", last_iter = "lastIter", iter = "iter"];
    parts [
        timing_metrics = "timingMetrics",
        kv_cache_metrics = "kvCacheMetrics",
        speculative_decoding = "speculativeDecoding",
    ]
} }

limited! { TimingMetrics {
    TIME: [
        server_arrival_time = "serverArrivalTime",
        server_first_token_time = "serverFirstTokenTime",
        arrival_time = "arrivalTime",
        first_scheduled_time = "firstScheduledTime",
        first_token_time = "firstTokenTime",
        last_token_time = "lastTokenTime",
        kv_cache_transfer_start = "kvCacheTransferStart",
        kv_cache_transfer_end = "kvCacheTransferEnd",
    ],
    UNSIGNED_BYTES: [kv_cache_size = "kvCacheSize"],
} }

limited! { RequestKvCacheMetrics {
    COUNT: [
        num_total_allocated_blocks = "numTotalAllocatedBlocks",
        num_new_allocated_blocks = "numNewAllocatedBlocks",
        num_reused_blocks = "numReusedBlocks",
        num_missed_blocks = "numMissedBlocks",
    ],
    SHARE: [kv_cache_hit_rate = "kvCacheHitRate"],
} }

limited! { SpeculativeDecodingMetrics {
    SHARE: [acceptance_rate = "acceptanceRate"],
    COUNT: [total_accepted_draft_tokens = "totalAcceptedDraftTokens", total_draft_tokens = "totalDraftTokens"],
} }

impl Limited for StepTimes {
    fn is_plausible(&self) -> bool {
        self.ctx_chunk_metrics.is_plausible() && self.step_metrics.is_plausible()
    }

    fn repair(&mut self, rejected: &mut Rejected) {
        self.ctx_chunk_metrics.repair(rejected);
        self.step_metrics.repair(rejected);
    }
}

impl Limited for Steps {
    fn is_plausible(&self) -> bool {
        TIME.all([self.gpu_forward_ms, self.gpu_sample_ms])
            && self.token_times.iter().all(|time| TIME.all([Some(*time)]))
    }

    /// Without one of its times, a time between two tokens would be the time between three.
    fn repair(&mut self, rejected: &mut Rejected) {
        if !self.token_times.iter().all(|time| TIME.all([Some(*time)])) {
            self.token_times = Vec::new();
            rejected.value("tokenTime");
        }
        for (time, name) in [(&mut self.gpu_forward_ms, "gpuForwardTime"), (&mut self.gpu_sample_ms, "gpuSampleTime")] {
            if !TIME.all([*time]) {
                *time = None;
                rejected.value(name);
            }
        }
    }
}

limited! { RequestStatsPerIteration {
    (keys NUMBER: [iter])
    ; parts [request_stats = "requestStats"]
} }

/// A part of a message.
trait Part {
    fn is_possible(&self) -> bool;

    /// Removes each impossible value. Returns false if the part itself must be removed.
    fn repair_part(&mut self, name: &'static str, rejected: &mut Rejected) -> bool;
}

impl<L: Limited + Unreadable + PartialEq> Part for L {
    fn is_possible(&self) -> bool {
        self.is_plausible()
    }

    fn repair_part(&mut self, _: &'static str, rejected: &mut Rejected) -> bool {
        let readable = *self != L::unreadable();
        if readable {
            self.repair(rejected);
        }
        readable
    }
}

macro_rules! boxed_parts {
    ($($Struct:ident),*) => {
        $(impl Part for Box<$Struct> {
            fn is_possible(&self) -> bool {
                self.is_plausible()
            }

            fn repair_part(&mut self, _: &'static str, rejected: &mut Rejected) -> bool {
                self.repair(rejected);
                true
            }
        })*
    };
}

boxed_parts! { PerfMetricsEntry, StepTimes }

impl<R: Limited + Unreadable + PartialEq> Part for PoolRows<R> {
    fn is_possible(&self) -> bool {
        self.values().all(Limited::is_plausible)
    }

    /// A row that is not an object is counted under the name of the view.
    fn repair_part(&mut self, name: &'static str, rejected: &mut Rejected) -> bool {
        self.retain(|row| {
            let readable = Part::repair_part(row, name, rejected);
            if !readable {
                rejected.value(name);
            }
            readable
        });
        true
    }
}

/// One number for each cache level. Without one of them, the list is removed, because only the position tells the level.
impl Part for Vec<i64> {
    fn is_possible(&self) -> bool {
        self.iter().all(|number| COUNT.all([Some(*number)]))
    }

    fn repair_part(&mut self, _: &'static str, _: &mut Rejected) -> bool {
        self.is_possible()
    }
}

/// Rows of requests. A row with an impossible id is refused, because it would belong to another request.
impl Part for Vec<RequestStats> {
    fn is_possible(&self) -> bool {
        self.iter().all(Limited::is_plausible)
    }

    fn repair_part(&mut self, _: &'static str, rejected: &mut Rejected) -> bool {
        self.retain_mut(|row| {
            let has_keys = row.has_keys();
            if has_keys {
                row.repair(rejected);
            } else {
                rejected.rows += 1;
            }
            has_keys
        });
        true
    }
}

#[cfg(test)]
mod tests;
