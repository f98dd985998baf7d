//! The engines of an exporter, as its API describes them.

use serde::{Deserialize, Serialize};

use super::client::{Client, Failure};

const MAX_ENGINES: usize = 256;

/// What the API knows about an engine beside its numbers.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct About {
    pub model: String,
    pub version: String,
    pub source: String,
    pub state: String,
    pub backend: Option<String>,
    pub engine_version: Option<String>,
    pub simulated: bool,
    pub notice: Option<String>,
    pub last_poll: LastPoll,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LastPoll {
    pub succeeded: bool,
    pub error: Option<String>,
}

/// The engines, in the order of the page.
///
/// # Errors
/// When the API cannot be read.
pub(crate) async fn engines(client: &mut Client) -> Result<Vec<About>, Failure> {
    let body = client.get("/api/v1/engines").await?;
    let engines: Vec<About> = serde_json::from_slice(&body)
        .map_err(|error| Failure::Unanswered(format!("/api/v1/engines is not the exporter's: {error}")))?;
    Ok(engines.into_iter().take(MAX_ENGINES).collect())
}
