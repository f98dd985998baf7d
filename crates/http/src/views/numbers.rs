//! Numbers of engines and GPUs in the JSON API. `top` reads the same types. Unknown numbers are absent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use trtllm_analysis::numbers::mean;
use trtllm_analysis::window::{Distribution, Span};
use trtllm_engines::{Engine, Tells};
use trtllm_fold::orchestrator::OrchestratorTotals;
use trtllm_fold::rank_totals::{Rank, RankLoad};
use trtllm_records::orchestrator::{Side, WorkerCounts};
use trtllm_verdict::findings::orchestrator::OrchestratorMark;

/// JSON of `/api/v1/engines`: the load of an engine in its last iteration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LoadJson {
    pub active: Option<i64>,
    pub max_active: Option<i64>,
    pub scheduled: Option<i64>,
    /// Active requests that are not scheduled.
    pub waiting: Option<i64>,
    pub queued: Option<i64>,
    /// Requests that wait for a seat. An estimate if the engine is PyTorch.
    pub waiting_for_seat: Option<f64>,
    pub paused: Option<i64>,
    pub kv_cache_used_ratio: Option<f64>,
    pub spec_decode_acceptance_ratio: Option<f64>,
    /// Ranks of attention data parallelism, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankLoadJson>,
}

/// JSON of `/api/v1/engines`: one rank of attention data parallelism in the last iteration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RankLoadJson {
    /// Absent for the ranks above 63, which are summed.
    pub rank: Option<u8>,
    pub active: Option<i64>,
    pub scheduled: Option<i64>,
    pub context_tokens: i64,
    pub generation_requests: Option<i64>,
    pub kv_cache_used_ratio: Option<f64>,
}

impl LoadJson {
    /// Absent while the engine does not answer.
    pub fn of(engine: &Engine) -> Option<Self> {
        let latest = engine.load()?;
        Some(Self {
            active: latest.active_of_all(),
            max_active: latest.max_active_of_all(),
            scheduled: latest.scheduled(),
            waiting: latest.waiting(),
            queued: latest.queued,
            waiting_for_seat: latest.waiting_for_seat,
            paused: latest.pauses,
            kv_cache_used_ratio: latest.kv.and_then(|kv| kv.used_fraction()),
            spec_decode_acceptance_ratio: latest.spec_acceptance_ratio(),
            ranks: engine.ranks().filter_map(|(rank, load)| Some(RankLoadJson::of(rank, load?))).collect(),
        })
    }
}

impl RankLoadJson {
    fn of(rank: &Rank, load: RankLoad) -> Self {
        Self {
            rank: rank.number(),
            active: load.active,
            scheduled: load.batch.num_scheduled_requests,
            context_tokens: load.batch.num_ctx_tokens.unwrap_or(0),
            generation_requests: load.batch.num_gen_requests,
            kv_cache_used_ratio: load.kv_cache_used,
        }
    }
}

/// JSON of `/api/v1`: what happened in a span of time. Rates are per second, times in seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Numbers {
    pub seconds: f64,
    /// Absent if the source has no iterations, like all that is summed over them.
    pub iterations_per_second: Option<f64>,
    pub busy_ratio: Option<f64>,
    /// Also absent if the source is an iteration log.
    pub requests_started_per_second: Option<f64>,
    pub requests_completed_per_second: Option<f64>,
    pub context_tokens_per_second: Option<f64>,
    /// Also absent for static batches, whose records do not tell it.
    pub generation_tokens_per_second: Option<f64>,
    /// Mean over iterations, like the next two fields.
    pub scheduled: Option<f64>,
    pub waiting: Option<f64>,
    pub kv_cache_used_ratio: Option<f64>,
    /// Share of the blocks that were in the cache when prompts looked them up.
    pub kv_cache_hit_ratio: Option<f64>,
    pub iteration_seconds: Option<TimesJson>,
    pub ttft_seconds: Option<TimesJson>,
    pub tpot_seconds: Option<TimesJson>,
    pub e2e_seconds: Option<TimesJson>,
    pub queue_seconds: Option<TimesJson>,
    pub objectives_met_ratio: Option<f64>,
}

/// JSON of `/api/v1`: the mean and the quantiles of a distribution in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimesJson {
    pub mean: f64,
    pub p50: Option<f64>,
    pub p95: Option<f64>,
    pub p99: Option<f64>,
}

impl Numbers {
    pub fn of(span: &Span, tells: Tells) -> Self {
        let (counts, sums, times) = (&span.counts, &span.sums, &span.distributions);
        Self {
            seconds: span.seconds,
            iterations_per_second: tells.iterations.then(|| span.rate(counts.iterations)),
            busy_ratio: tells.iterations.then(|| span.busy()),
            requests_started_per_second: tells.requests.then(|| span.rate(counts.started)),
            requests_completed_per_second: tells.requests.then(|| span.rate(counts.completed)),
            context_tokens_per_second: tells.iterations.then(|| span.rate(sums.work.context_tokens * span.sampling)),
            generation_tokens_per_second: (tells.iterations && sums.static_slots <= 0.0)
                .then(|| span.rate(sums.decoded_tokens * span.sampling)),
            scheduled: mean(sums.scheduled, sums.iterations),
            waiting: mean(sums.backlog, sums.iterations),
            kv_cache_used_ratio: span.cache_used(),
            kv_cache_hit_ratio: mean(counts.blocks_reused, counts.blocks_looked_up),
            iteration_seconds: TimesJson::of(&times.iteration),
            ttft_seconds: TimesJson::of(&times.ttft),
            tpot_seconds: TimesJson::of(&times.tpot),
            e2e_seconds: TimesJson::of(&times.e2e),
            queue_seconds: TimesJson::of(&times.queue),
            objectives_met_ratio: mean(counts.all.met, counts.all.met + counts.all.missed),
        }
    }
}

