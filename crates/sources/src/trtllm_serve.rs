//! trtllm-serve over HTTP. A read of `/metrics` (JSON) or `/perf_metrics` drains the statistics from the server, so the
//! exporter must be the only reader: two readers would get half of them each. A read of `/version`, `/server_info` or
//! `/prometheus/metrics` drains nothing.

use std::pin::pin;
use std::time::{Duration, Instant};

use super::batch::{Batch, Presence};
use super::error::{OpenError, SourceError};
use super::http_client::HttpClient;
use super::keys::KeyWatch;
use super::otlp::{Otlp, SpanReceiver};
use super::perf_metrics_dir::{LineOwner, LinesDir, NO_LINES, PerfMetricsDir};
use super::server::{Access, TargetServer};
use super::server_facts::{FactReader, RETRY, VERSION_PATH};
use super::server_health::HealthCheck;
use super::server_page::{self, ServerPageReader};
use super::startup_times::parse_startup_times;
use super::trtllm_json::{ArrayPosition, ParseError, StatisticsArray};
use trtllm_records::iteration::Backend;
use trtllm_records::server_metrics::SEVERAL_FRONTENDS;
use trtllm_records::{EngineAbout, StartupTimes};
use trtllm_records::{Message, RejectReason};
use trtllm_service::permits::Deadline;

const RECORDS_PATH: &str = "/metrics";
const ENTRIES_PATH: &str = "/perf_metrics";
/// The server keeps finished requests until they are read. Reading once a second instead of ten times saves the server
/// work.
const ENTRIES_INTERVAL: Duration = Duration::from_secs(1);
const ENTRIES_TIMEOUT: Duration = Duration::from_secs(4);
/// The first bytes of an answer that is compressed with gzip.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// How often a server without statistics is asked for them.
const MISSING_INTERVAL: Duration = Duration::from_secs(5);

/// The endpoints to read besides `/metrics`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extras {
    /// `/perf_metrics`
    pub perf_metrics: bool,
    /// The directory of the lines that replace `/perf_metrics`, which is then not read.
    pub lines: Option<LinesDir>,
    /// `/prometheus/metrics`, which drains nothing.
    pub prometheus_metrics: bool,
    /// Where the server sends its OTLP traces.
    pub otlp: Option<SpanReceiver>,
}

impl Default for Extras {
    fn default() -> Self {
        Self { perf_metrics: true, lines: None, prometheus_metrics: true, otlp: None }
    }
}

/// One trtllm-serve.
#[derive(Debug)]
pub struct TrtllmServe {
    pub(super) client: HttpClient,
    /// `/perf_metrics`. `None` if it is not read.
    entries_endpoint: Option<EntriesEndpoint>,
    /// The next call of `poll` reads `/perf_metrics`, or the next part of its answer.
    reads_entries: bool,
    page: Option<ServerPageReader>,
    health: HealthCheck,
    /// The server answers, and has no `/metrics`.
    no_statistics: bool,
    lines: Option<PerfMetricsDir>,
    spans: Option<Otlp>,
    /// Requests on the first page of the server, and on the last one.
    finished: Option<(u64, u64)>,
    /// Requests had ended before the last page, so their lines are written.
    any_ended: bool,
    about: EngineAbout,
    version: FactReader,
    startup: FactReader,
    keys: KeyWatch,
    /// How much of the response of this step is parsed. `None` before its request and after its last part.
    unparsed: Option<ArrayPosition>,
}

/// `/perf_metrics`, which many servers lack. A failure must not fail the poll, and a slow answer must not delay the records
/// for long.
#[derive(Debug)]
struct EntriesEndpoint {
    due: Instant,
    /// Of the reading that has begun.
    deadline: Deadline,
    keys: KeyWatch,
    /// The server does not have this endpoint.
    missing: bool,
    /// The last answer had a status that is an error and does not mean that the endpoint is missing, or came too late.
    refusal: Option<String>,
}

impl EntriesEndpoint {
    fn new() -> Self {
        let deadline = Deadline::after(ENTRIES_TIMEOUT);
        Self { due: Instant::now(), deadline, keys: KeyWatch::default(), missing: false, refusal: None }
    }

    /// The answer did not end in time. The server has removed the requests in it, so they are lost.
    fn answer_is_lost(&mut self, server: &str, batch: &mut Batch) {
        batch.reject(RejectReason::Truncated);
        self.refusal = Some(format!(
            "{server}{ENTRIES_PATH} did not answer in time, so the requests that it had removed are lost; look at the log \
             of the server, or add perf_metrics=false to --source"
        ));
        self.due = Instant::now() + RETRY;
    }
}

