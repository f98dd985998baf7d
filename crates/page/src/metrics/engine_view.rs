//! The data from which the families of an engine are read, and the values that are computed from several of its
//! numbers.

use trtllm_analysis::objectives::ObjectiveTotals;
use trtllm_fold::batch::BatchSums;
use trtllm_fold::histogram::{Histogram, NO_BOUNDS};
use trtllm_fold::orchestrator::OrchestratorTotals;
use trtllm_fold::request_times::RequestTimes;
use trtllm_fold::request_totals::{RequestSource, RequestTotals};
use trtllm_fold::share::{ratio, share};
use trtllm_fold::{EngineTotals, Latest};
use trtllm_records::BenchReport;
use trtllm_records::gpu::EngineGpus;
use trtllm_records::iteration::SpecDecodingStats;
use trtllm_what_if::Headroom;

use trtllm_engines::{Engine, EngineJudgement};

use super::value::seen;

/// One engine at one moment.
pub(super) struct EngineView<'e> {
    pub(super) engine: &'e Engine,
    /// The kind of its source, such as `socket`.
    pub(super) source: &'static str,
    pub(super) totals: &'e EngineTotals,
    pub(super) requests: &'e RequestTotals,
    pub(super) times: &'e RequestTimes,
    /// The last record.
    pub(super) latest: Option<&'e Latest>,
    /// The last record as the source of load gauges: absent for a stale engine, and with a load of 0 for an idle one.
    pub(super) load: Option<&'e Latest>,
    pub(super) bench: Option<&'e BenchReport>,
    pub(super) gpus: Option<&'e EngineGpus>,
    pub(super) gpu_hour_cost: Option<f64>,
    pub(super) judged: &'e EngineJudgement,
    pub(super) headroom: Option<Headroom>,
}

impl EngineView<'_> {
    /// The totals of an orchestrator. Absent for an engine, and before the orchestrator's first answer.
    pub(super) fn orchestrator(&self) -> Option<&OrchestratorTotals> {
        self.engine.orchestrator()
    }

    /// The totals of an orchestrator that answers now. While it does not answer, its current state is unknown.
    pub(super) fn answering_orchestrator(&self) -> Option<&OrchestratorTotals> {
        self.orchestrator().filter(|_| !self.engine.state.is_stale())
    }

    /// A sum over records. Absent if it is 0 and the source does not tell it.
    pub(super) fn told<T: Default + PartialEq>(&self, sum: T) -> Option<T> {
        Some(sum).filter(|sum| self.engine.tells().requests || *sum != T::default())
    }

    pub(super) fn iterations(&self) -> Option<u64> {
        self.engine.tells().iterations.then_some(self.totals.iterations)
    }

    /// Sums over all iterations. Absent if the engine reports only some iterations, or none.
    pub(super) fn batch(&self) -> Option<&BatchSums> {
        (self.engine.tells().iterations && !self.totals.is_sampled()).then_some(&self.totals.batch)
    }

    /// The sums of an engine that has drafted tokens.
    pub(super) fn drafts(&self) -> Option<&BatchSums> {
        self.batch().filter(|batch| batch.spec_decode_draft_tokens > 0)
    }

    /// The last record's drafts, if their time was measured. A model that drafts itself has a time of 0.
    pub(super) fn measured_drafts(&self) -> Option<&SpecDecodingStats> {
        let drafts = self.load?.spec_decoding.as_ref()?;
        drafts.iter_latency_ms.is_none_or(|ms| ms > 0.0).then_some(drafts)
    }

    /// Requests in context and generation phase.
    pub(super) fn batch_requests(&self) -> Option<i64> {
        let inflight = self.load?.inflight?;
        Some(inflight.num_context_requests?.saturating_add(inflight.num_gen_requests?))
    }

    /// The share of a static batch's generation slots that are in use.
    pub(super) fn static_batch_efficiency(&self) -> Option<f64> {
        let batch = self.load?.static_batching?;
        share(batch.num_gen_tokens, Some(batch.num_gen_tokens?.saturating_add(batch.empty_gen_slots?)))
    }

    pub(super) fn decoded_tokens_per_iteration(&self) -> Option<f64> {
        let mean = self.load?.inflight?.avg_num_decoded_tokens_per_iter?;
        // An idle engine has the batch of its last record, with a load of 0.
        let has_decoded = self.latest?.inflight?.num_gen_requests != Some(0);
        (mean > 0.0 && has_decoded).then(|| shortest_f32(mean))
    }

    /// Free KV cache capacity in tokens. Absent with several pool groups: their blocks have different sizes, and a
    /// token may need one block of each group. Also absent if more blocks are free than exist.
    pub(super) fn available_tokens(&self) -> Option<i64> {
        let latest = self.load.filter(|latest| latest.pools.groups.is_none_or(|groups| groups <= 1))?;
        let kv = latest.kv.filter(|kv| kv.max_num_blocks.is_none_or(|max| kv.free_num_blocks <= Some(max)))?;
        Some(kv.free_num_blocks?.saturating_mul(kv.tokens_per_block?))
    }

    pub(super) fn kv_cache_utilization(&self) -> Option<f64> {
        let kv = self.load?.kv?;
        ratio(kv.used_num_blocks, kv.max_num_blocks)
    }

    /// The share of KV cache blocks that are not free. If more blocks are free than exist, the two numbers count
    /// different pools, and their difference is meaningless.
    pub(super) fn kv_cache_pressure(&self) -> Option<f64> {
        let kv = self.load?.kv?;
        share(Some(kv.max_num_blocks?.saturating_sub(kv.free_num_blocks?)), kv.max_num_blocks)
    }

    /// The share of looked-up blocks that were found in the KV cache. Absent for releases before 0.16, which count no
    /// misses.
    pub(super) fn hit_ratio(&self) -> Option<f64> {
        self.totals.kv.hit_ratio()
    }

    /// The hit ratio. If misses are not counted, the share of reused blocks among all blocks of prompts. A block that
    /// was found in the cache needs no allocation, so no block is counted twice.
    pub(super) fn reuse_efficiency(&self) -> Option<f64> {
        let kv = &self.totals.kv;
        match kv.looked_up_blocks() {
            Some(_) => kv.hit_ratio(),
            None => ratio(kv.reused_blocks, Some(kv.reused_blocks?.saturating_add(kv.alloc_total_blocks?))),
        }
    }

    /// Requests by objective. Absent if the engine reports only some of its requests.
    pub(super) fn objectives(&self) -> Option<&ObjectiveTotals> {
        let has_all = !self.totals.is_sampled() || self.requests.source != Some(RequestSource::Rows);
        self.engine.objectives().filter(|_| has_all)
    }

    /// Prompt tokens found in the KV cache: the larger of the server's own count and the sum over tiers.
    pub(super) fn cached_tokens(&self) -> Option<u64> {
        let by_tier = self.totals.pools.cached_tokens.by_tier;
        self.requests.cached_tokens().max(by_tier.into_iter().flatten().reduce(u64::saturating_add))
    }

    /// The lengths of requests. trtllm-serve reports only the sum over its requests. Then the histogram has only the
    /// number of requests and that sum.
    pub(super) fn lengths(&self, lengths: &Histogram, sum: Option<u64>) -> Option<Histogram> {
        let finished = self.requests.finished.map(|finished| finished.into_iter().fold(0, u64::saturating_add));
        match finished.zip(sum) {
            Some((requests @ 1.., sum)) if lengths.count() == 0 => {
                let mut histogram = Histogram::new(NO_BOUNDS);
                histogram.add_buckets([(f64::INFINITY, requests)], sum as f64);
                Some(histogram)
            }
            _ => seen(lengths).cloned(),
        }
    }

    /// A sum of seconds over requests, in microseconds. Absent if requests have completed, but their times are not
    /// known.
    pub(super) fn microseconds(&self, seconds: f64) -> Option<u64> {
        let known = self.requests.source.is_some() || self.totals.requests_completed == 0;
        known.then(|| (seconds * 1e6).round() as u64)
    }
}

