//! What an iteration's statistics tell beside their numbers.

use serde::{Deserialize, Serialize};

pub use super::names::{LifecycleKind, SchedulerMode};
pub use super::statistics::{
    InflightBatchingStats, IterationStats, KvCacheIterationStats, KvCacheLifecycleStats, KvCacheStats,
    SpecDecodingStats, SsmSnapshotStats, StaticBatchingStats,
};

/// The backend of TensorRT-LLM that wrote a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum Backend {
    /// The C++ Executor.
    TensorRt,
    PyTorch,
    /// Generates images and videos, without batches of tokens. Its records only tell which requests are active and queued.
    VisualGen,
}

impl IterationStats {
    /// Detects the backend from values that only one backend writes. For static batching, PyTorch sends zeros and C++
    /// sends null. Newer PyTorch releases send a scheduler mode and a rank; older ones send no timestamp.
    #[must_use]
    pub fn backend(&self) -> Backend {
        let has_batch = self.inflight_batching_stats.is_some() || self.static_batching_stats.is_some();
        if self.current_steps_processed.is_some() && !has_batch {
            return Backend::VisualGen;
        }
        let pytorch = self.attention_dp_rank.is_some()
            || self.scheduler_mode.is_some()
            || self.timestamp.is_none()
            || self.inflight_batching_stats.is_some()
                && self.static_batching_stats.as_ref().is_some_and(StaticBatchingStats::is_all_zero);
        if pytorch { Backend::PyTorch } else { Backend::TensorRt }
    }
}

impl KvCacheStats {
    /// Used share of the blocks, 0..1. It is 0 for a cache without blocks, because a router must never read NaN.
    #[must_use]
    pub fn used_fraction(&self) -> Option<f64> {
        let Some((used, max)) = self.used_num_blocks.zip(self.max_num_blocks) else { return self.used_share };
        Some(if max > 0 { (used as f64 / max as f64).clamp(0.0, 1.0) } else { 0.0 })
    }

    /// What happened to blocks since the cache was created, in the order of [`KvCacheStats::events`].
    pub const EVENTS: [&'static str; 4] = ["allocated", "newly_allocated", "reused", "missed"];

    #[must_use]
    pub fn events(&self) -> [Option<i64>; 4] {
        [self.alloc_total_blocks, self.alloc_new_blocks, self.reused_blocks, self.missed_blocks]
    }

    /// Blocks that were looked up in the cache. Absent for releases before 0.16, which count no misses.
    #[must_use]
    pub fn looked_up_blocks(&self) -> Option<i64> {
        self.reused_blocks.zip(self.missed_blocks).map(|(reused, missed)| reused.saturating_add(missed))
    }

    /// Share of the looked-up blocks that were found, 0..1. Absent if none was looked up.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        let looked_up = self.looked_up_blocks().filter(|blocks| *blocks > 0)?;
        Some(self.reused_blocks? as f64 / looked_up as f64)
    }
}

impl InflightBatchingStats {
    /// The batches of pipeline parallelism take turns, so several passes run at the same time. Each has a number, the first one 0.
    #[must_use]
    pub fn is_in_pipeline(&self) -> bool {
        self.micro_batch_id.is_some_and(|id| id > 0)
    }
}

impl StaticBatchingStats {
    /// True if all values are 0, which means that there is no static batching.
    #[must_use]
    pub fn is_all_zero(&self) -> bool {
        let Self { num_scheduled_requests, num_context_requests, num_ctx_tokens, num_gen_tokens, empty_gen_slots } =
            *self;
        [num_scheduled_requests, num_context_requests, num_ctx_tokens, num_gen_tokens, empty_gen_slots] == [Some(0); 5]
    }
}

impl SpecDecodingStats {
    /// The fields that are about drafts of this record. Without drafts, the engine repeats the last time of drafting, and its tokens
    /// per step are those of no step. The accepted tokens stay: they are of the batch before, whose drafts an earlier record has.
    #[must_use]
    pub fn measured(self) -> Self {
        if self.num_draft_tokens != Some(0) && self.num_requests_with_draft_tokens != Some(0) {
            return self;
        }
        Self { acceptance_length: None, iter_latency_ms: None, draft_overhead: None, ..self }
    }

    /// Tokens of a request in one step: its accepted draft tokens plus one. Absent if no request had drafts.
    #[must_use]
    pub fn tokens_per_step(&self) -> Option<f64> {
        let steps = self.num_requests_with_draft_tokens.filter(|requests| *requests > 0)?;
        Some(1.0 + self.num_accepted_tokens? as f64 / steps as f64)
    }
}
