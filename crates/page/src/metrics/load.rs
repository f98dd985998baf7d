//! The load and the limits of an engine: gauges with several series, read from its last record.

use trtllm_analysis::saturation::Saturation;
use trtllm_fold::latest::EngineLimits;
use trtllm_fold::lifecycle::Stages;
use trtllm_fold::{EngineState, Latest};
use trtllm_records::iteration::{InflightBatchingStats, KvCacheStats};

use super::catalog::Id;
use super::engine_readings::EngineReadings;
use super::value::Value;
use super::writer::EngineWriter;

impl EngineWriter<'_> {
    /// Load gauges with several series. An engine that is stale has none.
    pub(super) fn load(&mut self, engine: &EngineReadings<'_>) {
        let Some(latest) = engine.load else { return };
        let requests = [
            ("active", latest.active_of_all()),
            ("max", latest.max_active_of_all()),
            ("scheduled", latest.scheduled()),
            ("context", latest.context_requests()),
            ("waiting", latest.waiting()),
        ];
        self.named(Id::RequestMetrics, requests);
        let memory = [("cpu", latest.cpu_memory), ("gpu", latest.gpu_memory), ("pinned", latest.pinned_memory)];
        self.named(Id::RuntimeMemoryMetrics, memory);
        if let Some(kv) = &latest.kv {
            self.named(Id::KvCacheBlockMetrics, kv_cache_blocks(kv));
        }
        if let Some(kv) = &latest.cross_kv {
            self.named(Id::CrossKvCacheBlockMetrics, kv_cache_blocks(kv));
        }
        if let Some(inflight) = &latest.inflight {
            self.inflight(inflight);
        }
        if let Some(fixed) = &latest.static_batching {
            let batch = [
                ("total_context_tokens", fixed.num_ctx_tokens),
                ("total_generation_tokens", fixed.num_gen_tokens),
                ("empty_generation_slots", fixed.empty_gen_slots),
            ];
            self.named(Id::V1Metrics, batch);
        }
        let Saturation { batch, tokens, kv_cache, queue } = Saturation::of(latest);
        let saturation = [("batch", batch), ("tokens", tokens), ("kv_cache", kv_cache), ("queue", queue)];
        self.named(Id::SaturationRatio, saturation);
        self.pools(latest);
        if let Some(stages) = engine.engine.observed.fold.stages() {
            let is_idle = engine.engine.state == EngineState::Idle;
            let Stages { queued, encoder, context, generation } = if is_idle { Stages::default() } else { stages };
            let stages = [("queued", queued), ("encoder", encoder), ("context", context), ("generation", generation)];
            self.named(Id::RequestsByStage, stages.map(|(stage, requests)| (stage, Some(requests))));
        }
    }

    /// The requests of VisualGen, which tells no more.
    pub(super) fn requests_in_flight(&mut self, engine: &EngineReadings<'_>) {
        let Some(latest) = engine.load else { return };
        self.named(Id::RequestMetrics, [("active", latest.active)]);
        self.put(Id::QueuedRequests, latest.queued);
    }

    fn inflight(&mut self, inflight: &InflightBatchingStats) {
        let batch = [
            ("total_context_tokens", inflight.num_ctx_tokens),
            ("generation_requests", inflight.num_gen_requests),
            ("micro_batch_id", inflight.micro_batch_id),
            ("paused_requests", inflight.num_paused_requests),
        ];
        self.named(Id::InflightBatcherMetrics, batch);
        let queued =
            [("context", inflight.num_queued_context_requests), ("generation", inflight.num_queued_gen_requests)];
        self.named(Id::QueuedRequestsByPhase, queued);
        let held = [
            ("context", inflight.num_ctx_kv_tokens),
            ("generation", inflight.num_gen_kv_tokens),
            ("paused", inflight.num_paused_kv_tokens),
            ("queued_generation", inflight.num_queued_gen_kv_tokens),
        ];
        self.named(Id::RequestKvTokens, held);
    }

    /// Values that stay valid while an engine does not answer.
    pub(super) fn limits(&mut self, engine: &EngineReadings<'_>) {
        let Some(latest) = engine.latest else { return };
        if engine.load.is_none() {
            self.named(Id::RequestMetrics, [("max", latest.max_active_of_all())]);
        }
        for (family, limits) in [(Id::BatchSizeLimit, latest.batch_size_limits), (Id::TokenLimit, latest.token_limits)]
        {
            let EngineLimits { fixed, tuner, runtime } = limits;
            self.named(family, [("static", fixed), ("tuner", tuner), ("runtime", runtime)]);
        }
        if let Some(current) = latest.scheduler_mode {
            let modes = 0..self.labels.of(Id::SchedulerInfo).len();
            self.in_order(Id::SchedulerInfo, modes.map(|mode| (mode == current as usize).then_some(1_u64)));
        }
        let (time, iteration) = (Some(Value::from(latest.time_us)), latest.iter.map(Value::from));
        self.named(Id::GeneralMetrics, [("timestamp", time), ("iteration_counter", iteration)]);
    }

    /// The five series that the endpoint picker of a Kubernetes gateway reads. They must disappear together: if one
    /// remained, the picker would treat the pod as fresh and keep using the last values of the others. Here, `waiting`
    /// is all that wait, also for a seat: the picker asks how long a new request would wait.
    pub(super) fn gateway(&mut self, latest: &Latest) {
        let (scheduled, waiting) = (latest.scheduled(), latest.all_waiting_rounded());
        self.named(Id::RequestMetrics, [("scheduled", scheduled), ("waiting", waiting)]);
        if let Some(kv) = &latest.kv {
            let [max, _, _, tokens_per_block, _, fraction] = kv_cache_blocks(kv);
            self.named(Id::KvCacheBlockMetrics, [max, tokens_per_block, fraction]);
        }
    }

    /// The same five numbers under trtllm-serve's names. On the full page (`/metrics`) these names have trtllm-serve's meaning.
    /// On the gateway's page they have the gateway's meaning, so that a picker decides the same under both names.
    pub(super) fn gateway_of_trtllm_serve(&mut self, latest: &Latest) {
        self.put(Id::TrtllmNumRequestsRunning, latest.scheduled());
        self.put(Id::TrtllmNumRequestsWaiting, latest.all_waiting_rounded());
        if let Some(kv) = &latest.kv {
            self.put(Id::TrtllmKvCacheUtilization, kv.used_fraction());
            self.put(Id::TrtllmKvCacheTokensPerBlock, kv.tokens_per_block);
            self.put(Id::TrtllmKvCacheMaxBlocks, kv.max_num_blocks);
        }
    }
}

fn kv_cache_blocks(kv: &KvCacheStats) -> [(&'static str, Option<Value>); 6] {
    [
        ("max", kv.max_num_blocks.map(Value::from)),
        ("free", kv.free_num_blocks.map(Value::from)),
        ("used", kv.used_num_blocks.map(Value::from)),
        ("tokens_per", kv.tokens_per_block.map(Value::from)),
        ("reused", kv.reused_blocks.map(Value::from)),
        ("fraction", kv.used_fraction().map(Value::from)),
    ]
}

#[cfg(test)]
mod tests {
    use trtllm_records::iteration::SchedulerMode;

    use super::*;

    #[test]
    fn scheduler_modes_are_in_the_catalogs_order() {
        let values = Id::SchedulerInfo.metric().variant.unwrap().values;
        assert_eq!(values[SchedulerMode::Overlap as usize], "overlap");
        assert_eq!(values[SchedulerMode::NonOverlap as usize], "non_overlap");
    }
}
