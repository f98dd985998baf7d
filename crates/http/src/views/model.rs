//! `/api/v1/model`: the costs of an engine's iterations and its last requests, from which `what-if` and `compare`
//! answer questions. For a time in the past, the answer is the model that the recorder's directory keeps.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use trtllm_page::state::{EngineSlot, State};
use trtllm_what_if::Present;
use trtllm_what_if::baselines::Run;

use super::api::{InvalidQuery, chosen_engine, parameter, parse_time};
use super::json::without_nulls;

/// How long a reader waits. The engine's accumulated statistics are copied only when its next poll ends.
const PATIENCE: Duration = Duration::from_secs(5);

/// A time in the past: seconds since 1970, or the end of the run before the present one.
#[derive(Clone, Copy)]
enum At {
    Time(f64),
    Before,
}

/// `None` if the engine's polls do not end, the disk does not answer, or too many readers wait. Fails if a parameter is
/// invalid, or no model is kept for that time.
pub async fn model(state: &State, query: &str) -> Result<Option<Value>, InvalidQuery> {
    let engine = chosen_engine(query, state)?;
    let parse = |text: &str| if text == "before" { Some(At::Before) } else { parse_time(text).map(At::Time) };
    let wrong = |at: &str| {
        format!(
            "at={at} is not a time; write a Unix time, one such as 2026-11-23T04:00:00Z, or before (the run before the last restart)"
        )
    };
    let at = parameter(query, "at", parse, wrong)?;
    if let Some(at) = at {
        return kept(state, engine, at).await;
    }
    let copied = tokio::time::timeout(PATIENCE, engine.read_fold()).await;
    let Some(fold) = copied.ok().and_then(Result::ok) else { return Ok(None) };
    let present = engine.with_judged(|judged| Present::of(&fold, &judged.window));
    Ok(Some(answer(&engine, None, &engine.run(), &present)))
}

async fn kept(state: &State, engine: Arc<EngineSlot>, at: At) -> Result<Option<Value>, InvalidQuery> {
    let nothing = |why| InvalidQuery::new(StatusCode::NOT_FOUND, "at", why);
    let Some(files) = state.baselines.get().map(Arc::clone) else {
        return Err(nothing("nothing is kept; set --record.dir"));
    };
    let read = async {
        let turn = Arc::clone(&files.readers).acquire_owned().await;
        let read = move || {
            let _turn = turn;
            let kept = files.read(&engine.name);
            let found = match at {
                At::Time(time) => kept.at(time),
                At::Before => kept.before(&engine.run()),
            };
            found.map(|found| answer(&engine, Some(found.at), &found.run, &found.present))
        };
        tokio::task::spawn_blocking(read).await
    };
    match tokio::time::timeout(PATIENCE, read).await {
        Err(_) => Ok(None),
        Ok(read) => read.ok().flatten().map(Some).ok_or_else(|| {
            nothing(
                "nothing is kept of this time; an engine is kept after ten minutes of work, so ask for a later time",
            )
        }),
    }
}

fn answer(engine: &EngineSlot, at: Option<f64>, run: &Run, present: &Present) -> Value {
    without_nulls(&json!({
        "apiVersion": super::API_VERSION,
        "model": engine.name.model,
        "version": engine.name.version,
        "at": at,
        "run": run,
        "present": present,
    }))
}
