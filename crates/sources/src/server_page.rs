//! Reads trtllm-serve's own Prometheus page, `/prometheus/metrics`, beside the polls: the server collects it from files of all
//! its processes, and the records must not wait for that. Reading it drains nothing.

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
}

#[derive(Debug)]
struct PageRead {
    client: HttpClient,
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
        Self { server, due: Instant::now(), missing: false, reading: JoinSet::new(), client: None, arrived: None }
    }

    /// The last page that has arrived, if it arrived before `before`. Its counts are cumulative, so an earlier page that was not
    /// taken is not missed.
    pub(super) fn take(&mut self, before: Instant) -> Option<ServerMetrics> {
        self.arrived.take_if(|(arrived, _)| *arrived <= before).map(|(_, page)| page)
    }

    /// Keeps a page that has arrived, and starts to read the next one if it is due. Does not wait.
    pub(super) fn poll(&mut self) {
        if let Some(Ok(PageRead { client, page })) = self.reading.try_join_next() {
            self.client = Some(client);
            match page {
                Ok(page) => self.arrived = Some((Instant::now(), page)),
                Err(unread) => self.missing = matches!(unread, Unread::Missing),
            }
        }
        if self.missing || !self.reading.is_empty() || Instant::now() < self.due {
            return;
        }
        self.due = Instant::now() + INTERVAL;
        let client = self.client.take();
        let client = client.unwrap_or_else(|| HttpClient::new(self.server.clone()).with_max_body(MAX_PAGE));
        self.reading.spawn(read(client));
    }
}

async fn read(mut client: HttpClient) -> PageRead {
    let page = match tokio::time::timeout(TIMEOUT, client.read(Method::GET, "/prometheus/metrics")).await {
        Ok(Ok(body)) => parse_server_metrics(body).map_err(|_| Unread::Failed),
        Ok(Err(SourceError::HttpStatus { status: ..500, .. })) => Err(Unread::Missing),
        Ok(Err(_)) | Err(_) => Err(Unread::Failed),
    };
    client.release();
    PageRead { client, page }
}
