//! The messages of an engine: what a source delivers, the fold takes and a recording keeps.

use std::sync::Arc;

use serde::Serialize;

use super::bench_report::BenchReport;
use super::orchestrator::{OrchestratorCount, OrchestratorReading};
use super::schema::Schema as _;
use super::server_metrics::{ServerCount, ServerMetrics};
use super::statistics::{IterationStats, PerfMetricsEntry, RequestStatsPerIteration};

/// Maximum number of bytes of a text in a counter, such as an HTTP status.
const MAX_TEXT: usize = 64;

/// In JSON, it is an object with one key, which names the kind of message. Its value has the keys that TensorRT-LLM sends.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    Record(Box<IterationStats>),
    RequestRows(RequestStatsPerIteration),
    FinishedRequest(Box<PerfMetricsEntry>),
    /// A finished request as its OTLP span tells it, with the members of an entry.
    Span(Box<PerfMetricsEntry>),
    ServerMetrics(Box<ServerMetrics>),
    Orchestrator(Box<OrchestratorReading>),
    BenchReport(Arc<BenchReport>),
    /// The process that sends the following messages, as a number that no other process has.
    Process(u64),
}

impl Message {
    /// Approximate memory in bytes. It counts the parts whose number or length a peer chooses.
    #[must_use]
    pub fn weight(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Record(record) => size_of::<IterationStats>() + record.weight(),
                Self::RequestRows(rows) => rows.weight(),
                Self::FinishedRequest(entry) | Self::Span(entry) => size_of::<PerfMetricsEntry>() + entry.weight(),
                Self::ServerMetrics(metrics) => metrics.counts.capacity() * (size_of::<ServerCount>() + MAX_TEXT),
                Self::Orchestrator(reading) => reading.counts.capacity() * (size_of::<OrchestratorCount>() + MAX_TEXT),
                Self::BenchReport(_) | Self::Process(_) => 0,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each part whose size a peer chooses counts with at least the memory that it takes.
    #[test]
    fn memory_that_a_peer_makes_a_message_keep_is_counted() {
        let weight = |text: &str| Message::Record(serde_json::from_str(text).unwrap()).weight();
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
        let entry = |text: &str| Message::FinishedRequest(serde_json::from_str(text).unwrap()).weight();
        let parts = entry("{\"ctx_perf_metrics\":{},\"gen_perf_metrics\":{}}") - entry("{}");
        assert_eq!(parts, 2 * size_of::<PerfMetricsEntry>());
        let steps = format!("{{\"time_breakdown_metrics\":{{\"step_metrics\":[{}]}}}}", many("{\"token_time\":1}"));
        assert!(entry(&steps) - entry("{}") >= 64 * size_of::<f64>());
    }
}
