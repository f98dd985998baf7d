//! The values of the last record, for gauges. The engine's quirks are corrected.

use trtllm_records::IterationStats;
use trtllm_records::iteration::{
    Backend, InflightBatchingStats, KvCacheStats, SchedulerMode, SpecDecodingStats, StaticBatchingStats,
};
use trtllm_records::schema::Schema as _;
use trtllm_records::timestamp::RecordTime;

use super::batch::{self, BatchTokens};
use super::host_blocks::HostBlocks;
use super::pools::Pools;
use super::saturating::add_known;
use super::share::{ratio, share};

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
    /// Requests in the executor's queue. Since 1.0, those of a PyTorch engine are only the arrivals of about one pass.
    pub queued: Option<i64>,
    /// Requests that wait for a seat (see `seats`). An estimate for a PyTorch engine, the queue of the C++ executor. Absent if it cannot be told.
    pub waiting_for_seat: Option<f64>,
    pub waiting_is_estimated: bool,
    /// Active requests that run in another batch, or whose last token was in the batch before. They do not wait.
    pub elsewhere: i64,
    /// Scheduled requests of the record that has the number of active requests.
    pub own_scheduled: Option<i64>,
    pub gpu_memory: Option<i64>,
    pub cpu_memory: Option<i64>,
    pub pinned_memory: Option<i64>,
    pub batch_size_limits: EngineLimits,
    pub token_limits: EngineLimits,
    /// Without the blocks of the host tier, see [`super::host_blocks`].
    pub kv: Option<KvCacheStats>,
    pub host_blocks: HostBlocks,
    /// The highest used share of the KV cache since the record before, 0..1. A PyTorch engine writes its record when the blocks of ended
    /// requests are free again. If it does not report the peak, it is the blocks in use at the record before and those allocated since.
    pub cache_peak: Option<f64>,
    pub cross_kv: Option<KvCacheStats>,
    pub inflight: Option<InflightBatchingStats>,
    pub static_batching: Option<StaticBatchingStats>,
    pub spec_decoding: Option<SpecDecodingStats>,
    /// Context and generation tokens of the iteration. Absent without a batch.
    pub batch_tokens: Option<u64>,
    /// Requests that were paused in this iteration.
    pub pauses: Option<i64>,
    pub pools: Pools,
    pub scheduler_mode: Option<SchedulerMode>,
    pub is_pytorch: bool,
    /// The record is of VisualGen, so it tells only which requests are active and queued.
    pub is_visual_gen: bool,
    /// Number of attention-DP ranks whose records of this iteration have been read.
    pub ranks_seen: Option<u64>,
    /// The highest `ranks_seen` of earlier iterations of this engine, because records of a single iteration may be lost.
    pub ranks_before: Option<u64>,
    /// True if each record has its rank's own numbers. Otherwise the records copy everything except the batch from rank 0.
    pub own_ranks: bool,
}

/// One limit: as built into the engine, as recommended by the tuner, and as used at runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineLimits {
    pub fixed: Option<i64>,
    pub tuner: Option<i64>,
    pub runtime: Option<i64>,
}

