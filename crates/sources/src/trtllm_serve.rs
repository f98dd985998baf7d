//! trtllm-serve over HTTP. A read of `/metrics` (JSON) or `/perf_metrics` drains the statistics from the server, so the
//! exporter must be the only reader: two readers would get half of them each. A read of `/version`, `/server_info` or
//! `/prometheus/metrics` drains nothing.

use std::pin::pin;
use std::time::{Duration, Instant};

use super::http_client::HttpClient;
use super::keys::KeyWatch;
use super::perf_metrics_dir::{LineOwner, LinesDir, NO_LINES, PerfMetricsDir};
use super::server::{Access, TargetServer};
use super::server_facts::{FactReader, RETRY, VERSION_PATH};
use super::server_health::HealthCheck;
use super::server_page::{self, ServerPageReader};
use super::startup_times::parse_startup_times;
use super::trtllm_json::{ArrayPosition, ParseError, StatisticsArray};
use super::{Batch, OpenError, Presence, SourceError};
use trtllm_records::Message;
use trtllm_records::iteration::Backend;
use trtllm_records::server_metrics::SEVERAL_FRONTENDS;
use trtllm_records::{EngineAbout, StartupTimes};
use trtllm_service::permits::Deadline;

const RECORDS_PATH: &str = "/metrics";
const ENTRIES_PATH: &str = "/perf_metrics";
/// The server keeps finished requests until they are read. Reading once a second instead of ten times saves the server
/// work.
const ENTRIES_INTERVAL: Duration = Duration::from_secs(1);
const ENTRIES_TIMEOUT: Duration = Duration::from_secs(1);
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
}

impl Default for Extras {
    fn default() -> Self {
        Self { perf_metrics: true, lines: None, prometheus_metrics: true }
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
    entries: Entries,
    about: EngineAbout,
    version: FactReader,
    startup: FactReader,
    keys: KeyWatch,
    /// The response of this step. `None` before its request and after its last part.
    unparsed: Option<Unparsed>,
}

/// A response whose end is not parsed yet.
#[derive(Debug, Clone, Copy)]
struct Unparsed {
    asked: Instant,
    /// How much of it is parsed.
    position: ArrayPosition,
}

/// Whether the server writes an entry for each finished request, on `/perf_metrics` or as a line of a file. Releases of
/// 2026 have no such endpoint, and older ones fill it only if `perf_metrics_max_requests` is set. Without entries, the
/// histograms of the server's page provide the times of the same requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entries {
    /// No request has finished yet. `asked`: when the entries were last read. `finished`: finished requests on the last page.
    Unknown {
        asked: Option<Instant>,
        finished: Option<u64>,
    },
    Present,
    Absent,
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
    /// The last answer had a status that is an error, and does not mean that the endpoint is missing.
    refusal: Option<String>,
}

impl EntriesEndpoint {
    fn new() -> Self {
        let deadline = Deadline::after(ENTRIES_TIMEOUT);
        Self { due: Instant::now(), deadline, keys: KeyWatch::default(), missing: false, refusal: None }
    }
}

impl Entries {
    const UNKNOWN: Self = Self::Unknown { asked: None, finished: None };

    /// To be called after entries were read at `at`. `missing`: the endpoint does not exist.
    fn after_reading(self, at: Instant, missing: bool) -> Self {
        match self {
            _ if missing => Self::Absent,
            Self::Unknown { finished, .. } => Self::Unknown { asked: Some(at), finished },
            known => known,
        }
    }

    fn after_entry(self) -> Self {
        if self == Self::Absent { self } else { Self::Present }
    }

    /// If requests have finished since the last page, and no entry came, the server writes no entries.
    fn after_page(self, finished: u64) -> Self {
        match self {
            Self::Unknown { finished: Some(before), .. } if finished > before => Self::Absent,
            Self::Unknown { asked, .. } => Self::Unknown { asked, finished: Some(finished) },
            known => known,
        }
    }
}

