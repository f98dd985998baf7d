//! The cxx border: shared plain structs and the C++ functions. Private to this crate; `executor.rs` makes it safe to use
//! by plain Rust types.

// What cxx generates is the border itself; this file holds no hand-written unsafe code but one argued impl.
#![allow(unsafe_code)]
// cxx makes every item of the bridge `pub`; the module is private.
#![allow(unreachable_pub)]

#[cxx::bridge(namespace = "trtllm_bridge")]
mod bridge {
    /// One record of the engine (upstream: `IterationStats`), flat: no pointer, no allocation.
    /// Members that `present` does not name are 0 and mean nothing; see [`crate::iteration_present`].
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub struct IterationRow {
        /// Which optional members this record carries.
        pub present: u64,
        /// Wall-clock fields of the record's time stamp read as if they were UTC, microseconds since 1970: the engine
        /// writes local time without a zone.
        pub timestamp_local_us: i64,
        pub iter: u64,
        /// Milliseconds, of the pass before; 0.0 after idle.
        pub iter_latency_ms: f64,
        /// Milliseconds, summed over the requests this iteration activated.
        pub new_active_requests_queue_latency_ms: f64,
        pub num_new_active_requests: i32,
        pub num_active_requests: i32,
        pub num_queued_requests: i32,
        pub num_completed_requests: i32,
        pub max_num_active_requests: i32,
        pub max_batch_size_static: i32,
        pub max_batch_size_tuner_recommended: i32,
        pub max_batch_size_runtime: i32,
        pub max_num_tokens_static: i32,
        pub max_num_tokens_tuner_recommended: i32,
        pub max_num_tokens_runtime: i32,
        /// Bytes, as are the two after it.
        pub gpu_mem_usage: u64,
        pub cpu_mem_usage: u64,
        pub pinned_mem_usage: u64,

        pub kv_max_num_blocks: i32,
        pub kv_free_num_blocks: i32,
        pub kv_used_num_blocks: i32,
        pub kv_tokens_per_block: i32,
        /// Since the cache was created, as are the three after it; may wrap.
        pub kv_alloc_total_blocks: i32,
        pub kv_alloc_new_blocks: i32,
        pub kv_reused_blocks: i32,
        pub kv_missed_blocks: i32,
        /// 0..1, since the cache was created.
        pub kv_cache_hit_rate: f32,

        pub cross_kv_max_num_blocks: i32,
        pub cross_kv_free_num_blocks: i32,
        pub cross_kv_used_num_blocks: i32,
        pub cross_kv_tokens_per_block: i32,
        pub cross_kv_alloc_total_blocks: i32,
        pub cross_kv_alloc_new_blocks: i32,
        pub cross_kv_reused_blocks: i32,
        pub cross_kv_missed_blocks: i32,
        pub cross_kv_cache_hit_rate: f32,

        pub static_num_scheduled_requests: i32,
        pub static_num_context_requests: i32,
        pub static_num_ctx_tokens: i32,
        pub static_num_gen_tokens: i32,
        pub static_empty_gen_slots: i32,

        pub inflight_num_scheduled_requests: i32,
        pub inflight_num_context_requests: i32,
        pub inflight_num_gen_requests: i32,
        pub inflight_num_paused_requests: i32,
        pub inflight_num_ctx_tokens: i32,
        pub inflight_micro_batch_id: i32,
        /// Tokens per iteration and generating request, averaged over each request's life.
        pub inflight_avg_num_decoded_tokens_per_iter: f32,
        pub inflight_num_ctx_kv_tokens: i64,
        pub inflight_num_gen_kv_tokens: i64,
        pub inflight_num_queued_context_requests: i64,
        pub inflight_num_queued_ctx_tokens: i64,
        pub inflight_num_queued_gen_requests: i64,
        pub inflight_num_queued_gen_kv_tokens: i64,
        pub inflight_num_paused_kv_tokens: i64,

        pub spec_num_draft_tokens: i64,
        pub spec_num_accepted_tokens: i64,
        pub spec_num_requests_with_draft_tokens: i64,
        /// Tokens per generation step.
        pub spec_acceptance_length: f64,
        /// Milliseconds of the draft phase only.
        pub spec_iter_latency_ms: f64,
        /// Draft time as a part of the iteration's, 0..1.
        pub spec_draft_overhead: f64,
    }

