//! Parses TensorRT-LLM's JSON into records. Pure functions without I/O; they do not interpret values.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use trtllm_records::Message;
use trtllm_records::perf_metrics::RequestPerfMetrics;
use trtllm_records::{IterationStats, PerfMetricsEntry, RejectReason, RequestStatsPerIteration};

use super::batch::Batch;
use super::error::shortened;
use super::python_text::first_value;

mod hello;

pub(crate) use hello::MAX_NAME;
pub use hello::{Hello, parse_hello};

/// Replaces numbers that JSON cannot express, such as the `NaN` of Python's `json.dumps`. No field can have this one, so the field is
/// left out and counted.
const ODD: &str = "1.7976931348623157e308";

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
        // serde_json quotes the value that it found, which may be long.
        Self::NotJson(shortened(&error.to_string(), 120))
    }
}

/// The kind of statistics in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatisticsArray {
    /// trtllm-serve's `GET /metrics`
    Records,
    /// `GET /perf_metrics`: finished requests
    PerfMetrics,
}

/// How much of an array has been parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ArrayPosition {
    bytes: usize,
    next: Next,
}

/// What is expected next in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Next {
    #[default]
    Array,
    /// The first element, or the end of an empty array.
    First,
    Separator,
    Element,
    Nothing,
}

impl ArrayPosition {
    /// The array has ended.
    pub fn is_complete(self) -> bool {
        self.next == Next::Nothing
    }

    /// At least one element has been parsed, or the array is empty.
    pub fn is_begun(self) -> bool {
        !matches!(self.next, Next::Array | Next::First)
    }

    /// The number of parsed bytes, which are not needed any more. The caller removes them from the text.
    pub fn take_parsed(&mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }
}

impl StatisticsArray {
    /// Parses the next part of an array: as many elements as `batch` takes before it should be folded. Complete
    /// elements before an error stay in the batch. An element with another structure is counted and skipped. Fails if
    /// the text is not a JSON array, or ends inside it. If it ends inside it, more text may follow in the next call.
    pub fn parse_part(self, text: &[u8], parsed: &mut ArrayPosition, batch: &mut Batch) -> Result<(), ParseError> {
        self.parse_while(Batch::has_room, text, parsed, batch)
    }

    fn parse_while(
        self,
        go_on: fn(&Batch) -> bool,
        text: &[u8],
        parsed: &mut ArrayPosition,
        batch: &mut Batch,
    ) -> Result<(), ParseError> {
        match self {
            // Boxed: a record has more than a kilobyte, and each move copies it.
            Self::Records => parse_array::<Box<IterationStats>>(text, parsed, batch, go_on, |record| {
                // Every record of an engine has these two fields, so the comparison is rarely needed.
                let known = record.iter.is_some() || record.num_active_requests.is_some();
                (known || *record != IterationStats::default()).then_some(Message::Record(record))
            }),
            Self::PerfMetrics => parse_array::<PerfMetricsEntry>(text, parsed, batch, go_on, |entry| {
                (entry != PerfMetricsEntry::default()).then(|| Message::FinishedRequest(Box::new(entry)))
            }),
        }
    }
}

/// Parses a whole array of records. Elements that do not fit in `batch` are counted as rejected. Fails like
/// [`StatisticsArray::parse_part`].
pub fn parse_records(text: &[u8], batch: &mut Batch) -> Result<(), ParseError> {
    StatisticsArray::Records.parse_while(|_| true, text, &mut ArrayPosition::default(), batch)
}

/// Parses a whole array of finished requests. Fails like [`StatisticsArray::parse_part`].
pub fn parse_perf_metrics(text: &[u8], batch: &mut Batch) -> Result<(), ParseError> {
    StatisticsArray::PerfMetrics.parse_while(|_| true, text, &mut ArrayPosition::default(), batch)
}

