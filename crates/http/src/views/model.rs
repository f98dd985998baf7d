//! `/api/v1/model`: the costs of an engine's iterations and its last requests, from which `what-if` and `compare`
//! answer questions.

use std::time::Duration;

use serde_json::{Value, json};
use trtllm_engines::State;
use trtllm_what_if::MeasuredEngine;

use super::api::{InvalidQuery, chosen_engine};
use super::json::without_nulls;

/// How long a reader waits. The engine's accumulated statistics are copied only when its next poll ends.
const PATIENCE: Duration = Duration::from_secs(5);

/// `None` if the engine's polls do not end. Fails if the parameter `engine` names no engine or several.
pub async fn model(state: &State, query: &str) -> Result<Option<Value>, InvalidQuery> {
    let engine = chosen_engine(query, state)?;
    let copied = tokio::time::timeout(PATIENCE, engine.read_fold()).await;
    let Some(fold) = copied.ok().and_then(Result::ok) else { return Ok(None) };
    let measured = engine.with_judged(|judged| MeasuredEngine::of(&fold, &judged.window));
    Ok(Some(without_nulls(&json!({
        "apiVersion": super::API_VERSION,
        "model": engine.name.model,
        "version": engine.name.version,
        "configuration": engine.snapshot().configuration(),
        "present": measured,
    }))))
}
