//! The orchestrator of disaggregated serving, `trtllm-serve disaggregated`, over HTTP: `/prometheus/metrics`,
//! `/cluster_info`, `/health` and `/version`. Reading them removes no statistics. The orchestrator has no `/metrics`,
//! and its other paths are not read: some change its state.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::time::Duration;

use super::batch::{Batch, Presence};
use super::error::{OpenError, SourceError};
use super::http_client::HttpClient;
use super::one_process::{CountedPage, LastCounts, ReadPage, read_until_certain};
use super::orchestrator_page::{ClusterInfo, parse_cluster_info, parse_orchestrator_page, unread_families};
use super::prometheus_text::MAX_PAGE;
use super::server::{Access, TargetServer};
use super::server_facts::{FactReader, VERSION_PATH, read_fact};
use super::server_page;
use trtllm_records::Message;
use trtllm_records::orchestrator::{OrchestratorCount, OrchestratorCounter};
use trtllm_records::{EngineAbout, OrchestratorReading};

/// Shortest time between two readings. For each reading, the server builds its page from files of all its processes.
/// The page has cumulative counts, so nothing is lost between two readings.
pub const INTERVAL: Duration = Duration::from_secs(2);
const SEVERAL_PROCESSES: &str = "several processes of the orchestrator answer (num_workers), each with counts of its own, so no requests are \
     counted: use a release of July 2026 or later, whose page has their sum, or num_workers: 1";

/// One orchestrator. A release before July 2026 may have several processes that share its port.
#[derive(Debug)]
pub struct Orchestrator {
    pub(super) client: HttpClient,
    /// Counts of the last page. `None` unless it is certain that one process answers.
    last: Option<LastCounts>,
    several_processes: bool,
    about: EngineAbout,
    version: FactReader,
    unread_families: BTreeSet<String>,
}

impl Orchestrator {
    /// Fails if the certificates for https cannot be read.
    pub async fn open(access: Access) -> Result<Self, OpenError> {
        let client = HttpClient::new(TargetServer::new(access).await?).with_max_body(MAX_PAGE);
        Ok(Self {
            client,
            last: None,
            several_processes: false,
            about: EngineAbout::default(),
            version: FactReader::new(VERSION_PATH),
            unread_families: BTreeSet::new(),
        })
    }

    /// Fails only if the page cannot be read. If another path cannot be read, its value is absent.
    pub(super) async fn poll(&mut self, batch: &mut Batch) -> Result<Presence, SourceError> {
        let counts = match self.read_counts().await {
            Ok(counts) => counts,
            Err(error) => {
                // The next answer may come from another orchestrator.
                self.version.may_be_replaced();
                self.several_processes = false;
                return Err(error);
            }
        };
        let mut is_missing = false;
        let read_info = |answer: Result<&[u8], SourceError>| {
            let info = answer.map(parse_cluster_info);
            // A slow answer, or an error of the server, does not mean that there is no such path.
            is_missing = info.as_ref().map_or_else(SourceError::is_missing, Option::is_none);
            info.ok()?
        };
        let info = read_fact(&mut self.client, "/cluster_info", read_info).await;
        let ClusterInfo { workers, minimal: minimal_workers } = info.unwrap_or_default();
        let is_ready = |answer: Result<&[u8], SourceError>| match answer {
            Ok(_) => Some(true),
            // The status is 503 while a side has too few workers.
            Err(error) => error.is_not_ready().then_some(false),
        };
        let ready = read_fact(&mut self.client, "/health", is_ready).await;
        self.version.read_version(&mut self.client, &mut self.about, batch).await;
        batch.missing_endpoints = Some(if is_missing { vec!["/cluster_info"] } else { Vec::new() });
        batch.keys.append(&mut self.unread_families);
        let several_processes = self.several_processes;
        batch.notice = several_processes.then_some(SEVERAL_PROCESSES);
        let reading = OrchestratorReading { counts, several_processes, ready, workers, minimal_workers };
        batch.push(Message::Orchestrator(Box::new(reading)));
        Ok(Presence::Present)
    }

    /// The counts, or none if several processes answer.
    async fn read_counts(&mut self) -> Result<Vec<OrchestratorCount>, SourceError> {
        if self.several_processes {
            return self.read_page(false).await.map(|_| Vec::new());
        }
        // If this fails, `last` stays `None`: the next page may be the first one of another orchestrator.
        let last = self.last.take();
        let (counts, last) = read_until_certain(self, last).await?;
        self.several_processes = last.is_none();
        self.last = last;
        Ok(if self.several_processes { Vec::new() } else { counts })
    }
}

impl ReadPage for Orchestrator {
    type Page = Vec<OrchestratorCount>;

    async fn read_page(&mut self, again: bool) -> Result<Vec<OrchestratorCount>, SourceError> {
        if again {
            self.client.disconnect();
        }
        let target = format!("{}{}", self.client.server.target, server_page::PATH);
        let counts = match self.client.read(server_page::PATH).await {
            Ok(page) => {
                self.unread_families = unread_families(page);
                parse_orchestrator_page(page).map_err(|_| SourceError::NotAnOrchestrator { target })
            }
            Err(error) if error.is_missing() => {
                Err(SourceError::NoOrchestratorPage { target, status: error.status().unwrap_or_default() })
            }
            Err(error) => Err(error),
        };
        self.client.release();
        counts
    }
}

impl CountedPage for Vec<OrchestratorCount> {
    fn counts(&self) -> impl Iterator<Item = (impl Hash, u64)> {
        let counts = self.iter().filter(|count| !matches!(count.counter, OrchestratorCounter::TimeNanos(_)));
        counts.map(|count| (&count.counter, count.value))
    }
}
