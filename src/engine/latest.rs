//! The present of an engine, from its last record: what gauges read. Corrected, but nothing derived and nothing named.

use crate::model::IterationStats;
use crate::model::iteration::{
    InflightBatchingStats, KvCacheStats, SchedulerMode, SpecDecodingStats, StaticBatchingStats,
};
use crate::model::timestamp::RecordTime;

use super::pools::Pools;

/// The last iteration. A member that the engine does not send is absent.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Latest {
    pub iter: Option<u64>,
    /// Microseconds since 1970 UTC: the record's own time, or the time it was received.
    pub time_us: i64,
    /// Milliseconds, as the record says it: corrected only in the histogram.
    pub iter_latency_ms: Option<f64>,
    pub active: Option<i64>,
    pub max_active: Option<i64>,
    pub queued: Option<i64>,
    pub gpu_memory: Option<i64>,
    pub cpu_memory: Option<i64>,
    pub pinned_memory: Option<i64>,
    pub batch_size_limits: Limits,
    pub token_limits: Limits,
    pub kv: Option<KvCacheStats>,
    pub cross_kv: Option<KvCacheStats>,
    pub inflight: Option<InflightBatchingStats>,
    pub static_batching: Option<StaticBatchingStats>,
    pub spec_decoding: Option<SpecDecodingStats>,
    pub pools: Option<Pools>,
    pub scheduler_mode: Option<SchedulerMode>,
    /// Attention-DP ranks whose rows of this iteration have come so far.
    pub ranks_seen: Option<u64>,
    /// Attention-DP ranks there are: those of the last iteration whose rows have all come.
    pub attention_dp_ranks: Option<u64>,
}

/// A limit as built, as the tuner recommends it and as it is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    pub fixed: Option<i64>,
    pub tuner: Option<i64>,
    pub runtime: Option<i64>,
}

impl Latest {
    /// What `record` says now, in place of what was said before: a copy of the whole would cost more than all the rest of a
    /// record. `wall_us`: when it was received, microseconds since 1970 UTC.
    pub fn update(&mut self, record: &IterationStats, wall_us: i64) {
        self.iter = record.iter;
        self.time_us = utc_micros(record.timestamp, wall_us);
        self.iter_latency_ms = record.iter_latency_ms;
        self.active = record.num_active_requests;
        self.max_active = record.max_num_active_requests;
        self.queued = record.num_queued_requests;
        self.gpu_memory = record.gpu_mem_usage;
        self.cpu_memory = record.cpu_mem_usage;
        self.pinned_memory = record.pinned_mem_usage;
        self.batch_size_limits = Limits {
            fixed: limit(record.max_batch_size_static),
            tuner: limit(record.max_batch_size_tuner_recommended),
            runtime: limit(record.max_batch_size_runtime),
        };
        self.token_limits = Limits {
            fixed: limit(record.max_num_tokens_static),
            tuner: limit(record.max_num_tokens_tuner_recommended),
            runtime: limit(record.max_num_tokens_runtime),
        };
        self.kv = record.kv_cache_stats;
        self.cross_kv = record.cross_kv_cache_stats;
        self.inflight = record.inflight_batching_stats;
        // The PyTorch backend sends an object of zeros where there is no static batching.
        self.static_batching = record.static_batching_stats.filter(|stats| !stats.is_all_zero());
        self.spec_decoding = record.spec_decoding_stats;
        self.pools = Pools::of(record);
        self.scheduler_mode = record.scheduler_mode;
        // Rows of further ranks follow: until they are here, there are as many as there were before.
        self.attention_dp_ranks = record.attention_dp_rank.map(|_| self.ranks_seen.unwrap_or(1));
        self.ranks_seen = record.attention_dp_rank.map(|_| 1);
    }

    /// A further attention-DP rank's row of the same iteration: the batch is the sum over ranks; requests, memory and KV
    /// cache are rank 0's, copied into every row, and stay as they are.
    pub fn add_sibling(&mut self, record: &IterationStats) {
        self.ranks_seen = self.ranks_seen.map(|ranks| ranks + 1);
        self.attention_dp_ranks = self.attention_dp_ranks.max(self.ranks_seen);
        let (Some(total), Some(rank)) = (&mut self.inflight, &record.inflight_batching_stats) else { return };
        add(&mut total.num_scheduled_requests, rank.num_scheduled_requests);
        add(&mut total.num_context_requests, rank.num_context_requests);
        add(&mut total.num_gen_requests, rank.num_gen_requests);
        add(&mut total.num_paused_requests, rank.num_paused_requests);
        add(&mut total.num_ctx_tokens, rank.num_ctx_tokens);
        add(&mut total.num_ctx_kv_tokens, rank.num_ctx_kv_tokens);
        add(&mut total.num_gen_kv_tokens, rank.num_gen_kv_tokens);
        add(&mut total.num_paused_kv_tokens, rank.num_paused_kv_tokens);
    }

