//! Receives OTLP traces of TensorRT-LLM (`otlp_traces_endpoint`) over gRPC and over HTTP with protobuf, on one port. Each span of a
//! finished request becomes an entry, as of `/perf_metrics`. Other spans are dropped. Nothing drains: an engine pushes its spans.

mod span;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::Read as _;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes, BytesMut};
use flate2::read::GzDecoder;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use trtllm_records::perf_metrics::PerfMetricsEntry;
use trtllm_records::{Message, RejectReason};
use trtllm_service::permits::{Permit, Permits, timeout};

use self::span::{ExportRequest, ExportResponse, PartialSuccess, Side, SpanOfRequest, join};
use super::{Batch, OpenError, Presence};

/// The path of OTLP over HTTP, and that of its gRPC service.
const HTTP_PATH: &str = "/v1/traces";
const GRPC_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// Largest request, before and after decompression. A batch of the SDK has 512 spans, which take about 300 KiB.
const MAX_REQUEST: usize = 1 << 20;
/// Longest request that needs no permit.
const SHORT_REQUEST: usize = 128 << 10;
static LONG_REQUESTS: Permits = Permits::new(1);
/// Limit of the connections, which are those of engines and Collectors. Others wait.
const MAX_CONNECTIONS: usize = 64;
/// Longest time from a response to the head of the next request.
const IDLE: Duration = Duration::from_secs(60);
/// Deadline of a request's body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Spans that are received and not folded yet, and parts of requests that wait for the other part. More spans wait for a poll.
const MAX_RECEIVED: usize = 1024;
const WAITS: Duration = Duration::from_secs(5);
/// The SDK sends spans every 5 s, so the two spans of a request are at most this far apart.
const JOINED_WITHIN: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub struct Otlp {
    pub(super) target: String,
    received: mpsc::Receiver<SpanOfRequest>,
    rejected: Arc<[AtomicU64; 2]>,
    /// Parts of requests in disaggregated serving, by their trace, until the other part comes.
    parts: HashMap<Vec<u8>, (Instant, Side, PerfMetricsEntry)>,
    /// The task that accepts connections. Dropping it closes the port and all connections.
    _server: JoinSet<()>,
}

impl Otlp {
    /// Fails if the address cannot be bound.
    pub async fn bind(address: SocketAddr) -> Result<Self, OpenError> {
        let fail = |cause| OpenError::Otlp { address, cause };
        let listener = TcpListener::bind(address).await.map_err(fail)?;
        let (sender, received) = mpsc::channel(MAX_RECEIVED);
        let rejected = Arc::default();
        let receiver = Receiver { spans: sender, rejected: Arc::clone(&rejected) };
        let mut server = JoinSet::new();
        server.spawn(serve(listener, receiver));
        Ok(Self { target: format!("otlp:{address}"), received, rejected, parts: HashMap::new(), _server: server })
    }

    /// Takes what was received. Does not wait.
    pub(super) fn poll(&mut self, batch: &mut Batch) -> Presence {
        batch.only_requests = true;
        let now = Instant::now();
        while batch.has_room()
            && let Ok(span) = self.received.try_recv()
        {
            if let Some(entry) = self.whole(span, now) {
                batch.push(Message::FinishedRequest(Box::new(entry)));
            }
        }
        batch.more = !self.received.is_empty();
        let alone = self.parts.extract_if(|_, (since, ..)| now.saturating_duration_since(*since) >= JOINED_WITHIN);
        alone.for_each(|(_, (_, _, entry))| batch.push(Message::FinishedRequest(Box::new(entry))));
        for (reason, count) in REJECTED.into_iter().zip(&*self.rejected) {
            batch.rejected[reason as usize] += count.swap(0, Relaxed);
        }
        Presence::Present
    }

    /// The entry of the request, once all its parts are known.
    fn whole(&mut self, span: SpanOfRequest, now: Instant) -> Option<PerfMetricsEntry> {
        let SpanOfRequest { trace_id, side, entry } = span;
        if side == Side::Whole || trace_id.is_empty() || self.parts.len() >= MAX_RECEIVED {
            return Some(entry);
        }
        match self.parts.remove(&trace_id) {
            Some((_, Side::Context, context)) if side == Side::Generation => Some(join(context, entry)),
            Some((_, Side::Generation, generation)) if side == Side::Context => Some(join(entry, generation)),
            // Requests of one trace that have no other part.
            other => {
                self.parts.insert(trace_id, (now, side, entry));
                other.map(|(.., entry)| entry)
            }
        }
    }
}

