//! The lines of a recording. A line is a JSON object with the moment, the engine, and one more key with its value, the entry. The
//! key names the kind of entry. Messages of the engine have the keys that TensorRT-LLM sends.

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use trtllm_records::gpu::Gpu;
use trtllm_records::{EngineAbout, EngineName, Message, Objectives, PollFailure, full_name};

/// The version of the format.
pub const FORMAT: u32 = 4;

/// A line of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// When the exporter folded the message, or when the event of any other entry happened. A replay folds it at this time.
    pub at: RecordedMoment,
    pub entry: Entry,
}

/// A message of the engine, or what a recording keeps so that its replay folds the messages in the same way.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The first line of each segment.
    #[serde(rename = "recording")]
    Header(Box<Header>),
    /// Number of messages that are missing before this line. 0 means unknown: this is the recording of a replay, and the replayed
    /// recording continues here in another session.
    Dropped(u64),
    About(Box<EngineAbout>),
    Settled(Settled),
    /// From here on, polls fail for this reason, or succeed again (`None`).
    Failing(Option<PollFailure>),
    /// From here on, the engine's publisher is disconnected, or connected again.
    Disconnected(bool),
    /// A GPU, as it was last read. It is not folded.
    Gpu(Box<Gpu>),
    /// Messages that the exporter refused because of an impossible key are recorded, too. A replay refuses them by the same check.
    #[serde(untagged)]
    Message(Message),
}

/// The engine and the exporter that a segment belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of the exporter.
    pub exporter: String,
    /// Differs between processes that record.
    pub session: i64,
    pub model: String,
    pub version: String,
    /// Configured labels of the engine.
    pub labels: Vec<(String, String)>,
    /// The kind of source.
    pub source: String,
    pub objectives: Objectives,
    /// Time without news after which the engine counted as stale, in milliseconds.
    pub stale_after_ms: u64,
}

impl Header {
    pub fn new(name: &EngineName, session: i64, stale_after: Duration) -> Self {
        let EngineName { model, version, labels, source, objectives } = name.clone();
        Self {
            format: FORMAT,
            exporter: env!("CARGO_PKG_VERSION").to_owned(),
            session,
            model,
            version,
            labels,
            source: source.to_owned(),
            objectives,
            stale_after_ms: u64::try_from(stale_after.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// The [`full_name`] by which people choose the engine.
    pub fn engine(&self) -> String {
        full_name(":", &self.model, &self.version, self.labels.iter().map(|(name, value)| (&**name, &**value)))
    }
}

/// A moment of the recording process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordedMoment {
    /// Microseconds since 1970 UTC. A time before 1970 or after 2286 is changed to the nearest of these limits when it is read.
    pub us: i64,
    /// Microseconds of a clock that only moves forward. Only differences within a session are meaningful.
    pub clock_us: i64,
}

const LATEST_US: i64 = 10_000_000_000_000_000;

impl RecordedMoment {
    /// A moment of this process.
    pub fn new(instant: Instant, unix_us: i64) -> Self {
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        let clock_us = match instant.checked_duration_since(origin()) {
            Some(after) => micros(after),
            None => -micros(origin().saturating_duration_since(instant)),
        };
        Self { us: unix_us, clock_us }
    }

    /// The moment on the clock of this process. If another process recorded it, only differences are meaningful. A moment that the
    /// clock cannot represent becomes the origin.
    pub fn instant(self) -> Instant {
        let distance = Duration::from_micros(self.clock_us.unsigned_abs());
        let moment = if self.clock_us < 0 { origin().checked_sub(distance) } else { origin().checked_add(distance) };
        moment.unwrap_or_else(origin)
    }
}

/// Where the clock of this process begins.
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

/// A poll has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// Whether the source's answer was the engine's whole ring buffer of records.
    pub from_ring: bool,
    /// Whether the source has taken records from the engine that it could not read.
    #[serde(rename = "lost_rest", default, skip_serializing_if = "std::ops::Not::not")]
    pub drained_unparsed: bool,
}

impl Line {
    /// Fails if the text is not a line of this version.
    pub fn parse(text: &[u8]) -> serde_json::Result<Self> {
        // One check of the whole line is faster than serde_json's check of each string.
        match std::str::from_utf8(text) {
            Ok(text) => serde_json::from_str(text),
            Err(error) => Err(serde_json::Error::custom(error)),
        }
    }

    /// Approximate memory in bytes.
    pub fn weight(&self) -> usize {
        let of_entry = match &self.entry {
            Entry::Message(message) => message.weight(),
            Entry::Gpu(_) => size_of::<Gpu>(),
            _ => 0,
        };
        size_of::<Self>() + of_entry
    }
}

/// Number of kinds of entries that describe an engine.
pub const ABOUT_KINDS: usize = 5;

impl Entry {
    /// The kind of an entry that describes the engine, below [`ABOUT_KINDS`]. It may not come again, so each segment begins with the
    /// latest entry of each kind.
    pub fn about_kind(&self) -> Option<usize> {
        match self {
            Self::About(_) => Some(0),
            Self::Message(Message::BenchReport(_)) => Some(1),
            Self::Message(Message::Process(_)) => Some(2),
            Self::Failing(_) => Some(3),
            Self::Disconnected(_) => Some(4),
            _ => None,
        }
    }

