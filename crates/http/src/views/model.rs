//! What is known of one engine for questions about it: the costs of its iterations, and its last requests.

use std::time::Duration;

use serde_json::{Value, json};
use trtllm_page::state::State;
use trtllm_what_if::Present;

use super::api::{InvalidQuery, chosen_engine};

/// The fold is copied when the engine's next poll ends.
const PATIENCE: Duration = Duration::from_secs(5);
/// Seconds over which slowdown and drafts are taken.
const RECENT: f64 = 60.0;

/// `None` if the engine's polls do not end, or too many readers wait.
///
/// # Errors
/// When a parameter is invalid.
pub async fn model(state: &State, query: &str) -> Result<Option<Value>, InvalidQuery> {
    let engine = chosen_engine(query, state)?;
    let copied = tokio::time::timeout(PATIENCE, engine.read_fold()).await;
    let Some(fold) = copied.ok().and_then(Result::ok) else { return Ok(None) };
    let recent = engine.with_judged(|judged| judged.window.span(RECENT)).map(|span| span.sums).unwrap_or_default();
    let present = Present::of(&fold, &recent);
    Ok(Some(json!({
        "apiVersion": super::API_VERSION,
        "model": engine.name.model,
        "version": engine.name.version,
        "present": present,
    })))
}