impl Latest {
    /// Replaces all values by those of `record`, in place: a copy of the struct would cost more than the rest of the fold.
    /// `wall_us` is the time of receipt in microseconds since 1970 UTC.
    /// `allocated`: blocks of the KV cache that were allocated since the record before.
    pub fn update(&mut self, record: &IterationStats, wall_us: i64, allocated: Option<i64>) {
        let used_before = self.kv.and_then(|kv| kv.used_num_blocks);
        let backend = record.backend();
        self.is_visual_gen = backend == Backend::VisualGen;
        // The number of a record of VisualGen is not that of an iteration.
        self.iter = record.iter.filter(|_| !self.is_visual_gen);
        self.time_us = utc_micros(record.timestamp, wall_us);
        self.iter_latency_ms = record.iter_latency_ms;
        self.active = record.num_active_requests;
        // The record that a PyTorch engine writes at its start has zeros here.
        self.max_active = limit(record.max_num_active_requests);
        self.queued = record.num_queued_requests;
        self.gpu_memory = limit(record.gpu_mem_usage);
        self.cpu_memory = record.cpu_mem_usage;
        self.pinned_memory = record.pinned_mem_usage;
        self.batch_size_limits = EngineLimits {
            fixed: limit(record.max_batch_size_static),
            tuner: limit(record.max_batch_size_tuner_recommended),
            runtime: limit(record.max_batch_size_runtime),
        };
        self.token_limits = EngineLimits {
            fixed: limit(record.max_num_tokens_static),
            tuner: limit(record.max_num_tokens_tuner_recommended),
            runtime: limit(record.max_num_tokens_runtime),
        };
        self.host_blocks.observe(record);
        self.kv = record.kv_cache_stats.map(|kv| self.host_blocks.without(kv));
        self.cross_kv = record.cross_kv_cache_stats;
        self.inflight = record.inflight_batching_stats;
        // The PyTorch backend sends an object of zeros if there is no static batching.
        self.static_batching = record.static_batching_stats.filter(|stats| !stats.is_all_zero());
        self.spec_decoding = record.spec_decoding_stats.map(SpecDecodingStats::measured);
        self.batch_tokens =
            (self.inflight.is_some() || self.static_batching.is_some()).then(|| BatchTokens::of(record).sum());
        self.pauses = batch::pauses(record);
        self.pools.update(record);
        let reports_pools =
            record.kv_cache_iteration_stats_by_pool_group.is_some() || record.kv_cache_iteration_stats.is_some();
        let peak = || {
            let used = used_before?.saturating_add(allocated.unwrap_or(0));
            ratio(Some(used), self.kv?.max_num_blocks).map(|peak| peak.min(1.0))
        };
        self.is_pytorch = backend == Backend::PyTorch;
        self.cache_peak = self.pools.peak.filter(|_| reports_pools).or_else(|| peak().filter(|_| self.is_pytorch));
        self.scheduler_mode = record.scheduler_mode;
        self.own_scheduled = self.scheduled();
        self.elsewhere = 0;
        self.waiting_is_estimated = self.is_pytorch && record.timestamp.is_some();
        if !self.waiting_is_estimated {
            self.waiting_for_seat = self.queued.map(|queued| queued.max(0) as f64);
        }
        self.own_ranks = record.rank.is_some();
        self.ranks_before = self.ranks_before.max(self.ranks_seen);
        self.ranks_seen = (self.own_ranks || record.attention_dp_rank.is_some()).then_some(1);
    }

    /// Adds the record of another attention-DP rank for the same iteration. The batch and its drafts are summed over the ranks.
    /// Everything else is summed only if each record has its rank's own numbers.
    pub fn add_sibling(&mut self, record: &IterationStats) {
        if record.iter != self.iter {
            return;
        }
        self.ranks_seen = self.ranks_seen.map(|ranks| ranks + 1);
        if let (Some(total), Some(rank)) = (&mut self.inflight, &record.inflight_batching_stats) {
            total.add(rank);
            self.batch_tokens = self.batch_tokens.map(|tokens| tokens.saturating_add(BatchTokens::of(record).sum()));
        }
        add_known(&mut self.pauses, batch::pauses(record));
        if let (Some(total), Some(rank)) = (&mut self.spec_decoding, batch::speculation(record)) {
            total.add(&rank);
        }
        if record.rank.is_none() {
            return;
        }
        self.own_scheduled = self.scheduled();
        add_known(&mut self.active, record.num_active_requests);
        add_known(&mut self.max_active, record.max_num_active_requests);
        add_known(&mut self.queued, record.num_queued_requests);
        if !self.waiting_is_estimated {
            self.waiting_for_seat = self.queued.map(|queued| queued.max(0) as f64);
        }
        add_known(&mut self.gpu_memory, record.gpu_mem_usage);
        add_known(&mut self.cpu_memory, record.cpu_mem_usage);
        add_known(&mut self.pinned_memory, record.pinned_mem_usage);
        let host_blocks = self.host_blocks;
        if let (Some(total), Some(rank)) = (&mut self.kv, record.kv_cache_stats.map(|kv| host_blocks.without(kv))) {
            total.add(&rank);
        }
        self.pools.add(record);
    }

    /// Number of attention-DP ranks. While records of an iteration are missing, this is the number in earlier iterations.
    #[must_use]
    pub fn attention_dp_ranks(&self) -> Option<u64> {
        self.ranks_seen.max(self.ranks_before.filter(|_| self.ranks_seen.is_some()))
    }

    /// Whether everything except the batch is copied from rank 0.
    #[must_use]
    pub fn copies_rank_0(&self) -> bool {
        !self.own_ranks && self.attention_dp_ranks() > Some(1)
    }

    /// The limit of all ranks together, from the limit of one rank.
    pub(crate) fn times_ranks(&self, limit: Option<i64>) -> Option<i64> {
        let ranks = i64::try_from(self.attention_dp_ranks().unwrap_or(1)).unwrap_or(i64::MAX);
        limit.map(|limit| limit.saturating_mul(ranks))
    }

