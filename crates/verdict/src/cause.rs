//! What can limit an engine.

use serde::Serialize;

/// A cause, with its name in `nv_trt_llm_limited_by` and what it means.
macro_rules! causes {
    ($($variant:ident = $name:literal: $meaning:literal,)*) => {
        /// What limits an engine. Exactly one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Cause { $(#[doc = $meaning] $variant,)* }

        impl Cause {
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];
            pub const NAMES: [&'static str; Self::ALL.len()] = [$($name),*];

            /// As in `nv_trt_llm_limited_by`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// In one sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

causes! {
    None = "none": "Nothing limits the engine: it is idle, or it serves what arrives.",
    BatchLimit = "batch_limit": "Requests wait because max_batch_size is reached, and a larger batch would serve more.",
    TokenLimit = "token_limit": "Requests wait because an iteration has no room for more tokens (max_num_tokens).",
    StaticBatching = "static_batching": "A static batch runs until its longest answer ends; its other slots stay empty.",
    KvCapacity = "kv_capacity": "The KV cache is full: requests wait for blocks, or are paused.",
    KvReservation = "kv_reservation": "Requests wait because the scheduler reserves more of the KV cache than is used.",
    KvThrash = "kv_thrash": "Cached blocks are evicted before they are used again, so prompts are computed again.",
    ContextWork = "context_work": "Computing prompts is the work, and takes nearly all the time.",
    ContextBlocking = "context_blocking": "Long prompts stop the answers of other requests while they are computed.",
    GenerationWork = "generation_work": "Decoding is the work, and takes most of the time.",
    Speculation = "speculation": "Draft tokens cost more time than they save.",
    Host = "host": "The GPU waits for the host between iterations.",
    Spikes = "spikes": "Single iterations take much longer than their work explains.",
    Ranks = "ranks": "Ranks or pipeline stages have unequal work, and all wait for the slowest.",
    Transfer = "transfer": "Requests wait for their KV cache from a context server.",
    Frontend = "frontend": "Requests lose their time in the HTTP server, before and after the engine.",
    Adapters = "adapters": "Requests wait until their LoRA adapter is loaded.",
    Tuner = "tuner": "The tuner moves the batch limit up and down.",
    Clocks = "clocks": "Power, heat or hardware limits the clocks of a GPU.",
    Gpu = "gpu": "A GPU is slow without a reason that it names, hangs, or is gone.",
    Slowdown = "slowdown": "Equal work takes longer than it did before.",
    Memory = "memory": "Host memory grows without end, or allocations fail.",
    Load = "load": "More requests arrive than this engine can serve with any setting.",
    Errors = "errors": "Requests fail or time out.",
    Statistics = "statistics": "Statistics are off, lost, or read by somebody else, so conclusions are uncertain.",
    Unavailable = "unavailable": "The engine does not answer, hangs, or loads its model.",
}
