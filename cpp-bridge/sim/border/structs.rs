//! The structs of `../src/step.h`, filled from the simulation's own.

use crate::Handle;
use trtllm_sim::{Engine, Stage, record};

#[repr(C)]
#[derive(Debug)]
pub struct Host {
    pub(crate) release: u32,
    pub(crate) max_batch_size: u32,
    pub(crate) max_num_tokens: u32,
    pub(crate) max_tokens: u32,
    pub(crate) memory_fraction: f64,
    pub(crate) max_utilization: bool,
    pub(crate) is_static: bool,
    pub(crate) chunked_context: bool,
    pub(crate) reuse: bool,
    pub(crate) rows: bool,
    pub(crate) events: bool,
}

#[repr(C)]
#[derive(Debug)]
pub struct Opened {
    pub(crate) engine: *mut Handle,
    pub(crate) speed: f64,
    pub(crate) load_seconds: f64,
    pub(crate) iterations: u64,
    pub(crate) rank: u32,
    pub(crate) max_prompt: u32,
    pub(crate) max_sequence: u32,
    pub(crate) orchestrated: i32,
    pub(crate) throws: i32,
    pub(crate) request_stats: bool,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct Record {
    iter: u64,
    latency: f64,
    queue_latency: f64,
    new_active: u32,
    active: u32,
    queued: u32,
    completed: u32,
    max_active: u32,
    batch_limit: u32,
    batch_limit_runtime: u32,
    token_limit: u32,
    gpu_memory: u64,
    cpu_memory: u64,
    cache_max: u32,
    cache_free: u32,
    tokens_per_block: u32,
    alloc_total: u64,
    alloc_new: u64,
    reused: u64,
    missed: u64,
    hit_rate: f32,
    scheduled: u32,
    context_requests: u32,
    generation_requests: u32,
    paused: u32,
    micro_batch: u32,
    context_tokens: u64,
    decoded: u64,
    is_static: bool,
    has_speculation: bool,
    drafted: u64,
    accepted: u64,
    drafting: u64,
    draft_seconds: f64,
    draft_overhead: f64,
}

impl Record {
    pub(crate) fn of(record: &record::Record, is_static: bool) -> Self {
        let (counts, work) = (&record.cache.total, &record.work);
        let speculation = record.speculation.unwrap_or_default();
        let looked_up = counts.reused() + counts.missed;
        Self {
            iter: record.iter,
            latency: record.latency,
            queue_latency: record.queue_latency,
            new_active: record.new_active,
            active: record.active,
            queued: record.queued,
            completed: record.completed,
            max_active: record.max_active,
            batch_limit: record.batch_limit,
            batch_limit_runtime: record.batch_limit_runtime,
            token_limit: record.token_limit,
            gpu_memory: record.gpu_memory,
            cpu_memory: record.cpu_memory,
            cache_max: record.cache.max,
            cache_free: record.cache.free,
            tokens_per_block: record.cache.tokens_per_block,
            alloc_total: counts.alloc_total,
            alloc_new: counts.alloc_new,
            reused: counts.reused(),
            missed: counts.missed,
            hit_rate: if looked_up == 0 { 0.0 } else { counts.reused() as f32 / looked_up as f32 },
            scheduled: work.scheduled,
            context_requests: work.context_requests,
            generation_requests: work.generation_requests,
            paused: work.paused,
            micro_batch: record.micro_batch,
            context_tokens: work.context_tokens,
            decoded: record.decoded,
            is_static,
            has_speculation: record.speculation.is_some(),
            drafted: speculation.drafted,
            accepted: speculation.accepted,
            drafting: speculation.requests,
            draft_seconds: speculation.seconds,
            draft_overhead: speculation.overhead,
        }
    }
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct Row {
    id: u64,
    stage: i32,
    prefill_position: u32,
    generated: u32,
    steps: u32,
    scheduled: bool,
    paused: bool,
    has_transfer: bool,
    alloc_total: u64,
    alloc_new: u64,
    reused: u64,
    missed: u64,
    transfer_ms: f64,
    transfer_bytes: u64,
}

impl From<&record::Row> for Row {
    fn from(row: &record::Row) -> Self {
        let (transfer_ms, transfer_bytes) = row.transfer.unwrap_or_default();
        Self {
            id: row.id,
            stage: match row.stage {
                Stage::Queued => 0,
                Stage::Context => 1,
                Stage::Generation => 2,
                Stage::Complete => 3,
            },
            prefill_position: row.prefill_position,
            generated: row.generated,
            steps: row.steps,
            scheduled: row.scheduled,
            paused: row.paused,
            has_transfer: row.transfer.is_some(),
            alloc_total: row.counts.alloc_total,
            alloc_new: row.counts.alloc_new,
            reused: row.counts.reused(),
            missed: row.counts.missed,
            transfer_ms,
            transfer_bytes,
        }
    }
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct Entry {
    id: u64,
    first_iter: u64,
    last_iter: u64,
    arrival: f64,
    first_scheduled: f64,
    first_token: f64,
    last_token: f64,
    transfer_start: f64,
    transfer_end: f64,
    transfer_bytes: u64,
    alloc_total: u64,
    alloc_new: u64,
    reused: u64,
    missed: u64,
    drafted: u32,
    accepted: u32,
}

impl From<&record::Entry> for Entry {
    fn from(entry: &record::Entry) -> Self {
        let (transfer_start, transfer_end, transfer_bytes) = entry.transfer.unwrap_or_default();
        Self {
            id: entry.id,
            first_iter: entry.first_iter,
            last_iter: entry.last_iter,
            arrival: entry.arrival,
            first_scheduled: entry.first_scheduled,
            first_token: entry.first_token,
            last_token: entry.last_token,
            transfer_start,
            transfer_end,
            transfer_bytes,
            alloc_total: entry.counts.alloc_total,
            alloc_new: entry.counts.alloc_new,
            reused: entry.counts.reused(),
            missed: entry.counts.missed,
            drafted: entry.drafted,
            accepted: entry.accepted,
        }
    }
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) id: u64,
    pub(crate) kind: i32,
    pub(crate) numbers: *const u64,
    pub(crate) count: usize,
}

#[repr(C)]
#[derive(Debug)]
pub struct State {
    next: f64,
    is_iterating: bool,
    is_idle: bool,
    queued: u64,
    iterations: u64,
    flushes: u64,
    arrived: u64,
    started: u64,
    completed: u64,
    context_tokens: u64,
    first_tokens: u64,
    decoded_tokens: u64,
    drafted: u64,
    accepted: u64,
    pauses: u64,
}

impl State {
    pub(crate) fn of(engine: &Engine, next: Option<f64>) -> Self {
        let truth = engine.truth();
        Self {
            next: next.unwrap_or(-1.0),
            is_iterating: engine.is_iterating(),
            is_idle: engine.is_idle(),
            queued: engine.queued() as u64,
            iterations: truth.iterations,
            flushes: truth.flushes,
            arrived: truth.arrived,
            started: truth.started,
            completed: truth.completed,
            context_tokens: truth.context_tokens,
            first_tokens: truth.first_tokens,
            decoded_tokens: truth.decoded_tokens,
            drafted: truth.drafted,
            accepted: truth.accepted,
            pauses: truth.pauses,
        }
    }
}