    /// Requests that fit into a batch, of all ranks. `configured` is the limit of one rank in the engine's settings. The PyTorch
    /// engine sends no batch sizes; its limit of active requests is the size of its batch, times the stages of a pipeline.
    #[must_use]
    pub fn batch_limit(&self, configured: Option<i64>) -> Option<i64> {
        let limits = self.batch_size_limits;
        self.times_ranks(limits.runtime.or(limits.fixed).or(configured)).or_else(|| self.max_active_of_all())
    }

    /// Tokens that fit into an iteration, of all ranks. `configured` is the limit of one rank in the engine's settings.
    #[must_use]
    pub fn token_limit(&self, configured: Option<i64>) -> Option<i64> {
        let limits = self.token_limits;
        self.times_ranks(limits.runtime.or(limits.fixed).or(configured))
    }

    /// Active requests of all ranks. Absent if each record copies those of rank 0.
    #[must_use]
    pub fn active_of_all(&self) -> Option<i64> {
        self.active.filter(|_| !self.copies_rank_0())
    }

    /// The limit of active requests of all ranks. Each record has the limit of one rank.
    #[must_use]
    pub fn max_active_of_all(&self) -> Option<i64> {
        if self.copies_rank_0() { self.times_ranks(self.max_active) } else { self.max_active }
    }

    #[must_use]
    pub fn scheduled(&self) -> Option<i64> {
        self.inflight
            .and_then(|stats| stats.num_scheduled_requests)
            .or_else(|| self.static_batching.and_then(|stats| stats.num_scheduled_requests))
    }

    /// Share of the draft tokens that the model accepted.
    #[must_use]
    pub fn spec_acceptance_ratio(&self) -> Option<f64> {
        let drafts = self.spec_decoding?;
        share(drafts.num_accepted_tokens, drafts.num_draft_tokens)
    }

    /// Active requests that the last iteration did not schedule; requests in the executor's own queue are not included.
    #[must_use]
    pub fn waiting(&self) -> Option<i64> {
        self.active_of_all().zip(self.scheduled()).map(|(active, scheduled)| active.saturating_sub(scheduled).max(0))
    }

    /// Requests that have a seat but are in no batch, of all ranks. If the records copy the number of rank 0, the others are assumed to be
    /// like it.
    #[must_use]
    pub fn held(&self) -> Option<i64> {
        let held = self.active?.saturating_sub(self.own_scheduled?).saturating_sub(self.elsewhere).max(0);
        if self.copies_rank_0() { self.times_ranks(Some(held)) } else { Some(held) }
    }

    /// All requests that wait: for a seat, or with a seat for their batch.
    #[must_use]
    pub fn all_waiting(&self) -> Option<f64> {
        let for_seat = self.waiting_for_seat.or_else(|| self.queued.map(|queued| queued as f64));
        let held = self.held().map(|held| held as f64);
        (for_seat.is_some() || held.is_some()).then(|| for_seat.unwrap_or(0.0).max(0.0) + held.unwrap_or(0.0))
    }

    /// All requests that wait, as a whole number. If the records copy rank 0, only those that wait for a seat.
    #[must_use]
    pub fn all_waiting_rounded(&self) -> Option<i64> {
        let all = if self.copies_rank_0() { self.waiting_for_seat } else { self.all_waiting() };
        all.or(self.queued.map(|queued| queued as f64)).map(|waiting| waiting.round() as i64)
    }

    /// Whether all seats are taken, of rank 0 if the records copy its number.
    #[must_use]
    pub fn is_full(&self) -> Option<bool> {
        self.active.zip(self.max_active.filter(|most| *most > 0)).map(|(active, most)| active >= most)
    }

    /// Whether all seats are taken, nearly all of them by requests that run. A full batch may have fewer requests than seats, because a
    /// seat is free only after the last token is handled.
    #[must_use]
    pub fn is_full_of_running(&self) -> bool {
        let few = |held: i64| self.max_active_of_all().is_some_and(|most| held.saturating_mul(20) <= most);
        self.is_full() == Some(true) && self.held().is_some_and(few)
    }

    #[must_use]
    pub fn context_requests(&self) -> Option<i64> {
        self.inflight
            .and_then(|stats| stats.num_context_requests)
            .or_else(|| self.static_batching.and_then(|stats| stats.num_context_requests))
    }

    /// Whether the scheduler reserves no blocks for answers. KV cache manager V2 forces MAX_UTILIZATION (upstream:
    /// `KVCacheV2Scheduler`). Only this manager reports pool groups.
    #[must_use]
    pub fn never_reserves(&self) -> bool {
        self.pools.groups.is_some()
    }

