//! The cxx interface: plain structs that Rust and C++ share, and the C++ functions. Private to this crate;
//! `executor.rs` wraps it in plain Rust types.

// cxx generates unsafe code and makes every item `pub`. The only hand-written unsafe code here is one impl.
#![allow(unsafe_code, unreachable_pub)]

#[cxx::bridge(namespace = "trtllm_bridge")]
mod bridge {
    // TensorRT-LLM's structs. An absent number is `ABSENT` or NaN, and a nested struct that is not `present` has no meaning.
    // The size of every member is a multiple of eight bytes, and a bool is padded to eight, so cpp/records.h can compare the sizes
    // with its list.

    #[derive(Clone, Copy, Debug, Default)]
    struct KvCacheStats {
        present: bool,
        max_num_blocks: i64,
        free_num_blocks: i64,
        used_num_blocks: i64,
        tokens_per_block: i64,
        alloc_total_blocks: i64,
        alloc_new_blocks: i64,
        reused_blocks: i64,
        missed_blocks: i64,
        cache_hit_rate: f64,
    }

    #[derive(Clone, Copy, Debug, Default)]
    struct InflightBatchingStats {
        present: bool,
        num_scheduled_requests: i64,
        num_context_requests: i64,
        num_gen_requests: i64,
        num_paused_requests: i64,
        num_ctx_tokens: i64,
        micro_batch_id: i64,
        avg_num_decoded_tokens_per_iter: f64,
        num_ctx_kv_tokens: i64,
        num_gen_kv_tokens: i64,
        num_queued_context_requests: i64,
        num_queued_ctx_tokens: i64,
        num_queued_gen_requests: i64,
        num_queued_gen_kv_tokens: i64,
        num_paused_kv_tokens: i64,
    }

    #[derive(Clone, Copy, Debug, Default)]
    struct StaticBatchingStats {
        present: bool,
        num_scheduled_requests: i64,
        num_context_requests: i64,
        num_ctx_tokens: i64,
        num_gen_tokens: i64,
        empty_gen_slots: i64,
    }

    #[derive(Clone, Copy, Debug, Default)]
    struct SpecDecodingStats {
        present: bool,
        num_draft_tokens: i64,
        num_accepted_tokens: i64,
        num_requests_with_draft_tokens: i64,
        acceptance_length: f64,
        /// Milliseconds.
        iter_latency_ms: f64,
        draft_overhead: f64,
    }

    /// One record of an iteration.
    #[derive(Clone, Copy, Debug, Default)]
    struct IterationStats {
        /// Text in UTF-8, padded with zeros. Empty if the engine wrote none.
        timestamp: [u8; 32],
        iter: i64,
        /// Milliseconds.
        iter_latency_ms: f64,
        /// Milliseconds, summed over the requests that this iteration activated.
        new_active_requests_queue_latency_ms: f64,
        num_new_active_requests: i64,
        num_active_requests: i64,
        num_queued_requests: i64,
        num_completed_requests: i64,
        max_num_active_requests: i64,
        max_batch_size_static: i64,
        max_batch_size_tuner_recommended: i64,
        max_batch_size_runtime: i64,
        max_num_tokens_static: i64,
        max_num_tokens_tuner_recommended: i64,
        max_num_tokens_runtime: i64,
        /// The memory usages are in bytes.
        gpu_mem_usage: i64,
        cpu_mem_usage: i64,
        pinned_mem_usage: i64,
        kv_cache_stats: KvCacheStats,
        cross_kv_cache_stats: KvCacheStats,
        inflight_batching_stats: InflightBatchingStats,
        static_batching_stats: StaticBatchingStats,
        spec_decoding_stats: SpecDecodingStats,
    }

    #[derive(Clone, Copy, Debug, Default)]
    struct DisServingRequestStats {
        present: bool,
        kv_cache_transfer_ms: f64,
        kv_cache_size: i64,
    }

    /// One request in one iteration.
    #[derive(Clone, Copy, Debug, Default)]
    struct RequestStats {
        id: i64,
        stage: RequestStage,
        context_prefill_position: i64,
        num_generated_tokens: i64,
        avg_num_decoded_tokens_per_iter: f64,
        scheduled: i64,
        paused: i64,
        alloc_total_blocks_per_request: i64,
        alloc_new_blocks_per_request: i64,
        reused_blocks_per_request: i64,
        missed_blocks_per_request: i64,
        kv_cache_hit_rate_per_request: f64,
        dis_serving_stats: DisServingRequestStats,
    }

    /// Times in seconds on the steady clock of this machine. The time of an event that did not happen is absent.
    #[derive(Clone, Copy, Debug, Default)]
    struct TimingMetrics {
        present: bool,
        arrival_time: f64,
        first_scheduled_time: f64,
        first_token_time: f64,
        last_token_time: f64,
        kv_cache_transfer_start: f64,
        kv_cache_transfer_end: f64,
        kv_cache_size: i64,
    }

