//! One line of a recording: a JSON object with one key, which says what the value is. Values of the engine have the keys that
//! TensorRT-LLM sends, so the parsers of the sources read them, too.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use trtllm_model::{
    BenchReport, EngineAbout, IterationStats, KvCacheEvent, PerfMetricsEntry, RequestStatsPerIteration, ServerMetrics,
};

/// The version of the format.
pub const FORMAT: u32 = 1;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The first line of each segment.
    Recording(Box<Header>),
    /// The number of messages of the engine that are missing at this place. 0 if the number is unknown: a replay was recorded,
    /// and another exporter had continued its recording.
    Dropped(u64),
    /// When the following lines were received.
    Received(Moment),
    Record(Box<IterationStats>),
    /// A record with absurd values. It was not counted.
    RefusedRecord(Box<IterationStats>),
    RequestRows(RequestStatsPerIteration),
    FinishedRequest(Box<PerfMetricsEntry>),
    KvEvent(Box<KvCacheEvent>),
    ServerMetrics(Box<ServerMetrics>),
    BenchReport(Arc<BenchReport>),
    /// The process that sends the following lines.
    Process(u64),
    About(Box<EngineAbout>),
    /// A poll has ended.
    Settled(Settled),
}

/// What a segment belongs to.
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
    /// Microseconds since 1970 UTC.
    pub started_us: i64,
}

impl Header {
    /// As people choose an engine.
    #[must_use]
    pub fn engine(&self) -> String {
        format!("{}/{}", self.model, self.version)
    }

    /// Whether `name` is MODEL or MODEL/VERSION of the engine.
    #[must_use]
    pub fn is_engine(&self, name: &str) -> bool {
        self.model == name || self.engine() == name
    }
}

/// A moment of the recording process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Nanoseconds of a clock that only moves forward. Only differences within a session are meaningful.
    pub ns: i64,
    /// Microseconds since 1970 UTC.
    pub us: i64,
}

impl Moment {
    /// A moment of this process.
    #[must_use]
    pub fn new(instant: Instant, unix_us: i64) -> Self {
        let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        let ns = match instant.checked_duration_since(origin()) {
            Some(after) => nanos(after),
            None => -nanos(origin().saturating_duration_since(instant)),
        };
        Self { ns, us: unix_us }
    }

    /// The moment on the clock of this process. Only differences are meaningful if another process recorded it. A time of
    /// centuries becomes the origin.
    #[must_use]
    pub fn instant(self) -> Instant {
        let distance = Duration::from_nanos(self.ns.unsigned_abs());
        let moment = if self.ns < 0 { origin().checked_sub(distance) } else { origin().checked_add(distance) };
        moment.unwrap_or_else(origin)
    }
}

/// Where the clock of this process begins.
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(Instant::now)
}

/// The end of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    pub at: Moment,
    /// The records were what the engine's ring held.
    pub from_ring: bool,
}

/// How a line begins, by its key.
const STARTS: [&str; 13] = [
    r#"{"recording":"#,
    r#"{"dropped":"#,
    r#"{"received":"#,
    r#"{"record":"#,
    r#"{"refused_record":"#,
    r#"{"request_rows":"#,
    r#"{"finished_request":"#,
    r#"{"kv_event":"#,
    r#"{"server_metrics":"#,
    r#"{"bench_report":"#,
    r#"{"process":"#,
    r#"{"about":"#,
    r#"{"settled":"#,
];

impl Line {
    /// Whether the text is a line of a recording. Lines of publishers begin differently.
    #[must_use]
    pub fn is_recorded(text: &[u8]) -> bool {
        STARTS.iter().any(|start| text.starts_with(start.as_bytes()))
    }

    /// # Errors
    /// If the text is not a line of this version.
    pub fn parse(text: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(text)
    }

    /// Appends the line and its line feed. A line that cannot be written is left out, and the result is false.
    pub fn write(&self, out: &mut Vec<u8>) -> bool {
        let length = out.len();
        match serde_json::to_writer(&mut *out, self) {
            Ok(()) => out.push(b'\n'),
            Err(_) => out.truncate(length),
        }
        out.len() > length
    }

    /// Whether it is a message of the engine.
    #[must_use]
    pub fn is_item(&self) -> bool {
        !matches!(self, Self::Recording(_) | Self::Dropped(_) | Self::Received(_) | Self::About(_) | Self::Settled(_))
    }
}
