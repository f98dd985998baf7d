//! The structs of `../src/step.h`, filled from the simulation's own.

use trtllm_sim::{Engine, Stage, record};

/// Declares a struct of step.h and the function that fills it. The expression after each member gives its value.
macro_rules! filled {
    ($vis:vis struct $name:ident, $of:ident ( $($from:ident: $type:ty),* ) { $($before:stmt;)* } $($member:ident: $kind:ty = $value:expr,)*) => {
        #[repr(C)]
        #[derive(Debug)]
        $vis struct $name { $($member: $kind,)* }

        impl $name {
            pub(crate) fn $of($($from: $type),*) -> Self {
                $($before)*
                Self { $($member: $value,)* }
            }
        }
    };
}

#[repr(C)]
#[derive(Debug)]
pub struct Opened {
    pub(crate) engine: *mut Engine,
    pub(crate) speed: f64,
    pub(crate) load_seconds: f64,
    pub(crate) iterations: u64,
    pub(crate) rank: u32,
    pub(crate) max_prompt: u32,
    pub(crate) max_sequence: u32,
    pub(crate) throws: i32,
}

filled! { pub(crate) struct Record, of(record: &record::Record) {
        let (counts, work) = (&record.cache.total, &record.work);
        let fixed = record.static_batch.unwrap_or_default();
        let is_static = record.static_batch.is_some();
        let speculation = record.speculation.unwrap_or_default();
    }
    iter: u64 = record.iter,
    latency: f64 = record.latency,
    queue_latency: f64 = record.queue_latency,
    new_active: u32 = record.new_active,
    active: u32 = record.active,
    queued: u32 = record.queued,
    completed: u32 = record.completed,
    max_active: u32 = record.max_active,
    batch_limit: u32 = record.batch_limit,
    batch_limit_runtime: u32 = record.batch_limit_runtime,
    token_limit: u32 = record.token_limit,
    gpu_memory: u64 = record.gpu_memory,
    cpu_memory: u64 = record.cpu_memory,
    cache_max: u32 = record.cache.max,
    cache_free: u32 = record.cache.free,
    tokens_per_block: u32 = record.cache.tokens_per_block,
    alloc_total: u64 = counts.alloc_total,
    alloc_new: u64 = counts.alloc_new,
    reused: u64 = counts.reused(),
    missed: u64 = counts.missed,
    scheduled: u32 = work.scheduled,
    context_requests: u32 = work.context_requests,
    generation_requests: u32 = work.generation_requests,
    paused: u32 = work.paused,
    micro_batch: u32 = record.micro_batch,
    context_tokens: u64 = if is_static { fixed.context_tokens } else { work.context_tokens },
    decoded: u64 = if is_static { fixed.generation_tokens } else { record.decoded },
    empty_slots: u64 = fixed.empty_slots,
    tokens_per_step: f64 = record.tokens_per_step,
    is_static: bool = is_static,
    has_speculation: bool = record.speculation.is_some(),
    drafted: u64 = speculation.drafted,
    accepted: u64 = speculation.accepted,
    drafting: u64 = speculation.requests,
    draft_seconds: f64 = speculation.seconds,
    draft_overhead: f64 = if record.latency > 0.0 { speculation.seconds / record.latency } else { 0.0 },
}

filled! { pub(crate) struct Row, of(row: &record::Row) { let (transfer_ms, transfer_bytes) = row.transfer.unwrap_or_default(); }
    id: u64 = row.id,
    stage: i32 = match row.stage { Stage::Queued => 0, Stage::Context => 1, Stage::Generation => 2, Stage::Complete => 3 },
    prefill_position: u32 = row.prefill_position,
    generated: u32 = row.generated,
    steps: u32 = row.steps,
    scheduled: bool = row.scheduled,
    paused: bool = row.paused,
    has_transfer: bool = row.transfer.is_some(),
    alloc_total: u64 = row.counts.alloc_total,
    alloc_new: u64 = row.counts.alloc_new,
    reused: u64 = row.counts.reused(),
    missed: u64 = row.counts.missed,
    transfer_ms: f64 = transfer_ms,
    transfer_bytes: u64 = transfer_bytes,
}

filled! { pub(crate) struct Entry, of(entry: &record::Entry) { let (transfer_start, transfer_end, transfer_bytes) = entry.transfer.unwrap_or_default(); }
    id: u64 = entry.id,
    first_iter: u64 = entry.first_iter,
    last_iter: u64 = entry.last_iter,
    arrival: f64 = entry.arrival,
    first_scheduled: f64 = entry.first_scheduled,
    first_token: f64 = entry.first_token,
    last_token: f64 = entry.last_token,
    transfer_start: f64 = transfer_start,
    transfer_end: f64 = transfer_end,
    transfer_bytes: u64 = transfer_bytes,
    alloc_total: u64 = entry.counts.alloc_total,
    alloc_new: u64 = entry.counts.alloc_new,
    reused: u64 = entry.counts.reused(),
    missed: u64 = entry.counts.missed,
    drafted: u32 = entry.drafted,
    accepted: u32 = entry.accepted,
    output_tokens: u32 = entry.output_tokens,
}

filled! { pub struct State, of(engine: &Engine, next: Option<f64>) { let truth = engine.truth(); }
    next: f64 = next.unwrap_or(-1.0),
    is_iterating: bool = engine.is_iterating(),
    is_idle: bool = engine.is_idle(),
    iterations: u64 = truth.iterations,
    flushes: u64 = truth.flushes,
    arrived: u64 = truth.arrived,
    started: u64 = truth.started,
    completed: u64 = truth.completed,
    context_tokens: u64 = truth.context_tokens,
    first_tokens: u64 = truth.first_tokens,
    decoded_tokens: u64 = truth.decoded_tokens,
    pauses: u64 = truth.pauses,
}
