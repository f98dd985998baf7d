//! Parses TensorRT-LLM's JSON into records. Pure functions without I/O; they do not interpret values.

use serde::de::{Deserializer as _, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::model::{
    BenchReport, IterationStats, KvCacheEvent, PerfMetricsEntry, RejectReason, RequestStatsPerIteration,
};

use super::{Batch, Item};

/// Why a response could not be parsed to its end.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not JSON, or JSON with another structure.
    #[error("{0}")]
    NotJson(String),
    #[error("the text ends inside a record")]
    Truncated,
}

impl From<serde_json::Error> for ParseError {
    fn from(error: serde_json::Error) -> Self {
        if error.is_eof() {
            return Self::Truncated;
        }
        // serde_json quotes the value that it found, and that may be long.
        let mut text = error.to_string();
        if let Some((end, _)) = text.char_indices().nth(120) {
            text.replace_range(end.., "…");
        }
        Self::NotJson(text)
    }
}

/// Parses trtllm-serve's `GET /metrics`, an array of records. Complete records before an error stay in the batch. A record
/// with another structure is counted and skipped.
///
/// # Errors
/// If the text is not a JSON array, or ends inside it.
pub fn parse_records(bytes: &[u8], batch: &mut Batch) -> Result<(), ParseError> {
    parse_array::<IterationStats>(bytes, batch, |record| {
        // Boxed first: a record has more than a kilobyte, and each move copies it.
        let record = Box::new(record);
        // The first two are in every record of an engine, and spare the comparison.
        let known = record.iter.is_some() || record.num_active_requests.is_some();
        (known || *record != IterationStats::default()).then_some(Item::Record(record))
    })
}

/// Parses trtllm-serve's `GET /perf_metrics`, an array of finished requests, like [`parse_records`].
///
/// # Errors
/// Like [`parse_records`].
pub fn parse_perf_metrics(bytes: &[u8], batch: &mut Batch) -> Result<(), ParseError> {
    parse_array::<PerfMetricsEntry>(bytes, batch, |entry| {
        (entry != PerfMetricsEntry::default()).then(|| Item::PerfMetrics(Box::new(entry)))
    })
}

/// Parses trtllm-serve's `POST /kv_cache_events`, an array of events, like [`parse_records`].
///
/// # Errors
/// Like [`parse_records`].
pub fn parse_kv_cache_events(bytes: &[u8], batch: &mut Batch) -> Result<(), ParseError> {
    parse_array::<KvCacheEvent>(bytes, batch, |event| {
        (event != KvCacheEvent::default()).then(|| Item::KvEvent(Box::new(event)))
    })
}

/// Parses a trtllm-bench report. `None` if the text is something else.
///
/// # Errors
/// If a value of the report is not a number.
pub fn parse_bench_report(text: &str) -> Result<Option<BenchReport>, ParseError> {
    if !text.contains("\"performance\"") || !text.contains("\"latency_stats\"") {
        return Ok(None);
    }
    Ok(serde_json::from_str(text)?)
}

/// `item` is `None` for an element without content.
fn parse_array<T>(bytes: &[u8], batch: &mut Batch, item: fn(T) -> Option<Item>) -> Result<(), ParseError>
where
    T: for<'de> serde::Deserialize<'de>,
{
    // Checking UTF-8 once lets serde_json borrow strings instead of checking each.
    let text = std::str::from_utf8(bytes).or_else(|error| {
        // A body that was cut inside a character is truncated, not invalid: parse the text before the cut.
        if error.error_len().is_none() { std::str::from_utf8(&bytes[..error.valid_up_to()]) } else { Err(error) }
    });
    let text = text.map_err(|error| ParseError::NotJson(error.to_string()))?;
    let add = |batch: &mut Batch, item: Option<Item>| match item {
        Some(item) => batch.push(item),
        None => batch.reject(RejectReason::NotARecord),
    };
    let all = |batch: &mut Batch| read_array(text, |record: T| add(batch, item(record)));
    // Some record has another structure. Parse again, record by record, so that only that one is lost.
    let each = |batch: &mut Batch| {
        read_array(text, |raw: Box<RawValue>| add(batch, serde_json::from_str(raw.get()).ok().and_then(item)))
    };
    Ok(batch.retry(all, serde_json::Error::is_data, each)?)
}

