//! The messages of OTLP (opentelemetry-proto, `collector/trace/v1` and `trace/v1`) as far as they are used, and what a span of
//! TensorRT-LLM tells of its request. The attributes are those of `tensorrt_llm/llmapi/tracing.py`; vLLM has the same.

use bytes::Bytes;
use prost::{DecodeError, Message, Oneof};

use trtllm_records::SpanDrop;
use trtllm_records::perf_metrics::{FinishReason, PerfMetricsEntry, RequestPerfMetrics, TimingMetrics};

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceSpans {
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    /// Not decoded, so that one span at a time takes memory.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    spans: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_id: Vec<u8>,
    #[prost(fixed64, tag = "7")]
    start_ns: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<Attribute>,
    #[prost(message, repeated, tag = "11")]
    events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(fixed64, tag = "1")]
    time_ns: u64,
    #[prost(string, tag = "2")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3, 4, 5")]
    value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Whole(i64),
    #[prost(double, tag = "4")]
    Number(f64),
    #[prost(message, tag = "5")]
    List(ListValue),
}

#[derive(Clone, PartialEq, Message)]
struct ListValue {
    #[prost(message, repeated, tag = "1")]
    values: Vec<AnyValue>,
}

/// The answer to an [`ExportRequest`].
#[derive(Clone, PartialEq, Message)]
pub(super) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}

impl ExportRequest {
    /// The spans, each still encoded.
    pub(super) fn spans(&self) -> impl Iterator<Item = &Bytes> {
        self.resources.iter().flat_map(|resource| &resource.scopes).flat_map(|scope| &scope.spans)
    }
}

/// A request as one engine tells it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SpanOfRequest {
    /// Absent without a parent, or if an id has another length than OTLP demands.
    pub(super) caller: Option<Caller>,
    pub(super) side: Side,
    pub(super) entry: PerfMetricsEntry,
}

/// The trace and the parent of a span. The orchestrator is the parent of both parts of a request.
pub(super) type Caller = ([u8; 16], [u8; 8]);

/// Which part of a request an engine has served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Whole,
    /// The prompt, in disaggregated serving.
    Context,
    /// The answer, after a transfer of the KV cache.
    Generation,
}

/// The attributes with the times of a request begin with this. Programs that call an engine write lengths and finish reasons, too, but no
/// such times.
const TIMES: &str = "gen_ai.latency.";

/// Times before this are not those of a clock that a request can have.
const YEAR_2001: f64 = 1e9;

impl SpanOfRequest {
    /// The request, or why the span is none. Fails if the span cannot be decoded.
    pub(super) fn of(span: &Bytes) -> Result<Result<Self, SpanDrop>, DecodeError> {
        let span = Span::decode(&**span)?;
        if !span.attributes.iter().any(|attribute| attribute.key.starts_with(TIMES)) {
            return Ok(Err(SpanDrop::NotARequest));
        }
        let value = |key: &str| span.attributes.iter().find(|of| of.key == key)?.value.as_ref()?.value.as_ref();
        // A time that the engine does not know is −1, and a transfer that never happened took 0 s.
        let seconds = |key: &str| match value(key)? {
            Value::Number(seconds) => Some(*seconds),
            Value::Whole(seconds) => Some(*seconds as f64),
            Value::Text(_) | Value::List(_) => None,
        };
        let seconds = |key: &str| seconds(key).filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
        let count = |key: &str| match value(key)? {
            Value::Whole(count) => u64::try_from(*count).ok(),
            Value::Number(_) | Value::Text(_) | Value::List(_) => None,
        };
        let (whole, first) = (seconds("gen_ai.latency.e2e"), seconds("gen_ai.latency.time_to_first_token"));
        let reason = value("gen_ai.response.finish_reasons").and_then(reason);
        let (prompt_tokens, output_tokens) =
            (count("gen_ai.usage.prompt_tokens"), count("gen_ai.usage.completion_tokens"));
        if whole.is_none() && first.is_none() && output_tokens.is_none() {
            return Ok(Err(SpanDrop::Incomplete));
        }
        let event = |name: &str| {
            let time = span.events.iter().find(|event| event.name == name)?.time_ns as f64 / 1e9;
            (time > YEAR_2001).then_some(time)
        };
        let arrived = Some(span.start_ns as f64 / 1e9).filter(|time| *time > YEAR_2001).unwrap_or(YEAR_2001);
        let after = |seconds: f64| arrived + seconds;
        let scheduled = seconds("gen_ai.latency.time_in_queue").map(after);
        let transfer = event("kv_cache_transfer_start").zip(event("kv_cache_transfer_end")).or_else(|| {
            let taken = seconds("gen_ai.latency.kv_cache_transfer_time").filter(|seconds| *seconds > 0.0)?;
            // A generation server schedules a request after its transfer.
            Some((scheduled? - taken, scheduled?))
        });
        let side = match reason.as_deref() {
            Some("not_finished") => Side::Context,
            _ if transfer.is_some() => Side::Generation,
            _ => Side::Whole,
        };
        let timing = TimingMetrics {
            arrival_time: whole.or(first).map(|_| arrived),
            first_scheduled_time: scheduled,
            first_token_time: first.map(after),
            last_token_time: whole.map(after),
            kv_cache_transfer_start: transfer.map(|(start, _)| start),
            kv_cache_transfer_end: transfer.map(|(_, end)| end),
            ..TimingMetrics::default()
        };
        let perf_metrics = RequestPerfMetrics { timing_metrics: Some(timing), ..RequestPerfMetrics::default() };
        Ok(Ok(Self {
            side,
            entry: PerfMetricsEntry {
                request_id: count("gen_ai.request.id"),
                perf_metrics: Some(perf_metrics),
                finish_reason: reason.as_deref().map(FinishReason::of),
                prompt_tokens,
                output_tokens,
                ..PerfMetricsEntry::default()
            },
            caller: span.trace_id.try_into().ok().zip(span.parent_id.try_into().ok()),
        }))
    }
}

/// The first reason: TensorRT-LLM and vLLM write a JSON array as text, other instrumentations a list.
fn reason(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => match serde_json::from_str::<Vec<String>>(text) {
            Ok(reasons) => reasons.into_iter().next(),
            Err(_) => Some(text.clone()),
        },
        Value::List(list) => list.values.first().and_then(|first| reason(first.value.as_ref()?)),
        Value::Whole(_) | Value::Number(_) => None,
    }
}

/// One entry of a request whose prompt one engine processed and whose tokens another one generated.
pub(super) fn join(context: PerfMetricsEntry, generation: PerfMetricsEntry) -> PerfMetricsEntry {
    PerfMetricsEntry {
        finish_reason: generation.finish_reason,
        ctx_perf_metrics: Some(Box::new(context)),
        gen_perf_metrics: Some(Box::new(generation)),
        ..PerfMetricsEntry::default()
    }
}
