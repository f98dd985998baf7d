//! `/api/v1/history?at=`: the last minutes before a time, from the recording of this exporter.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use serde_json::Value;
use tokio::sync::Semaphore;

use trtllm_intake::past::engine_at;
use trtllm_page::state::State;
use trtllm_recording::{OpenRecordingError, engines, other_formats};

use super::api::{self, InvalidQuery, last_value, parameter, parse_time};
use super::history;

/// One recording is read at a time, so readers cost the memory of one engine.
static READER: Semaphore = Semaphore::const_new(1);
/// How long an answer may take. After that, the request fails, and the reader stops after the engine that it is reading.
const PATIENCE: Duration = Duration::from_secs(20);
/// After this time, the reader starts on no further engine.
const ENOUGH: Duration = Duration::from_secs(10);
/// Limit of the engines in one answer.
const MOST_ENGINES: usize = 16;

/// Like [`api::history`], but also for a time in the past (`at`). `query` is the query of the request's URL. Fails if a
/// parameter is invalid, nothing was recorded at this time, or the recording cannot be read now.
pub async fn history(state: &State, query: &str) -> Result<String, InvalidQuery> {
    let wrong = |at: &str| format!("at={at} is not a time; write a Unix time, or one such as 2026-11-23T04:00:00Z");
    let since_1970 = |text: &str| parse_time(text).filter(|seconds| *seconds >= 0.0);
    let Some(at) = parameter(query, "at", since_1970, wrong)? else { return api::history(state, query) };
    let at_us = (at * 1e6).round() as i64;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let failed = |status, error: &str| InvalidQuery::new(status, "at", error);
    if at_us > i64::try_from(now.as_micros()).unwrap_or(i64::MAX) {
        return Err(failed(StatusCode::BAD_REQUEST, "this time is in the future; ask for an earlier one"));
    }
    let seconds = api::seconds(query)?;
    let engine = last_value(query, "engine").map(Cow::into_owned);
    let Some(files) = state.baselines.get() else {
        return Err(failed(StatusCode::NOT_FOUND, "nothing is recorded; set --record.dir"));
    };
    let busy = |_| failed(StatusCode::SERVICE_UNAVAILABLE, "the recording is being read for somebody else; try again");
    let turn = READER.try_acquire().map_err(busy)?;
    let directory = files.directory.clone();
    let read = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let note = other_formats(&directory).ok().flatten();
        read(&directory, engine, at_us, seconds, note.as_deref()).map_err(|error| (error, note))
    });
    match tokio::time::timeout(PATIENCE, read).await {
        Ok(Ok(answer)) => answer.map_err(|(error, note)| unreadable(&error, note.as_deref())),
        _ => Err(failed(
            StatusCode::SERVICE_UNAVAILABLE,
            "the recording of this time takes too long to read; ask doctor --recording DIR --at TIME",
        )),
    }
}

/// `note`: what is left out of the recording.
fn unreadable(error: &OpenRecordingError, note: Option<&str>) -> InvalidQuery {
    use OpenRecordingError::{Begins, Empty, Ends, Format, Io, Pauses, Several, Unknown};
    let (status, parameter) = match error {
        Begins(_) | Ends(_) | Pauses(..) | Empty => (StatusCode::NOT_FOUND, "at"),
        Unknown { .. } => (StatusCode::NOT_FOUND, "engine"),
        Several { .. } => (StatusCode::BAD_REQUEST, "engine"),
        Io(_) | Format(_) => (StatusCode::SERVICE_UNAVAILABLE, "at"),
    };
    let note = note.filter(|_| !matches!(error, Format(_))).map(|note| format!("; {note}")).unwrap_or_default();
    InvalidQuery::new(status, parameter, format!("{error}{note}"))
}

/// The named engine, or all engines that have records of this time. Engines are read one after the other, so that only
/// one of them is in memory.
fn read(
    directory: &Path,
    engine: Option<String>,
    at_us: i64,
    seconds: f64,
    note: Option<&str>,
) -> Result<String, OpenRecordingError> {
    let (began, is_named) = (Instant::now(), engine.is_some());
    let names = engine.map_or_else(|| engines(directory), |name| Ok(vec![name]))?;
    let (mut found, mut left, mut outside) = (Vec::new(), Vec::new(), None);
    let (mut gpus, mut known) = (Vec::new(), BTreeSet::new());
    for name in names {
        if found.len() == MOST_ENGINES || began.elapsed() > ENOUGH {
            left.push(name);
            continue;
        }
        let past = match engine_at(directory, Some(&name), "engine=", Some(at_us)) {
            Ok(past) => past,
            Err(error) if is_named => return Err(error),
            Err(error) => {
                outside = Some(error);
                continue;
            }
        };
        let slot = past.slot();
        let mut engine = history::of_engine(&slot, seconds);
        engine["then"] = api::engine(&slot, &slot.snapshot());
        found.push(engine);
        // A GPU that several engines share is in the recording of each of them, but only once in the answer.
        let of_others = past.state.gpu_windows().into_iter().filter(|gpu| known.insert(gpu.uuid.clone()));
        gpus.extend(of_others.map(|gpu| history::of_gpu(&gpu, seconds)));
    }
    if let (true, Some(error)) = (found.is_empty(), outside) {
        return Err(error);
    }
    let mut past = vec![("at", Value::from(at_us as f64 / 1e6)), ("left", Value::from(left))];
    past.extend(note.map(|note| ("unreadable", Value::from(note))));
    Ok(history::write(&past, found.into_iter(), gpus.into_iter()))
}
