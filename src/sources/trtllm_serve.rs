//! trtllm-serve over HTTP: `/metrics` (JSON, drained by reading), `/perf_metrics`, `/kv_cache_events`, `/version`. The only
//! reader of them: two would each see half.

use std::time::{Duration, Instant};

use super::http_client::{HttpClient, HttpTarget};
use super::trtllm_json::{ParseError, parse_kv_cache_events, parse_perf_metrics, parse_records};
use super::{Answer, Batch, Item, SourceError};
use crate::model::iteration::Backend;
use crate::state::EngineAbout;

/// A full ring of 1000 records with their requests is a few MiB; what is far beyond is not statistics.
const MAX_BODY: usize = 32 << 20;
/// Finished requests and events wait in deques of their own; once a second is often enough and spares the server nine
/// requests.
const EXTRAS_INTERVAL: Duration = Duration::from_secs(1);

/// For `/perf_metrics` and `/version`.
const EXTRAS_TIMEOUT: Duration = Duration::from_secs(1);
/// Releases up to 1.2 answer two seconds after the last event; whoever leaves before has drained them for nothing.
const KV_EVENTS_TIMEOUT: Duration = Duration::from_millis(2500);

/// One trtllm-serve.
#[derive(Debug)]
pub struct TrtllmServe {
    client: HttpClient,
    target: String,
    perf_metrics: Extra,
    kv_cache_events: Extra,
    about: EngineAbout,
    version_asked: bool,
    /// A `/metrics` answer is on its way: what came of it is not parsed yet.
    reading: bool,
}

/// What to drain besides `/metrics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extras {
    /// `/perf_metrics`
    pub perf_metrics: bool,
    /// `/kv_cache_events`, with `kv_cache_config.event_buffer_max_size` set.
    pub kv_cache_events: bool,
}

/// Whether an endpoint is worth asking.
#[derive(Debug)]
enum Extra {
    Off,
    /// Not before this moment.
    Due(Instant),
    /// The server has none, or fails on it (upstream issue 9678); asked again once the server has been away.
    Refused,
}

impl Extra {
    fn new(wanted: bool) -> Self {
        if wanted { Self::Due(Instant::now()) } else { Self::Off }
    }

    fn is_due(&self) -> bool {
        matches!(self, Self::Due(due) if Instant::now() >= *due)
    }

    fn answered(&mut self, well: bool) {
        *self = if well { Self::Due(Instant::now() + EXTRAS_INTERVAL) } else { Self::Refused };
    }

    /// What answers after a failure may be another server.
    fn ask_again(&mut self) {
        if matches!(self, Self::Refused) {
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
            perf_metrics: Extra::new(extras.perf_metrics),
            kv_cache_events: Extra::new(extras.kv_cache_events),
            about: EngineAbout::default(),
            version_asked: false,
            reading: false,
        }
    }

    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    pub(super) async fn poll(&mut self, batch: &mut Batch) -> Result<Answer, SourceError> {
        if let Err(error) = self.records(batch).await {
            self.ask_again();
            return Err(error);
        }
        self.tell_backend(batch);
        // None may fail or delay what the records said.
        if tokio::time::timeout(EXTRAS_TIMEOUT, self.requests(batch)).await.is_err() {
            self.perf_metrics.answered(false);
        }
        if tokio::time::timeout(KV_EVENTS_TIMEOUT, self.kv_events(batch)).await.is_err() {
            self.kv_cache_events.answered(false);
        }
        let _ = tokio::time::timeout(EXTRAS_TIMEOUT, self.version(batch)).await;
        Ok(Answer::Present)
    }

    /// After a poll that failed or was dropped: the complete records of an answer that broke off. Reading drained them
    /// from the server, so they are nowhere else any more.
    pub(super) fn salvage(&mut self, batch: &mut Batch) {
        if std::mem::take(&mut self.reading) {
            // That it is incomplete is known and counted already.
            let _ = parse_records(self.client.partial_body(), batch);
        }
        self.ask_again();
    }

    fn ask_again(&mut self) {
        self.version_asked = false;
        self.perf_metrics.ask_again();
        self.kv_cache_events.ask_again();
    }

    async fn records(&mut self, batch: &mut Batch) -> Result<(), SourceError> {
        let target = format!("{}/metrics", self.target);
        self.reading = true;
        let answer = self.client.get("/metrics", MAX_BODY).await?;
        self.reading = false;
        if answer.status != 200 {
            return Err(SourceError::HttpStatus { target, status: answer.status });
        }
        let parsed = parse_records(answer.body, batch);
        if answer.too_large {
            return Err(SourceError::TooLarge { target, limit: MAX_BODY });
        }
        parsed.map_err(|error| match error {
            ParseError::NotJson(cause) => SourceError::NotJson { target, cause },
            ParseError::Truncated => SourceError::Truncated { target },
        })
    }

    fn tell_backend(&mut self, batch: &mut Batch) {
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

    /// Never fails the poll: most servers run without it.
    async fn requests(&mut self, batch: &mut Batch) {
        if self.perf_metrics.is_due() {
            let answer = self.client.get("/perf_metrics", MAX_BODY).await;
            let well = answer.is_ok_and(|a| a.status == 200 && parse_perf_metrics(a.body, batch).is_ok());
            self.perf_metrics.answered(well);
        }
    }

    async fn kv_events(&mut self, batch: &mut Batch) {
        if self.kv_cache_events.is_due() {
            let answer = self.client.post("/kv_cache_events", MAX_BODY).await;
            let well = answer.is_ok_and(|a| a.status == 200 && parse_kv_cache_events(a.body, batch).is_ok());
            self.kv_cache_events.answered(well);
        }
    }

    async fn version(&mut self, batch: &mut Batch) {
        #[derive(serde::Deserialize)]
        struct Version {
            version: String,
        }
        if std::mem::replace(&mut self.version_asked, true) {
            return;
        }
        let Ok(answer) = self.client.get("/version", 1 << 16).await else { return };
        let Ok(Version { version }) = serde_json::from_slice(answer.body) else { return };
        if answer.status == 200 && self.about.version.as_ref() != Some(&version) {
            self.about.version = Some(version);
            batch.about = Some(self.about.clone());
        }
    }
}
