//! The values of the last record, for gauges. Quirks are corrected; nothing is derived.

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
    /// Milliseconds, as in the record. May include the wait for work, which the histogram leaves out.
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
    pub pools: Pools,
    pub scheduler_mode: Option<SchedulerMode>,
    /// Attention-DP ranks whose rows of this iteration have been read.
    pub ranks_seen: Option<u64>,
    /// Number of attention-DP ranks, from the last iteration whose rows are complete.
    pub attention_dp_ranks: Option<u64>,
}

/// A limit: as built into the engine, as recommended by the tuner, as used at runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    pub fixed: Option<i64>,
    pub tuner: Option<i64>,
    pub runtime: Option<i64>,
}

impl Latest {
    /// Replaces all values by those of `record`, in place: a copy of the struct would cost more than the rest of the fold.
    /// `wall_us` is the time of receipt in microseconds since 1970 UTC.
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
        // The PyTorch backend sends an object of zeros if there is no static batching.
        self.static_batching = record.static_batching_stats.filter(|stats| !stats.is_all_zero());
        self.spec_decoding = record.spec_decoding_stats;
        self.pools.update(record);
        self.scheduler_mode = record.scheduler_mode;
        // The rows of other ranks follow. Until then, use the number of ranks of the last iteration.
        self.attention_dp_ranks = record.attention_dp_rank.map(|_| self.ranks_seen.unwrap_or(1));
        self.ranks_seen = record.attention_dp_rank.map(|_| 1);
    }

    /// Adds the row of another attention-DP rank for the same iteration. The batch is the sum over ranks. Each row repeats the
    /// requests, memory and KV cache of rank 0, so these stay.
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

    /// Whether requests are active or queued. If the record has no active requests, the scheduled ones are used. For the
    /// PyTorch backend see [`super::epoch::Epoch::outstanding`].
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.active.or_else(|| self.scheduled()).unwrap_or(0) > 0 || self.queued.unwrap_or(0) > 0
    }

    /// The same values with a load of zero, for the page of an idle engine.
    #[must_use]
    pub fn idle(mut self) -> Self {
        let clear = |value: &mut Option<i64>| *value = value.map(|_| 0);
        clear(&mut self.active);
        clear(&mut self.queued);
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
                clear(value);
            }
        }
        if let Some(stats) = &mut self.static_batching {
            clear(&mut stats.num_scheduled_requests);
            clear(&mut stats.num_context_requests);
            clear(&mut stats.num_ctx_tokens);
            clear(&mut stats.num_gen_tokens);
            clear(&mut stats.empty_gen_slots);
        }
        self
    }
}

/// The PyTorch backend never sets its batch limits and sends 0, which is not a valid limit.
fn limit(value: Option<i64>) -> Option<i64> {
    value.filter(|value| *value > 0)
}

fn add(total: &mut Option<i64>, more: Option<i64>) {
    if let Some(more) = more {
        *total = Some(total.unwrap_or(0).saturating_add(more));
    }
}

/// The offset of a local time is its difference to the present, rounded to a quarter of an hour: every time zone's offset is
/// a multiple of that, and a polled record is only seconds old. Daylight saving needs no rule (upstream: TRI-978).
fn utc_micros(time: Option<RecordTime>, wall_us: i64) -> i64 {
    const QUARTER: i64 = 900_000_000;
    const WIDEST: i64 = 15 * 3_600_000_000;
    match time {
        None => wall_us,
        Some(RecordTime { micros, zoned: true }) => micros,
        Some(RecordTime { micros, zoned: false }) => {
            let offset = (micros - wall_us + QUARTER / 2).div_euclid(QUARTER) * QUARTER;
            // A difference larger than any time zone's offset is from an old record (a replay). Its time is used as written.
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
    fn a_local_time_is_converted_to_utc_by_the_nearest_quarter_of_an_hour() {
        let wall = 1_753_462_475_000_000;
        for hours_in_quarters in [-48, -14, 0, 1, 22, 23, 56] {
            let local = RecordTime { micros: wall - 860_000 + hours_in_quarters * 900_000_000, zoned: false };
            assert_eq!(utc_micros(Some(local), wall), wall - 860_000);
        }
    }

    #[test]
    fn the_local_time_of_an_old_record_is_used_as_written() {
        let local = RecordTime { micros: 1_000_000_000, zoned: false };
        assert_eq!(utc_micros(Some(local), 1_753_462_475_000_000), 1_000_000_000);
    }

    #[test]
    fn a_time_with_a_zone_is_exact_and_a_missing_time_is_the_time_of_receipt() {
        assert_eq!(utc_micros(Some(RecordTime { micros: 5, zoned: true }), 900_000_000), 5);
        assert_eq!(utc_micros(None, 7), 7);
    }
}