    #[must_use]
    pub fn scheduled(&self) -> Option<i64> {
        self.inflight
            .and_then(|stats| stats.num_scheduled_requests)
            .or_else(|| self.static_batching.and_then(|stats| stats.num_scheduled_requests))
    }

    /// Active requests that the last iteration did not schedule; requests in the executor's own queue are not included.
    #[must_use]
    pub fn waiting(&self) -> Option<i64> {
        self.active.zip(self.scheduled()).map(|(active, scheduled)| active.saturating_sub(scheduled).max(0))
    }

    #[must_use]
    pub fn context_requests(&self) -> Option<i64> {
        self.inflight
            .and_then(|stats| stats.num_context_requests)
            .or_else(|| self.static_batching.and_then(|stats| stats.num_context_requests))
    }

    /// Whether requests wait in the executor's queue or are active; where the engine does not tell its active requests,
    /// what it scheduled stands for them. On the PyTorch backend see [`super::epoch::Epoch::after_last`].
    #[must_use]
    pub fn outstanding(&self) -> bool {
        self.active.or_else(|| self.scheduled()).unwrap_or(0) > 0 || self.queued.unwrap_or(0) > 0
    }

    /// The load read as none, everything else as it was: what an idle engine's page shows.
    #[must_use]
    pub fn idle(mut self) -> Self {
        let none = |value: &mut Option<i64>| *value = value.map(|_| 0);
        none(&mut self.active);
        none(&mut self.queued);
        if let Some(stats) = &mut self.inflight {
            for value in [
                &mut stats.num_scheduled_requests,
                &mut stats.num_context_requests,
                &mut stats.num_gen_requests,
                &mut stats.num_paused_requests,
                &mut stats.num_ctx_tokens,
                &mut stats.num_ctx_kv_tokens,
                &mut stats.num_gen_kv_tokens,
                &mut stats.num_queued_context_requests,
                &mut stats.num_queued_ctx_tokens,
                &mut stats.num_queued_gen_requests,
                &mut stats.num_queued_gen_kv_tokens,
                &mut stats.num_paused_kv_tokens,
            ] {
                none(value);
            }
        }
        if let Some(stats) = &mut self.static_batching {
            none(&mut stats.num_scheduled_requests);
            none(&mut stats.num_context_requests);
            none(&mut stats.num_ctx_tokens);
            none(&mut stats.num_gen_tokens);
            none(&mut stats.empty_gen_slots);
        }
        self
    }
}

/// The PyTorch backend never sets its batch limits and sends 0: no limit is 0.
fn limit(value: Option<i64>) -> Option<i64> {
    value.filter(|value| *value > 0)
}

fn add(total: &mut Option<i64>, more: Option<i64>) {
    if let Some(more) = more {
        *total = Some(total.unwrap_or(0).saturating_add(more));
    }
}

/// A local time's zone is the quarter of an hour nearest to its distance from now: every zone's offset is a multiple of
/// one, and a record that is polled is seconds old. Daylight saving needs no rule that way (upstream: TRI-978).
fn utc_micros(time: Option<RecordTime>, wall_us: i64) -> i64 {
    const QUARTER: i64 = 900_000_000;
    const WIDEST: i64 = 15 * 3_600_000_000;
    match time {
        None => wall_us,
        Some(RecordTime { micros, zoned: true }) => micros,
        Some(RecordTime { micros, zoned: false }) => {
            let offset = (micros - wall_us + QUARTER / 2).div_euclid(QUARTER) * QUARTER;
            // Farther than any zone reaches is not a zone but an old record (a replay): as written, then.
            if offset.abs() > WIDEST { micros } else { micros - offset }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_requests_are_never_negative_and_absent_without_both_counts() {
        let inflight = InflightBatchingStats { num_scheduled_requests: Some(3), ..InflightBatchingStats::default() };
        let mut latest = Latest { active: Some(1), ..Latest::default() };
        assert_eq!(latest.waiting(), None);
        latest.inflight = Some(inflight);
        assert_eq!(latest.waiting(), Some(0));
    }

    #[test]
    fn a_local_time_is_brought_to_utc_by_the_nearest_quarter_hour() {
        let wall = 1_753_462_475_000_000;
        for hours_in_quarters in [-48, -14, 0, 1, 22, 23, 56] {
            let local = RecordTime { micros: wall - 860_000 + hours_in_quarters * 900_000_000, zoned: false };
            assert_eq!(utc_micros(Some(local), wall), wall - 860_000);
        }
    }

    #[test]
    fn an_old_records_local_time_stays_as_written() {
        let local = RecordTime { micros: 1_000_000_000, zoned: false };
        assert_eq!(utc_micros(Some(local), 1_753_462_475_000_000), 1_000_000_000);
    }

    #[test]
    fn a_zoned_time_is_taken_at_its_word_and_a_missing_one_is_the_receipt() {
        assert_eq!(utc_micros(Some(RecordTime { micros: 5, zoned: true }), 900_000_000), 5);
        assert_eq!(utc_micros(None, 7), 7);
    }
}
