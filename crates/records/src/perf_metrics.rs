//! RequestPerfMetrics: the exact times of a finished request, sent once. Times are seconds on the engine's steady
//! clock, or ISO 8601 as in older documentation, so only differences are meaningful.

use serde::de::{Deserializer, Error, IgnoredAny, Visitor};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::lenient::{self, Unreadable as _, otherwise, unreadable};
use super::step_times::StepTimes;
use super::timestamp::parse_timestamp;

/// One finished request. Source: trtllm-serve `GET /perf_metrics`, the socket, `observe()`.
#[serde_with::apply(
    Option<u64> => #[serde(deserialize_with = "lenient::number")],
    Option<f64> => #[serde(deserialize_with = "lenient::number")],
    Option<RequestPerfMetrics> => #[serde(deserialize_with = "lenient::object_or_none")],
    Option<Box<StepTimes>> => #[serde(deserialize_with = "lenient::object")],
    Option<FinishReason> => #[serde(deserialize_with = "lenient::name")],
)]
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PerfMetricsEntry {
    /// The id of the request in the process that answers it. The request has a different id in
    /// [`RequestStats`](super::RequestStats). An id that is not a number is ignored.
    #[serde(alias = "request_id", deserialize_with = "number")]
    #[serde_with(skip_apply)]
    pub request_id: Option<u64>,
    /// The executor's id, as in [`RequestStats`](super::RequestStats). Only a process that hosts the Executor knows it.
    #[serde(alias = "executor_id", deserialize_with = "number")]
    #[serde_with(skip_apply)]
    pub executor_id: Option<u64>,
    /// In disaggregated serving, the orchestrator's id, which both engines of the request use instead of their own ids.
    #[serde(alias = "disagg_request_id", deserialize_with = "number")]
    #[serde_with(skip_apply)]
    pub disagg_request_id: Option<u64>,
    /// True if the entry is from the generation server of disaggregated serving.
    #[serde(alias = "ctx_request_id", deserialize_with = "presence", skip_serializing_if = "std::ops::Not::not")]
    pub ctx_request_id: bool,
    #[serde(alias = "perf_metrics")]
    pub perf_metrics: Option<RequestPerfMetrics>,
    /// The steps of the request, if the engine measures them.
    #[serde(alias = "time_breakdown_metrics")]
    pub time_breakdown_metrics: Option<Box<StepTimes>>,
    /// Why the request ended, if the publisher knows the response.
    #[serde(alias = "finish_reason")]
    pub finish_reason: Option<FinishReason>,
    /// Tokens of the prompt, if the publisher knows the request.
    #[serde(alias = "prompt_tokens")]
    pub prompt_tokens: Option<u64>,
    /// Tokens of the response, if the publisher knows the response.
    #[serde(alias = "output_tokens")]
    pub output_tokens: Option<u64>,
    /// Tokens of the prompt that were found in the KV cache, if the publisher knows the response.
    #[serde(alias = "cached_tokens")]
    pub cached_tokens: Option<u64>,
    /// The context server's entry, if this one is from a disaggregated server and so has no metrics of its own.
    #[serde(alias = "ctx_perf_metrics", deserialize_with = "part")]
    pub ctx_perf_metrics: Option<Box<PerfMetricsEntry>>,
    /// The generation server's entry.
    #[serde(alias = "gen_perf_metrics", deserialize_with = "part")]
    pub gen_perf_metrics: Option<Box<PerfMetricsEntry>>,
    /// When the disaggregated server received the request.
    #[serde(alias = "disagg_server_arrival_time", deserialize_with = "seconds")]
    #[serde_with(skip_apply)]
    pub disagg_server_arrival_time: Option<f64>,
    /// When the disaggregated server sent the first token.
    #[serde(alias = "disagg_server_first_token_time", deserialize_with = "seconds")]
    #[serde_with(skip_apply)]
    pub disagg_server_first_token_time: Option<f64>,
}

/// The first request id of an orchestrator. Engines use smaller ids (llmapi/disagg_utils.py).
pub const FIRST_ORCHESTRATOR_ID: u64 = 1 << 40;

impl PerfMetricsEntry {
    /// The id of this request in [`RequestStats`](super::RequestStats). `None` if it is not certain: trtllm-serve and
    /// the LLM API start their own numbering at a different number, so an equal id may belong to another request.
    #[must_use]
    pub fn row_id(&self) -> Option<u64> {
        self.executor_id.or(self.disagg_request_id.filter(|id| *id >= FIRST_ORCHESTRATOR_ID))
    }
}

