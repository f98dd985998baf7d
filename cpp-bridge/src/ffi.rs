//! The cxx interface: plain structs that Rust and C++ share, and the C++ functions. Private to this crate;
//! `executor.rs` wraps it in plain Rust types.

// cxx generates unsafe code. The only hand-written unsafe code here is one impl, with its reason.
#![allow(unsafe_code)]
// cxx makes every item of the bridge `pub`; the module is private.
#![allow(unreachable_pub)]

#[cxx::bridge(namespace = "trtllm_bridge")]
mod bridge {
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
        fn drainIterations(self: Pin<&mut ExecutorHandle>) -> Result<&[u8]>;
        #[rust_name = "drain_requests"]
        fn drainRequests(self: Pin<&mut ExecutorHandle>) -> Result<&[u8]>;
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
        fn drainPerfMetrics(self: Pin<&mut ExecutorHandle>) -> Result<&[u8]>;
    }
}

pub(crate) use bridge::{
    ExecutorHandle, HostConfig, HostSet, LoadConfig, exit_now, is_simulated, library_version, open_executor,
};
pub use bridge::{KvEventKind, KvEventRow, LoadProgress, Truth};

/// An empty row for [`drain_kv_events`](crate::Executor::drain_kv_events) to fill.
impl Default for KvEventRow {
    fn default() -> Self {
        KvEventRow {
            event_id: 0,
            kind: KvEventKind::Unknown,
            empty: false,
            has_rank: false,
            rank: 0,
            has_level: false,
            level: 0,
            value: 0,
        }
    }
}

// SAFETY: the handle owns everything it points to. Any thread may call the Executor's methods: TensorRT-LLM guards its
// rings with mutexes, and its execution thread shares nothing else with callers. The handle's buffers are only used
// through `&mut`, and a mutex guards the data that the load's thread shares with callers. The handle is not Sync,
// because a drain must not run at the same time as another call.
unsafe impl Send for ExecutorHandle {}
