//! The items that a source delivers and a recording keeps. In a line of a recording, an item is one key and its value. The key
//! names the kind of item. Messages of the engine have the keys that TensorRT-LLM sends, so the parsers of the sources can read
//! them, too.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use trtllm_records::orchestrator::OrchestratorCount;
use trtllm_records::rows::PoolRows;
use trtllm_records::server_metrics::ServerCount;
use trtllm_records::{
    BenchReport, EngineAbout, ErrorKind, IterationStats, Objectives, OrchestratorReading, PerfMetricsEntry,
    RequestStatsPerIteration, ServerMetrics,
};

use super::gpu::GpuReading;

/// The version of the format.
pub const FORMAT: u32 = 4;

/// Maximum number of bytes of a text in a counter, such as an HTTP status.
const MAX_TEXT: usize = 64;

/// A message of an engine, or an event that a recording keeps so that its replay folds the messages in the same way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    Record(Box<IterationStats>),
    RequestRows(RequestStatsPerIteration),
    FinishedRequest(Box<PerfMetricsEntry>),
    ServerMetrics(Box<ServerMetrics>),
    Orchestrator(Box<OrchestratorReading>),
    BenchReport(Arc<BenchReport>),
    /// The process that sends the following items, as a number that no other process has.
    Process(u64),
    /// The first line of each segment. This item and the items below it occur only in recordings.
    Recording(Box<Header>),
    /// The number of the engine's messages that are missing here. It is 0 if the number is unknown:
    /// the engine was a replay, and from here on, another exporter had continued the replayed recording.
    Dropped(u64),
    /// When the following items were received. They are folded at this time, not at the present. The item has no line of its
    /// own, because each line has a time.
    #[serde(skip)]
    Received(RecordedMoment),
    /// A record with absurd values. It was not counted.
    RefusedRecord(Box<IterationStats>),
    About(Box<EngineAbout>),
    /// A poll has ended.
    Settled(Settled),
    /// From here on, polls fail for this reason, or succeed again (`None`).
    Failing(Option<RecordedFailure>),
    /// A GPU, as it was last read.
    Gpu(Box<GpuReading>),
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
    /// MODEL:VERSION, by which people choose an engine.
    #[must_use]
    pub fn engine(&self) -> String {
        format!("{}:{}", self.model, self.version)
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
    #[must_use]
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
    #[must_use]
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
    /// The time of the line.
    #[serde(skip)]
    pub at: RecordedMoment,
    /// Whether the source's answer was the engine's whole ring buffer of records.
    pub from_ring: bool,
    /// Whether the source has taken records from the engine that it could not read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost_rest: bool,
}

/// Why a poll failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFailure {
    pub kind: ErrorKind,
    pub text: String,
    /// Whether the server answered that it is not ready yet.
    pub not_ready: bool,
}

/// How a line begins.
const START: &[u8] = b"{\"us\":";

/// What each line of an engine begins with: the moment and the engine.
#[derive(Debug)]
pub struct Stamp {
    engine: String,
    at: RecordedMoment,
    text: String,
}

impl Stamp {
    #[must_use]
    pub fn new(model: &str, version: &str) -> Self {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let engine = format!("\"model\":{},\"version\":{}", quoted(model), quoted(version));
        let mut stamp = Self { engine, at: RecordedMoment::default(), text: String::new() };
        stamp.write();
        stamp
    }

    /// Sets the time of the following lines.
    pub fn set(&mut self, at: RecordedMoment) {
        if at != self.at {
            self.at = at;
            self.write();
        }
    }

    fn write(&mut self) {
        let Self { engine, at: RecordedMoment { us, clock_us }, .. } = self;
        self.text = format!("{{\"us\":{us},\"clock_us\":{clock_us},{engine}");
    }
}

/// A line of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub at: RecordedMoment,
    pub item: Item,
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
                let _: (serde::de::IgnoredAny, serde::de::IgnoredAny) =
                    (value(&mut map, "model")?, value(&mut map, "version")?);
                let mut item = Item::deserialize(MapAccessDeserializer::new(map))?;
                if let Item::Settled(settled) = &mut item {
                    settled.at = at;
                }
                Ok(Line { at, item })
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

/// The next value of a line. Its key must be `key`.
fn value<'de, A: MapAccess<'de>, T: Deserialize<'de>>(map: &mut A, key: &'static str) -> Result<T, A::Error> {
    match map.next_key::<std::borrow::Cow<'de, str>>()? {
        Some(found) if found == key => map.next_value(),
        _ => Err(A::Error::missing_field(key)),
    }
}

impl Item {
    /// Whether the text is a line of a recording. Lines of publishers begin differently.
    #[must_use]
    pub fn is_recorded(text: &[u8]) -> bool {
        text.starts_with(START)
    }

    /// # Errors
    /// If the text is not a line of this version.
    pub fn parse(text: &[u8]) -> serde_json::Result<Line> {
        serde_json::from_slice(text)
    }

    /// Appends the item as a line. An item that cannot be written is left out, and the result is false.
    pub fn write(&self, stamp: &Stamp, out: &mut Vec<u8>) -> bool {
        let length = out.len();
        out.extend_from_slice(stamp.text.as_bytes());
        let of_item = out.len();
        match serde_json::to_writer(&mut *out, self) {
            Ok(()) => {
                // Replaces the opening brace of the item, because its key belongs to the object of the line.
                out[of_item] = b',';
                out.push(b'\n');
            }
            Err(_) => out.truncate(length),
        }
        out.len() > length
    }