/// Why a request ended, in trtllm-serve's terms. The Executor's names (`END_ID`, …) are accepted, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// An end token or a stop word.
    #[serde(alias = "end_id", alias = "stop_words", alias = "END_ID", alias = "STOP_WORDS")]
    Stop,
    /// Also a request that a context server hands to a generation server after its first token (upstream: `not_finished`, before that
    /// `length`).
    #[serde(alias = "LENGTH", alias = "not_finished", alias = "NOT_FINISHED")]
    Length,
    #[serde(alias = "timed_out", alias = "TIMED_OUT")]
    Timeout,
    #[serde(alias = "CANCELLED")]
    Cancelled,
    /// A reason that is not known, so it is unknown whether the request failed.
    #[serde(other)]
    Other,
}

impl FinishReason {
    pub const ALL: [Self; 5] = [Self::Stop, Self::Length, Self::Timeout, Self::Cancelled, Self::Other];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Other => "other",
        }
    }

    /// The reason with this name on trtllm-serve's page.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "not_finished" => Self::Length,
            _ => Self::ALL.into_iter().find(|reason| reason.name() == name).unwrap_or(Self::Other),
        }
    }
}

#[serde_with::apply(
    Option<u64> => #[serde(deserialize_with = "lenient::number")],
    Option<TimingMetrics> => #[serde(deserialize_with = "lenient::object")],
    Option<RequestKvCacheMetrics> => #[serde(deserialize_with = "lenient::object")],
    Option<SpeculativeDecodingMetrics> => #[serde(deserialize_with = "lenient::object")],
)]
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestPerfMetrics {
    #[serde(alias = "first_iter")]
    pub first_iter: Option<u64>,
    #[serde(alias = "last_iter")]
    pub last_iter: Option<u64>,
    pub iter: Option<u64>,
    #[serde(alias = "timing_metrics")]
    pub timing_metrics: Option<TimingMetrics>,
    #[serde(alias = "kv_cache_metrics")]
    pub kv_cache_metrics: Option<RequestKvCacheMetrics>,
    #[serde(alias = "speculative_decoding")]
    pub speculative_decoding: Option<SpeculativeDecodingMetrics>,
}

/// Seconds on one clock. The engine sends 0 for a time that it did not measure, so read the fields through
/// [`TimingMetrics::measured`].
#[serde_with::apply(
    Option<u64> => #[serde(deserialize_with = "lenient::number")],
    Option<f64> => #[serde(deserialize_with = "lenient::number")],
)]
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TimingMetrics {
    /// When the HTTP server received the request.
    #[serde(alias = "server_arrival_time", deserialize_with = "seconds")]
    #[serde_with(skip_apply)]
    pub server_arrival_time: Option<f64>,
    /// When the HTTP server sent the first token.
    #[serde(alias = "server_first_token_time", deserialize_with = "seconds")]
    #[serde_with(skip_apply)]
    pub server_first_token_time: Option<f64>,
    #[serde(alias = "arrival_time", deserialize_with = "seconds")]
    #[serde_with(skip_apply)]
    pub arrival_time: Option<f64>,
    #[serde(alias = "first_scheduled_time", deserialize_with = "seconds")]
    #[serde_with(skip_apply)]
    pub first_scheduled_time: Option<f64>,
    #[serde(alias = "first_token_time", deserialize_with = "seconds")]
    #[serde_with(skip_apply)]
    pub first_token_time: Option<f64>,
    #[serde(alias = "last_token_time", deserialize_with = "seconds")]
    #[serde_with(skip_apply)]
    pub last_token_time: Option<f64>,
    #[serde(alias = "kv_cache_transfer_start", deserialize_with = "seconds")]
    #[serde_with(skip_apply)]
    pub kv_cache_transfer_start: Option<f64>,
    #[serde(alias = "kv_cache_transfer_end", deserialize_with = "seconds")]
    #[serde_with(skip_apply)]
    pub kv_cache_transfer_end: Option<f64>,
    /// Bytes.
    #[serde(alias = "kv_cache_size")]
    pub kv_cache_size: Option<u64>,
}

impl TimingMetrics {
    /// The times that the engine measured. A time of 0 or less counts as absent, as in upstream's collector.
    #[must_use]
    pub fn measured(self) -> Self {
        let measured = |time: Option<f64>| time.filter(|seconds| *seconds > 0.0);
        Self {
            server_arrival_time: measured(self.server_arrival_time),
            server_first_token_time: measured(self.server_first_token_time),
            arrival_time: measured(self.arrival_time),
            first_scheduled_time: measured(self.first_scheduled_time),
            first_token_time: measured(self.first_token_time),
            last_token_time: measured(self.last_token_time),
            kv_cache_transfer_start: measured(self.kv_cache_transfer_start),
            kv_cache_transfer_end: measured(self.kv_cache_transfer_end),
            kv_cache_size: self.kv_cache_size,
        }
    }
}