/// Why spans are left out: they cannot be decoded, or came faster than they are folded.
const REJECTED: [RejectReason; 2] = [RejectReason::NotARecord, RejectReason::TooMany];

#[derive(Debug, Clone)]
struct Receiver {
    spans: mpsc::Sender<SpanOfRequest>,
    /// In the order of [`REJECTED`].
    rejected: Arc<[AtomicU64; 2]>,
}

async fn serve(listener: TcpListener, receiver: Receiver) {
    let (mut connections, free) = (JoinSet::new(), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => TokioIo::new(stream),
            Err(error) => {
                tracing::warn!(%error, "accepting a connection for OTLP failed; check the limit of open files");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let receiver = receiver.clone();
        connections.spawn(async move {
            let mut server = auto::Builder::new(TokioExecutor::new());
            server.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
            server.http2().timer(TokioTimer::new()).keep_alive_interval(REQUEST_TIMEOUT).max_concurrent_streams(8);
            let service = hyper::service::service_fn(move |request| {
                let receiver = receiver.clone();
                async move { receiver.respond(request).await }
            });
            if let Err(error) = server.serve_connection(stream, service).await {
                tracing::debug!(%error, "a connection of OTLP has ended");
            }
            drop(permit);
        });
    }
}

/// Why a request is refused: the status of HTTP and that of gRPC, and what to do.
type Refusal = (StatusCode, u8, &'static str);

const TOO_LARGE: Refusal = (
    StatusCode::PAYLOAD_TOO_LARGE,
    8,
    "the request is above 1 MiB; send smaller batches (send_batch_max_size: 1024 in the Collector)",
);
const TOO_SLOW: Refusal = (StatusCode::REQUEST_TIMEOUT, 4, "the request took longer than 10 s; send smaller batches");
const NOT_OTLP: Refusal =
    (StatusCode::BAD_REQUEST, 3, "not an ExportTraceServiceRequest; send OTLP traces as protobuf");
const NOT_PROTOBUF: Refusal = (
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
    3,
    "only protobuf is read; set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL to http/protobuf or grpc",
);
const NOT_FOUND: Refusal =
    (StatusCode::NOT_FOUND, 12, "only traces are received; send them by POST to /v1/traces, or by gRPC");

type Answer = UnsyncBoxBody<Bytes, Infallible>;

impl Receiver {
    async fn respond(&self, request: Request<Incoming>) -> Result<Response<Answer>, Infallible> {
        let is_grpc = request.uri().path() == GRPC_PATH;
        let result = self.receive(request, is_grpc).await;
        Ok(if is_grpc { grpc_answer(result) } else { http_answer(result) })
    }

    async fn receive(&self, request: Request<Incoming>, is_grpc: bool) -> Result<ExportResponse, Refusal> {
        if request.method() != Method::POST || !is_grpc && request.uri().path() != HTTP_PATH {
            return Err(NOT_FOUND);
        }
        let is = |name, value: &str| {
            let given = request.headers().get(name).and_then(|given: &HeaderValue| given.to_str().ok());
            given.is_some_and(|given| given.starts_with(value))
        };
        if !is_grpc && !is(header::CONTENT_TYPE, "application/x-protobuf") {
            return Err(NOT_PROTOBUF);
        }
        let is_packed = is(header::CONTENT_ENCODING, "gzip");
        let reading = pin!(read(request.into_body()));
        let (mut body, _permit) = timeout(REQUEST_TIMEOUT, reading).await.map_err(|_| TOO_SLOW)??;
        // The message of a gRPC call stands behind a flag and its length.
        let is_packed = if is_grpc {
            if body.len() < 5 {
                return Err(NOT_OTLP);
            }
            let is_packed = body.get_u8() == 1;
            body.advance(4);
            is_packed
        } else {
            is_packed
        };
        let body = if is_packed { unpacked(&body)? } else { body };
        let request = ExportRequest::decode(body).map_err(|_| NOT_OTLP)?;
        Ok(self.take(&request).await)
    }

    /// Passes the spans of requests on. The answer tells how many were left out, so that nobody sends the others again.
    async fn take(&self, request: &ExportRequest) -> ExportResponse {
        let (deadline, mut rejected) = (tokio::time::Instant::now() + WAITS, [0_u64; 2]);
        for span in request.spans() {
            match SpanOfRequest::of(span) {
                Ok(Some(span)) => {
                    let sent = tokio::time::timeout_at(deadline, self.spans.send(span)).await;
                    rejected[1] += u64::from(!matches!(sent, Ok(Ok(()))));
                }
                Ok(None) => {}
                Err(_) => rejected[0] += 1,
            }
        }
        for (total, more) in self.rejected.iter().zip(rejected) {
            total.fetch_add(more, Relaxed);
        }
        let [invalid, late] = rejected;
        let error_message = format!(
            "{invalid} spans cannot be decoded, and {late} came faster than they are folded; send fewer engines to one otlp: source"
        );
        let rejected_spans = i64::try_from(invalid + late).unwrap_or(i64::MAX);
        let partial_success = (rejected_spans > 0).then_some(PartialSuccess { rejected_spans, error_message });
        ExportResponse { partial_success }
    }
}

/// Reads a body, and takes a permit if it is long.
async fn read(mut body: Incoming) -> Result<(Bytes, Option<Permit>), Refusal> {
    let (mut read, mut permit) = (BytesMut::new(), None);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| NOT_OTLP)?.into_data() else { continue };
        if read.len() + data.len() > MAX_REQUEST {
            return Err(TOO_LARGE);
        }
        if permit.is_none() && read.len() + data.len() > SHORT_REQUEST {
            permit = Some(LONG_REQUESTS.take().await);
        }
        read.extend_from_slice(&data);
    }
    Ok((read.freeze(), permit))
}