    /// Bits of `IterationRow::present`. A group's bit may be missing because the record lacks it or because the
    /// TensorRT-LLM that was compiled against does.
    #[repr(u64)]
    enum IterationPresent {
        Timestamp = 0x1,
        IterLatency = 0x2,
        QueueLatency = 0x4,
        NewActiveRequests = 0x8,
        QueuedRequests = 0x10,
        CompletedRequests = 0x20,
        BatchSizeLimits = 0x40,
        TokenLimits = 0x80,
        Kv = 0x100,
        KvAlloc = 0x200,
        KvMissed = 0x400,
        CrossKv = 0x800,
        CrossKvAlloc = 0x1000,
        CrossKvMissed = 0x2000,
        Static = 0x4000,
        Inflight = 0x8000,
        InflightDecoded = 0x10000,
        InflightKvTokens = 0x20000,
        Spec = 0x40000,
    }

    /// One request in one iteration (upstream: `RequestStats`). Members that `present` does not name are 0 and mean
    /// nothing; see [`crate::request_present`]. Counts are over the request's life.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub struct RequestRow {
        pub present: u64,
        /// The iteration that reported it.
        pub iter: u64,
        pub id: u64,
        /// See [`RequestRow::request_stage`]: numbers of our own, as upstream's shifted between releases.
        pub stage: u8,
        pub scheduled: bool,
        pub paused: bool,
        pub context_prefill_position: i32,
        pub num_generated_tokens: i32,
        pub avg_num_decoded_tokens_per_iter: f32,
        pub alloc_total_blocks: i32,
        pub alloc_new_blocks: i32,
        pub reused_blocks: i32,
        pub missed_blocks: i32,
        /// 0..1
        pub kv_cache_hit_rate: f32,
        /// Milliseconds.
        pub kv_cache_transfer_ms: f64,
        /// Bytes.
        pub kv_cache_size: u64,
    }

    #[repr(u64)]
    enum RequestPresent {
        Decoded = 0x1,
        KvAlloc = 0x2,
        KvMissed = 0x4,
        DisServing = 0x8,
        DisServingSize = 0x10,
    }

    /// `RequestRow::stage`.
    #[repr(u8)]
    enum Stage {
        Unknown = 0,
        Queued = 1,
        EncoderInProgress = 2,
        ContextInProgress = 3,
        GenerationInProgress = 4,
        GenerationComplete = 5,
    }

    /// One finished request of a load (upstream: `RequestPerfMetrics` and its `Result`). Members that `present` does
    /// not name are 0 and mean nothing; see [`crate::perf_present`]. Times are seconds of this machine's steady clock.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub struct PerfRow {
        pub present: u64,
        pub id: u64,
        pub prompt_tokens: i32,
        pub output_tokens: i32,
        /// See [`PerfRow::reason`]: upstream's numbers.
        pub finish_reason: u8,
        /// The engine answered with an error instead of a result.
        pub failed: bool,
        pub arrival_s: f64,
        pub first_scheduled_s: f64,
        pub first_token_s: f64,
        pub last_token_s: f64,
        pub kv_cache_transfer_start_s: f64,
        pub kv_cache_transfer_end_s: f64,
        /// Bytes.
        pub kv_cache_size: u64,
        pub num_total_allocated_blocks: i32,
        pub num_new_allocated_blocks: i32,
        pub num_reused_blocks: i32,
        pub num_missed_blocks: i32,
        /// 0..1
        pub kv_cache_hit_rate: f32,
        /// 0..1
        pub acceptance_rate: f32,
        pub total_accepted_draft_tokens: i32,
        pub total_draft_tokens: i32,
        pub first_iter: u64,
        pub last_iter: u64,
    }

    #[repr(u64)]
    enum PerfPresent {
        FinishReason = 0x1,
        Arrival = 0x2,
        FirstScheduled = 0x4,
        FirstToken = 0x8,
        LastToken = 0x10,
        KvTransfer = 0x20,
        Kv = 0x40,
        Spec = 0x80,
        Iterations = 0x100,
    }

    /// What an event of the KV cache says.
    #[repr(u8)]
    #[derive(Debug)]
    enum KvEventKind {
        Unknown,
        /// The engine has started; a row for each cache level, its number of blocks.
        Created,
        /// Blocks that requests can find from now on.
        Stored,
        /// Blocks that are not found any more.
        Removed,
        /// A block whose level or priority changed.
        Updated,
    }

    /// One block of an event; rows of one event stand together and have its number.
    #[derive(Clone, Copy, Debug)]
    struct KvEventRow {
        /// From 0; what is skipped was lost.
        event_id: u64,
        kind: KvEventKind,
        /// The event is about no block at all.
        empty: bool,
        has_rank: bool,
        /// Of attention-DP.
        rank: i32,
        has_level: bool,
        /// 0 is the GPU.
        level: i32,
        /// The block's hash; of `Created`, how many blocks the level has.
        value: u64,
    }

    /// The parts of a host's configuration that are numbers; `set` tells which were given.
    #[derive(Clone, Copy, Debug, Default)]
    struct HostConfig {
        set: u64,
        iter_stats_max_iterations: i32,
        request_stats_max_iterations: i32,
        /// 0 decoder only, 1 encoder only, 2 encoder and decoder.
        model_type: u8,
        static_batching: bool,
        max_batch_size: i32,
        max_num_tokens: i32,
        max_queue_size: i32,
        enable_chunked_context: bool,
        enable_block_reuse: bool,
        free_gpu_memory_fraction: f32,
        kv_max_tokens: i32,
        orchestrator_mode: bool,
        is_orchestrator: bool,
        spawn_processes: bool,
        event_buffer_max_size: i32,
    }

    #[repr(u64)]
    enum HostSet {
        Batching = 0x1,
        MaxBatchSize = 0x2,
        MaxNumTokens = 0x4,
        MaxQueueSize = 0x8,
        ChunkedContext = 0x10,
        BlockReuse = 0x20,
        GpuFraction = 0x40,
        KvMaxTokens = 0x80,
        CommMode = 0x100,
        IsOrchestrator = 0x200,
        SpawnProcesses = 0x400,
        EventBuffer = 0x800,
    }

    /// A load in numbers; 0 requests are without end.
    #[derive(Clone, Copy, Debug, Default)]
    struct LoadConfig {
        in_flight: u32,
        prompt_tokens: i32,
        shared_prefix_tokens: i32,
        output_tokens: i32,
        requests: u64,
    }

    /// How far the synthetic requests of an engine are.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct LoadProgress {
        /// Accepted by the engine.
        pub enqueued: u64,
        /// Answered, with a result or an error.
        pub finished: u64,
        /// Of these, answered with an error.
        pub failed: u64,
        /// Times the engine refused a request or a call of the driver failed; each was tried again.
        pub refused: u64,
        /// Rows dropped because nobody drained them.
        pub rows_lost: u64,
        /// Keeps requests in flight still.
        pub running: bool,
        /// Why the last request failed or was refused; empty if none was.
        pub last_error: String,
    }

    /// What really happened in a simulated engine since it was opened, whatever was drained. For tests and benchmarks.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub struct Truth {
        /// Batches launched.
        pub iterations: u64,
        /// Records written because the engine ran out of requests; they share their `iter` with the next record.
        pub flushes: u64,
        pub requests_arrived: u64,
        pub requests_started: u64,
        pub requests_completed: u64,
        /// Computed, so without those found in the KV cache.
        pub context_tokens: u64,
        /// Output tokens that ended a context phase.
        pub first_tokens: u64,
        /// Output tokens of generation phases.
        pub generation_tokens: u64,
        pub draft_tokens: u64,
        pub accepted_tokens: u64,
        pub pauses: u64,
        /// Iteration records written into the ring.
        pub records_pushed: u64,
        /// Of these, overwritten before anybody drained them.
        pub records_lost: u64,
        pub request_records_pushed: u64,
        pub request_records_lost: u64,
        /// The engine's own clock, milliseconds.
        pub virtual_time_ms: f64,
        /// No request is active or queued.
        pub idle: bool,
    }

    unsafe extern "C++" {
        include!("trtllm_bridge/bridge.h");

        type ExecutorHandle;

        #[rust_name = "open_executor"]
        fn openExecutor(
            engine: &str,
            config: &HostConfig,
            participant_ids: &[i32],
            device_ids: &[i32],
            worker_executable: &str,
        ) -> Result<UniquePtr<ExecutorHandle>>;
        #[rust_name = "library_version"]
        fn libraryVersion() -> String;
        #[rust_name = "is_simulated"]
        fn isSimulated() -> bool;
        #[rust_name = "exit_now"]
        fn exitNow(code: i32);

        #[rust_name = "can_enqueue_requests"]
        fn canEnqueueRequests(self: &ExecutorHandle) -> Result<bool>;
        #[rust_name = "drain_iterations"]
        fn drainIterations(self: Pin<&mut ExecutorHandle>, rows: &mut [IterationRow]) -> Result<usize>;
        #[rust_name = "drain_requests"]
        fn drainRequests(self: Pin<&mut ExecutorHandle>, rows: &mut [RequestRow]) -> Result<usize>;
        fn shutdown(self: Pin<&mut ExecutorHandle>) -> Result<()>;
        fn truth(self: &ExecutorHandle) -> Result<Truth>;

        #[rust_name = "start_load"]
        fn startLoad(self: Pin<&mut ExecutorHandle>, load: &LoadConfig) -> Result<()>;
        #[rust_name = "stop_load"]
        fn stopLoad(self: Pin<&mut ExecutorHandle>) -> Result<()>;
        #[rust_name = "load_progress"]
        fn loadProgress(self: &ExecutorHandle) -> Result<LoadProgress>;
        #[rust_name = "enqueue_synthetic"]
        fn enqueueSynthetic(self: Pin<&mut ExecutorHandle>, prompt_tokens: i32, output_tokens: i32) -> Result<u64>;
        fn enqueue(self: Pin<&mut ExecutorHandle>, prompt: &[i32], output_tokens: i32) -> Result<u64>;
        #[rust_name = "drain_kv_events"]
        fn drainKvEvents(self: Pin<&mut ExecutorHandle>, rows: &mut [KvEventRow]) -> Result<usize>;
        #[rust_name = "drain_perf_metrics"]
        fn drainPerfMetrics(self: Pin<&mut ExecutorHandle>, rows: &mut [PerfRow]) -> Result<usize>;
    }
}

pub(crate) use bridge::{
    ExecutorHandle, HostConfig, HostSet, IterationPresent, LoadConfig, PerfPresent, RequestPresent, Stage, exit_now,
    is_simulated, library_version, open_executor,
};
pub use bridge::{IterationRow, KvEventKind, KvEventRow, LoadProgress, PerfRow, RequestRow, Truth};

// SAFETY: the handle owns all it points to. The Executor's methods may be called from any thread (TensorRT-LLM guards
// its rings by mutexes and its own execution thread shares nothing else with callers), the handle's buffers are only
// touched through `&mut`, and what the thread of a load shares with callers has a mutex of its own. It is not Sync: a
// drain and another call must not meet.
unsafe impl Send for ExecutorHandle {}