    /// Whether the item describes the engine. Each segment begins with the latest item of each of these kinds.
    #[must_use]
    pub fn is_about(&self) -> bool {
        matches!(self, Self::Recording(_) | Self::About(_) | Self::BenchReport(_) | Self::Process(_) | Self::Failing(_))
    }

    /// Whether the engine sent the item.
    #[must_use]
    pub fn is_message(&self) -> bool {
        !matches!(
            self,
            Self::Recording(_)
                | Self::Dropped(_)
                | Self::Received(_)
                | Self::About(_)
                | Self::Settled(_)
                | Self::Failing(_)
                | Self::Gpu(_)
        )
    }

    /// Approximate memory in bytes. It counts the parts whose number or length a peer chooses.
    #[must_use]
    pub fn weight(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Record(record) | Self::RefusedRecord(record) => weight_of_record(record),
                Self::RequestRows(rows) => weight_of(rows.request_stats.as_ref()),
                Self::FinishedRequest(entry) => {
                    let parts = [&entry.ctx_perf_metrics, &entry.gen_perf_metrics].into_iter().flatten();
                    [&**entry].into_iter().chain(parts.map(|part| &**part)).map(weight_of_entry).sum()
                }
                Self::ServerMetrics(page) => page.counts.capacity() * (size_of::<ServerCount>() + MAX_TEXT),
                Self::Orchestrator(reading) => reading.counts.capacity() * (size_of::<OrchestratorCount>() + MAX_TEXT),
                _ => 0,
            }
    }
}

fn weight_of<T>(array: Option<&Vec<T>>) -> usize {
    array.map_or(0, Vec::capacity) * size_of::<T>()
}

fn weight_of_entry(entry: &PerfMetricsEntry) -> usize {
    size_of::<PerfMetricsEntry>() + entry.time_breakdown_metrics.as_ref().map_or(0, |steps| steps.weight())
}

fn weight_of_record(record: &IterationStats) -> usize {
    let pools = [
        &record.kv_cache_iteration_stats,
        &record.kv_cache_iteration_stats_by_pool_group,
        &record.kv_cache_iteration_stats_by_cold_pool_group,
    ];
    let lifecycles = record.kv_cache_iteration_stats_by_lifecycle.as_ref();
    let levels = lifecycles.into_iter().flat_map(PoolRows::values).map(|row| {
        weight_of(row.iter_full_reused_blocks_by_level.as_ref())
            + weight_of(row.iter_partial_reused_blocks_by_level.as_ref())
    });
    let tiers = record.kv_cache_level_tiers.as_ref();
    size_of::<IterationStats>()
        + weight_of(record.request_stats.as_ref())
        + pools.into_iter().flatten().map(PoolRows::weight).sum::<usize>()
        + lifecycles.map_or(0, PoolRows::weight)
        + levels.sum::<usize>()
        + weight_of(record.iter_cached_tokens_by_level.as_ref())
        + weight_of(tiers)
        + tiers.into_iter().flatten().map(String::capacity).sum::<usize>()
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
            let item = Item::Settled(Settled { at, from_ring: true, lost_rest: false });
            assert_eq!(Item::parse(line.as_bytes()).unwrap(), Line { at, item });
        }
        for wrong in [
            "{\"us\":1}",
            "{\"us\":1,\"process\":2}",
            "{\"us\":1,\"clock_us\":1,\"model\":\"m\",\"version\":\"1\",\"process\":2,\"x\":1}",
        ] {
            assert!(Item::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    /// Each part whose size a peer chooses counts with at least the memory that it takes.
    #[test]
    fn memory_that_a_peer_makes_an_item_keep_is_counted() {
        let weight = |text: &str| Item::Record(serde_json::from_str(text).unwrap()).weight();
        let (plain, many) = (weight("{\"iter\":1}"), |element: &str| vec![element; 64].join(","));
        for (part, bytes) in [
            (format!("\"requestStats\":[{}]", many("{}")), 64 * 100),
            (format!("\"kvCacheLevelTiers\":[{}]", many("\"sixteen-letters!\"")), 64 * 40),
            (format!("\"iterCachedTokensByLevel\":[{}]", many("1")), 64 * 8),
            (format!("\"kvCacheIterationStats\":{{{}}}", many("\"a\":{}")), 64 * 200),
            (
                format!(
                    "\"kvCacheIterationStatsByLifecycle\":{{\"\":{{\"iterFullReusedBlocksByLevel\":[{}]}}}}",
                    many("1")
                ),
                64 * 8,
            ),
        ] {
            let more = weight(&format!("{{\"iter\":1,{part}}}")) - plain;
            assert!(more >= bytes, "{part} weighs {more}");
        }
        let entry = |text: &str| Item::FinishedRequest(serde_json::from_str(text).unwrap()).weight();
        let parts = entry("{\"ctx_perf_metrics\":{},\"gen_perf_metrics\":{}}") - entry("{}");
        assert_eq!(parts, 2 * size_of::<PerfMetricsEntry>());
        let steps = format!("{{\"time_breakdown_metrics\":{{\"step_metrics\":[{}]}}}}", many("{\"token_time\":1}"));
        assert!(entry(&steps) - entry("{}") >= 64 * size_of::<f64>());
    }
}
