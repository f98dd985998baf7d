//! Reads trtllm-serve's own Prometheus page, `/prometheus/metrics`, beside the polls: the server collects it from files of all
//! its processes, and the records must not wait for that. Reading it drains nothing.
//!
//! A server may have several frontends (`--num_serve_frontends`): processes that share the port, each with a page of its own. The
//! system gives a connection to any of them, and no page says whose it is. But counts that fall are those of another frontend, or of
//! a server that was replaced; and a server that was replaced does not fall twice. So each reading has a connection of its own,
//! and a page with lower counts is read again several times before it is believed.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::{Duration, Instant};

use http::Method;
use tokio::task::JoinSet;

use super::SourceError;
use super::http_client::HttpClient;
use super::prometheus_text::{MAX_PAGE, parse_server_metrics};
use super::server::TargetServer;
use trtllm_model::ServerMetrics;

/// From the start of one reading to the next.
const INTERVAL: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(4);
/// Further readings of a page that is the first one or has fallen. If the server has two frontends, all of them reach the same one
/// in one of 256 cases.
pub(super) const PROBES: u32 = 8;
/// The further readings end after this time.
pub(super) const PROBE_TIME: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct ServerPageReader {
    server: TargetServer,
    due: Instant,
    /// The server has no such page. Read again after `/metrics` has failed, because the server may have been replaced.
    pub(super) missing: bool,
    /// At most one. Dropped with its connection.
    reading: JoinSet<PageRead>,
    /// Kept between two readings.
    client: Option<HttpClient>,
    /// When the last page arrived that was not taken yet.
    arrived: Option<(Instant, ServerMetrics)>,
    /// Several frontends answer. The page is not read any more then.
    pub(super) several_frontends: bool,
    /// `None` before the first page of a server.
    last: Option<LastCounts>,
}

/// The counts of a page, by the hash of their series.
#[derive(Debug)]
struct LastCounts {
    hasher: RandomState,
    counts: HashMap<u64, u64>,
}

impl LastCounts {
    fn of(page: &ServerMetrics) -> Self {
        let hasher = RandomState::new();
        let counts = page.counts.iter().map(|count| (hasher.hash_one((&count.counter, count.series)), count.value));
        Self { counts: counts.collect(), hasher }
    }

    /// Whether a count of the page is lower.
    fn are_above(&self, page: &ServerMetrics) -> bool {
        page.counts.iter().any(|count| {
            let last = self.counts.get(&self.hasher.hash_one((&count.counter, count.series)));
            last.is_some_and(|last| *last > count.value)
        })
    }
}

#[derive(Debug)]
struct PageRead {
    client: HttpClient,
    last: Option<LastCounts>,
    page: Result<ServerMetrics, Unread>,
}

/// Why a reading has no metrics.
#[derive(Debug)]
enum Unread {
    Missing,
    /// Worth another attempt.
    Failed,
}

impl ServerPageReader {
    pub(super) fn new(server: TargetServer) -> Self {
        Self {
            server,
            due: Instant::now(),
            missing: false,
            reading: JoinSet::new(),
            client: None,
            arrived: None,
            several_frontends: false,
            last: None,
        }
    }

    /// The server does not answer: the one that answers next may be another one.
    pub(super) fn may_be_replaced(&mut self) {
        (self.missing, self.several_frontends, self.last) = (false, false, None);
    }

    /// The last page that has arrived, if it arrived before `before`. Its counts are cumulative, so an earlier page that was not
    /// taken is not missed.
    pub(super) fn take(&mut self, before: Instant) -> Option<ServerMetrics> {
        self.arrived.take_if(|(arrived, _)| *arrived <= before).map(|(_, page)| page)
    }

    /// Keeps a page that has arrived, and starts to read the next one if it is due. Does not wait.
    pub(super) fn poll(&mut self) {
        if let Some(Ok(PageRead { client, last, page })) = self.reading.try_join_next() {
            (self.client, self.last) = (Some(client), last);
            match page {
                Ok(page) => {
                    self.several_frontends = page.several_frontends;
                    self.arrived = Some((Instant::now(), page));
                }
                Err(unread) => self.missing = matches!(unread, Unread::Missing),
            }
        }
        if self.missing || self.several_frontends || !self.reading.is_empty() || Instant::now() < self.due {
            return;
        }
        self.due = Instant::now() + INTERVAL;
        let client = self.client.take();
        let client = client.unwrap_or_else(|| HttpClient::new(self.server.clone()).with_max_body(MAX_PAGE));
        self.reading.spawn(read(client, self.last.take()));
    }
}

async fn read(mut client: HttpClient, last: Option<LastCounts>) -> PageRead {
    let page = read_until_certain(&mut client, last.as_ref()).await;
    let last = page.as_ref().ok().map(LastCounts::of).or(last);
    PageRead { client, last, page }
}

async fn read_until_certain(client: &mut HttpClient, last: Option<&LastCounts>) -> Result<ServerMetrics, Unread> {
    let start = Instant::now();
    let mut page = read_once(client).await?;
    if last.is_some_and(|last| !last.are_above(&page)) {
        return Ok(page);
    }
    for _ in 0..PROBES {
        if start.elapsed() >= PROBE_TIME {
            break;
        }
        let next = read_once(client).await?;
        if LastCounts::of(&page).are_above(&next) {
            let config = next.config;
            return Ok(ServerMetrics { config, several_frontends: true, ..ServerMetrics::default() });
        }
        page = next;
    }
    Ok(page)
}

async fn read_once(client: &mut HttpClient) -> Result<ServerMetrics, Unread> {
    client.disconnect();
    let page = match tokio::time::timeout(TIMEOUT, client.read(Method::GET, "/prometheus/metrics")).await {
        Ok(Ok(body)) => parse_server_metrics(body).map_err(|_| Unread::Failed),
        Ok(Err(SourceError::HttpStatus { status: ..500, .. })) => Err(Unread::Missing),
        Ok(Err(_)) | Err(_) => Err(Unread::Failed),
    };
    client.release();
    page
}