/// `item` returns `None` for an element without content.
fn parse_array<T>(
    bytes: &[u8],
    parsed: &mut ArrayPosition,
    batch: &mut Batch,
    go_on: fn(&Batch) -> bool,
    item: fn(T) -> Option<Message>,
) -> Result<(), ParseError>
where
    T: DeserializeOwned,
{
    // Checking UTF-8 once lets serde_json borrow strings instead of checking each of them.
    let rest = &bytes[parsed.bytes..];
    let text = std::str::from_utf8(rest).or_else(|error| {
        // A body that was cut inside a character is truncated, not invalid: parse the text before the cut.
        if error.error_len().is_none() { std::str::from_utf8(&rest[..error.valid_up_to()]) } else { Err(error) }
    });
    let text = text.map_err(|error| ParseError::NotJson(error.to_string()))?;
    let (mut rest, begun_at) = (text, parsed.bytes);
    while parsed.next == Next::Nothing || go_on(batch) {
        rest = rest.trim_start_matches([' ', '\n', '\t', '\r']);
        let unexpected = |found: char, wanted: &str| Err(ParseError::NotJson(format!("{found:?} {wanted}")));
        let (next, length) = match (parsed.next, rest.chars().next()) {
            (Next::Nothing, None) => break,
            (_, None) => return Err(ParseError::Truncated),
            (Next::Array, Some('[')) => (Next::First, 1),
            (Next::First | Next::Separator, Some(']')) => (Next::Nothing, 1),
            (Next::Separator, Some(',')) => (Next::Element, 1),
            (Next::First | Next::Element, Some(_)) => {
                // One by one: serde_json would read all of them before the first one can be folded.
                let (element, length) = first(rest)?;
                match element.and_then(item) {
                    Some(item) => batch.push(item),
                    None => batch.reject(RejectReason::NotARecord),
                }
                (Next::Separator, length)
            }
            (Next::Array, Some(found)) => return unexpected(found, "instead of '['"),
            (Next::Separator, Some(found)) => return unexpected(found, "instead of ']'"),
            (Next::Nothing, Some(found)) => return unexpected(found, "after the array"),
        };
        rest = &rest[length..];
        (parsed.next, parsed.bytes) = (next, begun_at + text.len() - rest.len());
    }
    Ok(())
}

/// The element at the start of the text, if it has the structure of `T`, and its length.
fn first<T: DeserializeOwned>(text: &str) -> Result<(Option<T>, usize), ParseError> {
    let mut elements = serde_json::Deserializer::from_str(text).into_iter();
    if text.starts_with('{') {
        match elements.next() {
            Some(Ok(element)) => return Ok((Some(element), elements.byte_offset())),
            Some(Err(error)) if error.is_eof() => return Err(ParseError::Truncated),
            _ => {}
        }
    }
    // The element has another structure, or numbers that JSON cannot express.
    let (json, length) = first_value(text, ODD);
    match (read(&json), length) {
        (Ok(element), Some(length)) => Ok((Some(element), length)),
        (Err(RejectReason::NotARecord), Some(length)) => Ok((None, length)),
        (_, None) => Err(ParseError::Truncated),
        // Read again for the words of its error.
        _ => Err(serde_json::from_str::<T>(&json).err().map_or(ParseError::Truncated, ParseError::from)),
    }
}

/// One line of NDJSON.
#[derive(Debug, PartialEq)]
pub enum PublisherLine {
    Hello(Hello),
    Message(Message),
}

/// The end of each key that only finished requests have. Nearly all lines are iterations, so one search is enough for them.
static METRICS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"etrics\""));

/// Parses one line, without its line feed. The keys of the line decide which kind of message it is. Fails with the
/// reason to count. A line without a known key is [`RejectReason::NotARecord`].
pub fn parse_line(line: &[u8]) -> Result<PublisherLine, RejectReason> {
    if let Some(hello) = parse_hello(line)? {
        return Ok(PublisherLine::Hello(hello));
    }
    let text = std::str::from_utf8(line).map_err(|_| RejectReason::NotJson)?;
    if METRICS.find(line).is_some()
        && let Some(entry) = parse_finished_request(text)?
    {
        return Ok(PublisherLine::Message(Message::FinishedRequest(Box::new(entry))));
    }
    let record = read_message::<Box<IterationStats>>(text)?;
    if record.request_stats.is_some() && record.num_active_requests.is_none() && record.iter_latency_ms.is_none() {
        let rows = RequestStatsPerIteration { iter: record.iter, request_stats: record.request_stats };
        return Ok(PublisherLine::Message(Message::RequestRows(rows)));
    }
    if record.iter.is_none() && record.num_active_requests.is_none() {
        return Err(RejectReason::NotARecord);
    }
    Ok(PublisherLine::Message(Message::Record(record)))
}

