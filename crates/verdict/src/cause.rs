//! The causes that can limit an engine.

use serde::{Deserialize, Serialize};

/// Defines the causes: for each one its variant, its name in `nv_trt_llm_limited_by`, its meaning and the usual remedy.
macro_rules! causes {
    ($($variant:ident = $name:literal: $meaning:literal, $remedy:literal,)*) => {
        /// What limits an engine. A verdict has exactly one cause.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Cause { $(#[doc = $meaning] $variant,)* }

        impl Cause {
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];
            pub const NAMES: [&'static str; Self::ALL.len()] = [$($name),*];

            /// The name in `nv_trt_llm_limited_by`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The meaning in one sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }

            /// The usual remedy. The verdict names the setting for the backend of the engine.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy,)* }
            }
        }
    };
}

causes! {
    None = "none": "Nothing limits the engine: it is idle, or it serves what arrives.", "–",
    BatchLimit = "batch_limit": "Requests wait because max_batch_size is reached, and a larger batch would serve more.", "Raise `max_batch_size`.",
    TokenLimit = "token_limit": "Requests wait because an iteration has no room for more tokens (max_num_tokens).", "Raise `max_num_tokens`, and set `enable_chunked_prefill` (`enable_chunked_context`).",
    StaticBatching = "static_batching": "A static batch runs until its longest answer ends; its other slots stay empty.", "Use in-flight batching.",
    KvCapacity = "kv_capacity": "The KV cache is full: requests wait for blocks, or are paused.", "Give the KV cache more memory, or store it as FP8; or add replicas.",
    KvReservation = "kv_reservation": "Requests wait because the scheduler reserves more of the KV cache than is used.", "Lower `max_tokens` of requests or `max_seq_len`, or use MAX_UTILIZATION.",
    KvThrash = "kv_thrash": "Cached blocks are evicted before they are used again, so prompts are computed again.", "Keep evicted blocks on the host (`host_cache_size`), or route requests with the same beginning to the same engine.",
    ContextWork = "context_work": "Computing prompts is the work, and takes nearly all the time.", "Add replicas or context servers, shorten prompts, or let them share their beginning.",
    ContextBlocking = "context_blocking": "Long prompts stop the answers of other requests while they are computed.", "Set `enable_chunked_prefill` (`enable_chunked_context`) and lower `max_num_tokens`.",
    GenerationWork = "generation_work": "Decoding is the work, and takes most of the time.", "Add replicas, quantise the model or its KV cache, or speculate where batches are small.",
    Speculation = "speculation": "Draft tokens cost more time than they save.", "Switch speculation off, or use another draft model or a shorter draft.",
    Host = "host": "The GPU waits for the host between iterations.", "Use CUDA graphs and the overlap scheduler, and give the process its own CPU cores.",
    Spikes = "spikes": "Single iterations take much longer than their work explains.", "Find what interrupts the process: CPU limits, garbage collection, swapping, a profiler.",
    Ranks = "ranks": "Ranks or pipeline stages have unequal work, and all wait for the slowest.", "Balance the ranks (`attention_dp_config.enable_balance`) or the stages of the pipeline.",
    Transfer = "transfer": "Requests wait for their KV cache from a context server.", "Use a faster path between the servers (`cache_transceiver_config`).",
    GenerationQueue = "generation_queue": "Requests wait in the queue of a generation server, and only their times are known.", "Read the verdict of the generation servers; add one, or raise what limits them.",
    Frontend = "frontend": "Requests lose their time in the HTTP server, before and after the engine.", "Run more HTTP processes, and give them CPU.",
    Adapters = "adapters": "Requests wait until their LoRA adapter is loaded.", "Give adapters more memory (`lora_config`), or send requests of one adapter to one engine.",
    Tuner = "tuner": "The tuner moves the batch limit up and down.", "Switch the tuner off, or give it a longer window.",
    Clocks = "clocks": "Power, heat or hardware limits the clocks of a GPU.", "Check cooling, power supply and power limit of the GPU.",
    Gpu = "gpu": "A GPU is slow without a reason that it names, hangs, or is gone.", "Drain the node and run a diagnosis of the GPU.",
    Slowdown = "slowdown": "Equal work takes longer than it did before.", "Look for what changed: a deploy, a driver, another load on the node.",
    Memory = "memory": "Host memory grows without end, or allocations fail.", "Restart the engine before its memory is used up, and report the leak.",
    Load = "load": "More requests arrive than this engine can serve with any setting.", "Add replicas, or limit what arrives.",
    Errors = "errors": "Requests fail or time out.", "Read the server's log; raise the time limit if requests time out.",
    Statistics = "statistics": "Statistics are off, lost, or read by somebody else, so conclusions are uncertain.", "Switch statistics on, and let only one program read them.",
    Unavailable = "unavailable": "The engine does not answer, hangs, or loads its model.", "Start the server, correct its address, or wait until the model is loaded.",
}
