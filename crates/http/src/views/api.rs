//! `/readyz` and `/api/v1`: the engines as JSON, and their last records with TensorRT-LLM's own keys. Reading removes
//! no records: the state keeps the last ones beside the totals. Unknown values are left out; they are never null.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::http::StatusCode;
use serde_json::Value;

use trtllm_engines::{EngineSlot, State};
use trtllm_fold::batch_time::BatchTime;
use trtllm_records::{EngineName, RECENT_RECORDS};

use super::answers::{Derived, Discovered, EngineVerdict, Findings, Gpus, Model, Versioned};
use super::engine::Engine;
use super::history;
use super::json::{array, without_nulls};
use super::reasons;

/// Number of records if the parameter `last` is missing.
const DEFAULT_LAST: usize = 10;

/// All engines.
pub fn engines(state: &State) -> String {
    array(state.slots().iter().map(|slot| engine(slot)))
}

pub(super) fn engine(slot: &EngineSlot) -> Value {
    // Polls wait for the lock, so JSON is made after it is released.
    let shown = {
        let engine = slot.lock();
        slot.with_judged(|judged| Engine::of(slot, &engine, judged))
    };
    without_nulls(&shown)
}

/// What limits each engine, and all other findings, the most severe first.
pub fn findings(state: &State) -> Value {
    let verdict = |slot: &Arc<EngineSlot>| {
        let verdict = slot.with_judged(|judged| judged.verdict.verdict().cloned());
        let EngineName { model, version, labels, .. } = slot.name.clone();
        EngineVerdict { model, version, labels: labels.into_iter().collect(), verdict }
    };
    let engines = state.slots().iter().map(verdict).collect();
    without_nulls(&Versioned::new(Findings { engines, findings: state.findings() }))
}

/// All GPUs, or the reason why there is none.
pub fn gpus(state: &State) -> Value {
    let inventory = state.gpus();
    let why = inventory.gpus.is_empty().then(|| reasons::no_gpus(&inventory).to_owned());
    let (nvml, gpus) = (inventory.nvml.name().to_owned(), inventory.gpus.clone());
    without_nulls(&Versioned::new(Gpus { nvml, why, gpus }))
}

/// What `--source auto` or `kubernetes:` found at each address.
pub fn discovery(state: &State) -> Value {
    let found = state.discovery.lock().clone().into_iter();
    without_nulls(&found.map(|(address, finding)| Discovered { address, finding }).collect::<Vec<_>>())
}

/// The costs of an engine's iterations and its last requests. Fails if the parameter `engine` names no engine or several.
pub fn model(state: &State, query: &str) -> Result<Value, InvalidQuery> {
    let slot = chosen_engine(query, state)?;
    Ok(without_nulls(&Versioned::new(Model::of(&slot, None))))
}

/// The sources that were never polled successfully, one line each. Returns `None` forever after the first call at which
/// every source had been polled. If the exporter is a sidecar, its readiness decides whether the engine's pod gets
/// traffic, so later failures must not change it.
pub fn not_ready(state: &State) -> Option<String> {
    let missing = |slot: &Arc<EngineSlot>| {
        let (engine, name) = (slot.lock(), &slot.name);
        let why = reasons::without_addresses(&engine).unwrap_or_default();
        // What `auto` and `kubernetes:` find later must not change the readiness of the exporter.
        (!engine.source.ready && !slot.origin.is_found).then(|| format!("{} ({}): {why}\n", name.words(), name.source))
    };
    if state.was_ready.load(Ordering::Relaxed) {
        return None;
    }
    let missing: String = state.slots().iter().filter_map(missing).collect();
    state.was_ready.fetch_or(missing.is_empty(), Ordering::Relaxed);
    Some(missing).filter(|missing| !missing.is_empty())
}

const ENDPOINT_ERROR: &str = "an endpoint of the server cannot be read; see the log";

/// What is wrong with engines whose sources have been polled successfully before, one line each.
pub fn current_problems(state: &State) -> String {
    let failing = |slot: &Arc<EngineSlot>| {
        let (engine, name) = (slot.lock(), &slot.name);
        let stale = engine.state.is_stale().then(|| format!("the engine is {}", engine.state.name()));
        // The error of an endpoint may name an address.
        let endpoint = engine.source.endpoint_error.as_ref().map(|_| ENDPOINT_ERROR);
        let notice = engine.source.notice.or(endpoint).map(str::to_owned);
        let why = reasons::without_addresses(&engine).or(stale).or(notice)?;
        Some(format!("{} ({}): {why}\n", name.words(), name.source))
    };
    state.slots().iter().filter_map(failing).collect()
}

/// The last records of one engine as a JSON array, oldest first. `query` is the query of the request's URL. Fails if a
/// parameter is invalid.
pub fn iterations(state: &State, query: &str) -> Result<String, InvalidQuery> {
    let is_valid = |last: &usize| (1..=RECENT_RECORDS).contains(last);
    let wrong = |value: &str| format!("last={value} is not a number from 1 to {RECENT_RECORDS}");
    let last = parameter(query, "last", |value| value.parse().ok().filter(is_valid), wrong)?.unwrap_or(DEFAULT_LAST);
    let records = chosen_engine(query, state)?.lock().recent_records(last);
    let timed = records.iter().filter_map(|kept| kept.timed);
    let times: HashMap<u64, BatchTime> = timed.filter_map(|batch| Some((batch.iter?, batch.time))).collect();
    Ok(array(records.into_iter().map(|kept| {
        let mut json = without_nulls(&*kept.record);
        if let Some(time) = kept.record.iter.and_then(|iter| times.get(&iter)) {
            let rounded = |seconds: f64| (seconds * 1e7).round() / 1e7;
            let device_seconds = time.device_seconds.map(rounded);
            json["derived"] = without_nulls(&Derived { batch_seconds: rounded(time.seconds), device_seconds });
        }
        json
    })))
}

