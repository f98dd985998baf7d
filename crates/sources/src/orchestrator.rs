//! The orchestrator of disaggregated serving, `trtllm-serve disaggregated`, over HTTP: `/prometheus/metrics`, `/cluster_info`,
//! `/health` and `/version`. Reading them drains nothing. It has no `/metrics`, and its other paths are not read: some change it.

use std::time::{Duration, Instant};

use http::Method;

use super::http_client::HttpClient;
use super::orchestrator_page::{ClusterInfo, parse_cluster_info, parse_orchestrator_page};
use super::prometheus_text::MAX_PAGE;
use super::server::{Access, TargetServer};
use super::trtllm_serve::parse_version;
use super::{Batch, OpenError, Presence, SourceError};
use trtllm_model::{EngineAbout, OrchestratorReading};
use trtllm_recording::Item;

/// From one reading to the next, at least. The server collects its page from files of all its processes, and nothing on it is
/// lost between two readings.
pub(super) const INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of everything but the page.
const FACTS_TIMEOUT: Duration = Duration::from_secs(1);
/// Until `/version` is asked again if it failed.
const RETRY: Duration = Duration::from_secs(15);
/// Longest answer of `/cluster_info`, `/health` and `/version`, in bytes.
pub(super) const MAX_FACTS: usize = 1 << 20;

/// One orchestrator.
#[derive(Debug)]
pub struct Orchestrator {
    pub(super) client: HttpClient,
    about: EngineAbout,
    /// `None` once it is known.
    version_due: Option<Instant>,
}

impl Orchestrator {
    /// # Errors
    /// If the certificates for https cannot be read.
    pub async fn open(access: Access) -> Result<Self, OpenError> {
        let client = HttpClient::new(TargetServer::new(access).await?).with_max_body(MAX_PAGE);
        Ok(Self { client, about: EngineAbout::default(), version_due: Some(Instant::now()) })
    }

    /// Only a page that cannot be read is an error: what the other paths tell is absent then.
    pub(super) async fn poll(&mut self, batch: &mut Batch) -> Result<Presence, SourceError> {
        let page = self.client.read(Method::GET, "/prometheus/metrics").await;
        let counts = match page {
            Ok(page) => parse_orchestrator_page(page).map_err(|_| None),
            Err(SourceError::HttpStatus { status: status @ 400..500, .. }) => Err(Some(status)),
            Err(error) => {
                // The next answer may be that of another release.
                self.version_due = Some(Instant::now());
                return Err(error);
            }
        };
        let counts = counts.map_err(|status| self.not_an_orchestrator(status))?;
        self.client.release();
        let info = tokio::time::timeout(FACTS_TIMEOUT, self.read_cluster_info()).await.ok().flatten();
        let ClusterInfo { workers, minimal: minimal_workers } = info.unwrap_or_default();
        let ready = tokio::time::timeout(FACTS_TIMEOUT, self.read_health()).await.ok().flatten();
        let _ = tokio::time::timeout(FACTS_TIMEOUT, self.read_version(batch)).await;
        batch.missing_endpoints = Some(if info.is_none() { vec!["/cluster_info"] } else { Vec::new() });
        batch.push(Item::Orchestrator(Box::new(OrchestratorReading { counts, ready, workers, minimal_workers })));
        Ok(Presence::Present)
    }

    fn not_an_orchestrator(&self, status: Option<u16>) -> SourceError {
        let target = format!("{}/prometheus/metrics", self.client.server.target);
        match status {
            Some(status) => SourceError::NoOrchestratorPage { target, status },
            None => SourceError::NotAnOrchestrator { target },
        }
    }

    /// `None` if it is missing or not JSON.
    async fn read_cluster_info(&mut self) -> Option<ClusterInfo> {
        let body = self.client.read_at_most(MAX_FACTS, Method::GET, "/cluster_info").await.ok()?;
        let info = parse_cluster_info(body);
        self.client.release();
        info
    }

    /// It says 503 while a side has too few workers.
    async fn read_health(&mut self) -> Option<bool> {
        let read = self.client.read_at_most(MAX_FACTS, Method::GET, "/health").await;
        let ready = match read {
            Ok(_) => Some(true),
            Err(error) => error.is_not_ready().then_some(false),
        };
        self.client.release();
        ready
    }

    async fn read_version(&mut self, batch: &mut Batch) {
        if self.version_due.is_none_or(|due| Instant::now() < due) {
            return;
        }
        self.version_due = Some(Instant::now() + RETRY);
        let Ok(body) = self.client.read_at_most(MAX_FACTS, Method::GET, "/version").await else { return };
        let Some(version) = parse_version(body) else { return };
        self.version_due = None;
        self.client.release();
        if self.about.version.as_ref() != Some(&version) {
            self.about.version = Some(version);
            batch.about = Some(self.about.clone());
        }
    }
}
