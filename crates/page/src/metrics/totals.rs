//! The counters and histograms of an engine's iterations.

use trtllm_engine::{EngineTotals, Latest};

use super::catalog::Id;
use super::writer::SampleWriter;

impl SampleWriter<'_> {
    /// `latest` is the last record.
    pub(super) fn totals(&mut self, totals: &EngineTotals, latest: Option<&Latest>) {
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
        ] {
            self.one(family, count);
        }
        self.put(Id::RequestPauses, totals.request_pauses);
        self.put(Id::StatisticsInterval, totals.statistics_interval);
        if !totals.is_sampled() {
            self.batch_totals(totals);
        }
        self.reuse(totals, latest);
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

    /// An allocation is never a hit: a block that was found needs none. So blocks that were reused are not among the allocated ones.
    fn reuse(&mut self, totals: &EngineTotals, latest: Option<&Latest>) {
        let counts_misses = latest.and_then(|latest| latest.kv).is_none_or(|kv| kv.missed_blocks.is_some());
        let share = |others: u64| {
            let all = totals.kv_cache_blocks_reused.saturating_add(others);
            (all > 0).then(|| totals.kv_cache_blocks_reused as f64 / all as f64)
        };
        let hits = share(totals.kv_cache_blocks_missed).filter(|_| counts_misses);
        self.put(Id::KvCacheHitRatio, hits);
        // Releases before 0.16 count no misses.
        let least = || share(totals.kv_cache_blocks_allocated);
        self.put(Id::KvReuseEfficiency, if counts_misses { hits } else { least() });
    }

    /// Sums over all iterations. They are absent if the engine reports only some iterations.
    fn batch_totals(&mut self, totals: &EngineTotals) {
        self.one(Id::ContextTokens, totals.batch.context_tokens);
        self.one(Id::GenerationTokens, totals.batch.generation_tokens);
        self.one(Id::SpecDraftTokens, totals.batch.spec_decode_draft_tokens);
        self.one(Id::SpecAcceptedTokens, totals.batch.spec_decode_accepted_tokens);
        self.one(Id::SpecDraftedRequests, totals.batch.spec_decode_drafted_requests);
        self.one(Id::SpecDraftTime, totals.batch.spec_decode_draft_seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalog::table::OF_ENGINES;
    use super::super::page::{Labels, Value};
    use super::super::series_labels::SeriesLabels;
    use super::*;
    use trtllm_model::iteration::KvCacheStats;

    /// Hit ratio and reuse efficiency.
    fn reuse(allocated: u64, reused: u64, missed: Option<u64>) -> [Option<f64>; 2] {
        let mut totals = EngineTotals::default();
        totals.kv_cache_blocks_allocated = allocated;
        totals.kv_cache_blocks_reused = reused;
        totals.kv_cache_blocks_missed = missed.unwrap_or(0);
        let kv = KvCacheStats { missed_blocks: missed.map(|_| 1), ..KvCacheStats::default() };
        let latest = Latest { kv: Some(kv), ..Latest::default() };
        let labels = SeriesLabels::new(Labels::default(), OF_ENGINES);
        let mut page = SampleWriter::new(&labels);
        page.totals(&totals, Some(&latest));
        [Id::KvCacheHitRatio, Id::KvReuseEfficiency].map(|id| {
            let sample = page.page.samples().iter().find(|sample| sample.metric == id)?;
            match sample.value {
                Value::Float(value) => Some(value),
                _ => None,
            }
        })
    }

    #[test]
    fn blocks_found_in_the_cache_are_not_among_the_allocated_ones() {
        // Three of four blocks of the prompts were found, and only the fourth was allocated.
        assert_eq!(reuse(10, 30, Some(10)), [Some(0.75); 2]);
        assert_eq!(reuse(10, 0, Some(0)), [None; 2]);
    }

    #[test]
    fn a_release_that_counts_no_misses_has_no_hit_ratio() {
        assert_eq!(reuse(10, 30, None), [None, Some(0.75)]);
    }
}
