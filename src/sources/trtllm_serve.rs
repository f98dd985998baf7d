//! trtllm-serve over HTTP: `/metrics` (JSON, drained by reading), `/perf_metrics`, `/version`. The only reader of them:
//! two would each see half.

use std::time::{Duration, Instant};

use super::http_client::{HttpClient, HttpTarget};
use super::trtllm_json::{ParseError, parse_perf_metrics, parse_records};
use super::{Answer, Batch, Item, SourceError};
use crate::model::iteration::Backend;
use crate::state::EngineAbout;

/// A full ring of 1000 records with their requests is a few MiB; what is far beyond is not statistics.
const MAX_BODY: usize = 32 << 20;
/// Finished requests wait in a deque of their own; once a second is often enough and spares the server nine requests.
const PERF_METRICS_INTERVAL: Duration = Duration::from_secs(1);

/// For `/perf_metrics` and `/version`.
const EXTRAS_TIMEOUT: Duration = Duration::from_secs(1);

/// One trtllm-serve.
#[derive(Debug)]
pub struct TrtllmServe {
    client: HttpClient,
    target: String,
    perf_metrics: PerfMetrics,
    about: EngineAbout,
    version_asked: bool,
    /// A `/metrics` answer is on its way: what came of it is not parsed yet.
    reading: bool,
}

/// Whether `/perf_metrics` is worth asking.
#[derive(Debug)]
enum PerfMetrics {
    Off,
    /// Not before this moment.
    Due(Instant),
    /// The server has none, or fails on it (upstream issue 9678); asked again once the server has been away.
    Refused,
}

impl TrtllmServe {
    /// `perf_metrics`: whether to drain `/perf_metrics` too.
    #[must_use]
    pub fn new(target: HttpTarget, perf_metrics: bool) -> Self {
        Self {
            target: format!("http://{}{}", target.authority, target.base),
            client: HttpClient::new(target),
            perf_metrics: if perf_metrics { PerfMetrics::Due(Instant::now()) } else { PerfMetrics::Off },
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
        // Neither may fail or delay what the records said.
        if tokio::time::timeout(EXTRAS_TIMEOUT, self.requests(batch)).await.is_err() {
            self.perf_metrics = PerfMetrics::Refused;
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

    /// What answers after a failure may be another server.
    fn ask_again(&mut self) {
        self.version_asked = false;
        if matches!(self.perf_metrics, PerfMetrics::Refused) {
            self.perf_metrics = PerfMetrics::Due(Instant::now());
        }
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
        match self.perf_metrics {
            PerfMetrics::Due(due) if Instant::now() >= due => {}
            _ => return,
        }
        self.perf_metrics = match self.client.get("/perf_metrics", MAX_BODY).await {
            Ok(answer) if answer.status == 200 && parse_perf_metrics(answer.body, batch).is_ok() => {
                PerfMetrics::Due(Instant::now() + PERF_METRICS_INTERVAL)
            }
            _ => PerfMetrics::Refused,
        };
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
