//! One engine in `/api/v1/engines`. The commands that read the API of exporters, such as `top`, use the same types.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use trtllm_engines::{EngineJudgement, EngineSlot, StartPhase, Tells};
use trtllm_fold::EngineTotals;
use trtllm_verdict::verdict::Verdict;

use super::answers;
use super::history;
use super::numbers::{LoadJson, Numbers, OrchestratorJson};
use super::reasons;

/// JSON of `/api/v1/engines`: one engine. Times are in seconds since 1970 UTC.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Engine {
    pub model: String,
    pub version: String,
    /// Labels from the configuration.
    pub labels: BTreeMap<String, String>,
    /// The kind of source, never its address.
    pub source: String,
    pub state: String,
    /// While the engine is starting: `loading`, `never_answered`, `no_record` or `no_publisher`.
    pub start_phase: Option<String>,
    /// The cause of the state.
    pub why: String,
    pub backend: Option<String>,
    pub engine_version: Option<String>,
    pub simulated: bool,
    pub last_poll: LastPoll,
    /// What is wrong with the statistics although polls succeed.
    pub notice: Option<String>,
    /// Keys of the engine's messages that this exporter does not know.
    pub unread_keys: Option<Vec<String>>,
    /// Endpoints that the server does not have.
    pub missing_endpoints: Vec<String>,
    pub last_record_timestamp_seconds: Option<f64>,
    /// Absent for an orchestrator, which runs no iterations.
    pub totals: Option<Totals>,
    /// Numbers of an orchestrator of disaggregated serving. Absent for other engines.
    pub orchestrator: Option<OrchestratorJson>,
    /// Load in the last iteration. Absent while the engine does not answer.
    pub load: Option<LoadJson>,
    /// Numbers of the last half minute.
    pub window: Option<Numbers>,
    /// What limits the engine. Absent while too little is known.
    pub verdict: Option<Verdict>,
}

/// JSON of `/api/v1/engines`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastPoll {
    pub succeeded: bool,
    pub timestamp_seconds: Option<f64>,
    pub last_success_timestamp_seconds: Option<f64>,
    /// Polls so far, failed polls, and rejected records.
    pub polls: u64,
    pub failed: u64,
    pub records_rejected: u64,
    /// Time since which the source has not answered. Absent if the last poll succeeded.
    pub unanswered_since_timestamp_seconds: Option<f64>,
    /// Why the last poll failed. It may name the address of the source.
    pub error: Option<String>,
}

/// JSON of `/api/v1/engines`: the counters of the metrics page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Totals {
    /// Absent if the source has no iterations, like all that is summed over them.
    pub iterations: Option<u64>,
    pub iterations_lost: u64,
    pub engine_restarts: u64,
    /// Also absent if an iteration log does not tell it, like the blocks.
    pub requests_started: Option<u64>,
    pub requests_completed: Option<u64>,
    /// Also absent if the engine reports only some iterations, like `generation_tokens` and the counters of speculative decoding.
    pub context_tokens: Option<u64>,
    pub generation_tokens: Option<u64>,
    pub kv_cache_blocks_allocated: Option<i64>,
    pub kv_cache_blocks_newly_allocated: Option<i64>,
    pub kv_cache_blocks_reused: Option<i64>,
    pub kv_cache_blocks_missed: Option<i64>,
    pub spec_decode_draft_tokens: Option<u64>,
    pub spec_decode_accepted_tokens: Option<u64>,
    pub request_pauses: Option<u64>,
}

impl Engine {
    /// The name by which people choose the engine, with `:` between its parts; with another separator for texts.
    pub fn name(&self, separator: &str) -> String {
        answers::of_labels(separator, &self.model, &self.version, &self.labels)
    }

