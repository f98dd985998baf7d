//! The version of a server, from `GET /version`. It is read once for each start of the server.

use std::time::{Duration, Instant};

use http::Method;

use super::Batch;
use super::http_client::HttpClient;
use super::trtllm_serve::{MAX_FACTS, RETRY};
use trtllm_model::EngineAbout;

/// Characters kept of a version.
const MAX_VERSION: usize = 64;

#[derive(Debug)]
pub(super) struct VersionReader {
    timeout: Duration,
    /// None once it is known.
    due: Option<Instant>,
}

impl VersionReader {
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout, due: Some(Instant::now()) }
    }

    /// The server does not answer: the one that answers next may have another version.
    pub(super) fn may_be_replaced(&mut self) {
        self.due = Some(Instant::now());
    }

    /// Reads the version if it is due. A server without an answer is asked again later.
    pub(super) async fn read(&mut self, client: &mut HttpClient, about: &mut EngineAbout, batch: &mut Batch) {
        if self.due.is_none_or(|due| Instant::now() < due) {
            return;
        }
        self.due = Some(Instant::now() + RETRY);
        let answer = tokio::time::timeout(self.timeout, client.read_at_most(MAX_FACTS, Method::GET, "/version")).await;
        let Ok(Ok(body)) = answer else { return };
        let Some(version) = parse_version(body) else { return };
        self.due = None;
        client.release();
        if about.version.as_ref() != Some(&version) {
            about.version = Some(version);
            batch.about = Some(about.clone());
        }
    }
}

/// The version becomes the value of a label, so it is cut.
fn parse_version(body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Version {
        version: String,
    }
    let Version { version } = serde_json::from_slice(body).ok()?;
    // A copy: a string that is truncated keeps its memory.
    Some(version.chars().take(MAX_VERSION).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_version_is_cut_and_the_memory_of_its_rest_is_not_kept() {
        let version = parse_version(format!("{{\"version\":\"{}\"}}", "é".repeat(500_000)).as_bytes()).unwrap();
        assert_eq!(version, "é".repeat(MAX_VERSION));
        assert!(version.capacity() < 1024, "{}", version.capacity());
        assert_eq!((parse_version(b"{}"), parse_version(b"[")), (None, None));
    }
}
