//! trtllm-serve over HTTP: `/metrics` (JSON), `/perf_metrics`, `/kv_cache_events` and `/version`. A read drains the
//! statistics from the server, so the exporter must be the only reader: two readers would get half of them each.

use std::time::{Duration, Instant};

use super::http_client::{HttpClient, HttpTarget};
use super::trtllm_json::{ParseError, parse_kv_cache_events, parse_perf_metrics, parse_records};
use super::{Batch, Item, Presence, SourceError};
use crate::model::EngineAbout;
use crate::model::iteration::Backend;

/// Longest response, in bytes. A full ring of 1000 records with their requests is a few MiB.
const MAX_BODY: usize = 32 << 20;
/// The server keeps finished requests and events until they are read. Reading once a second instead of ten times saves the
/// server work.
const EXTRAS_INTERVAL: Duration = Duration::from_secs(1);

/// Timeout of `/perf_metrics` and `/version`.
const EXTRAS_TIMEOUT: Duration = Duration::from_secs(1);
/// Releases up to 1.2 answer two seconds after the last event. A shorter timeout would drain events and lose them.
const KV_EVENTS_TIMEOUT: Duration = Duration::from_millis(2500);

/// One trtllm-serve.
#[derive(Debug)]
pub struct TrtllmServe {
    client: HttpClient,
    target: String,
    perf_metrics: Endpoint,
    kv_cache_events: Endpoint,
    about: EngineAbout,
    version_requested: bool,
    /// The body of `/metrics` is being received and is not parsed yet.
    receiving: bool,
}

/// The endpoints to drain besides `/metrics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extras {
    /// `/perf_metrics`
    pub perf_metrics: bool,
    /// `/kv_cache_events`; needs `kv_cache_config.event_buffer_max_size` on the server.
    pub kv_cache_events: bool,
}

/// When to read an optional endpoint.
#[derive(Debug)]
enum Endpoint {
    Off,
    /// At this moment or later.
    Due(Instant),
    /// The server lacks the endpoint, or fails on it (upstream issue 9678). Retried after `/metrics` has failed, because
    /// the server may have been replaced.
    Unavailable,
}

impl Endpoint {
    fn new(enabled: bool) -> Self {
        if enabled { Self::Due(Instant::now()) } else { Self::Off }
    }

    fn is_due(&self) -> bool {
        matches!(self, Self::Due(due) if Instant::now() >= *due)
    }

    fn set_result(&mut self, success: bool) {
        *self = if success { Self::Due(Instant::now() + EXTRAS_INTERVAL) } else { Self::Unavailable };
    }

    fn retry(&mut self) {
        if matches!(self, Self::Unavailable) {
            *self = Self::Due(Instant::now());
        }
    }
}

impl TrtllmServe {
    #[must_use]
    pub fn new(target: HttpTarget, extras: Extras) -> Self {
        Self {
            target: format!("http://{}{}", target.authority, target.base),
            client: HttpClient::new(target),
            perf_metrics: Endpoint::new(extras.perf_metrics),
            kv_cache_events: Endpoint::new(extras.kv_cache_events),
            about: EngineAbout::default(),
            version_requested: false,
            receiving: false,
        }
    }

    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    pub(super) async fn poll(&mut self, batch: &mut Batch) -> Result<Presence, SourceError> {
        if let Err(error) = self.records(batch).await {
            self.retry_endpoints();
            return Err(error);
        }
        self.detect_backend(batch);
        // The optional endpoints must not fail the poll or delay the records for long.
        if tokio::time::timeout(EXTRAS_TIMEOUT, self.requests(batch)).await.is_err() {
            self.perf_metrics.set_result(false);
        }
        if tokio::time::timeout(KV_EVENTS_TIMEOUT, self.kv_events(batch)).await.is_err() {
            self.kv_cache_events.set_result(false);
        }
        let _ = tokio::time::timeout(EXTRAS_TIMEOUT, self.version(batch)).await;
        Ok(Presence::Present)
    }

    /// Adds the complete records of a response that was cut by an error or a timeout. The read has drained them from the
    /// server, so they would be lost.
    pub(super) fn take_partial(&mut self, batch: &mut Batch) {
        if std::mem::take(&mut self.receiving) {
            // The poll's own error is counted already.
            let _ = parse_records(self.client.partial_body(), batch);
        }
        self.retry_endpoints();
    }

    fn retry_endpoints(&mut self) {
        self.version_requested = false;
        self.perf_metrics.retry();
        self.kv_cache_events.retry();
    }

    async fn records(&mut self, batch: &mut Batch) -> Result<(), SourceError> {
        let target = format!("{}/metrics", self.target);
        self.receiving = true;
        let response = self.client.get("/metrics", MAX_BODY).await?;
        self.receiving = false;
        if response.status != 200 {
            return Err(SourceError::HttpStatus { target, status: response.status });
        }
        let parsed = parse_records(response.body, batch);
        if response.too_large {
            return Err(SourceError::TooLarge { target, limit: MAX_BODY });
        }
        parsed.map_err(|error| match error {
            ParseError::NotJson(cause) => SourceError::NotJson { target, cause },
            ParseError::Truncated => SourceError::Truncated { target },
        })
    }

    fn detect_backend(&mut self, batch: &mut Batch) {
        let Some(record) = batch.items.iter().rev().find_map(|item| match item {
            Item::Record(record) => Some(record),
            _ => None,
        }) else {
            return;
        };
        let backend = match record.backend() {
            Backend::TensorRt => "tensorrt",
            Backend::PyTorch => "pytorch",
        };
        if self.about.backend.as_deref() != Some(backend) {
            self.about.backend = Some(backend.to_owned());
            batch.about = Some(self.about.clone());
        }
    }

    /// Never fails the poll: most servers run without this endpoint.
    async fn requests(&mut self, batch: &mut Batch) {
        if self.perf_metrics.is_due() {
            let response = self.client.get("/perf_metrics", MAX_BODY).await;
            let success = response.is_ok_and(|r| r.status == 200 && parse_perf_metrics(r.body, batch).is_ok());
            self.perf_metrics.set_result(success);
        }
    }

    async fn kv_events(&mut self, batch: &mut Batch) {
        if self.kv_cache_events.is_due() {
            let response = self.client.post("/kv_cache_events", MAX_BODY).await;
            let success = response.is_ok_and(|r| r.status == 200 && parse_kv_cache_events(r.body, batch).is_ok());
            self.kv_cache_events.set_result(success);
        }
    }

    async fn version(&mut self, batch: &mut Batch) {
        #[derive(serde::Deserialize)]
        struct Version {
            version: String,
        }
        if std::mem::replace(&mut self.version_requested, true) {
            return;
        }
        let Ok(response) = self.client.get("/version", 1 << 16).await else { return };
        let Ok(Version { version }) = serde_json::from_slice(response.body) else { return };
        if response.status == 200 && self.about.version.as_ref() != Some(&version) {
            self.about.version = Some(version);
            batch.about = Some(self.about.clone());
        }
    }
}
