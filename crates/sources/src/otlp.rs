//! Receives OTLP traces of TensorRT-LLM (`otlp_traces_endpoint`) over gRPC and over HTTP with protobuf, on one port. Each span of a
//! finished request becomes an entry like one of `/perf_metrics`. Other spans are dropped and counted. Nothing drains: an engine pushes
//! its spans.

mod forward;
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
use trtllm_records::{Message, RejectReason, SpanDrop};
use trtllm_service::permits::{Permit, Permits};

use self::forward::{Forwarder, HTTP_PATH};
use self::span::{Caller, ExportRequest, ExportResponse, PartialSuccess, Side, SpanOfRequest, join};
use super::batch::{Batch, Presence};
use super::error::OpenError;

/// The path of OTLP's gRPC service.
const GRPC_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// Largest request, before and after decompression. A batch of the SDK has 512 spans, which take about 300 KiB.
const MAX_REQUEST: usize = 1 << 20;
/// Longest request that needs no permit.
const SHORT_REQUEST: usize = 128 << 10;
static LONG_REQUESTS: Permits = Permits::new(1);
/// Most connections at once. Others wait.
const MAX_CONNECTIONS: usize = 64;
/// A connection without a byte for this time, or without a new request over HTTP/1, is closed.
const IDLE: Duration = Duration::from_secs(60);
/// Longest time of a connection. Its peer then opens another one, so silent peers do not keep others out.
const LIFETIME: Duration = Duration::from_secs(300);
/// Deadline of a request's body, the wait for a permit included. The SDK waits 10 s for the answer, and then sends all spans again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);
/// Most spans in one export.
const MAX_SPANS: usize = 4096;
/// Spans that are received and not folded yet, and parts of requests that wait for the other part.
const MAX_RECEIVED: usize = 1024;
/// Longest time for which the spans of a request wait until those before them are folded.
const WAITS: Duration = Duration::from_secs(3);
/// The SDK sends spans every 5 s, so the span of a context server comes at most this time after that of the generation server.
const LATE: Duration = Duration::from_secs(15);
/// A context server sends its span when the prompt is computed, and a generation server when the answer is complete.
const LONGEST_ANSWER: Duration = Duration::from_secs(600);

/// Where spans are received, as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanReceiver {
    pub address: SocketAddr,
    /// `http(s)://HOST:PORT[/BASE]` of the next receiver, to which all spans are forwarded.
    pub forward_to: Option<String>,
}

#[derive(Debug)]
pub struct Otlp {
    pub(super) target: String,
    received: mpsc::Receiver<SpanOfRequest>,
    counts: Arc<Counts>,
    forwarder: Option<Arc<Forwarder>>,
    /// Parts of requests in disaggregated serving, until the other part comes.
    parts: HashMap<Caller, (Instant, Side, PerfMetricsEntry)>,
    /// Generation servers send spans here, so those of context servers wait for theirs.
    has_generation: bool,
    /// The spans of several engines come, so the parts of a request are joined.
    joins: bool,
    /// The task that accepts connections. Dropping it closes the port and all connections.
    _server: JoinSet<()>,
}

impl Otlp {
    /// Opens the receiver as a source of its own. Fails if the address cannot be bound, or the certificates for https to the next
    /// receiver cannot be read.
    pub async fn open(config: SpanReceiver) -> Result<Self, OpenError> {
        Ok(Self { joins: true, ..Self::bind(config).await? })
    }

    /// Receives the spans of one engine. Fails as [`Self::open`].
    pub(super) async fn bind(config: SpanReceiver) -> Result<Self, OpenError> {
        let SpanReceiver { address, forward_to } = config;
        let forwarder = match forward_to {
            Some(endpoint) => Some(Arc::new(Forwarder::open(endpoint).await?)),
            None => None,
        };
        let fail = |cause| OpenError::Otlp { address, cause };
        let listener = TcpListener::bind(address).await.map_err(fail)?;
        let (sender, received) = mpsc::channel(MAX_RECEIVED);
        let counts = Arc::default();
        let receiver = Receiver { spans: sender, counts: Arc::clone(&counts), forwarder: forwarder.clone() };
        let mut server = JoinSet::new();
        server.spawn(serve(listener, receiver));
        Ok(Self {
            target: format!("otlp:{address}"),
            received,
            counts,
            forwarder,
            parts: HashMap::new(),
            has_generation: false,
            joins: false,
            _server: server,
        })
    }

