//! `/api/v1`: what is known of the engines as JSON, and their last records in TensorRT-LLM's own keys. Reading drains
//! nothing: the poller keeps a bounded number of records beside the totals. What is unknown is left out, never null.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State as Shared;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use serde::Serialize;
use serde_json::Value;

use crate::state::{EngineName, EngineSnapshot, RECENT_RECORDS, State};

/// Records without a `last`.
const DEFAULT_LAST: usize = 10;

/// The routes over `state`.
pub fn api(state: Arc<State>) -> Router {
    let read = MethodFilter::GET.or(MethodFilter::HEAD);
    Router::new()
        .route("/api/v1/engines", on(read, engines))
        .route("/api/v1/iterations", on(read, iterations))
        .with_state(state)
}

/// One engine. Times are seconds since 1970 UTC.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Engine<'a> {
    model: &'a str,
    version: &'a str,
    labels: BTreeMap<&'a str, &'a str>,
    /// The kind of source, never its address.
    source: &'static str,
    state: &'static str,
    backend: Option<&'a str>,
    engine_version: Option<&'a str>,
    simulated: bool,
    last_poll: LastPoll,
    last_record_timestamp_seconds: Option<f64>,
    totals: Totals,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LastPoll {
    succeeded: bool,
    timestamp_seconds: Option<f64>,
    last_success_timestamp_seconds: Option<f64>,
    /// Polls so far, how many of them failed, and records that could not be read.
    polls: u64,
    failed: u64,
    records_rejected: u64,
}

/// As the counters on the page.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Totals {
    iterations: u64,
    iterations_lost: u64,
    engine_restarts: u64,
    requests_started: u64,
    requests_completed: u64,
    context_tokens: u64,
    generation_tokens: u64,
    kv_cache_blocks_allocated: u64,
    kv_cache_blocks_newly_allocated: u64,
    kv_cache_blocks_reused: u64,
    kv_cache_blocks_missed: u64,
    spec_decode_draft_tokens: u64,
    spec_decode_accepted_tokens: u64,
    request_pauses: u64,
}

impl<'a> Engine<'a> {
    fn of(name: &'a EngineName, snapshot: &'a EngineSnapshot) -> Self {
        let (source, totals) = (&snapshot.source, &snapshot.totals);
        let seconds = |micros: i64| micros as f64 / 1e6;
        Self {
            model: &name.model,
            version: &name.version,
            labels: name.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            source: name.source,
            state: snapshot.state.name(),
            backend: snapshot.about.backend.as_deref(),
            engine_version: snapshot.about.version.as_deref(),
            simulated: snapshot.about.simulated,
            last_poll: LastPoll {
                succeeded: source.up,
                timestamp_seconds: source.last_poll_us.map(seconds),
                last_success_timestamp_seconds: source.last_success_us.map(seconds),
                polls: source.polls,
                failed: source.errors.iter().sum(),
                records_rejected: source.rejected.iter().sum(),
            },
            last_record_timestamp_seconds: snapshot.latest.as_ref().map(|latest| seconds(latest.time_us)),
            totals: Totals {
                iterations: totals.iterations,
                iterations_lost: totals.iterations_lost,
                engine_restarts: totals.engine_restarts,
                requests_started: totals.requests_started,
                requests_completed: totals.requests_completed,
                context_tokens: totals.context_tokens,
                generation_tokens: totals.generation_tokens,
                kv_cache_blocks_allocated: totals.kv_cache_blocks_allocated,
                kv_cache_blocks_newly_allocated: totals.kv_cache_blocks_newly_allocated,
                kv_cache_blocks_reused: totals.kv_cache_blocks_reused,
                kv_cache_blocks_missed: totals.kv_cache_blocks_missed,
                spec_decode_draft_tokens: totals.spec_decode_draft_tokens,
                spec_decode_accepted_tokens: totals.spec_decode_accepted_tokens,
                request_pauses: totals.request_pauses,
            },
        }
    }
}

async fn engines(Shared(state): Shared<Arc<State>>) -> Response {
    let known: Vec<(&EngineName, Arc<EngineSnapshot>)> = state.engines().collect();
    let engines = known.iter().map(|(name, snapshot)| written(&Engine::of(name, snapshot))).collect();
    json(StatusCode::OK, &Value::Array(engines))
}

async fn iterations(Shared(state): Shared<Arc<State>>, uri: Uri) -> Response {
    match asked(uri.query().unwrap_or_default(), &state) {
        Ok((engine, last)) => {
            let records = state.recent_records(engine, last);
            json(StatusCode::OK, &Value::Array(records.iter().map(|record| written(&**record)).collect()))
        }
        Err(Refused { status, parameter, error }) => {
            json(status, &serde_json::json!({"parameter": parameter, "error": error}))
        }
    }
}

struct Refused {
    status: StatusCode,
    parameter: &'static str,
    error: String,
}

/// Which engine, and how many records. What is not known as a parameter is somebody's own affair, as on the page.
fn asked(query: &str, state: &State) -> Result<(usize, usize), Refused> {
    let (mut engine, mut last) = (String::new(), DEFAULT_LAST);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "engine" => engine = value.into_owned(),
            "last" => {
                let number = value.parse().ok().filter(|number| (1..=RECENT_RECORDS).contains(number));
                last = number.ok_or_else(|| Refused {
                    status: StatusCode::BAD_REQUEST,
                    parameter: "last",
                    error: format!("last={value} is no number from 1 to {RECENT_RECORDS}"),
                })?;
            }
            _ => {}
        }
    }
    let all: Vec<(usize, String, String)> = state
        .all_engines()
        .enumerate()
        .filter(|(_, (name, snapshot))| State::on_page(name, snapshot))
        .map(|(index, (name, _))| (index, name.model.clone(), format!("{}:{}", name.model, name.version)))
        .collect();
    let meant =
        |(_, model, whole): &&(usize, String, String)| engine.is_empty() || engine == *model || engine == *whole;
    let found: Vec<&(usize, String, String)> = all.iter().filter(meant).collect();
    // Whoever is called exactly so is meant, even if another's model has a version in its name.
    let exact = found.iter().find(|(_, _, whole)| engine == *whole);
    let names =
        |of: &[&(usize, String, String)]| of.iter().map(|(_, _, whole)| whole.as_str()).collect::<Vec<_>>().join(", ");
    let refuse = |status, error| Refused { status, parameter: "engine", error };
    match (exact, found.as_slice()) {
        (Some((index, ..)), _) | (None, [(index, ..)]) => Ok((*index, last)),
        (None, []) => {
            let all: Vec<_> = all.iter().collect();
            let known = if all.is_empty() { "none yet".to_owned() } else { names(&all) };
            Err(refuse(StatusCode::NOT_FOUND, format!("engine={engine} is unknown; the engines are {known}")))
        }
        (None, several) => {
            let error = format!("engine={engine} may be one of several; write one of {}", names(several));
            Err(refuse(StatusCode::BAD_REQUEST, error))
        }
    }
}

/// As JSON, without what is absent.
fn written(value: &impl Serialize) -> Value {
    // Maps have names for keys and floats come from JSON or are finite: there is nothing to fail.
    let mut value = serde_json::to_value(value).unwrap_or_default();
    leave_nulls_out(&mut value);
    value
}

fn leave_nulls_out(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(leave_nulls_out);
        }
        Value::Array(items) => items.iter_mut().for_each(leave_nulls_out),
        _ => {}
    }
}

fn json(status: StatusCode, value: &Value) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (status, headers, format!("{value}\n")).into_response()
}