/// Calls `each` for an element as soon as it is complete, so that a later error does not discard it.
fn read_array<T>(text: &str, each: impl FnMut(T)) -> Result<(), serde_json::Error>
where
    T: for<'de> serde::Deserialize<'de>,
{
    struct Elements<T, F>(F, std::marker::PhantomData<T>);
    impl<'de, T: serde::Deserialize<'de>, F: FnMut(T)> Visitor<'de> for Elements<T, F> {
        type Value = ();
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an array of statistics")
        }
        fn visit_seq<A: SeqAccess<'de>>(mut self, mut array: A) -> Result<(), A::Error> {
            while let Some(element) = array.next_element()? {
                (self.0)(element);
            }
            Ok(())
        }
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.deserialize_seq(Elements(each, std::marker::PhantomData))?;
    deserializer.end()
}

/// The optional first line of a publisher.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(default)]
pub struct Hello {
    pub model: Option<String>,
    pub version: Option<String>,
    pub pid: Option<u64>,
}

impl Hello {
    /// Whether each name has at most 64 characters.
    #[must_use]
    pub fn is_short(&self) -> bool {
        [&self.model, &self.version].into_iter().flatten().all(|name| name.chars().count() <= 64)
    }
}

/// One line of NDJSON.
#[derive(Debug, PartialEq)]
pub enum Line {
    Hello(Hello),
    Item(Item),
}

/// Parses one line, without its line feed. The keys decide what it is.
///
/// # Errors
/// The reason to count. A line without a known key is [`RejectReason::NotARecord`].
pub fn parse_line(line: &[u8]) -> Result<Line, RejectReason> {
    let text = std::str::from_utf8(line).map_err(|_| RejectReason::NotJson)?;
    let has = |key: &str| memchr::memmem::find(line, key.as_bytes()).is_some();
    if has("\"hello\"") {
        #[derive(serde::Deserialize)]
        struct HelloLine {
            hello: Option<Hello>,
        }
        if let Some(hello) = read::<HelloLine>(text)?.hello {
            return Ok(Line::Hello(hello));
        }
    }
    // An entry of a disaggregated server has two parts.
    let two_parts = has("\"gen_perf_metrics\"") || has("\"genPerfMetrics\"");
    if two_parts || has("\"perf_metrics\"") || has("\"perfMetrics\"") {
        let entry = read::<PerfMetricsEntry>(text)?;
        if two_parts || entry.perf_metrics.is_some() {
            return Ok(Line::Item(Item::PerfMetrics(Box::new(entry))));
        }
    }
    if has("\"timing_metrics\"") || has("\"timingMetrics\"") {
        let perf_metrics = Some(read(text)?);
        return Ok(Line::Item(Item::PerfMetrics(Box::new(PerfMetricsEntry { perf_metrics, ..Default::default() }))));
    }
    let record = read::<IterationStats>(text)?;
    if record.request_stats.is_some() && record.num_active_requests.is_none() && record.iter_latency_ms.is_none() {
        let rows = RequestStatsPerIteration { iter: record.iter, request_stats: record.request_stats };
        return Ok(Line::Item(Item::Requests(rows)));
    }
    if record.iter.is_none() && record.num_active_requests.is_none() {
        return Err(RejectReason::NotARecord);
    }
    Ok(Line::Item(Item::Record(Box::new(record))))
}

fn read<'de, T: serde::Deserialize<'de>>(text: &'de str) -> Result<T, RejectReason> {
    serde_json::from_str(text).map_err(|error| match error.classify() {
        Category::Data => RejectReason::NotARecord,
        Category::Eof => RejectReason::Truncated,
        Category::Syntax | Category::Io => RejectReason::NotJson,
    })
}