/// A parameter that is invalid, or that asks for something that does not exist, with the reason.
#[derive(Debug)]
pub struct InvalidQuery {
    pub(crate) status: StatusCode,
    pub(crate) parameter: &'static str,
    pub(crate) error: String,
}

impl InvalidQuery {
    fn new(status: StatusCode, parameter: &'static str, error: impl Into<String>) -> Self {
        Self { status, parameter, error: error.into() }
    }
}

/// The last minutes of all GPUs and of one engine or all engines, divided into time slots. `query` is the query of the
/// request's URL. Fails if a parameter is invalid.
pub fn history(state: &State, query: &str) -> Result<String, InvalidQuery> {
    let seconds = seconds(query)?;
    let engines = match last_value(query, "engine") {
        Some(name) => vec![find_engine(&name, state)?],
        None => state.slots().to_vec(),
    };
    Ok(history::history(state, &engines, seconds))
}

/// The parameter `seconds`: the length of a history.
fn seconds(query: &str) -> Result<f64, InvalidQuery> {
    let most = history::MOST_SECONDS;
    let is_valid = |seconds: &f64| *seconds > 0.0 && *seconds <= most;
    let wrong = |value: &str| format!("seconds={value} is not a number above 0, up to {most}");
    Ok(parameter(query, "seconds", |value| value.parse().ok().filter(is_valid), wrong)?.unwrap_or(most))
}

/// The engine that the parameter `engine` names.
fn chosen_engine(query: &str, state: &State) -> Result<Arc<EngineSlot>, InvalidQuery> {
    find_engine(&last_value(query, "engine").unwrap_or_default(), state)
}

/// The values of a parameter. Unknown parameters are ignored, as on the metrics page.
fn values<'q>(query: &'q str, parameter: &str) -> impl Iterator<Item = Cow<'q, str>> {
    form_urlencoded::parse(query.as_bytes()).filter(move |(name, _)| name == parameter).map(|(_, value)| value)
}

fn last_value<'q>(query: &'q str, parameter: &str) -> Option<Cow<'q, str>> {
    values(query, parameter).last()
}

/// The last value of a parameter whose values must all be valid.
fn parameter<T>(
    query: &str,
    parameter: &'static str,
    parse: impl Fn(&str) -> Option<T>,
    wrong: impl Fn(&str) -> String,
) -> Result<Option<T>, InvalidQuery> {
    let invalid = |value: &str| InvalidQuery::new(StatusCode::BAD_REQUEST, parameter, wrong(value));
    let parsed = values(query, parameter).map(|value| parse(&value).ok_or_else(|| invalid(&value)));
    Ok(parsed.collect::<Result<Vec<T>, _>>()?.pop())
}

/// The engine with this name: `model`, `model:version`, or its full name. An empty name means the only engine.
fn find_engine(engine: &str, state: &State) -> Result<Arc<EngineSlot>, InvalidQuery> {
    let known = state.slots();
    let names = |of: &[&Arc<EngineSlot>]| of.iter().map(|slot| slot.name.full()).collect::<Vec<_>>().join(", ");
    // A full name has priority, because the model's name of another engine may contain a colon.
    if let Some(slot) = known.iter().find(|slot| slot.name.full() == engine) {
        return Ok(Arc::clone(slot));
    }
    let is_meant = |slot: &&Arc<EngineSlot>| {
        let name = &slot.name;
        engine.is_empty() || name.model == engine || format!("{}:{}", name.model, name.version) == engine
    };
    let matches: Vec<&Arc<EngineSlot>> = known.iter().filter(is_meant).collect();
    match matches.as_slice() {
        [slot] => Ok(Arc::clone(slot)),
        [] => {
            let all: Vec<&Arc<EngineSlot>> = known.iter().collect();
            let error = match all.as_slice() {
                [] => "there is no engine yet; add a --source, or start a publisher".to_owned(),
                all => format!("engine={engine} is unknown; the engines are {}", names(all)),
            };
            Err(InvalidQuery::new(StatusCode::NOT_FOUND, "engine", error))
        }
        several => {
            let error = format!("engine={engine} is ambiguous; use one of {}", names(several));
            Err(InvalidQuery::new(StatusCode::BAD_REQUEST, "engine", error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ready_exporter_stays_ready_when_a_source_joins() {
        let state = State::new(vec![EngineName::new("m", "1", "test")]);
        assert!(not_ready(&state).is_some());
        state.slots()[0].lock().source.ready = true;
        assert_eq!(not_ready(&state), None);
        let name = EngineName::new("n", "1", "test");
        state.add(&trtllm_engines::SourceIndex::new(1), name, trtllm_engines::EngineOrigin::default(), None);
        assert_eq!(not_ready(&state), None);
    }

    #[test]
    fn without_any_engine_no_name_of_one_is_called_unknown() {
        let error = model(&State::new(Vec::new()), "").unwrap_err();
        assert_eq!(error.status, StatusCode::NOT_FOUND);
        assert!(error.error.starts_with("there is no engine yet"), "{}", error.error);
    }
}