    /// Polls the receiver as a source of its own.
    pub(super) fn poll_alone(&mut self, batch: &mut Batch) -> Presence {
        self.poll(batch);
        batch.more = !self.received.is_empty();
        Presence::Present
    }

    /// Takes what was received. Does not wait.
    pub(super) fn poll(&mut self, batch: &mut Batch) {
        let now = Instant::now();
        while batch.has_room()
            && let Ok(span) = self.received.try_recv()
        {
            if let Some(entry) = self.whole(span, now) {
                batch.push(Message::Span(Box::new(entry)));
            }
        }
        let has_generation = self.has_generation;
        let alone = self.parts.extract_if(|_, (since, side, _)| {
            let waits = if *side == Side::Context && has_generation { LONGEST_ANSWER } else { LATE };
            now.saturating_duration_since(*since) >= waits
        });
        alone.for_each(|(_, (_, _, entry))| batch.push(Message::Span(Box::new(entry))));
        for (reason, count) in REJECTED.into_iter().zip(&self.counts.rejected) {
            batch.rejected[reason as usize] += count.swap(0, Relaxed);
        }
        batch.spans_forwarded = self.forwarder.as_ref().map(|forwarder| forwarder.counts());
        batch.spans_dropped = Some(self.counts.dropped.each_ref().map(|count| count.load(Relaxed)));
    }

    /// The entry of the request, once all its parts are known.
    fn whole(&mut self, span: SpanOfRequest, now: Instant) -> Option<PerfMetricsEntry> {
        let SpanOfRequest { caller, side, entry } = span;
        self.has_generation |= side == Side::Generation;
        let Some(caller) = caller.filter(|_| self.joins && side != Side::Whole) else { return Some(entry) };
        match self.parts.remove(&caller) {
            Some((_, Side::Context, context)) if side == Side::Generation => return Some(join(context, entry)),
            Some((_, Side::Generation, generation)) if side == Side::Context => return Some(join(entry, generation)),
            // Another request of the same caller that has no other part.
            Some((.., other)) => {
                self.parts.insert(caller, (now, side, entry));
                return Some(other);
            }
            None => {}
        }
        let oldest = || self.parts.iter().min_by_key(|(_, (since, ..))| *since).map(|(caller, _)| *caller);
        let oldest = if self.parts.len() >= MAX_RECEIVED { oldest() } else { None };
        let alone = oldest.and_then(|caller| self.parts.remove(&caller)).map(|(.., entry)| entry);
        self.parts.insert(caller, (now, side, entry));
        alone
    }
}

/// Why spans are left out: they cannot be decoded, or came faster than they are folded.
const REJECTED: [RejectReason; 2] = [RejectReason::NotARecord, RejectReason::TooMany];

#[derive(Debug, Default)]
struct Counts {
    /// Since the last poll, in the order of [`REJECTED`].
    rejected: [AtomicU64; REJECTED.len()],
    /// In the order of [`SpanDrop::ALL`].
    dropped: [AtomicU64; SpanDrop::ALL.len()],
}

#[derive(Debug, Clone)]
struct Receiver {
    spans: mpsc::Sender<SpanOfRequest>,
    counts: Arc<Counts>,
    forwarder: Option<Arc<Forwarder>>,
}

