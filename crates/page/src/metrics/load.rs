//! The load and the limits of an engine: gauges read from its last record.

use crate::state::EngineSnapshot;
use trtllm_engine::latest::EngineLimits;
use trtllm_engine::lifecycle::Stages;
use trtllm_engine::saturation::Saturation;
use trtllm_engine::{EngineState, Latest};
use trtllm_model::iteration::{InflightBatchingStats, KvCacheStats};

use super::catalog::Id;
use super::catalog::table::engine_gauges::{
    KvTokensByPhase, LimitKinds, QueuedByPhase, RequestsByStage, SaturationByResource,
};
use super::catalog::table::triton::{
    InflightBatch, KvCacheBlocks, LastIteration, MemoryBytes, RequestCounts, StaticBatch,
};
use super::value::{Value, ratio, share};
use super::writer::SampleWriter;

impl SampleWriter<'_> {
    /// The load under Triton's names.
    pub(super) fn triton_load(&mut self, latest: &Latest) {
        let requests = RequestCounts {
            active: latest.active_of_all(),
            max: latest.max_active_of_all(),
            scheduled: latest.scheduled(),
            context: latest.context_requests(),
            waiting: latest.waiting(),
        };
        self.each(Id::RequestMetrics, requests);
        let memory = MemoryBytes { cpu: latest.cpu_memory, gpu: latest.gpu_memory, pinned: latest.pinned_memory };
        self.each(Id::RuntimeMemoryMetrics, memory);
        if let Some(kv) = &latest.kv {
            self.each(Id::KvCacheBlockMetrics, kv_cache_blocks(kv));
        }
        if let Some(inflight) = &latest.inflight {
            let batch = InflightBatch {
                context_tokens: inflight.num_ctx_tokens,
                generation_requests: inflight.num_gen_requests,
                micro_batch_id: inflight.micro_batch_id,
                paused_requests: inflight.num_paused_requests,
            };
            self.each(Id::InflightBatcherMetrics, batch);
        }
        if let Some(fixed) = &latest.static_batching {
            let batch = StaticBatch {
                context_tokens: fixed.num_ctx_tokens,
                generation_tokens: fixed.num_gen_tokens,
                empty_generation_slots: fixed.empty_gen_slots,
            };
            self.each(Id::V1Metrics, batch);
        }
    }

    /// The load under our own names.
    pub(super) fn load(&mut self, latest: &Latest) {
        self.put(Id::QueuedRequests, latest.queued);
        if let Some(kv) = &latest.kv {
            // Blocks of several pool groups have different sizes, and a token may need one of each group.
            let one_pool = latest.pools.groups.is_none_or(|groups| groups <= 1);
            let available = kv.free_num_blocks.zip(kv.tokens_per_block).filter(|_| one_pool);
            self.put(Id::KvCacheAvailableTokens, available.map(|(free, tokens)| free.saturating_mul(tokens)));
            // More free blocks than all of them are counts of different pools: their difference says nothing.
            let not_free = kv.max_num_blocks.zip(kv.free_num_blocks).map(|(max, free)| max.saturating_sub(free));
            self.put(Id::KvCachePressureRatio, share(not_free, kv.max_num_blocks));
        }
        if let Some(kv) = &latest.cross_kv {
            self.each(Id::CrossKvCacheBlockMetrics, kv_cache_blocks(kv));
        }
        if let Some(inflight) = &latest.inflight {
            self.inflight(inflight, latest.max_active_of_all());
        }
        self.put(Id::BatchEfficiencyRatio, ratio(latest.active_of_all(), latest.batch_size_limits.runtime));
        let Saturation { batch, tokens, kv_cache, queue } = Saturation::of(latest);
        self.each(Id::SaturationRatio, SaturationByResource { batch, tokens, kv_cache, queue });
        self.pools(latest);
        if let Some(fixed) = &latest.static_batching {
            let slots = fixed.num_gen_tokens.zip(fixed.empty_gen_slots).map(|(used, empty)| used.saturating_add(empty));
            self.put(Id::StaticBatchEfficiencyRatio, share(fixed.num_gen_tokens, slots));
        }
        if let Some(spec) = &latest.spec_decoding {
            self.put(Id::SpecAcceptanceLength, spec.acceptance_length);
            self.put(Id::SpecAcceptanceRatio, share(spec.num_accepted_tokens, spec.num_draft_tokens));
            self.put(Id::SpecDraftOverheadRatio, spec.draft_overhead);
        }
    }

    fn inflight(&mut self, inflight: &InflightBatchingStats, max_active: Option<i64>) {
        let (context, generation) = (inflight.num_context_requests, inflight.num_gen_requests);
        let in_batch = context.zip(generation).map(|(context, generation)| context.saturating_add(generation));
        self.put(Id::BatchOccupancyRatio, share(in_batch, max_active));
        self.put(Id::ContextRequestRatio, share(context, in_batch));
        let decoded = inflight.avg_num_decoded_tokens_per_iter.filter(|mean| *mean > 0.0);
        self.put(Id::DecodedTokensPerIteration, decoded.map(shortest_f32));
        let queued = QueuedByPhase {
            context: inflight.num_queued_context_requests,
            generation: inflight.num_queued_gen_requests,
        };
        self.each(Id::QueuedRequestsByPhase, queued);
        self.put(Id::QueuedContextTokens, inflight.num_queued_ctx_tokens);
        let held = KvTokensByPhase {
            context: inflight.num_ctx_kv_tokens,
            generation: inflight.num_gen_kv_tokens,
            paused: inflight.num_paused_kv_tokens,
            queued_generation: inflight.num_queued_gen_kv_tokens,
        };
        self.each(Id::RequestKvTokens, held);
    }

    pub(super) fn stages(&mut self, snapshot: &EngineSnapshot) {
        let Some(stages) = snapshot.stages else { return };
        let Stages { queued, encoder, context, generation } =
            if snapshot.state == EngineState::Idle { Stages::default() } else { stages };
        let stages = RequestsByStage {
            queued: Some(queued),
            encoder: Some(encoder),
            context: Some(context),
            generation: Some(generation),
        };
        self.each(Id::RequestsByStage, stages);
    }

    /// Values that stay valid while an engine does not answer.
    pub(super) fn limits(&mut self, latest: &Latest, stale: bool) {
        if stale {
            let limit = RequestCounts { max: latest.max_active_of_all(), ..RequestCounts::default() };
            self.each(Id::RequestMetrics, limit);
        }
        self.each(Id::BatchSizeLimit, limit_kinds(latest.batch_size_limits));
        self.each(Id::TokenLimit, limit_kinds(latest.token_limits));
        self.put(Id::AttentionDpRanks, latest.attention_dp_ranks());
        if let Some(current) = latest.scheduler_mode {
            let modes = 0..self.labels.of(Id::SchedulerInfo).len();
            self.in_order(Id::SchedulerInfo, modes.map(|mode| (mode == current as usize).then_some(1_u64)));
        }
        let last =
            LastIteration { timestamp: Some(Value::from(latest.time_us)), iteration: latest.iter.map(Value::from) };
        self.each(Id::GeneralMetrics, last);
        self.one(Id::LastIterationTimestamp, latest.time_us as f64 / 1e6);
    }

    /// The five series that the Kubernetes gateway's picker reads. They must disappear together: if one remained, the picker
    /// would treat the pod as fresh and keep using the last values of the others. Here, `waiting` includes the executor's own
    /// queue: the picker asks how long a new request would wait.
    pub(super) fn gateway(&mut self, latest: &Latest) {
        let (scheduled, waiting) = (latest.scheduled(), latest.waiting_or_queued());
        let requests = RequestCounts { scheduled, waiting, ..RequestCounts::default() };
        self.each(Id::RequestMetrics, requests);
        if let Some(kv) = &latest.kv {
            let blocks = KvCacheBlocks { free: None, used: None, reused: None, ..kv_cache_blocks(kv) };
            self.each(Id::KvCacheBlockMetrics, blocks);
        }
    }

    /// The same five numbers under trtllm-serve's names. On the whole page these have trtllm-serve's meaning; here they have the
    /// gateway's, so that a picker decides the same under both names.
    pub(super) fn gateway_of_trtllm_serve(&mut self, latest: &Latest) {
        self.put(Id::TrtllmNumRequestsRunning, latest.scheduled());
        self.put(Id::TrtllmNumRequestsWaiting, latest.waiting_or_queued());
        if let Some(kv) = &latest.kv {
            self.put(Id::TrtllmKvCacheUtilization, kv.used_fraction());
            self.put(Id::TrtllmKvCacheTokensPerBlock, kv.tokens_per_block);
            self.put(Id::TrtllmKvCacheMaxBlocks, kv.max_num_blocks);
        }
    }
}