/// KV cache blocks of one request over its lifetime.
#[serde_with::apply(
    Option<i64> => #[serde(deserialize_with = "lenient::number")],
    Option<f64> => #[serde(deserialize_with = "lenient::number")],
)]
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RequestKvCacheMetrics {
    #[serde(alias = "num_total_allocated_blocks")]
    pub num_total_allocated_blocks: Option<i64>,
    #[serde(alias = "num_new_allocated_blocks")]
    pub num_new_allocated_blocks: Option<i64>,
    #[serde(alias = "num_reused_blocks")]
    pub num_reused_blocks: Option<i64>,
    #[serde(alias = "num_missed_blocks")]
    pub num_missed_blocks: Option<i64>,
    /// 0..1
    #[serde(alias = "kv_cache_hit_rate")]
    pub kv_cache_hit_rate: Option<f64>,
}

/// Speculative decoding of one request over its lifetime.
#[serde_with::apply(
    Option<i64> => #[serde(deserialize_with = "lenient::number")],
    Option<f64> => #[serde(deserialize_with = "lenient::number")],
)]
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpeculativeDecodingMetrics {
    #[serde(alias = "acceptance_rate")]
    pub acceptance_rate: Option<f64>,
    #[serde(alias = "total_accepted_draft_tokens")]
    pub total_accepted_draft_tokens: Option<i64>,
    #[serde(alias = "total_draft_tokens")]
    pub total_draft_tokens: Option<i64>,
}

/// Reads a number of seconds, or an ISO 8601 string. Null becomes `None`.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    struct Seconds;
    impl<'de> Visitor<'de> for Seconds {
        type Value = Option<f64>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("seconds or an ISO 8601 time")
        }
        fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
            Ok(Some(value))
        }
        fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
            Ok(Some(value as f64))
        }
        fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
            Ok(Some(value as f64))
        }
        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(Some(parse_timestamp(text).map_or_else(f64::unreadable, |time| time.micros as f64 / 1e6)))
        }
        otherwise!(_ => None; null);
        otherwise!(_ => Some(f64::unreadable()); bool, array, object);
        fn visit_none<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            deserializer.deserialize_any(Seconds)
        }
    }
    deserializer.deserialize_any(Seconds)
}

/// Returns true if the value is not null. The value is an id, which is not kept because it is never a label.
fn presence<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<IgnoredAny>::deserialize(deserializer)?.is_some())
}

/// Reads the entry of one server and drops the entries nested in it, which would take many times the memory of their
/// text.
fn part<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<PerfMetricsEntry>>, D::Error> {
    let part: Option<Box<PerfMetricsEntry>> = lenient::object_or_none(deserializer)?;
    Ok(part.map(|mut part| {
        (part.ctx_perf_metrics, part.gen_perf_metrics) = (None, None);
        part
    }))
}

/// Reads an integer. Any other value becomes `None` and is skipped while it is parsed. An untagged enum would store it.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    struct Number;
    impl<'de> Visitor<'de> for Number {
        type Value = Option<u64>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a value")
        }
        fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
            Ok(Some(value))
        }
        fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
            Ok(u64::try_from(value).ok())
        }
        fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
            Ok(Some(<u64 as lenient::Number>::from_f64(value)).filter(|id| *id != u64::unreadable()))
        }
        otherwise!(_ => None; null, bool, text, array, object);
    }
    deserializer.deserialize_any(Number)
}

unreadable! {
    RequestPerfMetrics { first_iter: u64::MAX - 1 },
    TimingMetrics { arrival_time: -f64::MAX },
    RequestKvCacheMetrics { num_total_allocated_blocks: i64::MIN + 1 },
    SpeculativeDecodingMetrics { total_draft_tokens: i64::MIN + 1 },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_nested_in_the_part_of_an_entry_are_not_kept() {
        let mut nested = "{\"requestId\":7}".to_owned();
        for _ in 0..50 {
            nested = format!("{{\"requestId\":1,\"gen_perf_metrics\":{nested},\"ctxPerfMetrics\":{{}}}}");
        }
        let entry: PerfMetricsEntry = serde_json::from_str(&nested).unwrap();
        let part = PerfMetricsEntry { request_id: Some(1), ..PerfMetricsEntry::default() };
        assert_eq!(entry.gen_perf_metrics.as_deref(), Some(&part));
        assert_eq!(entry.ctx_perf_metrics.as_deref(), Some(&PerfMetricsEntry::default()));
    }

    #[test]
    fn a_request_id_that_is_no_integer_is_absent() {
        assert_eq!(serde_json::from_str::<PerfMetricsEntry>("{\"request_id\":7.0}").unwrap().request_id, Some(7));
        for id in ["null", "true", "-1", "1.5", "\"7\"", "[1,[2]]", "{\"a\":{}}"] {
            let entry: PerfMetricsEntry = serde_json::from_str(&format!("{{\"request_id\":{id}}}")).unwrap();
            assert_eq!(entry.request_id, None, "{id}");
        }
        assert_eq!(serde_json::from_str::<PerfMetricsEntry>("{\"request_id\":7}").unwrap().request_id, Some(7));
    }
}