impl TrtllmServe {
    /// Fails if the certificates for https cannot be read.
    pub async fn open(access: Access, enabled: Extras) -> Result<Self, OpenError> {
        if let Some(lines) = &enabled.lines {
            lines.check_beside().await?;
        }
        let server = TargetServer::new(access).await?;
        let has_endpoint = enabled.perf_metrics && enabled.lines.is_none();
        let entries = if enabled.perf_metrics || enabled.lines.is_some() { Entries::UNKNOWN } else { Entries::Absent };
        let page = enabled.prometheus_metrics.then(|| ServerPageReader::new(server.clone()));
        let lines = enabled.lines.map(|dir| PerfMetricsDir::new(dir, LineOwner::Server));
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
            entries,
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
        let (done, is_last) = match self.reads_entries {
            true => (self.poll_entries(batch).await, true),
            false => (self.poll_records(batch).await?, self.entries_endpoint.is_none()),
        };
        batch.more = !(done && is_last);
        self.reads_entries = batch.more && (done || self.reads_entries);
        if !batch.more {
            self.version.read_version(&mut self.client, &mut self.about, batch).await;
            self.read_startup_times(batch).await;
            self.take_lines(batch);
            self.take_page(batch);
            if self.page.as_ref().is_some_and(|page| page.several_frontends) {
                batch.notice = batch.notice.or(Some(SEVERAL_FRONTENDS));
            }
            let entries = self.entries_endpoint.as_ref().filter(|entries| entries.missing).map(|_| ENTRIES_PATH);
            let page = self.page.as_ref().filter(|page| page.missing).map(|_| server_page::PATH);
            batch.missing_endpoints = Some(entries.into_iter().chain(page).collect());
            let page = self.page.as_ref().and_then(|page| page.refusal.as_ref());
            let entries = self.entries_endpoint.as_ref().and_then(|entries| entries.refusal.as_ref());
            batch.endpoint_error = entries.or(page).cloned();
        }
        Ok(Presence::Present)
    }

    fn take_lines(&mut self, batch: &mut Batch) {
        let Some(lines) = &mut self.lines else { return };
        if lines.poll(batch) {
            self.entries = self.entries.after_entry();
        }
        if let Entries::Unknown { asked, .. } = &mut self.entries {
            *asked = lines.complete_before();
        }
        batch.notice = lines.problem().or((self.entries == Entries::Absent).then_some(NO_LINES));
    }