impl TrtllmServe {
    /// Fails if the certificates for https cannot be read, or the address for spans cannot be bound.
    pub async fn open(access: Access, enabled: Extras) -> Result<Self, OpenError> {
        if let Some(lines) = &enabled.lines {
            lines.check_beside().await?;
        }
        let server = TargetServer::new(access).await?;
        let has_endpoint = enabled.perf_metrics && enabled.lines.is_none();
        let page = enabled.prometheus_metrics.then(|| ServerPageReader::new(server.clone()));
        let lines = enabled.lines.map(|dir| PerfMetricsDir::new(dir, LineOwner::Server));
        let spans = match enabled.otlp {
            Some(receiver) => Some(Otlp::bind(receiver).await?),
            None => None,
        };
        let health = HealthCheck::new(server.clone());
        let client = HttpClient::new(server);
        let about = EngineAbout::default();
        Ok(Self {
            client,
            entries_endpoint: has_endpoint.then(EntriesEndpoint::new),
            reads_entries: false,
            page,
            health,
            no_statistics: false,
            lines,
            spans,
            finished: None,
            any_ended: false,
            about,
            version: FactReader::new(VERSION_PATH),
            startup: FactReader::new("/server_info"),
            keys: KeyWatch::default(),
            unparsed: None,
        })
    }

    /// Shortest time until the next poll.
    pub(super) fn interval(&self) -> Duration {
        if self.no_statistics { MISSING_INTERVAL } else { Duration::ZERO }
    }

    /// Reads one endpoint per call, or the next part of its answer. The items of a part are folded before the next part is parsed,
    /// so they take memory only for a moment.
    pub(super) async fn poll(&mut self, batch: &mut Batch) -> Result<Presence, SourceError> {
        // Also if this poll fails or ends early.
        batch.notice = self.notice();
        // Before the requests, because a server that does not answer them may still send spans.
        if let Some(spans) = &mut self.spans {
            spans.poll(batch);
        }
        let (done, is_last) = match self.reads_entries {
            true => (self.poll_entries(batch).await, true),
            false => (self.poll_records(batch).await?, self.entries_endpoint.is_none()),
        };
        batch.more = !(done && is_last);
        self.reads_entries = batch.more && (done || self.reads_entries);
        if !batch.more {
            self.version.read_version(&mut self.client, &mut self.about, batch).await;
            self.read_startup_times(batch).await;
            if let Some(lines) = &mut self.lines {
                lines.poll(batch);
            }
            self.take_page(batch);
            batch.notice = self.notice();
            let entries = self.entries_endpoint.as_ref().filter(|entries| entries.missing).map(|_| ENTRIES_PATH);
            let page = self.page.as_ref().filter(|page| page.missing).map(|_| server_page::PATH);
            batch.missing_endpoints = Some(entries.into_iter().chain(page).collect());
            let page = self.page.as_ref().and_then(|page| page.refusal.as_ref());
            let entries = self.entries_endpoint.as_ref().and_then(|entries| entries.refusal.as_ref());
            batch.endpoint_error = entries.or(page).cloned();
        }
        Ok(Presence::Present)
    }