    pub(super) fn of(slot: &EngineSlot, engine: &trtllm_engines::Engine, judged: &EngineJudgement) -> Self {
        let (name, source) = (&slot.name, &engine.source);
        let orchestrator = |totals| {
            let span = judged.orchestrator_span(history::WINDOW);
            OrchestratorJson::of(totals, engine.state.is_stale(), span.as_ref())
        };
        Self {
            model: name.model.clone(),
            version: name.version.clone(),
            labels: name.labels.iter().cloned().collect(),
            source: name.source.to_owned(),
            state: engine.state.name().to_owned(),
            start_phase: reasons::start_phase(engine).map(StartPhase::name).map(str::to_owned),
            why: reasons::why(engine),
            backend: engine.about.backend.clone(),
            engine_version: engine.about.version.clone(),
            simulated: engine.about.simulated,
            last_poll: LastPoll {
                succeeded: source.up,
                timestamp_seconds: source.last_poll_us.map(seconds),
                last_success_timestamp_seconds: source.last_success_us.map(seconds),
                polls: source.metrics.polls.get(),
                failed: source.metrics.errors.iter().map(|count| count.get()).sum(),
                records_rejected: source.metrics.rejected.iter().map(|count| count.get()).sum(),
                unanswered_since_timestamp_seconds: source.unanswered_since_us.map(seconds),
                error: source.last_failure.as_ref().map(|failure| failure.text.clone()),
            },
            notice: source.notice.or(source.endpoint_error.as_deref()).map(str::to_owned),
            unread_keys: source.unread_keys.as_deref().map(<[String]>::to_vec),
            missing_endpoints: source.missing_endpoints.iter().map(|path| (*path).to_owned()).collect(),
            last_record_timestamp_seconds: engine.latest().map(|latest| seconds(latest.time_us)),
            orchestrator: engine.orchestrator().map(orchestrator),
            load: LoadJson::of(engine),
            window: history::window(judged, engine.tells()),
            verdict: judged.verdict.verdict().cloned(),
            totals: engine.orchestrator().is_none().then(|| Totals::of(engine.totals(), engine.tells())),
        }
    }
}

impl Totals {
    fn of(totals: &EngineTotals, tells: Tells) -> Self {
        let complete = |total: u64| (tells.iterations && !totals.is_sampled()).then_some(total);
        let requests = |total: u64| (tells.requests || total > 0).then_some(total);
        let blocks = |total: Option<i64>| total.or(tells.requests.then_some(0));
        Self {
            iterations: tells.iterations.then_some(totals.iterations),
            iterations_lost: totals.losses.lost,
            engine_restarts: totals.engine_restarts,
            requests_started: requests(totals.requests_started),
            requests_completed: requests(totals.requests_completed),
            context_tokens: complete(totals.batch.tokens.context),
            generation_tokens: totals.batch.decoded_tokens().and_then(complete),
            kv_cache_blocks_allocated: blocks(totals.kv.alloc_total_blocks),
            kv_cache_blocks_newly_allocated: blocks(totals.kv.alloc_new_blocks),
            kv_cache_blocks_reused: blocks(totals.kv.reused_blocks),
            kv_cache_blocks_missed: blocks(totals.kv.missed_blocks),
            spec_decode_draft_tokens: complete(totals.batch.spec_decode_draft_tokens),
            spec_decode_accepted_tokens: complete(totals.batch.spec_decode_accepted_tokens),
            request_pauses: totals.request_pauses,
        }
    }
}

fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use trtllm_analysis::window::{Mark, Span};

    use super::*;

    #[test]
    fn what_the_source_does_not_tell_is_absent() {
        let names = |only_log, only_requests| {
            let mut engine = trtllm_engines::Engine::starting();
            (engine.source.only_log, engine.source.only_requests) = (only_log, only_requests);
            let tells = engine.tells();
            let mark = Mark::of(&engine.observed, 0.0);
            let span = Span::between(&mark, &mark);
            let totals = super::super::json::without_nulls(&Totals::of(engine.totals(), tells));
            let numbers = super::super::json::without_nulls(&Numbers::of(&span, tells));
            let names = |json: &serde_json::Value| json.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            [names(&totals), names(&numbers)]
        };
        let all = names(false, false).map(|names| names.len());
        assert_eq!(names(true, false).map(|names| names.len()), [all[0] - 6, all[1] - 2]);
        let of_requests = [vec!["engineRestarts", "iterationsLost"], vec!["seconds"]];
        assert_eq!(names(false, true), of_requests);
    }
}