impl TimesJson {
    pub fn of(times: &Distribution) -> Option<Self> {
        let [p50, p95, p99] = [0.5, 0.95, 0.99].map(|share| times.quantile(share));
        Some(Self { mean: times.mean()?, p50, p95, p99 })
    }
}

/// JSON of `/api/v1/engines`: what an orchestrator of disaggregated serving did in a span of time, by side: context, generation or
/// encoder.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OrchestratorNumbers {
    pub seconds: f64,
    pub requests_per_second: Option<f64>,
    /// Share of the requests that ended with an error status.
    pub error_ratio: Option<f64>,
    pub sides: BTreeMap<String, SideNumbers>,
}

/// JSON of `/api/v1/engines`: requests to the workers of one side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SideNumbers {
    pub requests_per_second: f64,
    pub error_ratio: Option<f64>,
    pub retries_per_second: f64,
    pub seconds: Option<TimesJson>,
    pub first_byte_seconds: Option<TimesJson>,
}

impl OrchestratorNumbers {
    pub fn of(span: &OrchestratorMark) -> Self {
        let seconds = span.at;
        let rate = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        let sides = span.sides.iter().map(|(side, counted)| {
            let numbers = SideNumbers {
                requests_per_second: rate(counted.sent),
                error_ratio: (counted.sent > 0.0).then(|| counted.errors() / counted.sent),
                retries_per_second: rate(counted.retried),
                seconds: TimesJson::of(&counted.complete),
                first_byte_seconds: TimesJson::of(&counted.first_bytes),
            };
            (side.name().to_owned(), numbers)
        });
        Self {
            seconds,
            requests_per_second: span.requests.map(rate),
            error_ratio: span.error_share(),
            sides: sides.collect(),
        }
    }
}

/// JSON of `/api/v1/engines`: workers of an orchestrator, and its counts since the exporter first read it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OrchestratorJson {
    pub ready: Option<bool>,
    pub requests: Option<u64>,
    pub responses: Option<u64>,
    pub validation_errors: Option<u64>,
    pub http_errors: Option<u64>,
    pub internal_errors: Option<u64>,
    /// The sides by name. A side without values is absent.
    pub sides: BTreeMap<String, OrchestratorSide>,
    pub window: Option<OrchestratorNumbers>,
}

/// JSON of `/api/v1/engines`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OrchestratorSide {
    pub ready_workers: Option<u64>,
    pub minimal_workers: Option<u64>,
    pub requests: Option<u64>,
    pub retries: Option<u64>,
    pub errors: Option<u64>,
    pub requests_ended: Option<u64>,
}

impl OrchestratorJson {
    /// `stale`: the orchestrator does not answer, so its current state is unknown.
    pub fn of(totals: &OrchestratorTotals, stale: bool, span: Option<&OrchestratorMark>) -> Self {
        let mut sides: BTreeMap<String, OrchestratorSide> = BTreeMap::new();
        for (side, counted) in Side::ALL.iter().zip(&totals.sides) {
            if let Some(counted) = counted {
                let json = sides.entry(side.name().to_owned()).or_default();
                json.requests = Some(counted.sent);
                json.retries = Some(counted.retried);
                json.errors = Some(counted.failed);
                json.requests_ended = Some(counted.ended);
            }
        }
        if !stale {
            for (side, ready, minimal) in workers(totals) {
                if ready.or(minimal).is_some() {
                    let json = sides.entry(side.name().to_owned()).or_default();
                    (json.ready_workers, json.minimal_workers) = (ready, minimal);
                }
            }
        }
        let requests = totals.streamed.zip(totals.whole);
        Self {
            ready: totals.ready.filter(|_| !stale),
            requests: requests.map(|(streamed, whole)| streamed.saturating_add(whole)),
            responses: totals.responses,
            validation_errors: totals.invalid,
            http_errors: totals.http_errors,
            internal_errors: totals.internal_errors,
            sides,
            window: span.filter(|_| !stale).map(OrchestratorNumbers::of),
        }
    }
}

/// Each side with the number of its ready workers, and the least number that it needs.
pub(super) fn workers(totals: &OrchestratorTotals) -> [(Side, Option<u64>, Option<u64>); 2] {
    let OrchestratorTotals { workers, minimal_workers, .. } = totals;
    let of = |side, from: fn(&WorkerCounts) -> Option<u64>| (side, from(workers), from(minimal_workers));
    [of(Side::Context, |counts| counts.context), of(Side::Generation, |counts| counts.generation)]
}