/// Parses the line as a finished request. `None` if it is not one.
fn parse_finished_request(line: &str) -> Result<Option<PerfMetricsEntry>, RejectReason> {
    let entry: PerfMetricsEntry = read_message(line)?;
    // An entry of a disaggregated server has two parts.
    if entry.perf_metrics.is_some() || entry.ctx_perf_metrics.is_some() || entry.gen_perf_metrics.is_some() {
        return Ok(Some(entry));
    }
    let metrics: RequestPerfMetrics = read_message(line)?;
    let is_one = metrics.timing_metrics.is_some();
    Ok(is_one.then(|| PerfMetricsEntry { perf_metrics: Some(metrics), ..PerfMetricsEntry::default() }))
}

/// Reads one message. Numbers that JSON cannot express are allowed. Fails with the reason to count.
pub(crate) fn read_message<T: DeserializeOwned>(text: &str) -> Result<T, RejectReason> {
    match read(text) {
        Err(RejectReason::NotJson) => match first_value(text, ODD) {
            (json, Some(length)) if text[length..].trim_ascii().is_empty() => read(&json),
            _ => Err(RejectReason::NotJson),
        },
        read => read,
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, RejectReason> {
    if text.trim_start().starts_with(['[', '"']) {
        // serde would read an array as the fields of a struct, and quote a text in its error, however long it is.
        return Err(RejectReason::NotARecord);
    }
    serde_json::from_str(text).map_err(|error| match error.classify() {
        Category::Data => RejectReason::NotARecord,
        Category::Eof => RejectReason::Truncated,
        Category::Syntax | Category::Io => RejectReason::NotJson,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_no_text_can_have_is_no_json_and_not_a_part_of_it() {
        for text in [r#"[{"\ud800":1}]"#, r#"[{"iter":1]"#, "[/* none */]", "[<html>"] {
            let error = parse_records(text.as_bytes(), &mut Batch::default()).unwrap_err();
            assert!(matches!(error, ParseError::NotJson(_)), "{text}: {error}");
        }
    }

    #[test]
    fn a_record_with_nan_or_infinity_is_read_without_the_value() {
        let odd = |record: &IterationStats| (record.iter, record.iter_latency_ms, record.num_active_requests);
        let line = br#"{"iter":1,"iterLatencyMS":NaN,"numActiveRequests":-Infinity}"#;
        let PublisherLine::Message(Message::Record(record)) = parse_line(line).unwrap() else { panic!("no record") };
        assert_eq!(odd(&record), (Some(1), Some(f64::MAX), Some(i64::MIN)), "values that no engine can have");
        assert_eq!(parse_line(b"{\"iter\":1,\"iterLatencyMS\":NaM}"), Err(RejectReason::NotJson), "the control");
        let mut batch = Batch::default();
        parse_records(br#"[["07-25-2025 16:54:34.140189", "2", "3"]]"#, &mut batch).unwrap();
        assert!(
            batch.messages.is_empty() && parse_line(br#"["", 2, 3]"#) == Err(RejectReason::NotARecord),
            "no object"
        );

        let text = br#"[{"iter":1},{"iter":2,"iterLatencyMS":Infinity},{"iter":3,"iterLatencyMS":5}]"#;
        // The text arrives in two parts, cut at any byte.
        for cut in 0..text.len() {
            let (mut batch, mut position) = (Batch::default(), ArrayPosition::default());
            let first = StatisticsArray::Records.parse_part(&text[..cut], &mut position, &mut batch);
            assert_eq!(first, Err(ParseError::Truncated), "{cut}");
            StatisticsArray::Records.parse_part(text, &mut position, &mut batch).unwrap();
            let records = batch.messages.iter().map(|item| match item {
                Message::Record(record) => (record.iter, record.iter_latency_ms),
                other => panic!("{other:?}"),
            });
            let all = [(Some(1), None), (Some(2), Some(f64::MAX)), (Some(3), Some(5.0))];
            assert_eq!(records.collect::<Vec<_>>(), all, "{cut}");
        }
    }
}
