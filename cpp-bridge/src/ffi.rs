//! The cxx interface: plain structs that Rust and C++ share, and the C++ functions. Private to this crate;
//! `executor.rs` wraps it in plain Rust types.

// cxx generates unsafe code. The only hand-written unsafe code here is one impl, with its reason.
#![allow(unsafe_code)]
// cxx makes every item of the bridge `pub`; the module is private.
#![allow(unreachable_pub)]

#[cxx::bridge(namespace = "trtllm_bridge")]
mod bridge {
    /// One record of the engine (TensorRT-LLM's `IterationStats`) as a flat struct without pointers or allocations.
    /// A member whose bit in `present` is 0 has no meaning; see [`crate::iteration_present`].
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub struct IterationRow {
        /// Which optional members this record has.
        pub present: u64,
        /// The record's timestamp in microseconds since 1970, parsed as if it were UTC. The engine writes local time
        /// without a time zone.
        pub timestamp_local_us: i64,
        pub iter: u64,
        /// Duration of the previous iteration in milliseconds. 0.0 after an idle period.
        pub iter_latency_ms: f64,
        /// Queue time in milliseconds, summed over the requests that this iteration activated.
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
        /// The three memory usages are in bytes.
        pub gpu_mem_usage: u64,
        pub cpu_mem_usage: u64,
        pub pinned_mem_usage: u64,

        pub kv_max_num_blocks: i32,
        pub kv_free_num_blocks: i32,
        pub kv_used_num_blocks: i32,
        pub kv_tokens_per_block: i32,
        /// The next four count since the cache was created, and may wrap.
        pub kv_alloc_total_blocks: i32,
        pub kv_alloc_new_blocks: i32,
        pub kv_reused_blocks: i32,
        pub kv_missed_blocks: i32,
        /// 0 to 1, since the cache was created.
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
        /// Average number of tokens per iteration and request in the generation phase, over the life of each request.
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
        /// Average number of tokens per generation step.
        pub spec_acceptance_length: f64,
        /// Duration of the draft phase in milliseconds.
        pub spec_iter_latency_ms: f64,
        /// Fraction of the iteration's time that the draft phase took, 0 to 1.
        pub spec_draft_overhead: f64,
    }

    /// Bits of `IterationRow::present`. A bit is 0 if the record does not have the members of the group, or if the
    /// TensorRT-LLM release that this crate was compiled against does not have them.
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

    /// One request in one iteration (TensorRT-LLM's `RequestStats`). A member whose bit in `present` is 0 has no
    /// meaning; see [`crate::request_present`]. Counts start with the request.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub struct RequestRow {
        pub present: u64,
        /// The iteration that reported this row.
        pub iter: u64,
        pub id: u64,
        /// See [`RequestRow::request_stage`]. TensorRT-LLM renumbered its stages between releases, so these are our own
        /// numbers.
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
        /// 0 to 1.
        pub kv_cache_hit_rate: f32,
        /// Duration of the KV cache transfer in milliseconds.
        pub kv_cache_transfer_ms: f64,
        /// Size of the transferred KV cache in bytes.
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

    /// Values of `RequestRow::stage`.
    #[repr(u8)]
    enum Stage {
        Unknown = 0,
        Queued = 1,
        EncoderInProgress = 2,
        ContextInProgress = 3,
        GenerationInProgress = 4,
        GenerationComplete = 5,
    }

    /// One finished request of a load (TensorRT-LLM's `Result` and its `RequestPerfMetrics`). A member whose bit in
    /// `present` is 0 has no meaning; see [`crate::perf_present`]. Times are in seconds of this machine's steady clock.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub struct PerfRow {
        pub present: u64,
        pub id: u64,
        pub prompt_tokens: i32,
        pub output_tokens: i32,
        /// TensorRT-LLM's number of the reason; see [`PerfRow::reason`].
        pub finish_reason: u8,
        /// True if the engine returned an error instead of a result.
        pub failed: bool,
        pub arrival_s: f64,
        pub first_scheduled_s: f64,
        pub first_token_s: f64,
        pub last_token_s: f64,
        pub kv_cache_transfer_start_s: f64,
        pub kv_cache_transfer_end_s: f64,
        /// Size of the transferred KV cache in bytes.
        pub kv_cache_size: u64,
        pub num_total_allocated_blocks: i32,
        pub num_new_allocated_blocks: i32,
        pub num_reused_blocks: i32,
        pub num_missed_blocks: i32,
        /// 0 to 1.
        pub kv_cache_hit_rate: f32,
        /// 0 to 1.
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