async fn serve(listener: TcpListener, receiver: Receiver) {
    let (mut connections, free) = (JoinSet::new(), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
    let mut is_failing = false;
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => TokioIo::new(stream),
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    tracing::warn!(%error, "connections for OTLP cannot be accepted; retrying; raise the limit of open files (LimitNOFILE=, ulimit -n)");
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        is_failing = false;
        let receiver = receiver.clone();
        connections.spawn(async move {
            let mut server = auto::Builder::new(TokioExecutor::new());
            server.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
            // One request at a time, so that none keeps the room of a connection that another one needs.
            server.http2().timer(TokioTimer::new()).keep_alive_interval(IDLE).max_concurrent_streams(1);
            let service = hyper::service::service_fn(move |request| {
                let receiver = receiver.clone();
                async move { receiver.respond(request).await }
            });
            let has_begun = tokio::time::timeout(IDLE, stream.inner().readable()).await.is_ok();
            let serving = async {
                let mut connection = pin!(server.serve_connection(stream, service));
                if tokio::time::timeout(LIFETIME, connection.as_mut()).await.is_err() {
                    connection.as_mut().graceful_shutdown();
                    _ = tokio::time::timeout(2 * REQUEST_TIMEOUT, connection).await;
                }
            };
            if has_begun {
                serving.await;
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
    "the request is above 1 MiB; send smaller batches (send_batch_size: 512 and send_batch_max_size: 1024 of the Collector)",
);
const TOO_SLOW: Refusal = (StatusCode::REQUEST_TIMEOUT, 4, "the request took longer than 4 s; send smaller batches");
const NOT_GZIP: Refusal = (
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
    12,
    "only gzip is unpacked; set the compression of the exporter of spans to gzip or none",
);
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
        if result.as_ref().is_err_and(|refusal| *refusal != NOT_FOUND) {
            self.counts.rejected[0].fetch_add(1, Relaxed);
        }
        Ok(if is_grpc { grpc_answer(result) } else { http_answer(result) })
    }

    async fn receive(&self, request: Request<Incoming>, is_grpc: bool) -> Result<ExportResponse, Refusal> {
        if request.method() != Method::POST || !is_grpc && request.uri().path() != HTTP_PATH {
            return Err(NOT_FOUND);
        }
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !is_grpc && !header("content-type").starts_with("application/x-protobuf") {
            return Err(NOT_PROTOBUF);
        }
        let is_gzip = match header(if is_grpc { "grpc-encoding" } else { "content-encoding" }) {
            "gzip" => true,
            "" | "identity" => false,
            _ => return Err(NOT_GZIP),
        };
        let reading = read(request.into_body(), is_gzip);
        let (mut body, _permit) = tokio::time::timeout(REQUEST_TIMEOUT, reading).await.map_err(|_| TOO_SLOW)??;
        // The message of a gRPC call stands behind a flag and its length.
        let is_packed = if is_grpc {
            if body.len() < 5 {
                return Err(NOT_OTLP);
            }
            let is_packed = body.get_u8() == 1;
            body.advance(4);
            is_packed
        } else {
            is_gzip
        };
        let received = body.clone();
        let body = if is_packed { unpacked(&body)? } else { body };
        let request = ExportRequest::decode(body).map_err(|_| NOT_OTLP)?;
        let spans = request.spans().count();
        if spans > MAX_SPANS {
            return Err(TOO_LARGE);
        }
        if let Some(forwarder) = &self.forwarder {
            forwarder.forward(&received, is_packed, spans as u64);
        }
        // The spans wait to be folded. What else the request has, such as the names of resources, need not.
        let spans = request.spans().cloned().collect();
        drop((request, received));
        Ok(self.take(spans).await)
    }

    /// Passes the spans of requests on. The answer tells how many of them were left out, so that nobody sends the others again. Spans that
    /// are not of requests are none of those: they are sent rightly, and have no use here.
    async fn take(&self, spans: Vec<Bytes>) -> ExportResponse {
        let deadline = tokio::time::Instant::now() + WAITS;
        let (mut rejected, mut dropped) = ([0_u64; REJECTED.len()], [0_u64; SpanDrop::ALL.len()]);
        for span in spans {
            match SpanOfRequest::of(&span) {
                Ok(Ok(span)) => {
                    let sent = tokio::time::timeout_at(deadline, self.spans.send(span)).await;
                    rejected[1] += u64::from(!matches!(sent, Ok(Ok(()))));
                }
                Ok(Err(why)) => dropped[why as usize] += 1,
                Err(_) => rejected[0] += 1,
            }
        }
        let totals = self.counts.rejected.iter().chain(&self.counts.dropped);
        for (total, more) in totals.zip(rejected.into_iter().chain(dropped)) {
            total.fetch_add(more, Relaxed);
        }
        let refused = [
            (rejected[0], "cannot be decoded; send OTLP traces as protobuf"),
            (rejected[1], "came faster than they are counted; let fewer engines send to this address"),
            (
                dropped[SpanDrop::Incomplete as usize],
                "have no time and no length; set return_perf_metrics: true of the engine",
            ),
        ];
        let refused = refused.into_iter().filter(|(spans, _)| *spans > 0);
        let reasons: Vec<_> = refused.clone().map(|(spans, why)| format!("{spans} spans {why}")).collect();
        let rejected_spans = i64::try_from(refused.map(|(spans, _)| spans).sum::<u64>()).unwrap_or(i64::MAX);
        let error_message = reasons.join(". ");
        let partial_success = (rejected_spans > 0).then_some(PartialSuccess { rejected_spans, error_message });
        ExportResponse { partial_success }
    }
}

/// Reads a body, and takes a permit if it is long or packed.
async fn read(mut body: Incoming, is_packed: bool) -> Result<(Bytes, Option<Permit>), Refusal> {
    let (mut read, mut permit) = (BytesMut::new(), None);
    if is_packed {
        permit = Some(LONG_REQUESTS.take().await);
    }
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

    fn anywhere() -> SpanReceiver {
        SpanReceiver { address: ([127, 0, 0, 1], 0).into(), forward_to: None }
    }

    fn part(caller: u8, side: Side, tokens: u64) -> SpanOfRequest {
        let entry = PerfMetricsEntry { output_tokens: Some(tokens), ..PerfMetricsEntry::default() };
        SpanOfRequest { caller: Some(([caller; 16], [1; 8])), side, entry }
    }

    #[tokio::test]
    async fn the_parts_of_a_request_become_one_in_either_order_and_a_lonely_part_is_not_lost() {
        let mut otlp = Otlp::open(anywhere()).await.unwrap();
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
        // Two requests of one caller, both of which have only a generation part.
        assert_eq!(otlp.whole(part(8, Side::Generation, 2), now), None);
        assert_eq!(otlp.whole(part(8, Side::Generation, 3), now).and_then(|entry| entry.output_tokens), Some(2));
        // An answer may take minutes after its prompt.
        assert_eq!(otlp.whole(part(9, Side::Context, 1), now), None);
        let mut after = |wait: Duration| {
            otlp.parts.values_mut().for_each(|(since, ..)| *since = Instant::now() - wait);
            let mut batch = Batch::default();
            otlp.poll(&mut batch);
            let tokens = |message: &Message| match message {
                Message::Span(entry) => entry.output_tokens,
                _ => None,
            };
            batch.messages.iter().map(tokens).collect::<Vec<_>>()
        };
        assert_eq!([after(LATE), after(LATE), after(LONGEST_ANSWER)], [vec![Some(3)], vec![], vec![Some(1)]]);
    }

    #[tokio::test]
    async fn parts_beyond_the_limit_push_the_oldest_out() {
        let mut otlp = Otlp::open(anywhere()).await.unwrap();
        let start = Instant::now();
        let of = |number: usize, side| {
            let mut caller = [0; 16];
            caller[..8].copy_from_slice(&number.to_le_bytes());
            SpanOfRequest { caller: Some((caller, [1; 8])), ..part(0, side, number as u64) }
        };
        for number in 0..MAX_RECEIVED {
            let now = start + Duration::from_millis(number as u64);
            assert_eq!(otlp.whole(of(number, Side::Context), now), None);
        }
        // A part that completes a request needs no room.
        assert!(otlp.whole(of(5, Side::Generation), start).is_some_and(|entry| entry.ctx_perf_metrics.is_some()));
        let now = start + Duration::from_secs(2);
        assert_eq!(otlp.whole(of(MAX_RECEIVED, Side::Context), now), None);
        let pushed = otlp.whole(of(MAX_RECEIVED + 1, Side::Context), now);
        assert_eq!((pushed.and_then(|entry| entry.output_tokens), otlp.parts.len()), (Some(0), MAX_RECEIVED));
    }
}