fn kv_cache_blocks(kv: &KvCacheStats) -> KvCacheBlocks {
    let number = |number: Option<i64>| number.map(Value::from);
    KvCacheBlocks {
        max: number(kv.max_num_blocks),
        free: number(kv.free_num_blocks),
        used: number(kv.used_num_blocks),
        tokens_per_block: number(kv.tokens_per_block),
        reused: number(kv.reused_blocks),
        fraction: kv.used_fraction().map(Value::from),
    }
}

fn limit_kinds(EngineLimits { fixed, tuner, runtime }: EngineLimits) -> LimitKinds {
    LimitKinds { as_built: fixed, tuner, runtime }
}

/// The engine sends a 32-bit float as a 64-bit one: 1.2000000476837158 means 1.2.
fn shortest_f32(value: f64) -> f64 {
    let narrow = value as f32;
    if f64::from(narrow) == value { narrow.to_string().parse().unwrap_or(value) } else { value }
}

#[cfg(test)]
mod tests {
    use trtllm_model::iteration::SchedulerMode;

    use super::*;

    #[test]
    fn scheduler_modes_are_in_the_catalogs_order() {
        let values = Id::SchedulerInfo.metric().variant.unwrap().values;
        assert_eq!(values[SchedulerMode::Overlap as usize], "overlap");
        assert_eq!(values[SchedulerMode::NonOverlap as usize], "non_overlap");
    }
}
