//! What the engine reports, before it is written as JSON. `write` knows which release has which key.

use crate::cost::Work;

/// The statistics of one iteration of one rank.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// Virtual seconds of the record's timestamp.
    pub at: f64,
    pub iter: u64,
    pub latency: f64,
    /// Seconds that started requests had waited in the queue. With C++, the sum of this iteration's
    /// requests; with PyTorch, the sum since the start.
    pub queue_latency: f64,
    pub new_active: u32,
    pub active: u32,
    pub queued: u32,
    pub completed: u32,
    pub max_active: u32,
    pub batch_limit: u32,
    pub batch_limit_runtime: u32,
    pub token_limit: u32,
    pub gpu_memory: u64,
    pub cpu_memory: u64,
    pub cache: CacheView,
    pub work: Work,
    pub micro_batch: u32,
    /// Tokens of decoding requests.
    pub decoded: u64,
    /// Tokens per step of a decoding request until before this batch, averaged over the requests.
    pub tokens_per_step: f64,
    pub speculation: Option<SpeculationCounts>,
    /// Absent if the release batches in flight.
    pub static_batch: Option<StaticBatch>,
    /// Prompt tokens of the queued requests.
    pub queued_tokens: u64,
    /// The engine is a generation server, so queued requests wait for their generation phase.
    pub queues_generation: bool,
    /// Seconds of the last pass of the host's loop that was complete when the record was written.
    pub host_seconds: f64,
    /// Seconds of the batch's own forward pass on the GPU.
    pub gpu_seconds: f64,
    /// Seconds of the pass before the one of `host_seconds`, between GPU events at its begin and at its end.
    pub previous_device_seconds: f64,
    pub overlap: bool,
    /// The rank of this record. Absent without attention data parallelism.
    pub rank: Option<u32>,
    /// The rank wrote it itself; it is not a copy of the record of rank 0.
    pub gathered: bool,
    pub sequence: u64,
    pub resumed: u32,
    /// Rows of requests. Only PyTorch writes them into the record.
    pub rows: Option<Vec<Row>>,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct CacheView {
    pub max: u32,
    pub free: u32,
    pub evictable: u32,
    /// The most blocks in use since the previous record.
    pub peak_used: u32,
    pub tokens_per_block: u32,
    pub host_max: u32,
    pub host_used: u32,
    pub bytes_per_block: u64,
    pub total: CacheCounts,
    pub iteration: CacheCounts,
}

/// The counts of a static batch.
#[derive(Debug, Clone, Copy, Default)]
pub struct StaticBatch {
    pub context_tokens: u64,
    /// Output tokens that its requests ask for.
    pub generation_tokens: u64,
    /// Output tokens by which its requests ask for less than the one that asks for most, summed.
    pub empty_slots: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct SpeculationCounts {
    pub drafted: u64,
    pub accepted: u64,
    pub requests: u64,
    /// Seconds of the draft model as the record tells them.
    pub seconds: f64,
}

/// One request in an iteration.
#[derive(Debug, Clone)]
pub struct Row {
    pub id: u64,
    pub stage: Stage,
    pub prefill_position: u32,
    pub generated: u32,
    pub steps: u32,
    pub scheduled: bool,
    pub paused: bool,
    pub counts: CacheCounts,
    /// Milliseconds and bytes of the KV cache transfer. Absent unless serving is disaggregated.
    pub transfer: Option<(f64, u64)>,
}

/// The perf-metrics entry of a finished request.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The id in the Executor, as in rows of PyTorch and C++.
    pub id: u64,
    /// The id in the process that answers the request. It may equal the Executor's id of another request.
    pub api_id: u64,
    /// Whether the Executor's id is the id of the orchestrator.
    pub has_orchestrator_id: bool,
    pub end: End,
    /// A generation server continues the answer. Since 1.3, the context server then tells the reason `not_finished`
    /// instead of `length`.
    pub continued: bool,
    /// Whether the client asked for the answer without streaming.
    pub nonstream: bool,
    pub server_arrival: f64,
    pub server_first_token: Option<f64>,
    /// What the release stamps as the arrival. [`RequestTruth::queued`](crate::truth::RequestTruth) is when the engine
    /// received the request.
    pub arrival: f64,
    pub first_scheduled: f64,
    pub first_token: f64,
    pub last_token: f64,
    pub first_iter: u64,
    pub last_iter: u64,
    /// Start and end of the KV cache transfer in seconds of virtual time, and its bytes.
    pub transfer: Option<(f64, f64, u64)>,
    pub counts: CacheCounts,
    pub drafted: u32,
    pub accepted: u32,
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    /// Absent if the engine does not measure them.
    pub steps: Option<Box<StepTimes>>,
}

/// The steps of a request.
#[derive(Debug, Clone, Default)]
pub struct StepTimes {
    /// One step for each chunk of the prompt.
    pub context: Vec<StepTime>,
    pub generation: Vec<StepTime>,
}

/// A batch that a request was part of, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct StepTime {
    pub start: f64,
    pub end: f64,
    pub gpu_forward: f64,
    pub gpu_sample: f64,
}

/// TensorRT-LLM's name for the progress of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Queued,
    Context,
    Generation,
    Complete,
}

/// Why a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// The answer is complete.
    Stop,
    /// The answer reached `max_tokens`.
    Length,
    TimedOut,
    Cancelled,
    /// Refused or failed; the client sees an HTTP error.
    Error,
}

/// Counts since the cache was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheCounts {
    pub alloc_total: u64,
    pub alloc_new: u64,
    pub full_reused: u64,
    pub partial_reused: u64,
    pub missed: u64,
    pub generation_alloc: u64,
    pub onboarded: u64,
    pub offloaded: u64,
    pub host_dropped: u64,
    pub copied: u64,
}

impl CacheCounts {
    #[must_use]
    pub fn reused(&self) -> u64 {
        self.full_reused + self.partial_reused
    }

    /// The difference from the earlier counts `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            alloc_total: self.alloc_total - before.alloc_total,
            alloc_new: self.alloc_new - before.alloc_new,
            full_reused: self.full_reused - before.full_reused,
            partial_reused: self.partial_reused - before.partial_reused,
            missed: self.missed - before.missed,
            generation_alloc: self.generation_alloc - before.generation_alloc,
            onboarded: self.onboarded - before.onboarded,
            offloaded: self.offloaded - before.offloaded,
            host_dropped: self.host_dropped - before.host_dropped,
            copied: self.copied - before.copied,
        }
    }
}