    /// Used share of the KV cache: of its fullest pool, if it has several.
    #[must_use]
    pub fn cache_used(&self) -> Option<f64> {
        let all = self.kv.and_then(|kv| kv.used_fraction());
        self.pools.fullest.into_iter().chain(all).reduce(f64::max)
    }

    /// Whether requests are active or queued. Scheduled requests are used if the record has no number of active
    /// requests. Records of the PyTorch backend alone do not show it: see `in_flight`.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.active_of_all().or_else(|| self.scheduled()).unwrap_or(0) > 0 || self.queued.unwrap_or(0) > 0
    }

    /// Whether the engine cannot take another request: active requests are at their limit, some of them are not
    /// scheduled, and the KV cache is nearly full. A worker for context phases is in this state when it keeps the
    /// blocks of cancelled transfers. It then reports no further iteration. The last record of a server that becomes
    /// idle can look the same, but that is rare.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        let at_limit =
            self.active_of_all().zip(self.max_active_of_all()).is_some_and(|(active, most)| most > 0 && active >= most);
        let full = self.cache_used().is_some_and(|used| used >= 0.9);
        at_limit && full && self.waiting().is_some_and(|waiting| waiting > 0)
    }

    /// Whether the engine ran a batch. An engine that does not report scheduled requests counts as running one.
    pub(crate) fn has_batch(&self) -> bool {
        self.scheduled() != Some(0)
    }

    /// The same values with a load of zero, for the page of an idle engine.
    #[must_use]
    pub fn idle(mut self) -> Self {
        for requests in [&mut self.active, &mut self.queued, &mut self.own_scheduled, &mut self.pauses] {
            *requests = requests.map(|_| 0);
        }
        self.elsewhere = 0;
        self.waiting_for_seat = self.waiting_for_seat.map(|_| 0.0);
        self.batch_tokens = self.batch_tokens.map(|_| 0);
        if let Some(batch) = &mut self.inflight {
            batch.make_idle();
        }
        if let Some(batch) = &mut self.static_batching {
            batch.make_idle();
        }
        self
    }
}

/// The PyTorch backend sends 0 for a limit that it never sets or does not know yet.
fn limit(value: Option<i64>) -> Option<i64> {
    value.filter(|value| *value > 0)
}

