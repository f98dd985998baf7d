//! The lines of an iteration log. A line of the PyTorch engine has members that come and go between releases, so each
//! is found by its name: `iter = 7, rank = 0, …, host_step_time = 7.4ms, …, states = {'num_ctx_requests': 0, …}, …`.
//! The C++ executor writes an object of JSON, which Triton's log may quote.

use std::collections::HashMap;

use memchr::{memchr, memmem, memrchr};
use trtllm_records::iteration::{InflightBatchingStats, IterationStats, KvCacheStats};
use trtllm_records::timestamp::parse_timestamp;

/// A line: one pass of the engine's loop, with the batch that it launched.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Pass {
    /// The members that are those of a record, with the local time. Only passes of the PyTorch engine have a rank.
    pub record: IterationStats,
    /// Requests fetched since the start by this rank, 0 without attention data parallelism, and by all ranks.
    pub fetched: Option<(i64, i64)>,
    /// Tokens computed for generation requests, with drafts and with padding for CUDA graphs.
    pub generation_slots: i64,
    /// A request was running when the pass began. If nothing shows that, the pass may have waited for work.
    pub was_busy: bool,
    /// Whether the record of its batch was delivered.
    pub is_delivered: bool,
}

impl Pass {
    /// Whether a batch was launched.
    pub(super) fn has_batch(&self) -> bool {
        self.record.inflight_batching_stats.is_some()
    }

    /// Reads a line. `None` for any other line.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let is_pytorch = memmem::find(line, b"'num_ctx_requests'").is_some();
        let text = if is_pytorch {
            &line[memmem::find(line, b"iter = ")?..]
        } else {
            let object = &line[memrchr(b'{', &line[..memmem::find(line, b"Iteration Counter")?])?..];
            &object[..memchr(b'}', object)?]
        };
        let marks = [' ', '\'', '"', '\\', '{'];
        let parts = std::str::from_utf8(text).ok()?.split(',');
        let members: HashMap<_, _> = parts
            .filter_map(|part| part.trim_start_matches(" states =").split_once(['=', ':']))
            .map(|(name, value)| (name.trim_matches(marks), value.trim_matches(marks)))
            .collect();
        let find = |name: &str| members.get(name).copied();
        let number_of = |names: &str| names.split('|').find_map(find).and_then(number);
        let count = |names: &str| number_of(names).map(|number| number as i64);

        // Dummies only keep a rank of attention data parallelism busy. Up to release 0.19, no line has `scheduled`.
        let (with_dummies, dummies) = (count("num_scheduled_requests|Scheduled Requests"), count("num_dummy"));
        let scheduled = with_dummies.map(|all| (all - dummies.unwrap_or(0)).max(0));
        let context = count("num_ctx_requests|Context Requests").map(|all| all.min(scheduled.unwrap_or(all)));
        let generation = scheduled.zip(context).map(|(scheduled, context)| scheduled - context);
        let (slots, cached) = (count("num_generation_tokens").unwrap_or(0), count("cached_kv_tokens"));
        let inflight = InflightBatchingStats {
            num_scheduled_requests: scheduled,
            num_context_requests: context,
            num_gen_requests: count("Generation Requests").or(generation),
            num_paused_requests: count("Paused Requests"),
            num_ctx_tokens: count("num_ctx_tokens|Total Context Tokens"),
            micro_batch_id: count("MicroBatch ID"),
            // The sum over the batch. A batch of both kinds does not tell whose tokens they are.
            num_ctx_kv_tokens: cached.filter(|_| generation == Some(0)),
            num_gen_kv_tokens: cached.filter(|_| context == Some(0)),
            ..InflightBatchingStats::default()
        };
        let kv = KvCacheStats {
            max_num_blocks: count("Max KV cache blocks"),
            free_num_blocks: count("Free KV cache blocks"),
            used_num_blocks: count("Used KV cache blocks"),
            tokens_per_block: count("Tokens per KV cache block"),
            used_share: number_of("kv_cache_util"),
            ..KvCacheStats::default()
        };
        // With `scheduled`, 0 means no batch. Lines without it have only the composition, which a pass of PyTorch that launches no batch
        // repeats from the batch before.
        let has_batch = with_dummies.map_or(context.unwrap_or(0) + slots > 0, |all| all > 0 || !is_pytorch);
        let fetched = find("currank_total_requests").and_then(|value| value.split_once('/'));
        let record = IterationStats {
            timestamp: find("timestamp").or_else(|| find("Timestamp")).and_then(parse_timestamp),
            iter: Some(count("iter|Iteration Counter")? as u64),
            rank: is_pytorch.then(|| count("rank").unwrap_or(0)),
            num_active_requests: count("num_active|Active Request Count"),
            max_num_active_requests: count("Max Request Count"),
            cpu_mem_usage: count("Runtime CPU Memory Usage"),
            gpu_mem_usage: count("Runtime GPU Memory Usage"),
            pinned_mem_usage: count("Runtime Pinned Memory Usage"),
            host_step_time_ms: number_of("host_step_time").or_else(|| Some(1000.0 * number_of("elapsed_time")?)),
            prev_device_step_time_ms: number_of("prev_device_step_time"),
            inflight_batching_stats: has_batch.then_some(inflight),
            kv_cache_stats: (kv != KvCacheStats::default()).then_some(kv),
            ..IterationStats::default()
        };
        Some(Self {
            record,
            fetched: fetched.and_then(|(own, all)| Some((number(own)? as i64, number(all)? as i64))),
            generation_slots: slots,
            ..Self::default()
        })
    }
}

/// The number at the beginning of a value such as `4.08ms`, `0}` and `tensor(256)`. `None` for `N/A`, and for numbers
/// that no member has.
fn number(value: &str) -> Option<f64> {
    let value = value.trim_start_matches("tensor(");
    let end = value.find(|next: char| !matches!(next, '0'..='9' | '.' | '-' | '+' | 'e')).unwrap_or(value.len());
    value[..end].parse().ok().filter(|number| (0.0..1e15).contains(number))
}