    /// The kind of a KV cache event.
    #[repr(u8)]
    #[derive(Debug)]
    enum KvEventKind {
        Unknown,
        /// The engine created the cache. One row per cache level, with its number of blocks.
        Created,
        /// Blocks were stored in the cache. Requests can reuse them.
        Stored,
        /// Blocks were removed from the cache.
        Removed,
        /// The level or priority of a block changed.
        Updated,
    }

    /// One block of an event. The rows of an event follow each other and have the same `event_id`.
    #[derive(Clone, Copy, Debug)]
    struct KvEventRow {
        /// Starts at 0. A gap means that events were lost.
        event_id: u64,
        kind: KvEventKind,
        /// True if the event has no block. Its single row only carries the `event_id`.
        empty: bool,
        has_rank: bool,
        /// The attention-DP rank.
        rank: i32,
        has_level: bool,
        /// The cache level. 0 is GPU memory.
        level: i32,
        /// The block's hash. For `Created`, the number of blocks of the level.
        value: u64,
    }

    /// The numeric options of an Executor. The bits of `set` (see `HostSet`) say which options were given.
    #[derive(Clone, Copy, Debug, Default)]
    struct HostConfig {
        set: u64,
        iter_stats_max_iterations: i32,
        request_stats_max_iterations: i32,
        /// 0: decoder only, 1: encoder only, 2: encoder and decoder.
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

    /// A load. If `requests` is 0, it does not end.
    #[derive(Clone, Copy, Debug, Default)]
    struct LoadConfig {
        in_flight: u32,
        prompt_tokens: i32,
        shared_prefix_tokens: i32,
        output_tokens: i32,
        requests: u64,
    }

    /// The progress of the synthetic requests of an engine.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct LoadProgress {
        /// Requests that the engine accepted.
        pub enqueued: u64,
        /// Requests that ended with a result or an error.
        pub finished: u64,
        /// Requests that ended with an error.
        pub failed: u64,
        /// How often the engine rejected a request, or another call of the load's thread failed. Each is retried.
        pub refused: u64,
        /// Rows of finished requests that were dropped because they were not drained.
        pub rows_lost: u64,
        /// True while the load's thread runs.
        pub running: bool,
        /// The last error of a request or call. Empty if there was none.
        pub last_error: String,
    }

    /// What a simulated engine did since it was opened, independent of the drained records. For tests and benchmarks.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub struct Truth {
        /// Number of batches that the engine ran.
        pub iterations: u64,
        /// Records that the engine wrote when it became idle. Such a record has the same `iter` as the next one.
        pub flushes: u64,
        pub requests_arrived: u64,
        pub requests_started: u64,
        pub requests_completed: u64,
        /// Prompt tokens that the engine computed, without tokens reused from the KV cache.
        pub context_tokens: u64,
        /// Output tokens of context phases: the first token of each request.
        pub first_tokens: u64,
        /// Output tokens of generation phases.
        pub generation_tokens: u64,
        pub draft_tokens: u64,
        pub accepted_tokens: u64,
        pub pauses: u64,
        /// Iteration records that the engine wrote into its ring.
        pub records_pushed: u64,
        /// Iteration records that were overwritten before they were drained.
        pub records_lost: u64,
        pub request_records_pushed: u64,
        pub request_records_lost: u64,
        /// Time of the simulated clock in milliseconds.
        pub virtual_time_ms: f64,
        /// True if no request is active or queued.
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

// SAFETY: the handle owns everything it points to. Any thread may call the Executor's methods: TensorRT-LLM guards its
// rings with mutexes, and its execution thread shares nothing else with callers. The handle's buffers are only used
// through `&mut`, and a mutex guards the data that the load's thread shares with callers. The handle is not Sync,
// because a drain must not run at the same time as another call.
unsafe impl Send for ExecutorHandle {}