/// The engine sends a 32-bit float as a 64-bit one: 1.2000000476837158 means 1.2.
fn shortest_f32(value: f64) -> f64 {
    let narrow = value as f32;
    if f64::from(narrow) == value { narrow.to_string().parse().unwrap_or(value) } else { value }
}

#[cfg(test)]
mod tests {
    use super::super::compat::CompatSets;
    use super::super::engine::page_of;
    use super::super::family::Id;
    use super::super::page::Value;
    use super::*;

    /// Hit ratio and reuse efficiency.
    fn reuse(allocated: i64, reused: i64, missed: Option<i64>) -> [Option<f64>; 2] {
        let record = serde_json::json!({"kvCacheStats": {"maxNumBlocks": 9, "missedBlocks": missed.map(|_| 1)}});
        let read = |engine: &mut Engine| {
            engine.observed.absorb(&serde_json::from_value(record).unwrap(), std::time::Instant::now(), 0).unwrap();
            let totals = &mut engine.observed.fold.totals;
            let kv = &mut totals.kv;
            (kv.alloc_total_blocks, kv.reused_blocks, kv.missed_blocks) = (Some(allocated), Some(reused), missed);
        };
        let page = page_of(read, CompatSets::default());
        [Id::KvCacheHitRatio, Id::KvReuseEfficiency].map(|id| {
            let sample = page.samples().iter().find(|sample| sample.metric == id)?;
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
    fn a_number_that_another_field_of_the_record_contradicts_is_absent() {
        let shown = |requests: i64, free: i64| {
            let record = serde_json::json!({"iter": 1, "numActiveRequests": 1,
                "inflightBatchingStats": {"numGenRequests": requests, "avgNumDecodedTokensPerIter": 1.5},
                "kvCacheStats": {"maxNumBlocks": 100, "freeNumBlocks": free, "tokensPerBlock": 32}});
            let read = |engine: &mut Engine| {
                engine.observed.absorb(&serde_json::from_value(record).unwrap(), std::time::Instant::now(), 0).unwrap();
                engine.state = trtllm_fold::EngineState::Busy;
            };
            let page = page_of(read, CompatSets::default());
            [Id::DecodedTokensPerIteration, Id::KvCacheAvailableTokens]
                .map(|id| page.samples().iter().any(|sample| sample.metric == id))
        };
        assert_eq!(shown(2, 100), [true, true]);
        assert_eq!(shown(0, 101), [false, false]);
    }

    #[test]
    fn a_release_that_counts_no_misses_has_no_hit_ratio() {
        assert_eq!(reuse(10, 30, None), [None, Some(0.75)]);
    }
}
