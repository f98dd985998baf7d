//! What a source delivers and a recording keeps, one item after the other. As a line of a recording, an item is a JSON object with
//! one key, which says what the value is. Values of the engine have the keys that TensorRT-LLM sends, so the parsers of the sources
//! read them, too.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use trtllm_model::kv_event::{BlockHash, KvCacheEventData, StoredBlock};
use trtllm_model::orchestrator::OrchestratorCount;
use trtllm_model::rows::PoolRows;
use trtllm_model::server_metrics::ServerCount;
use trtllm_model::{
    BenchReport, EngineAbout, IterationStats, KvCacheEvent, OrchestratorReading, PerfMetricsEntry,
    RequestStatsPerIteration, ServerMetrics,
};

/// The version of the format.
pub const FORMAT: u32 = 1;

/// Bytes of the text of a counter, such as an HTTP status.
const MAX_TEXT: usize = 64;

/// A message of an engine, or a change that a recording keeps so that its replay folds the messages in the same way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    Record(Box<IterationStats>),
    RequestRows(RequestStatsPerIteration),
    FinishedRequest(Box<PerfMetricsEntry>),
    KvEvent(Box<KvCacheEvent>),
    ServerMetrics(Box<ServerMetrics>),
    Orchestrator(Box<OrchestratorReading>),
    BenchReport(Arc<BenchReport>),
    /// The process that sends the following items, as a number that no other process has.
    Process(u64),
    /// From here on only in recordings. This is the first line of each segment.
    Recording(Box<Header>),
    /// The number of messages of the engine that are missing at this place. 0 if the number is unknown: a replay was recorded,
    /// and another exporter had continued its recording.
    Dropped(u64),
    /// When the following items were received. They are folded at this moment, not at the present.
    Received(RecordedMoment),
    /// A record with absurd values. It was not counted.
    RefusedRecord(Box<IterationStats>),
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
pub struct RecordedMoment {
    /// Nanoseconds of a clock that only moves forward. Only differences within a session are meaningful.
    pub ns: i64,
    /// Microseconds since 1970 UTC, from 1970 to 2286: a gauge with another time means nothing.
    #[serde(deserialize_with = "plausible_time")]
    pub us: i64,
}

fn plausible_time<'de, D: serde::Deserializer<'de>>(us: D) -> Result<i64, D::Error> {
    Ok(i64::deserialize(us)?.clamp(0, 10_000_000_000_000_000))
}

impl RecordedMoment {
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
    pub at: RecordedMoment,
    /// The records were what the engine's ring held.
    pub from_ring: bool,
}

/// How a line begins, by its key.
const STARTS: [&str; 14] = [
    r#"{"recording":"#,
    r#"{"dropped":"#,
    r#"{"received":"#,
    r#"{"record":"#,
    r#"{"refused_record":"#,
    r#"{"request_rows":"#,
    r#"{"finished_request":"#,
    r#"{"kv_event":"#,
    r#"{"server_metrics":"#,
    r#"{"orchestrator":"#,
    r#"{"bench_report":"#,
    r#"{"process":"#,
    r#"{"about":"#,
    r#"{"settled":"#,
];

impl Item {
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

    /// Appends the item as a line. An item that cannot be written is left out, and the result is false.
    pub fn write(&self, out: &mut Vec<u8>) -> bool {
        let length = out.len();
        match serde_json::to_writer(&mut *out, self) {
            Ok(()) => out.push(b'\n'),
            Err(_) => out.truncate(length),
        }
        out.len() > length
    }

    /// Whether the engine sent it.
    #[must_use]
    pub fn is_message(&self) -> bool {
        !matches!(self, Self::Recording(_) | Self::Dropped(_) | Self::Received(_) | Self::About(_) | Self::Settled(_))
    }

    /// Approximate memory. The parts whose number or length a peer chooses are counted.
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
                Self::KvEvent(event) => {
                    let KvCacheEventData { blocks, block_hashes, .. } = &event.data;
                    size_of::<KvCacheEvent>()
                        + blocks.capacity() * size_of::<StoredBlock>()
                        + block_hashes.capacity() * size_of::<BlockHash>()
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
    fn a_time_that_no_clock_shows_becomes_the_nearest_one() {
        for (text, expected) in [("-9223372036854775808", 0), ("5", 5), ("9223372036854775807", 10_000_000_000_000_000)]
        {
            let line = format!("{{\"received\":{{\"ns\":1,\"us\":{text}}}}}");
            assert_eq!(Item::parse(line.as_bytes()).unwrap(), Item::Received(RecordedMoment { ns: 1, us: expected }));
        }
    }

    /// Each part that a peer chooses the size of weighs at least what it takes in memory.
    #[test]
    fn what_a_peer_makes_an_item_keep_is_weighed() {
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
