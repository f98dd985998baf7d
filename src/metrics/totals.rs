//! The counters and histograms of an engine's iterations.

use crate::engine::Totals;

use super::catalog::Id;
use super::writer::Writer;

impl Writer<'_> {
    pub(super) fn totals(&mut self, totals: &Totals) {
        for (family, count) in [
            (Id::Iterations, totals.iterations),
            (Id::IterationsLost, totals.iterations_lost),
            (Id::IterationsUnreported, totals.iterations_unreported),
            (Id::EngineRestarts, totals.engine_restarts),
            (Id::RequestsStarted, totals.requests_started),
            (Id::RequestsCompleted, totals.requests_completed),
            (Id::KvBlocksAllocated, totals.kv_cache_blocks_allocated),
            (Id::KvBlocksNewlyAllocated, totals.kv_cache_blocks_newly_allocated),
            (Id::KvBlocksReused, totals.kv_cache_blocks_reused),
            (Id::KvBlocksMissed, totals.kv_cache_blocks_missed),
            (Id::RequestPauses, totals.request_pauses),
        ] {
            self.one(family, count);
        }
        self.put(Id::StatisticsInterval, totals.statistics_interval);
        if !totals.is_sampled() {
            self.batch_totals(totals);
        }
        let looked_up = totals.kv_cache_blocks_reused.saturating_add(totals.kv_cache_blocks_missed);
        if looked_up > 0 {
            self.one(Id::KvCacheHitRatio, totals.kv_cache_blocks_reused as f64 / looked_up as f64);
        }
        for (family, histogram) in [
            (Id::IterationLatency, &totals.iteration_latency),
            (Id::IterationScheduledRequests, &totals.iteration_scheduled_requests),
            (Id::IterationContextTokens, &totals.iteration_context_tokens),
            (Id::NewRequestQueueTime, &totals.new_request_queue_time),
        ] {
            self.one(family, histogram);
        }
        for (family, histogram) in [
            (Id::HostStep, &totals.host_step),
            (Id::DeviceStep, &totals.device_step),
            (Id::GpuForward, &totals.gpu_forward),
        ] {
            self.observed(family, histogram);
        }
        self.kv_cache_totals(totals);
    }

    /// Sums over all iterations. They are absent if the engine reports only some iterations.
    fn batch_totals(&mut self, totals: &Totals) {
        self.one(Id::ContextTokens, totals.context_tokens);
        self.one(Id::GenerationTokens, totals.generation_tokens);
        self.one(Id::SpecDraftTokens, totals.spec_decode_draft_tokens);
        self.one(Id::SpecAcceptedTokens, totals.spec_decode_accepted_tokens);
        self.one(Id::SpecDraftedRequests, totals.spec_decode_drafted_requests);
        self.one(Id::SpecDraftTime, totals.spec_decode_draft_seconds);
    }
}
