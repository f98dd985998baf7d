//! Reads trtllm-serve's own Prometheus page, `/prometheus/metrics`, in a separate task: the server builds it from files
//! of all its processes, and polls of records must not wait for that. Reading the page removes no statistics. A server
//! may have several frontends (`--num_serve_frontends`): processes that share the port, each with a page of its own.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::error::SourceError;
use super::http_client::HttpClient;
use super::one_process::{CountedPage, LastCounts, ReadPage, read_until_certain};
use super::prometheus_text::{MAX_PAGE, family_names, parse_server_metrics};
use super::server::TargetServer;
use trtllm_records::ServerMetrics;
use trtllm_records::server_metrics::ServerCounter;
use trtllm_service::permits::timeout;

/// Time from the start of one reading to the next.
const INTERVAL: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(4);
/// The path of a server's page for Prometheus.
pub const PATH: &str = "/prometheus/metrics";

#[derive(Debug)]
pub(super) struct ServerPageReader {
    server: TargetServer,
    due: Instant,
    /// The server has no such page. It is requested again after `/metrics` has failed: the server may have been replaced.
    pub(super) missing: bool,
    /// The last answer had a status that is an error, and does not mean that the page is missing. It is requested again.
    pub(super) refusal: Option<String>,
    /// The task that reads the page, if there is one. Dropping the task closes its connection.
    reading: JoinSet<PageRead>,
    /// The client, between two readings.
    client: Option<HttpClient>,
    /// Several frontends answer, so the page is no longer read.
    pub(super) several_frontends: bool,
    /// Counts of the last page. `None` before the first page of a server.
    last: Option<LastCounts>,
}

/// The client, and its page with the counts of the page, which are absent if several frontends answer.
type PageRead = (HttpClient, Result<(ServerPage, Option<LastCounts>), SourceError>);

#[derive(Debug)]
pub(super) struct ServerPage {
    metrics: ServerMetrics,
    families: BTreeSet<String>,
}

impl ServerPageReader {
    pub(super) fn new(server: TargetServer) -> Self {
        Self {
            server,
            due: Instant::now(),
            missing: false,
            refusal: None,
            reading: JoinSet::new(),
            client: None,
            several_frontends: false,
            last: None,
        }
    }

    /// To be called when the server does not answer: another server may answer next.
    pub(super) fn may_be_replaced(&mut self) {
        (self.missing, self.several_frontends, self.last) = (false, false, None);
        self.refusal = None;
        // A page of the old server must not be folded after the first record of the new one.
        self.reading = JoinSet::new();
    }

    /// Returns a page that has arrived, and starts to read the next one if it is due. Does not wait. Adds the names of
    /// the page's families to `names`, or the path if the answer is not a page.
    pub(super) fn poll(&mut self, names: &mut BTreeSet<String>) -> Option<ServerMetrics> {
        let mut arrived = None;
        if let Some(Ok((client, read))) = self.reading.try_join_next() {
            (self.client, self.refusal) = (Some(client), None);
            match read {
                Ok((ServerPage { metrics, families }, last)) => {
                    self.several_frontends = last.is_none();
                    self.last = last;
                    arrived = Some(match self.several_frontends {
                        true => ServerMetrics { config: metrics.config, several_frontends: true, ..Default::default() },
                        false => metrics,
                    });
                    names.extend(families);
                }
                Err(error) if error.is_missing() => self.missing = true,
                Err(error) if error.status().is_some() => self.refusal = Some(error.to_string()),
                Err(SourceError::NotJson { .. }) => _ = names.insert(PATH.to_owned()),
                // Another attempt may succeed.
                Err(_) => {}
            }
        }
        if self.missing || self.several_frontends || !self.reading.is_empty() || Instant::now() < self.due {
            return arrived;
        }
        self.due = Instant::now() + INTERVAL;
        let client = self.client.take();
        let mut client = client.unwrap_or_else(|| HttpClient::new(self.server.clone()).with_max_body(MAX_PAGE));
        let last = self.last.take();
        self.reading.spawn(async move {
            let read = read_until_certain(&mut client, last).await;
            (client, read)
        });
        arrived
    }
}

impl ReadPage for HttpClient {
    type Page = ServerPage;

    /// Each reading opens a new connection.
    async fn read_page(&mut self, _: bool) -> Result<ServerPage, SourceError> {
        self.disconnect();
        let target = format!("{}{PATH}", self.server.target);
        let read = timeout(TIMEOUT, pin!(self.read(PATH))).await;
        let page = match read {
            Ok(Ok(body)) => match parse_server_metrics(body) {
                Ok(metrics) => Ok(ServerPage { metrics, families: family_names(body) }),
                Err(error) => Err(SourceError::NotJson { target, cause: error.to_string() }),
            },
            Ok(Err(error)) => Err(error),
            Err(_) => Err(SourceError::Timeout { target, after: TIMEOUT }),
        };
        self.release();
        page
    }
}

impl CountedPage for ServerPage {
    fn counts(&self) -> impl Iterator<Item = (impl Hash, u64)> {
        let is_sum = |counter: &ServerCounter| matches!(counter, ServerCounter::HistogramSum(_));
        let counts = self.metrics.counts.iter().filter(move |count| !is_sum(&count.counter));
        counts.map(|count| ((&count.counter, count.series), count.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_a_histogram_does_not_tell_which_process_answers() {
        let counts = |sum: &str| {
            let family = "trtllm_e2e_request_latency_seconds";
            let page = format!("{family}_bucket{{le=\"+Inf\"}} 7\n{family}_sum {sum}\n");
            let metrics = parse_server_metrics(page.as_bytes()).unwrap();
            let page = ServerPage { metrics, families: BTreeSet::new() };
            page.counts().map(|(_, count)| count).collect::<Vec<_>>()
        };
        assert_eq!((counts("9"), counts("3")), (vec![7], vec![7]));
    }
}