fn unpacked(body: &[u8]) -> Result<Bytes, Refusal> {
    let mut unpacked = Vec::new();
    let read = GzDecoder::new(body).take(MAX_REQUEST as u64 + 1).read_to_end(&mut unpacked).map_err(|_| NOT_OTLP)?;
    if read > MAX_REQUEST { Err(TOO_LARGE) } else { Ok(unpacked.into()) }
}

fn http_answer(result: Result<ExportResponse, Refusal>) -> Response<Answer> {
    let (status, body, content) = match result {
        Ok(answer) => (StatusCode::OK, answer.encode_to_vec(), "application/x-protobuf"),
        Err((status, _, why)) => (status, format!("{why}\n").into_bytes(), "text/plain; charset=utf-8"),
    };
    let mut response = Response::new(Full::from(body).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content));
    response
}

/// The status of a gRPC call stands in the trailers of its answer.
fn grpc_answer(result: Result<ExportResponse, Refusal>) -> Response<Answer> {
    let mut trailers = HeaderMap::new();
    let body = match result {
        Ok(answer) => {
            let message = answer.encode_to_vec();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            [&[0], (message.len() as u32).to_be_bytes().as_slice(), &message].concat()
        }
        Err((_, status, why)) => {
            trailers.insert("grpc-status", HeaderValue::from(u16::from(status)));
            trailers.insert("grpc-message", HeaderValue::from_static(why));
            Vec::new()
        }
    };
    let body = Full::from(body).with_trailers(std::future::ready(Some(Ok(trailers))));
    let mut response = Response::new(body.boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(trace: u8, side: Side, tokens: u64) -> SpanOfRequest {
        let entry = PerfMetricsEntry { output_tokens: Some(tokens), ..PerfMetricsEntry::default() };
        SpanOfRequest { trace_id: vec![trace], side, entry }
    }

    #[tokio::test]
    async fn the_parts_of_a_request_become_one_in_either_order_and_a_lonely_part_is_not_lost() {
        let mut otlp = Otlp::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let now = Instant::now();
        let tokens = |entry: PerfMetricsEntry| {
            [entry.ctx_perf_metrics, entry.gen_perf_metrics].map(|part| part.and_then(|part| part.output_tokens))
        };
        for [first, second] in [[Side::Context, Side::Generation], [Side::Generation, Side::Context]] {
            let of = |side| part(7, side, if side == Side::Context { 1 } else { 15 });
            assert_eq!(otlp.whole(of(first), now), None);
            assert_eq!(otlp.whole(of(second), now).map(tokens), Some([Some(1), Some(15)]));
        }
        assert_eq!(otlp.whole(part(7, Side::Whole, 4), now).and_then(|entry| entry.output_tokens), Some(4));
        // Two requests of one trace, both of which have only a generation part.
        assert_eq!(otlp.whole(part(8, Side::Generation, 2), now), None);
        assert_eq!(otlp.whole(part(8, Side::Generation, 3), now).and_then(|entry| entry.output_tokens), Some(2));
        otlp.parts.values_mut().for_each(|(since, ..)| *since = now - JOINED_WITHIN);
        let mut batch = Batch::default();
        otlp.poll(&mut batch);
        assert!(matches!(&batch.messages[..], [Message::FinishedRequest(entry)] if entry.output_tokens == Some(3)));
    }
}
