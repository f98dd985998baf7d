//! Facts that a server reports about itself. Facts that do not change while the server runs, such as its version, are
//! read once for each start of the server.

use std::pin::pin;
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::error::SourceError;
use super::http_client::HttpClient;
use trtllm_records::EngineAbout;
use trtllm_service::permits::timeout;

/// Time until the next attempt if the server does not answer, lacks the endpoint or fails on it (upstream issue 9678).
pub(super) const RETRY: Duration = Duration::from_secs(15);
/// Timeout of one attempt.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Longest answer, in bytes. Facts have a few KB.
pub(super) const MAX_FACTS: usize = 1 << 20;
/// The path of a server's version.
pub const VERSION_PATH: &str = "/version";
/// Limit of the characters that are kept of a version.
const MAX_VERSION: usize = 64;

/// Reads a fact until it is known.
#[derive(Debug)]
pub(super) struct FactReader {
    path: &'static str,
    /// `None` once the fact is known.
    due: Option<Instant>,
}

impl FactReader {
    pub(super) fn new(path: &'static str) -> Self {
        Self { path, due: Some(Instant::now()) }
    }

    /// To be called when the server does not answer: another server may answer next.
    pub(super) fn may_be_replaced(&mut self) {
        self.due = Some(Instant::now());
    }

    /// Reads the fact if it is due. If `parse` returns `None`, the answer lacks the fact, and the server is asked again later.
    pub(super) async fn read<T>(
        &mut self,
        client: &mut HttpClient,
        parse: impl FnOnce(Result<&[u8], SourceError>) -> Option<T>,
    ) -> Option<T> {
        if self.due.is_none_or(|due| Instant::now() < due) {
            return None;
        }
        self.due = Some(Instant::now() + RETRY);
        let fact = read_fact(client, self.path, parse).await;
        if fact.is_some() {
            self.due = None;
        }
        fact
    }

    /// Reads `/version`, like [`Self::read`]. A new version goes to `about` and `batch`.
    pub(super) async fn read_version(&mut self, client: &mut HttpClient, about: &mut EngineAbout, batch: &mut Batch) {
        let version = self.read(client, |answer| parse_version(answer.ok()?)).await;
        if version.is_some() && about.version != version {
            about.version = version;
            batch.about = Some(about.clone());
        }
    }
}

/// Reads a path. `parse` takes the fact from the answer. `None` if there is no answer in time.
pub(super) async fn read_fact<T>(
    client: &mut HttpClient,
    path: &str,
    parse: impl FnOnce(Result<&[u8], SourceError>) -> Option<T>,
) -> Option<T> {
    let answer = timeout(TIMEOUT, pin!(client.read_at_most(MAX_FACTS, path))).await.ok()?;
    let fact = parse(answer);
    client.release();
    fact
}

/// Parses an answer to [`VERSION_PATH`]. The version becomes the value of a label, so it is shortened.
pub fn parse_version(body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Version {
        version: String,
    }
    let Version { version } = serde_json::from_slice(body).ok()?;
    // Copied, because a truncated string would keep its memory.
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
