//! `/api/v1/model`: the costs of an engine's iterations and its last requests, from which `what-if` and `compare`
//! answer questions.

use serde_json::{Value, json};
use trtllm_engines::State;

use super::api::{InvalidQuery, chosen_engine};
use super::json::without_nulls;

/// Fails if the parameter `engine` names no engine or several.
pub fn model(state: &State, query: &str) -> Result<Value, InvalidQuery> {
    let slot = chosen_engine(query, state)?;
    let configuration = slot.lock().configuration();
    Ok(without_nulls(&json!({
        "apiVersion": super::API_VERSION,
        "model": slot.name.model,
        "version": slot.name.version,
        "configuration": configuration,
        "present": slot.measured(),
    })))
}
