//! One engine in `/api/v1/engines`. The commands that read the API of exporters, such as `top`, use the same types.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use trtllm_engines::{EngineJudgement, EngineSlot, StartPhase};
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
    pub iterations: u64,
    pub iterations_lost: u64,
    pub engine_restarts: u64,
    pub requests_started: u64,
    pub requests_completed: u64,
    /// Absent if the engine reports only some iterations, like `generation_tokens` and the counters of speculative decoding.
    pub context_tokens: Option<u64>,
    pub generation_tokens: Option<u64>,
    pub kv_cache_blocks_allocated: i64,
    pub kv_cache_blocks_newly_allocated: i64,
    pub kv_cache_blocks_reused: i64,
    pub kv_cache_blocks_missed: i64,
    pub spec_decode_draft_tokens: Option<u64>,
    pub spec_decode_accepted_tokens: Option<u64>,
    pub request_pauses: Option<u64>,
}

impl Engine {
    /// The name by which people choose the engine, with `:` between its parts; with another separator for texts.
    #[must_use]
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
            window: history::window(judged),
            verdict: judged.verdict.verdict().cloned(),
            totals: engine.orchestrator().is_none().then(|| Totals::of(engine.totals())),
        }
    }
}

impl Totals {
    fn of(totals: &EngineTotals) -> Self {
        let complete = |total: u64| (!totals.is_sampled()).then_some(total);
        Self {
            iterations: totals.iterations,
            iterations_lost: totals.losses.lost,
            engine_restarts: totals.engine_restarts,
            requests_started: totals.requests_started,
            requests_completed: totals.requests_completed,
            context_tokens: complete(totals.batch.tokens.context),
            generation_tokens: totals.batch.decoded_tokens().and_then(complete),
            kv_cache_blocks_allocated: totals.kv.alloc_total_blocks.unwrap_or(0),
            kv_cache_blocks_newly_allocated: totals.kv.alloc_new_blocks.unwrap_or(0),
            kv_cache_blocks_reused: totals.kv.reused_blocks.unwrap_or(0),
            kv_cache_blocks_missed: totals.kv.missed_blocks.unwrap_or(0),
            spec_decode_draft_tokens: complete(totals.batch.spec_decode_draft_tokens),
            spec_decode_accepted_tokens: complete(totals.batch.spec_decode_accepted_tokens),
            request_pauses: totals.request_pauses,
        }
    }
}

fn seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}
