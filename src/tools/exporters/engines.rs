//! The engines of an exporter, as its API describes them.

use super::client::{Client, Failure};

pub use trtllm_diagnosis::about::{About, LastPoll};

const MAX_ENGINES: usize = 256;

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
