//! The orchestrator of disaggregated serving, `trtllm-serve disaggregated`, over HTTP: `/prometheus/metrics`, `/cluster_info`,
//! `/health` and `/version`. Reading them drains nothing. It has no `/metrics`, and its other paths are not read: some change it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use http::Method;

use super::http_client::HttpClient;
use super::orchestrator_page::{ClusterInfo, parse_cluster_info, parse_orchestrator_page};
use super::prometheus_text::MAX_PAGE;
use super::server::{Access, TargetServer};
use super::server_page::{PROBE_TIME, PROBES};
use super::trtllm_serve::{MAX_FACTS, RETRY, parse_version};
use super::{Batch, OpenError, Presence, SourceError};
use trtllm_model::orchestrator::OrchestratorCount;
use trtllm_model::{EngineAbout, OrchestratorReading};
use trtllm_recording::Item;

/// From one reading to the next, at least. The server collects its page from files of all its processes, and nothing on it is
/// lost between two readings.
pub(super) const INTERVAL: Duration = Duration::from_secs(2);
/// Timeout of everything but the page.
const FACTS_TIMEOUT: Duration = Duration::from_secs(1);
const SEVERAL_PROCESSES: &str = "several processes of the orchestrator answer (num_workers), each with counts of its own, so no requests are \
     counted: use a release of July 2026 or later, whose page has their sum, or num_workers: 1";

/// One orchestrator. A release before July 2026 may have several processes that share its port, and no page says whose it is. Counts
/// that fall are those of another process, or of an orchestrator that was replaced; and one that was replaced does not fall twice.
#[derive(Debug)]
pub struct Orchestrator {
    pub(super) client: HttpClient,
    /// The last page, as long as it is certain that one process answers.
    last: Option<Vec<OrchestratorCount>>,
    several_processes: bool,
    about: EngineAbout,
    /// `None` once it is known.
    version_due: Option<Instant>,
}

impl Orchestrator {
    /// # Errors
    /// If the certificates for https cannot be read.
    pub async fn open(access: Access) -> Result<Self, OpenError> {
        let client = HttpClient::new(TargetServer::new(access).await?).with_max_body(MAX_PAGE);
        let (last, several_processes, about) = (None, false, EngineAbout::default());
        Ok(Self { client, last, several_processes, about, version_due: Some(Instant::now()) })
    }

    /// Only a page that cannot be read is an error: what the other paths tell is absent then.
    pub(super) async fn poll(&mut self, batch: &mut Batch) -> Result<Presence, SourceError> {
        let counts = match self.read_until_certain().await {
            Ok(counts) => counts,
            Err(error) => {
                // The next answer may be that of another orchestrator.
                (self.version_due, self.several_processes) = (Some(Instant::now()), false);
                return Err(error);
            }
        };
        let info = tokio::time::timeout(FACTS_TIMEOUT, self.read_cluster_info()).await.ok().flatten();
        let ClusterInfo { workers, minimal: minimal_workers } = info.unwrap_or_default();
        let ready = tokio::time::timeout(FACTS_TIMEOUT, self.read_health()).await.ok().flatten();
        let _ = tokio::time::timeout(FACTS_TIMEOUT, self.read_version(batch)).await;
        batch.missing_endpoints = Some(if info.is_none() { vec!["/cluster_info"] } else { Vec::new() });
        let several_processes = self.several_processes;
        batch.notice = several_processes.then_some(SEVERAL_PROCESSES);
        let reading = OrchestratorReading { counts, several_processes, ready, workers, minimal_workers };
        batch.push(Item::Orchestrator(Box::new(reading)));
        Ok(Presence::Present)
    }

    /// The counts, or none if several processes answer.
    async fn read_until_certain(&mut self) -> Result<Vec<OrchestratorCount>, SourceError> {
        let start = Instant::now();
        let mut counts = self.read_page().await?;
        let fell = self.last.as_ref().is_some_and(|last| fall(last, &counts));
        for _ in 0..if fell { PROBES } else { 0 } {
            if self.several_processes || start.elapsed() >= PROBE_TIME {
                break;
            }
            self.client.disconnect();
            let next = self.read_page().await?;
            self.several_processes = fall(&counts, &next);
            counts = next;
        }
        if self.several_processes {
            counts.clear();
        }
        self.last = Some(counts.clone());
        Ok(counts)
    }

    async fn read_page(&mut self) -> Result<Vec<OrchestratorCount>, SourceError> {
        let counts = match self.client.read(Method::GET, "/prometheus/metrics").await {
            Ok(page) => parse_orchestrator_page(page).map_err(|_| None),
            Err(SourceError::HttpStatus { status: status @ 400..500, .. }) => Err(Some(status)),
            Err(error) => return Err(error),
        };
        self.client.release();
        counts.map_err(|status| self.not_an_orchestrator(status))
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

/// Whether a count is lower on the second page.
fn fall(before: &[OrchestratorCount], now: &[OrchestratorCount]) -> bool {
    let before: HashMap<_, u64> = before.iter().map(|count| (&count.counter, count.value)).collect();
    now.iter().any(|count| before.get(&count.counter).is_some_and(|before| *before > count.value))
}
