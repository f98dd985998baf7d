//! Sends export requests on to another receiver of OTLP, unchanged. The receiving side never waits for it: what the queue cannot hold is
//! dropped and counted, and nothing is stored or sent again.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use prost::Message as _;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use trtllm_records::{ForwardedSpans, SpanLoss};
use trtllm_service::log::LogLimit;

use super::span::ExportResponse;
use crate::error::OpenError;
use crate::http_client::HttpClient;
use crate::server::{Access, TargetServer};

/// The path of OTLP over HTTP.
pub(super) const HTTP_PATH: &str = "/v1/traces";
/// Bytes of all queues together, and the least that a request counts, so that the number of requests is bounded, too.
const MAX_QUEUED: usize = 1 << 20;
const LEAST: usize = 1 << 10;
static ROOM: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MAX_QUEUED)));
/// Deadline of one request, its answer included.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest answer that is read: a partial success.
const MAX_ANSWER: usize = 64 << 10;

/// A request as it came, without the frame of gRPC.
#[derive(Debug)]
struct Export {
    body: Bytes,
    is_gzip: bool,
    spans: u64,
    _room: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub(super) struct Forwarder {
    queue: UnboundedSender<Export>,
    counts: Arc<Counts>,
    /// The task that sends. Dropping it ends the connection.
    _sender: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    /// In the order of [`SpanLoss::ALL`].
    lost: [AtomicU64; SpanLoss::ALL.len()],
}

impl Counts {
    fn lose(&self, why: SpanLoss, spans: u64) {
        self.lost[why as usize].fetch_add(spans, Relaxed);
    }
}

impl Forwarder {
    /// `endpoint`: `http(s)://HOST:PORT[/BASE]`. Fails if the certificates for https cannot be read.
    pub(super) async fn open(endpoint: String) -> Result<Self, OpenError> {
        let access = Access { target: endpoint, ca_file: None, bearer_token_file: None };
        let client = HttpClient::new(TargetServer::new(access).await?).with_max_body(MAX_ANSWER);
        let (queue, exports) = unbounded_channel();
        let (counts, mut sender) = (Arc::<Counts>::default(), JoinSet::new());
        sender.spawn(send_all(client, exports, Arc::clone(&counts)));
        Ok(Self { queue, counts, _sender: sender })
    }

    /// Puts a copy into the queue, which takes no more than its bytes. Does not wait.
    pub(super) fn forward(&self, body: &[u8], is_gzip: bool, spans: u64) {
        let room = body.len().clamp(LEAST, MAX_QUEUED) as u32;
        let queued = Arc::clone(&ROOM).try_acquire_many_owned(room).is_ok_and(|room| {
            self.queue.send(Export { body: Bytes::copy_from_slice(body), is_gzip, spans, _room: room }).is_ok()
        });
        if !queued {
            self.counts.lose(SpanLoss::QueueFull, spans);
        }
    }

    pub(super) fn counts(&self) -> ForwardedSpans {
        let Counts { sent, lost } = &*self.counts;
        ForwardedSpans { sent: sent.load(Relaxed), lost: lost.each_ref().map(|count| count.load(Relaxed)) }
    }
}

/// Spans that the receiver did not take of a request that it accepted.
fn refused(answer: &[u8]) -> u64 {
    let partial = ExportResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
    partial.map_or(0, |partial| u64::try_from(partial.rejected_spans).unwrap_or(0))
}

async fn send_all(mut client: HttpClient, mut exports: UnboundedReceiver<Export>, counts: Arc<Counts>) {
    let (mut fails, mut limit) = (false, LogLimit::default());
    while let Some(Export { body, is_gzip, spans, _room }) = exports.recv().await {
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"))]);
        if is_gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let (refused, failure) = match tokio::time::timeout(TIMEOUT, client.post(HTTP_PATH, headers, body)).await {
            Ok(Ok(answer)) => (refused(&answer).min(spans), None),
            Ok(Err(error)) => (spans, Some(error.kind().name())),
            Err(_) => (spans, Some("timeout")),
        };
        counts.sent.fetch_add(spans - refused, Relaxed);
        counts.lose(SpanLoss::Failed, refused);
        let endpoint = &client.server.target;
        // A receiver that fails and recovers all the time must not fill the log.
        let is_told = failure.is_some() != fails && limit.allow(Instant::now()).is_some();
        match failure.filter(|_| is_told) {
            Some(kind) => {
                tracing::warn!(
                    endpoint,
                    kind,
                    "spans cannot be forwarded and are dropped; check --otlp.endpoint and the receiver there"
                );
            }
            None if is_told => tracing::info!(endpoint, "spans are forwarded again"),
            None => {}
        }
        fails = failure.is_some();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::super::span::PartialSuccess;
    use super::*;

    #[tokio::test]
    async fn spans_that_the_receiver_rejects_are_lost_and_the_others_are_sent() {
        let next = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let forwarder = Forwarder::open(format!("http://{}", next.local_addr().unwrap())).await.unwrap();
        forwarder.forward(b"spans", false, 5);
        let (mut stream, _) = next.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"spans") {
            request.push(stream.read_u8().await.unwrap());
        }
        let partial_success = Some(PartialSuccess { rejected_spans: 2, error_message: String::new() });
        let answer = ExportResponse { partial_success }.encode_to_vec();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len());
        stream.write_all(&[head.as_bytes(), &answer].concat()).await.unwrap();
        while forwarder.counts() == ForwardedSpans::default() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let counts = forwarder.counts();
        assert_eq!((counts.sent, counts.lost[SpanLoss::Failed as usize]), (3, 2));
    }
}
