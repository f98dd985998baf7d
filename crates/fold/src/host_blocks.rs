//! The blocks of the KV cache's host tier. Releases before June 2026 count them among all and among used blocks, so an idle engine
//! looks nearly full (upstream PR 15075, issue 3376). Newer releases count only the blocks of the GPU.

use trtllm_records::IterationStats;
use trtllm_records::by_id::ById;
use trtllm_records::iteration::KvCacheStats;

/// Fewer blocks than this share of all are not those of a host tier: the engine may hold some that it allocated before it counted.
const NOTICED: i64 = 10;
/// Above this number, the count of allocated blocks may overflow and begin at 0 again.
const MAY_OVERFLOW: i64 = 1 << 30;

/// What records have told of the host tier since the engine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostBlocks {
    blocks: i64,
    /// The fewest used blocks so far. The host has no more.
    least_used: Option<i64>,
    /// The count of allocated blocks may have overflowed, so it tells nothing.
    has_overflowed: bool,
}

impl HostBlocks {
    pub(crate) fn observe(&mut self, record: &IterationStats) {
        let Some(kv) = &record.kv_cache_stats else { return };
        self.has_overflowed |= kv.alloc_total_blocks.is_some_and(|count| !(0..MAY_OVERFLOW).contains(&count));
        let by_allocations = || never_allocated(kv).filter(|_| !self.has_overflowed && !is_newer(record));
        let told = in_windows(record).or_else(by_allocations).unwrap_or(0).max(self.blocks);
        self.least_used = kv.used_num_blocks.into_iter().chain(self.least_used).min();
        // If fewer blocks are used, the records tell something else.
        self.blocks = if self.least_used >= Some(told) { told } else { 0 };
    }

    /// The same statistics without the blocks of the host tier.
    pub(crate) fn without(self, kv: KvCacheStats) -> KvCacheStats {
        let on_gpu = |blocks: Option<i64>| blocks.map(|blocks| blocks.saturating_sub(self.blocks).max(0));
        match self.blocks {
            0 => kv,
            _ => KvCacheStats {
                max_num_blocks: on_gpu(kv.max_num_blocks),
                used_num_blocks: on_gpu(kv.used_num_blocks),
                ..kv
            },
        }
    }
}

/// Whether the record has a field that only releases have which count the blocks of the GPU alone.
fn is_newer(record: &IterationStats) -> bool {
    record.stats_sequence.is_some()
        || record.iter_suspended_requests.is_some()
        || record.kv_cache_iteration_stats_by_pool_group.is_some()
}

/// The blocks on the host, if the windows of the record add up to its blocks only with them.
fn in_windows(record: &IterationStats) -> Option<i64> {
    let windows = record.kv_cache_iteration_stats.as_ref().filter(|_| !is_newer(record))?;
    let (mut gpu, mut host) = (0_i64, 0_i64);
    for window in ById::values(windows) {
        gpu = gpu.saturating_add(window.primary_max_num_blocks?);
        host = host.saturating_add(window.secondary_max_num_blocks?);
    }
    (host > 0 && record.kv_cache_stats?.max_num_blocks == Some(gpu.saturating_add(host))).then_some(host)
}

/// Used blocks that were never allocated. This is exact while no block was freed, and otherwise too low.
fn never_allocated(kv: &KvCacheStats) -> Option<i64> {
    let allocated = kv.alloc_total_blocks.filter(|count| *count > 0)?;
    let (used, max) = kv.used_num_blocks.zip(kv.max_num_blocks)?;
    let blocks = used.saturating_sub(allocated);
    (blocks > max / NOTICED && used <= max).then_some(blocks)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Used and all blocks on the GPU after these records.
    fn on_gpu(records: &[Value]) -> (Option<i64>, Option<i64>) {
        let mut host = HostBlocks::default();
        let mut last = KvCacheStats::default();
        for record in records {
            let record: IterationStats = serde_json::from_value(record.clone()).unwrap();
            host.observe(&record);
            last = host.without(record.kv_cache_stats.unwrap());
        }
        (last.used_num_blocks, last.max_num_blocks)
    }

    fn record(used: i64, allocated: i64) -> Value {
        json!({"kvCacheStats": {"maxNumBlocks": 7240, "freeNumBlocks": 7240 - used, "usedNumBlocks": used,
            "tokensPerBlock": 32, "allocTotalBlocks": allocated}})
    }

    fn with(mut record: Value, key: &str, value: Value) -> Value {
        record[key] = value;
        record
    }

    #[test]
    fn used_blocks_that_were_never_allocated_are_on_the_host() {
        // The first record of upstream's issue 3376, and the idle engine after it.
        let (first, idle) = (record(5495, 250), record(5245, 90_000));
        let windows = |gpu: i64, host: i64| {
            let of_window = json!({"primaryMaxNumBlocks": gpu, "secondaryMaxNumBlocks": host});
            with(idle.clone(), "kvCacheIterationStats", json!({"4096": of_window}))
        };
        for (name, records, expected) in [
            ("the first record", vec![first.clone()], (250, 1995)),
            ("the idle engine", vec![first.clone(), idle.clone()], (0, 1995)),
            ("without the first records, nothing tells it", vec![idle.clone()], (5245, 7240)),
            ("another record has fewer used blocks before", vec![record(0, 3), first.clone()], (5495, 7240)),
            ("another record has fewer used blocks later", vec![first.clone(), record(3, 300)], (3, 7240)),
            ("nearly all used blocks were allocated", vec![record(250, 250), record(300, 290)], (300, 7240)),
            ("allocations are not counted", vec![record(250, 0)], (250, 7240)),
            ("an overflow to below 0", vec![record(5000, i64::from(i32::MIN)), record(5000, 12)], (5000, 7240)),
            ("an overflow", vec![record(5000, 1 << 30), record(5000, 12)], (5000, 7240)),
            // Newer releases count only blocks of the GPU.
            ("a sequence", vec![with(first.clone(), "statsSequence", json!(1))], (5495, 7240)),
            ("suspended requests", vec![with(first.clone(), "iterSuspendedRequests", json!(0))], (5495, 7240)),
            ("windows with blocks on the host", vec![windows(1995, 5245)], (0, 1995)),
            ("windows of a larger GPU", vec![windows(7240, 5245)], (5245, 7240)),
        ] {
            assert_eq!(on_gpu(&records), (Some(expected.0), Some(expected.1)), "{name}");
        }
    }
}