    /// Whether the entry describes the engine, and not what happened at a time.
    pub fn is_about(&self) -> bool {
        matches!(self, Self::Header(_)) || self.about_kind().is_some()
    }

    pub fn is_message(&self) -> bool {
        matches!(self, Self::Message(_))
    }
}

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Line;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a line of a recording")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Line, A::Error> {
                let us: i64 = value(&mut map, "us")?;
                let at = RecordedMoment { us: us.clamp(0, LATEST_US), clock_us: value(&mut map, "clock_us")? };
                // These values are ignored, because the header of the segment names the engine, too.
                let _: (IgnoredAny, IgnoredAny) = (value(&mut map, "model")?, value(&mut map, "version")?);
                Ok(Line { at, entry: entry(&mut map)? })
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// The next value of a line. Its key must be `key`.
fn value<'de, A: MapAccess<'de>, T: Deserialize<'de>>(map: &mut A, key: &'static str) -> Result<T, A::Error> {
    match map.next_key::<Cow<'de, str>>()? {
        Some(found) if found == key => map.next_value(),
        _ => Err(A::Error::missing_field(key)),
    }
}

fn entry<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Entry, A::Error> {
    let mut key = map.next_key::<Cow<'de, str>>()?.unwrap_or_default();
    if key == "pod" {
        // Ignored, like `model` and `version`: the header names the engine.
        let _: IgnoredAny = map.next_value()?;
        key = map.next_key()?.unwrap_or_default();
    }
    Ok(match &*key {
        "recording" => Entry::Header(map.next_value()?),
        "dropped" => Entry::Dropped(map.next_value()?),
        "about" => Entry::About(map.next_value()?),
        "settled" => Entry::Settled(map.next_value()?),
        "failing" => Entry::Failing(map.next_value()?),
        "disconnected" => Entry::Disconnected(map.next_value()?),
        "gpu" => Entry::Gpu(map.next_value()?),
        "record" => Entry::Message(Message::Record(map.next_value()?)),
        "request_rows" => Entry::Message(Message::RequestRows(map.next_value()?)),
        "finished_request" => Entry::Message(Message::FinishedRequest(map.next_value()?)),
        "span" => Entry::Message(Message::Span(map.next_value()?)),
        "server_metrics" => Entry::Message(Message::ServerMetrics(map.next_value()?)),
        "orchestrator" => Entry::Message(Message::Orchestrator(map.next_value()?)),
        "bench_report" => Entry::Message(Message::BenchReport(map.next_value()?)),
        "process" => Entry::Message(Message::Process(map.next_value()?)),
        other => return Err(A::Error::custom(format_args!("unknown entry {other:?}"))),
    })
}

/// Writes the lines of an engine.
#[derive(Debug)]
pub struct LineWriter {
    engine: String,
}

impl LineWriter {
    pub fn new(name: &EngineName) -> Self {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let pod = name.pod().map_or(String::new(), |pod| format!(",\"pod\":{}", quoted(&pod)));
        let engine = format!("\"model\":{},\"version\":{}{pod}", quoted(&name.model), quoted(&name.version));
        Self { engine }
    }

    /// Appends a line with this entry. An entry that cannot be written is left out, and the result is false.
    pub fn write(&self, at: RecordedMoment, entry: &Entry, out: &mut Vec<u8>) -> bool {
        let (length, RecordedMoment { us, clock_us }) = (out.len(), at);
        // Writing to memory cannot fail.
        let _ = write!(out, "{{\"us\":{us},\"clock_us\":{clock_us},{}", self.engine);
        let of_entry = out.len();
        match serde_json::to_writer(&mut *out, entry) {
            Ok(()) => {
                // Replaces the opening brace of the entry, because its key belongs to the object of the line.
                out[of_entry] = b',';
                out.push(b'\n');
            }
            Err(_) => out.truncate(length),
        }
        out.len() > length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_time_becomes_the_nearest_possible_one() {
        for (text, us) in [("-9223372036854775808", 0), ("5", 5), ("9223372036854775807", LATEST_US)] {
            let line = format!(
                "{{\"us\":{text},\"clock_us\":1,\"model\":\"\\u0001\",\"version\":\"1\",\"settled\":{{\"from_ring\":true}}}}"
            );
            let at = RecordedMoment { us, clock_us: 1 };
            let entry = Entry::Settled(Settled { from_ring: true, drained_unparsed: false });
            let of_pod = line.replace(",\"settled\"", ",\"pod\":\"prod/llama-0\",\"settled\"");
            for line in [line, of_pod] {
                assert_eq!(Line::parse(line.as_bytes()).unwrap(), Line { at, entry: entry.clone() });
            }
        }
        for wrong in [
            "{\"us\":1}",
            "{\"us\":1,\"process\":2}",
            "{\"us\":1,\"clock_us\":1,\"model\":\"m\",\"version\":\"1\"}",
            "{\"us\":1,\"clock_us\":1,\"model\":\"m\",\"version\":\"1\",\"new\":2}",
            "{\"us\":1,\"clock_us\":1,\"model\":\"m\",\"version\":\"1\",\"process\":2,\"x\":1}",
        ] {
            assert!(Line::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