    /// Takes the server's page once it is certain whether the requests on it have entries. The server writes an entry
    /// when it counts the request on the page, so the first reading of entries after the page contains it.
    fn take_page(&mut self, batch: &mut Batch) {
        let Some(page) = &mut self.page else { return };
        page.poll(&mut batch.keys);
        let asked = match self.entries {
            Entries::Unknown { asked, .. } => asked,
            Entries::Present | Entries::Absent => Some(Instant::now()),
        };
        let Some(mut metrics) = asked.and_then(|asked| page.take(asked)) else { return };
        self.entries = self.entries.after_page(metrics.finished_requests());
        metrics.without_entries = self.entries == Entries::Absent;
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
        let done = part?.map_err(|error| match error {
            ParseError::NotJson(_) if for_prometheus => SourceError::PrometheusPage { target: target() },
            ParseError::NotJson(cause) => SourceError::NotJson { target: target(), cause },
            ParseError::Truncated => SourceError::Truncated { target: target() },
        });
        if !matches!(done, Ok(false)) {
            let is_begun = self.unparsed.is_some_and(|answer| answer.position.is_begun());
            batch.lost_rest |= done.is_err() && is_begun;
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
        let asked = match self.unparsed {
            Some(unparsed) => unparsed.asked,
            None if Instant::now() < endpoint.due => return true,
            None => {
                endpoint.deadline = Deadline::after(ENTRIES_TIMEOUT);
                Instant::now()
            }
        };
        let before = batch.messages.len();
        let entries = StatisticsArray::PerfMetrics;
        let part = read_part(&mut self.client, &mut self.unparsed, ENTRIES_PATH, entries, &mut endpoint.keys, batch);
        let part = endpoint.deadline.run(pin!(part)).await;
        let error = if let Ok(Err(error)) = &part { Some(error) } else { None };
        endpoint.missing = error.is_some_and(SourceError::is_missing);
        endpoint.refusal =
            error.filter(|error| !endpoint.missing && error.status().is_some()).map(SourceError::to_string);
        // The read has drained the items from the server, so those of an incomplete answer are kept too.
        let (is_whole, result) = match part {
            Ok(Ok(result)) => (true, result),
            Ok(Err(_)) | Err(_) => (false, parse_received(&self.client, &mut self.unparsed, entries, batch)),
        };
        if batch.messages.len() > before {
            self.entries = self.entries.after_entry();
        }
        if result == Ok(false) {
            return false;
        }
        self.entries = self.entries.after_reading(asked, endpoint.missing);
        // An error at the end of an incomplete answer shows nothing about the structure of the answer.
        if is_whole && matches!(result, Err(ParseError::NotJson(_))) {
            batch.keys.insert(ENTRIES_PATH.to_owned());
        }
        endpoint.due = Instant::now() + if is_whole && result.is_ok() { ENTRIES_INTERVAL } else { RETRY };
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
        batch.lost_rest |= statistics == StatisticsArray::Records && self.client.is_unanswered();
        self.forget_response();
        self.reads_entries = false;
        self.version.may_be_replaced();
        self.keys.may_be_replaced();
        self.startup.may_be_replaced();
        if let Some(endpoint) = &mut self.entries_endpoint {
            endpoint.due = Instant::now();
            endpoint.keys.may_be_replaced();
            endpoint.refusal = None;
        }
        if self.lines.is_some() || self.entries_endpoint.is_some() {
            self.entries = Entries::UNKNOWN;
        }
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
    unparsed: &mut Option<Unparsed>,
    path: &str,
    statistics: StatisticsArray,
    keys: &mut KeyWatch,
    batch: &mut Batch,
) -> Result<Result<bool, ParseError>, SourceError> {
    if unparsed.is_none() {
        // If the poll is dropped here, what has arrived is parsed later.
        *unparsed = Some(Unparsed { asked: Instant::now(), position: ArrayPosition::default() });
        client.read_first_part(path).await?;
    }
    loop {
        let is_begun = |unparsed: &Option<Unparsed>| unparsed.is_some_and(|answer| answer.position.is_begun());
        let was_begun = is_begun(unparsed);
        let result = parse_received(client, unparsed, statistics, batch);
        if !was_begun && is_begun(unparsed) {
            keys.look_at_first(client.received(), &mut batch.keys);
        }
        let needs_more = matches!(result, Ok(true) | Err(ParseError::Truncated));
        match unparsed {
            Some(answer) if needs_more && client.is_receiving() => {
                client.read_next_part(answer.position.take_parsed()).await?;
            }
            _ => return Ok(result),
        }
    }
}

/// Parses the next part of what has arrived. Returns the same as [`read_part`].
fn parse_received(
    client: &HttpClient,
    unparsed: &mut Option<Unparsed>,
    statistics: StatisticsArray,
    batch: &mut Batch,
) -> Result<bool, ParseError> {
    let Some(Unparsed { position, .. }) = unparsed else { return Ok(true) };
    statistics.parse_part(client.received(), position, batch).map(|()| position.is_complete())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_on_the_page_without_entries_show_that_there_are_none() {
        let now = Instant::now();
        let unknown = Entries::UNKNOWN.after_reading(now, false).after_page(40);
        assert_eq!(unknown, Entries::Unknown { asked: Some(now), finished: Some(40) });
        // No request has finished since.
        assert_eq!(unknown.after_page(40), unknown);
        assert_eq!(unknown.after_page(41), Entries::Absent);
        assert_eq!(unknown.after_entry().after_page(41), Entries::Present);
        assert_eq!(Entries::UNKNOWN.after_reading(now, true), Entries::Absent);
        // From then on, the page counts all requests, so a late entry changes nothing.
        assert_eq!(Entries::Absent.after_entry().after_reading(now, false).after_page(50), Entries::Absent);
    }
}