/// Microseconds since 1970 UTC. A local time lacks its offset to UTC. Every time zone's offset is a multiple of a
/// quarter of an hour, and a polled record is only minutes old. So the offset is the difference to the current time in whole
/// quarters of an hour. Daylight saving needs no rule (upstream: TRI-978). A record is never newer than its receipt, but clocks
/// may differ by a little.
fn utc_micros(time: Option<RecordTime>, wall_us: i64) -> i64 {
    const QUARTER: i64 = 900_000_000;
    const WIDEST: i64 = 15 * 3_600_000_000;
    const CLOCKS_DIFFER: i64 = 5_000_000;
    match time {
        None => wall_us,
        Some(RecordTime { micros, zoned: true }) => micros,
        Some(RecordTime { micros, zoned: false }) => {
            let ahead = micros.saturating_sub(wall_us).saturating_sub(CLOCKS_DIFFER);
            let offset = ahead.div_euclid(QUARTER).saturating_add(1).saturating_mul(QUARTER);
            // A difference larger than any time zone's offset is from an old record (a replay). Its time is used as written.
            let utc = if offset.abs() > WIDEST { micros } else { micros - offset };
            utc.min(wall_us)
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

    fn record(value: serde_json::Value) -> IterationStats {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_fullest_pool_of_the_cache_decides_and_its_manager_never_reserves() {
        let group = |max: i64, used: i64| serde_json::json!({"primaryMaxNumBlocks": max, "primaryUsedNumBlocks": used});
        let kv = serde_json::json!({"maxNumBlocks": 400, "freeNumBlocks": 160, "usedNumBlocks": 240});
        let mut latest = Latest::default();
        latest.update(&record(serde_json::json!({"iter": 1, "kvCacheStats": kv})), 0, None);
        assert_eq!((latest.cache_used(), latest.never_reserves()), (Some(0.6), false));
        let groups = serde_json::json!({"0": group(100, 90), "1": group(300, 150)});
        let pools = serde_json::json!({"iter": 2, "kvCacheStats": kv, "kvCacheIterationStatsByPoolGroup": groups});
        latest.update(&record(pools), 0, None);
        assert_eq!((latest.cache_used(), latest.never_reserves()), (Some(0.9), true));
    }

    #[test]
    fn the_peak_of_the_cache_is_told_or_what_was_used_before_and_allocated_since() {
        let mut latest = Latest::default();
        let kv =
            |used: i64| serde_json::json!({"iter": 1, "kvCacheStats": {"maxNumBlocks": 100, "usedNumBlocks": used}});
        latest.update(&record(kv(10)), 0, Some(80));
        assert_eq!(latest.cache_peak, None, "nothing is known of the time before");
        latest.update(&record(kv(0)), 0, Some(80));
        assert_eq!(latest.cache_peak, Some(0.9));
        let mut told = kv(0);
        told["kvCacheIterationStats"] =
            serde_json::json!({"32768": {"primaryMaxNumBlocks": 100, "primaryPeakUsedNumBlocks": 60}});
        latest.update(&record(told), 0, Some(80));
        assert_eq!(latest.cache_peak, Some(0.6));
        // The C++ executor writes its record after it has allocated the blocks of the batch.
        let mut cpp = kv(50);
        cpp["timestamp"] = "07-25-2025 10:00:00.000000".into();
        latest.update(&record(cpp), 0, Some(80));
        assert_eq!(latest.cache_peak, None);
    }

    #[test]
    fn what_the_engine_repeats_of_drafts_while_nothing_is_drafted_is_not_used() {
        let drafts = |drafted: i64, requests: i64| {
            serde_json::json!({"numDraftTokens": drafted, "numAcceptedTokens": 3, "numRequestsWithDraftTokens": requests,
                "acceptanceLength": 1.5, "iterLatencyMS": 3.0, "draftOverhead": 0.24})
        };
        let told = |value: serde_json::Value| {
            let record = record(serde_json::json!({"iter": 1, "specDecodingStats": value}));
            let (mut latest, mut sums) = (Latest::default(), batch::BatchSums::default());
            latest.update(&record, 0, None);
            sums.absorb_speculation(&record);
            let shown = latest.spec_decoding.unwrap();
            let of_drafts = [shown.acceptance_length, shown.draft_overhead, latest.spec_acceptance_ratio()];
            (of_drafts, sums.spec_decode_draft_seconds, sums.spec_decode_accepted_tokens)
        };
        assert_eq!(told(drafts(6, 2)), ([Some(1.5), Some(0.24), Some(0.5)], 0.003, 3));
        // The accepted tokens are of the batch before, whose drafts the record before has.
        assert_eq!(told(drafts(0, 2)), ([None; 3], 0.0, 3));
        assert_eq!(told(drafts(6, 0)), ([None, None, Some(0.5)], 0.0, 3));
        let with_rank = |rank: i64| {
            let row = serde_json::json!({"iter": 1, "attentionDpRank": rank, "specDecodingStats": drafts(0, 0)});
            batch::speculation(&record(row)).and_then(|drafts| drafts.iter_latency_ms)
        };
        assert_eq!(with_rank(0), None);
    }

    #[test]
    fn the_zeros_of_the_record_that_an_engine_writes_at_its_start_are_unknown() {
        let mut latest = Latest::default();
        let start = serde_json::json!({"iter": 0, "numActiveRequests": 0, "maxNumActiveRequests": 0, "gpuMemUsage": 0});
        latest.update(&record(start), 0, None);
        assert_eq!((latest.active, latest.max_active, latest.gpu_memory), (Some(0), None, None));
    }

    #[test]
    fn requests_of_other_micro_batches_and_ended_ones_are_not_held() {
        let mut latest = Latest { active: Some(79), own_scheduled: Some(40), elsewhere: 39, ..Latest::default() };
        assert_eq!(latest.held(), Some(0));
        latest.elsewhere = 0;
        assert_eq!((latest.held(), latest.waiting()), (Some(39), None));
    }

    #[test]
    fn a_recent_local_time_is_converted_to_utc_by_the_nearest_quarter_of_an_hour() {
        let wall = 1_753_462_475_000_000;
        for hours_in_quarters in [-48, -14, 0, 1, 22, 23, 56] {
            let local = RecordTime { micros: wall - 860_000 + hours_in_quarters * 900_000_000, zoned: false };
            assert_eq!(utc_micros(Some(local), wall), wall - 860_000);
        }
        assert_eq!(utc_micros(Some(RecordTime { micros: 1_000_000_000, zoned: false }), wall), 1_000_000_000, "old");
        assert_eq!(utc_micros(Some(RecordTime { micros: 5, zoned: true }), 900_000_000), 5, "with a zone");
        assert_eq!(utc_micros(None, 7), 7, "the time of receipt");
    }
}
