//! What a record adds to the totals of its engine.

use trtllm_records::iteration::KvCacheStats;

use super::numbering::Gap;

/// The part of a record that is added to the totals.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Counted {
    /// The record is a new iteration.
    pub iteration: bool,
    /// The batch was not counted yet.
    pub batch: bool,
    /// The record has its own statistics of the KV cache and of speculative decoding. Other records copy these from rank 0.
    pub own: bool,
    pub started: u64,
    pub completed: u64,
    /// Requests of the batch that had ended before it ran, so their tokens belong to no answer.
    pub discarded: u64,
    /// Seconds that the started requests have waited in total.
    pub waited: Option<f64>,
    /// The record's `iterLatencyMS` in seconds. Absent if it contains a wait for work.
    pub latency_seconds: Option<f64>,
    /// No batch was handled between the previous record and this one.
    pub follows: bool,
    /// The record's host step time contains no wait for work.
    pub host_step: bool,
    /// The record's device step time contains no wait for work.
    pub device_step: bool,
    /// The KV cache, with increases in place of cumulative counts.
    pub kv: Option<KvCacheStats>,
    /// The same of the cross attention.
    pub cross_kv: Option<KvCacheStats>,
    /// What is missing between the previous record and this one.
    pub gap: Gap,
}