    /// What the user should change.
    fn notice(&self) -> Option<&'static str> {
        let no_lines = |lines: &PerfMetricsDir| (self.any_ended && !lines.has_lines).then_some(NO_LINES);
        let of_lines = self.lines.as_ref().and_then(|lines| lines.problem().or_else(|| no_lines(lines)));
        let has_several = self.page.as_ref().is_some_and(|page| page.several_frontends);
        of_lines.or(has_several.then_some(SEVERAL_FRONTENDS))
    }

    fn take_page(&mut self, batch: &mut Batch) {
        let Some(mut metrics) = self.page.as_mut().and_then(|page| page.poll(&mut batch.keys)) else { return };
        let finished = metrics.finished_requests();
        let (first, last) = self.finished.unwrap_or((finished, finished));
        self.any_ended |= last > first;
        self.finished = Some((first, finished));
        let has_endpoint = self.entries_endpoint.as_ref().is_some_and(|entries| !entries.missing);
        metrics.without_entries = self.lines.is_none() && !has_endpoint;
        metrics.with_spans = self.spans.is_some();
        batch.messages.push(Message::ServerMetrics(Box::new(metrics)));
    }

    /// Reads or continues to read `/metrics`. Returns true when all of it is parsed.
    async fn poll_records(&mut self, batch: &mut Batch) -> Result<bool, SourceError> {
        batch.from_ring = true;
        self.no_statistics = false;
        let records = StatisticsArray::Records;
        let part = read_part(&mut self.client, &mut self.unparsed, RECORDS_PATH, records, &mut self.keys, batch).await;
        if !batch.messages.is_empty() {
            self.health.record_arrived();
        }
        self.detect_backend(batch);
        let target = || format!("{}{RECORDS_PATH}", self.client.server.target);
        if let Err(error) = &part
            && let Some(status) = error.status().filter(|_| error.is_missing())
        {
            self.no_statistics = true;
            return Err(SourceError::NoStatistics { target: target(), status });
        }
        let for_prometheus = self.client.received().starts_with(b"# ");
        let is_gzip = self.client.received().starts_with(&GZIP_MAGIC);
        let done = part?.map_err(|error| match error {
            ParseError::NotJson(_) if for_prometheus => SourceError::PrometheusPage { target: target() },
            ParseError::NotJson(_) if is_gzip => {
                let cause = "it is compressed (Content-Encoding: gzip), which was not requested; turn this off in the proxy before the server";
                SourceError::NotJson { target: target(), cause: cause.to_owned() }
            }
            ParseError::NotJson(cause) => SourceError::NotJson { target: target(), cause },
            ParseError::Truncated => SourceError::Truncated { target: target() },
        });
        if !matches!(done, Ok(false)) {
            let is_begun = self.unparsed.is_some_and(|answer| answer.is_begun());
            batch.drained_unparsed |= done.is_err() && is_begun;
            self.forget_response();
        }
        if done.as_ref().is_ok_and(|done| *done) {
            self.health.poll()?;
        }
        done
    }

    /// Reads or continues to read `/perf_metrics`. Returns true when nothing is left to read.
    async fn poll_entries(&mut self, batch: &mut Batch) -> bool {
        let Some(endpoint) = &mut self.entries_endpoint else { return true };
        if self.unparsed.is_none() {
            if Instant::now() < endpoint.due {
                return true;
            }
            endpoint.deadline = Deadline::after(ENTRIES_TIMEOUT);
        }
        let entries = StatisticsArray::PerfMetrics;
        let part = read_part(&mut self.client, &mut self.unparsed, ENTRIES_PATH, entries, &mut endpoint.keys, batch);
        let part = endpoint.deadline.run(pin!(part)).await;
        let error = if let Ok(Err(error)) = &part { Some(error) } else { None };
        endpoint.missing = error.is_some_and(SourceError::is_missing);
        endpoint.refusal =
            error.filter(|error| !endpoint.missing && error.status().is_some()).map(SourceError::to_string);
        let is_late = part.is_err();
        // The read has drained the items from the server, so those of an incomplete answer are kept too.
        let (is_whole, result) = match part {
            Ok(Ok(result)) => (true, result),
            Ok(Err(_)) | Err(_) => (false, parse_received(&self.client, &mut self.unparsed, entries, batch)),
        };
        if result == Ok(false) {
            return false;
        }
        // An error at the end of an incomplete answer shows nothing about the structure of the answer.
        if is_whole && matches!(result, Err(ParseError::NotJson(_))) {
            batch.keys.insert(ENTRIES_PATH.to_owned());
        }
        endpoint.due = Instant::now() + if is_whole && result.is_ok() { ENTRIES_INTERVAL } else { RETRY };
        if is_late && result.is_err() && self.client.is_unanswered() {
            endpoint.answer_is_lost(&self.client.server.target, batch);
        }
        self.forget_response();
        true
    }

    fn forget_response(&mut self) {
        self.unparsed = None;
        self.client.release();
    }

    /// Adds the complete records of a response that was cut by an error or a timeout. The read has drained them from the
    /// server, so they would be lost. Returns true if there are more. The caller must then fold the batch before the next call.
    pub(super) fn take_partial(&mut self, batch: &mut Batch) -> bool {
        let statistics = if self.reads_entries { StatisticsArray::PerfMetrics } else { StatisticsArray::Records };
        // An error is ignored here, because the poll's own error is counted already.
        if parse_received(&self.client, &mut self.unparsed, statistics, batch) == Ok(false) {
            return true;
        }
        let is_lost = self.client.is_unanswered();
        batch.drained_unparsed |= statistics == StatisticsArray::Records && is_lost;
        self.forget_response();
        self.version.may_be_replaced();
        self.keys.may_be_replaced();
        self.startup.may_be_replaced();
        if let Some(endpoint) = &mut self.entries_endpoint {
            // An answer that came too late must not make the next poll late, too.
            if endpoint.refusal.is_none() {
                endpoint.due = Instant::now();
            }
            endpoint.keys.may_be_replaced();
            if self.reads_entries && is_lost {
                endpoint.answer_is_lost(&self.client.server.target, batch);
            }
        }
        self.reads_entries = false;
        (self.finished, self.any_ended) = (None, false);
        if let Some(page) = &mut self.page {
            page.may_be_replaced();
        }
        false
    }

    fn detect_backend(&mut self, batch: &mut Batch) {
        let newest = batch.messages.iter().rev().find_map(|item| match item {
            Message::Record(record) => Some(record.backend()),
            _ => None,
        });
        let backend = match newest {
            None => return,
            Some(Backend::TensorRt) => "tensorrt",
            Some(Backend::PyTorch) => "pytorch",
            Some(Backend::VisualGen) => "visual_gen",
        };
        if self.about.backend.as_deref() != Some(backend) {
            self.about.backend = Some(backend.to_owned());
            batch.about = Some(self.about.clone());
        }
    }

    async fn read_startup_times(&mut self, batch: &mut Batch) {
        let parse = |answer: Result<&[u8], SourceError>| match answer {
            Ok(body) => Some(parse_startup_times(body)),
            // Older servers have no such endpoint.
            Err(error) if error.is_missing() || matches!(error, SourceError::TooLarge { .. }) => {
                Some(StartupTimes::new())
            }
            Err(_) => None,
        };
        if let Some(startup) = self.startup.read(&mut self.client, parse).await
            && self.about.startup != startup
        {
            self.about.startup = startup;
            batch.about = Some(self.about.clone());
        }
    }
}