    #[derive(Clone, Copy, Debug, Default)]
    struct RequestKvCacheMetrics {
        present: bool,
        num_total_allocated_blocks: i64,
        num_new_allocated_blocks: i64,
        num_reused_blocks: i64,
        num_missed_blocks: i64,
        kv_cache_hit_rate: f64,
    }

    #[derive(Clone, Copy, Debug, Default)]
    struct SpeculativeDecodingMetrics {
        present: bool,
        acceptance_rate: f64,
        total_accepted_draft_tokens: i64,
        total_draft_tokens: i64,
    }

    /// The times and costs of a finished request.
    #[derive(Clone, Copy, Debug, Default)]
    struct RequestPerfMetrics {
        present: bool,
        first_iter: i64,
        last_iter: i64,
        timing_metrics: TimingMetrics,
        kv_cache_metrics: RequestKvCacheMetrics,
        speculative_decoding: SpeculativeDecodingMetrics,
        iter: i64,
    }

    /// All requests of one iteration.
    #[derive(Clone, Debug, Default)]
    struct RequestStatsPerIteration {
        iter: u64,
        request_stats: Vec<RequestStats>,
    }

    /// Stages of a request. TensorRT-LLM's numbers for the stages differ between releases; these numbers do not.
    #[repr(u64)]
    #[derive(Debug, Default)]
    enum RequestStage {
        #[default]
        Unknown,
        Queued,
        EncoderInProgress,
        ContextInProgress,
        GenerationInProgress,
        GenerationComplete,
    }

    /// A request of the synthetic load that has ended.
    #[derive(Clone, Copy, Debug, Default)]
    struct FinishedRequest {
        request_id: u64,
        finish_reason: FinishReason,
        prompt_tokens: i64,
        output_tokens: i64,
        perf_metrics: RequestPerfMetrics,
    }

    #[repr(u8)]
    #[derive(Debug, Default)]
    enum FinishReason {
        /// The release or the engine does not report it.
        #[default]
        Absent,
        EndId,
        StopWords,
        Length,
        TimedOut,
        Cancelled,
        /// Another reason, or an error.
        Other,
    }

    /// Capacity of the rings of an Executor, in iterations.
    #[derive(Clone, Copy, Debug)]
    struct RingSizes {
        iterations: i32,
        requests: i32,
    }

    /// The size and number of the synthetic requests.
    #[derive(Clone, Copy, Debug)]
    struct LoadConfig {
        in_flight: u32,
        prompt_tokens: i32,
        output_tokens: i32,
        requests: u64,
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
        pub pauses: u64,
        /// Iteration records that the engine wrote into its ring.
        pub records_pushed: u64,
        /// Iteration records that were overwritten before they were drained.
        pub records_lost: u64,
        pub request_records_pushed: u64,
        pub request_records_lost: u64,
        /// True if no request is active or queued.
        pub idle: bool,
    }

    unsafe extern "C++" {
        include!("trtllm_bridge/bridge.h");

        type HostedExecutor;

        #[rust_name = "open_executor"]
        fn openExecutor(engine: &str, rings: RingSizes) -> Result<UniquePtr<HostedExecutor>>;
        #[rust_name = "library_version"]
        fn libraryVersion() -> String;
        #[rust_name = "is_simulated"]
        fn isSimulated() -> bool;
        #[rust_name = "exit_now"]
        fn exitNow(code: i32);

        #[rust_name = "drain_iterations"]
        fn drainIterations(executor: Pin<&mut HostedExecutor>, records: &mut [IterationStats]) -> Result<usize>;
        #[rust_name = "next_requests"]
        fn nextRequests(executor: Pin<&mut HostedExecutor>, record: &mut RequestStatsPerIteration) -> Result<bool>;
        #[rust_name = "drain_finished"]
        fn drainFinished(executor: Pin<&mut HostedExecutor>, requests: &mut [FinishedRequest]) -> Result<usize>;
        #[rust_name = "can_enqueue_requests"]
        fn canEnqueueRequests(self: &HostedExecutor) -> Result<bool>;
        #[rust_name = "start_load"]
        fn startLoad(self: Pin<&mut HostedExecutor>, load: &LoadConfig) -> Result<()>;
        fn shutdown(self: Pin<&mut HostedExecutor>) -> Result<()>;
        fn truth(self: &HostedExecutor) -> Result<Truth>;
    }
}

pub use bridge::*;

// SAFETY: a HostedExecutor owns everything it points to. Any thread may call the Executor's methods: TensorRT-LLM guards
// its rings with mutexes, and its execution thread shares nothing else with callers. The buffers of drained records are
// only used through `&mut`, and a mutex guards the data that the load's thread shares with callers. HostedExecutor is not
// Sync, because a drain must not run at the same time as another call.
unsafe impl Send for HostedExecutor {}
