//! trtllm-serve over HTTP: `/metrics` (JSON), `/perf_metrics`, `/kv_cache_events`, `/version` and `/prometheus/metrics`. A
//! read drains the statistics from the server, except the last two, so the exporter must be the only reader: two readers
//! would get half of them each.

use std::time::{Duration, Instant};

use http::Method;

use super::http_client::HttpClient;
use super::server_page::ServerPage;
use super::trtllm_json::{ParseError, parse_kv_cache_events, parse_perf_metrics, parse_records};
use super::{Batch, Item, Presence, SourceError};
use crate::model::EngineAbout;
use crate::model::iteration::Backend;

/// The server keeps finished requests and events until they are read. Reading once a second instead of ten times saves the
/// server work.
const EXTRAS_INTERVAL: Duration = Duration::from_secs(1);
/// Until the next attempt if the server lacks the endpoint or fails on it (upstream issue 9678). The next attempt is earlier if
/// `/metrics` fails, because the server may be another one then.
const RETRY: Duration = Duration::from_secs(15);
/// Characters kept of a version.
const MAX_VERSION: usize = 64;
/// Timeout of `/perf_metrics` and `/version`.
const EXTRAS_TIMEOUT: Duration = Duration::from_secs(1);
/// Releases up to 1.2 answer two seconds after the last event. A shorter timeout would drain events and lose them.
const KV_EVENTS_TIMEOUT: Duration = Duration::from_millis(2500);

/// The endpoints to read besides `/metrics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extras {
    /// `/perf_metrics`
    pub perf_metrics: bool,
    /// `/kv_cache_events`; needs `kv_cache_config.event_buffer_max_size` on the server.
    pub kv_cache_events: bool,
    /// `/prometheus/metrics`, which drains nothing.
    pub prometheus_metrics: bool,
}

/// One trtllm-serve.
#[derive(Debug)]
pub struct TrtllmServe {
    pub(super) client: HttpClient,
    extras: Vec<Endpoint>,
    /// What the next call of `poll` reads: 0 are the records, then the extras.
    step: usize,
    page: Option<ServerPage>,
    about: EngineAbout,
    /// None once it is known.
    version_due: Option<Instant>,
    /// The body of `/metrics` is being received and is not parsed yet.
    receiving: bool,
}

/// An endpoint that many servers lack.
#[derive(Debug)]
struct Endpoint {
    method: Method,
    path: &'static str,
    timeout: Duration,
    parse: fn(&[u8], &mut Batch) -> Result<(), ParseError>,
    due: Instant,
}

impl Endpoint {
    /// A failure must not fail the poll, and a slow answer must not delay the records for long.
    async fn drain(&mut self, client: &mut HttpClient, batch: &mut Batch) {
        if Instant::now() < self.due {
            return;
        }
        let read = tokio::time::timeout(self.timeout, client.read(self.method.clone(), self.path)).await;
        let complete = matches!(read, Ok(Ok(_)));
        // The read has drained the items from the server, so those of an incomplete answer are kept too.
        let parsed = (self.parse)(client.received(), batch);
        client.release();
        self.due = Instant::now() + if complete && parsed.is_ok() { EXTRAS_INTERVAL } else { RETRY };
    }
}

impl TrtllmServe {
    /// Reads from `target`, an `http://HOST:PORT[/BASE]`.
    #[must_use]
    pub fn new(target: String, enabled: Extras) -> Self {
        let due = Instant::now();
        let mut extras = Vec::new();
        if enabled.perf_metrics {
            let (timeout, parse) = (EXTRAS_TIMEOUT, parse_perf_metrics);
            extras.push(Endpoint { method: Method::GET, path: "/perf_metrics", timeout, parse, due });
        }
        if enabled.kv_cache_events {
            let (timeout, parse) = (KV_EVENTS_TIMEOUT, parse_kv_cache_events);
            extras.push(Endpoint { method: Method::POST, path: "/kv_cache_events", timeout, parse, due });
        }
        let page = enabled.prometheus_metrics.then(|| ServerPage::new(target.clone()));
        let client = HttpClient::new(target);
        Self { client, extras, step: 0, page, about: EngineAbout::default(), version_due: Some(due), receiving: false }
    }

    /// Reads one endpoint per call: its items are folded before the next one is read, so they take memory only for a moment.
    pub(super) async fn poll(&mut self, batch: &mut Batch) -> Result<Presence, SourceError> {
        let step = std::mem::take(&mut self.step);
        if step == 0 {
            self.read_records(batch).await?;
            self.detect_backend(batch);
        } else if let Some(endpoint) = self.extras.get_mut(step - 1) {
            endpoint.drain(&mut self.client, batch).await;
        }
        if step < self.extras.len() {
            (self.step, batch.more) = (step + 1, true);
            return Ok(Presence::Present);
        }
        let _ = tokio::time::timeout(EXTRAS_TIMEOUT, self.read_version(batch)).await;
        if let Some(page) = &mut self.page {
            page.poll(batch);
        }
        Ok(Presence::Present)
    }

    /// Adds the complete records of a response that was cut by an error or a timeout. The read has drained them from the
    /// server, so they would be lost.
    pub(super) fn take_partial(&mut self, batch: &mut Batch) {
        if std::mem::take(&mut self.receiving) {
            // The poll's own error is counted already.
            let _ = parse_records(self.client.received(), batch);
            self.client.release();
        }
        self.step = 0;
        let now = Instant::now();
        self.version_due = Some(now);
        for endpoint in &mut self.extras {
            endpoint.due = now;
        }
        if let Some(page) = &mut self.page {
            page.missing = false;
        }
    }

    async fn read_records(&mut self, batch: &mut Batch) -> Result<(), SourceError> {
        self.receiving = true;
        batch.from_ring = true;
        let body = self.client.read(Method::GET, "/metrics").await?;
        self.receiving = false;
        let parsed = parse_records(body, batch);
        self.client.release();
        parsed.map_err(|error| {
            let target = format!("{}/metrics", self.client.target);
            match error {
                ParseError::NotJson(cause) => SourceError::NotJson { target, cause },
                ParseError::Truncated => SourceError::Truncated { target },
            }
        })
    }

    fn detect_backend(&mut self, batch: &mut Batch) {
        let newest = batch.items.iter().rev().find_map(|item| match item {
            Item::Record(record) => Some(record.backend()),
            _ => None,
        });
        let backend = match newest {
            None => return,
            Some(Backend::TensorRt) => "tensorrt",
            Some(Backend::PyTorch) => "pytorch",
        };
        if self.about.backend.as_deref() != Some(backend) {
            self.about.backend = Some(backend.to_owned());
            batch.about = Some(self.about.clone());
        }
    }

    async fn read_version(&mut self, batch: &mut Batch) {
        #[derive(serde::Deserialize)]
        struct Version {
            version: String,
        }
        if self.version_due.is_none_or(|due| Instant::now() < due) {
            return;
        }
        self.version_due = Some(Instant::now() + RETRY);
        let Ok(body) = self.client.read(Method::GET, "/version").await else { return };
        let Ok(Version { mut version }) = serde_json::from_slice(body) else { return };
        self.version_due = None;
        // It becomes the value of a label.
        if let Some((end, _)) = version.char_indices().nth(MAX_VERSION) {
            version.truncate(end);
        }
        if self.about.version.as_ref() != Some(&version) {
            self.about.version = Some(version);
            batch.about = Some(self.about.clone());
        }
    }
}