/// Reads an array of statistics, or its next part. Returns true if all of it is parsed. If false, the batch must be folded
/// before the next call. An answer is parsed while it arrives, so that a long or slow one takes little memory.
async fn read_part(
    client: &mut HttpClient,
    unparsed: &mut Option<ArrayPosition>,
    path: &str,
    statistics: StatisticsArray,
    keys: &mut KeyWatch,
    batch: &mut Batch,
) -> Result<Result<bool, ParseError>, SourceError> {
    if unparsed.is_none() {
        // If the poll is dropped here, what has arrived is parsed later.
        *unparsed = Some(ArrayPosition::default());
        client.read_first_part(path).await?;
    }
    loop {
        let is_begun = |unparsed: &Option<ArrayPosition>| unparsed.is_some_and(|answer| answer.is_begun());
        let was_begun = is_begun(unparsed);
        let result = parse_received(client, unparsed, statistics, batch);
        if !was_begun && is_begun(unparsed) {
            keys.look_at(client.received(), &mut batch.keys);
        }
        let needs_more = matches!(result, Ok(true) | Err(ParseError::Truncated));
        match unparsed {
            Some(answer) if needs_more && client.is_receiving() => {
                client.read_next_part(answer.take_parsed()).await?;
            }
            _ => return Ok(result),
        }
    }
}

/// Parses the next part of what has arrived. Returns the same as [`read_part`].
fn parse_received(
    client: &HttpClient,
    unparsed: &mut Option<ArrayPosition>,
    statistics: StatisticsArray,
    batch: &mut Batch,
) -> Result<bool, ParseError> {
    let Some(position) = unparsed else { return Ok(true) };
    statistics.parse_part(client.received(), position, batch).map(|()| position.is_complete())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that answers each request with an empty array, but never one for `/perf_metrics`.
    async fn open() -> TrtllmServe {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while let Ok(byte) = stream.read_u8().await {
                        head.push(byte);
                        if head.ends_with(b"\r\n\r\n") && !head.starts_with(b"GET /perf_metrics ") {
                            head.clear();
                            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]";
                            stream.write_all(answer).await.unwrap();
                        }
                    }
                });
            }
        });
        let access = Access { target, ca_file: None, bearer_token_file: None };
        let extras = Extras { prometheus_metrics: false, ..Extras::default() };
        TrtllmServe::open(access, extras).await.unwrap()
    }

    #[tokio::test]
    async fn requests_in_an_answer_that_comes_too_late_are_lost_and_the_records_are_read_on() {
        // The deadline of `/perf_metrics`, and that of the whole poll.
        for timeout in [Duration::from_secs(60), Duration::from_millis(300)] {
            let mut server = open().await;
            let (mut batch, mut is_whole) = (Batch::default(), false);
            let poll = async {
                while !is_whole {
                    assert_eq!(server.poll(&mut batch).await.unwrap(), Presence::Present);
                    is_whole = !batch.more;
                }
            };
            let polled = tokio::time::timeout(timeout, poll).await;
            if polled.is_err() {
                assert!(!server.take_partial(&mut batch));
            }
            assert_eq!(batch.rejected[RejectReason::Truncated as usize], 1, "after {timeout:?}");
            batch = Batch::default();
            // The next polls do not ask again.
            while server.poll(&mut batch).await.is_ok() && batch.more {}
            assert!(batch.endpoint_error.unwrap().contains("/perf_metrics did not answer in time"));
        }
    }
}
