//! RequestPerfMetrics: the exact times of a finished request, sent once. Times are seconds on the engine's steady
//! clock, or ISO 8601 as in older documentation, so only differences are meaningful.

pub use super::names::FinishReason;
pub use super::statistics::{
    PerfMetricsEntry, RequestKvCacheMetrics, RequestPerfMetrics, SpeculativeDecodingMetrics, TimingMetrics,
};

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

impl TimingMetrics {
    /// The times that the engine measured. A time of 0 or less counts as absent, as in upstream's collector.
    #[must_use]
    pub fn measured(mut self) -> Self {
        for time in [
            &mut self.server_arrival_time,
            &mut self.server_first_token_time,
            &mut self.arrival_time,
            &mut self.first_scheduled_time,
            &mut self.first_token_time,
            &mut self.last_token_time,
            &mut self.kv_cache_transfer_start,
            &mut self.kv_cache_transfer_end,
        ] {
            *time = time.filter(|seconds| *seconds > 0.0);
        }
        self
    }
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
