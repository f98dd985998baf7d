//! The lines of an iteration log. A line of the PyTorch engine has members that come and go between releases, so each
//! is found by its name: `iter = 7, rank = 0, …, host_step_time = 7.4ms, …, states = {'num_ctx_requests': 0, …}, …`.
//! The C++ executor writes an object of JSON, which Triton's log may quote.

use std::collections::HashMap;

use memchr::memmem;
use trtllm_records::iteration::{InflightBatchingStats, IterationStats, KvCacheStats};
use trtllm_records::timestamp::parse_timestamp;

/// One pass of the loop of a PyTorch engine, with the batch that it launched. Times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Pass {
    pub iter: u64,
    pub rank: i64,
    /// Requests of the batch. Absent up to release 0.19.
    pub scheduled: Option<i64>,
    /// Those of them that only keep a rank of attention data parallelism busy.
    pub dummies: i64,
    pub active: Option<i64>,
    /// Requests that this rank and all ranks have fetched since the start. Only attention data parallelism counts those
    /// of a rank.
    pub fetched: Option<(i64, i64)>,
    pub cache_used: Option<f64>,
    pub host_ms: Option<f64>,
    /// The pass before, on the GPU.
    pub device_ms: Option<f64>,
    /// When the pass ended: microseconds of the local time, in whole seconds.
    pub written_us: Option<i64>,
    pub context_requests: i64,
    pub context_tokens: Option<i64>,
    /// Tokens computed for generation requests, with drafts and with padding for CUDA graphs.
    pub generation_slots: i64,
    pub cached_tokens: Option<i64>,
}

impl Pass {
    /// Reads a line. `None` for any other line.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        memmem::find(line, b"'num_ctx_requests'")?;
        let text = std::str::from_utf8(&line[memmem::find(line, b"iter = ")?..]).ok()?;
        let mut pass = Self::default();
        for part in text.split(',') {
            let part = part.trim_start().trim_start_matches("states = {");
            let Some((key, value)) = part.split_once(['=', ':']) else { continue };
            let value = value.trim_start();
            match key.trim_matches([' ', '\'']) {
                "iter" => pass.iter = count(value)? as u64,
                "rank" => pass.rank = count(value)?,
                "num_scheduled_requests" => pass.scheduled = count(value),
                "num_active" => pass.active = count(value),
                "num_dummy" => pass.dummies = count(value)?,
                "currank_total_requests" => {
                    pass.fetched = value.split_once('/').and_then(|(own, all)| Some((count(own)?, count(all)?)));
                }
                "kv_cache_util" => pass.cache_used = number(value),
                "host_step_time" => pass.host_ms = milliseconds(value, 1.0),
                "elapsed_time" => pass.host_ms = milliseconds(value, 1000.0),
                "prev_device_step_time" => pass.device_ms = milliseconds(value, 1.0),
                "timestamp" => pass.written_us = parse_timestamp(value).map(|time| time.micros),
                "num_ctx_requests" => pass.context_requests = count(value)?,
                "num_ctx_tokens" => pass.context_tokens = count(value),
                "num_generation_tokens" => pass.generation_slots = count(value)?,
                "cached_kv_tokens" => pass.cached_tokens = count(value),
                _ => {}
            }
        }
        Some(pass)
    }

    /// Whether a batch was launched. If not, the line repeats the composition of the batch before.
    pub(super) fn has_batch(&self) -> bool {
        self.scheduled.map_or(self.context_requests + self.generation_slots > 0, |scheduled| scheduled > 0)
    }

    /// The batch, without dummies.
    pub(super) fn batch(&self) -> InflightBatchingStats {
        let scheduled = self.scheduled.map(|scheduled| (scheduled - self.dummies).max(0));
        let context = self.context_requests.min(scheduled.unwrap_or(i64::MAX));
        let generation = scheduled.map(|scheduled| scheduled - context);
        InflightBatchingStats {
            num_scheduled_requests: scheduled,
            num_context_requests: Some(context),
            num_gen_requests: generation,
            num_ctx_tokens: self.context_tokens,
            // The sum over the batch. A batch of both kinds does not tell whose tokens they are.
            num_ctx_kv_tokens: self.cached_tokens.filter(|_| generation == Some(0)),
            num_gen_kv_tokens: self.cached_tokens.filter(|_| context == 0),
            ..InflightBatchingStats::default()
        }
    }
}

/// The number at the beginning of a value such as `4.08ms`, `0}` and `tensor(256)`. `None` for `N/A`.
fn number(value: &str) -> Option<f64> {
    let value = value.trim_start_matches("tensor(");
    let end = value.find(|next: char| !matches!(next, '0'..='9' | '.' | '-' | '+' | 'e')).unwrap_or(value.len());
    value[..end].parse().ok()
}

/// A time in units of `unit` milliseconds. `None` if no pass takes so long.
fn milliseconds(value: &str, unit: f64) -> Option<f64> {
    number(value).map(|time| time * unit).filter(|time| (0.0..1e9).contains(time))
}

fn count(value: &str) -> Option<i64> {
    number(value).filter(|count| (0.0..1e15).contains(count)).map(|count| count as i64)
}

/// Reads a line of the C++ executor, up to release 1.2. `None` for any other line.
pub(super) fn parse_executor(line: &[u8]) -> Option<IterationStats> {
    let counter = memmem::find(line, b"Iteration Counter")?;
    let begin = memchr::memrchr(b'{', &line[..counter])?;
    let end = begin + memchr::memchr(b'}', &line[begin..])?;
    let text = std::str::from_utf8(&line[begin..=end]).ok()?.replace("\\\"", "\"");
    let values: HashMap<&str, serde_json::Value> = serde_json::from_str(&text).ok()?;
    let count = |key: &str| values.get(key).and_then(serde_json::Value::as_i64);
    let inflight = InflightBatchingStats {
        num_scheduled_requests: count("Scheduled Requests"),
        num_context_requests: count("Context Requests"),
        num_gen_requests: count("Generation Requests"),
        num_paused_requests: count("Paused Requests"),
        num_ctx_tokens: count("Total Context Tokens"),
        micro_batch_id: count("MicroBatch ID"),
        ..InflightBatchingStats::default()
    };
    let kv = KvCacheStats {
        max_num_blocks: count("Max KV cache blocks"),
        free_num_blocks: count("Free KV cache blocks"),
        used_num_blocks: count("Used KV cache blocks"),
        tokens_per_block: count("Tokens per KV cache block"),
        ..KvCacheStats::default()
    };
    Some(IterationStats {
        timestamp: values.get("Timestamp").and_then(|time| parse_timestamp(time.as_str()?)),
        iter: u64::try_from(count("Iteration Counter")?).ok(),
        num_active_requests: count("Active Request Count"),
        max_num_active_requests: count("Max Request Count"),
        cpu_mem_usage: count("Runtime CPU Memory Usage"),
        gpu_mem_usage: count("Runtime GPU Memory Usage"),
        pinned_mem_usage: count("Runtime Pinned Memory Usage"),
        inflight_batching_stats: (inflight != InflightBatchingStats::default()).then_some(inflight),
        kv_cache_stats: (kv != KvCacheStats::default()).then_some(kv),
        ..IterationStats::default()
    })
}
