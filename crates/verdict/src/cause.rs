//! The causes that can limit an engine.

use serde::{Deserialize, Serialize};
use trtllm_records::named_variants::named_variants;

/// Defines the causes: for each one its variant, its name in `nv_trt_llm_limited_by`, its meaning, the usual remedy,
/// what that costs, and what shows that it helped.
macro_rules! causes {
    ($($variant:ident = $name:literal: $meaning:literal, $remedy:literal, $trade_off:literal, $helped:literal,)*) => {
        named_variants! {
            /// JSON of `/api/v1`: what limits an engine. A verdict has exactly one cause.
            #[derive(Hash, PartialOrd, Ord, Serialize, Deserialize)]
            #[serde(rename_all = "snake_case")]
            pub enum Cause { $(#[doc = $meaning] $variant = $name),* }
        }

        impl Cause {
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

            /// What the remedy costs or makes worse. Empty if nothing.
            #[must_use]
            pub const fn trade_off(self) -> &'static str {
                match self { $(Self::$variant => $trade_off,)* }
            }

            /// What shows that the remedy helped.
            #[must_use]
            pub const fn helped_if(self) -> &'static str {
                match self { $(Self::$variant => $helped,)* }
            }
        }
    };
}

causes! {
    None = "none": "Nothing limits the engine: it is idle, or it serves what arrives.", "–", "", "",
    BatchLimit = "batch_limit": "Requests wait because max_batch_size is reached, and a larger batch would serve more.", "Raise `max_batch_size`; an engine of the C++ backend must be built for it.", "Each token takes longer in a larger batch, and more requests share the KV cache.", "Fewer requests wait, batches are larger, and tokens a second rise.",
    TokenLimit = "token_limit": "Requests wait because an iteration has no room for more tokens (max_num_tokens).", "Raise `max_num_tokens`.", "Iterations with prompts take longer, so answers stop for longer: `context_blocking` asks for the opposite. The KV cache gets less memory.", "Fewer requests wait, and iterations compute more prompt tokens.",
    StaticBatching = "static_batching": "A static batch runs until its longest answer ends; its other slots stay empty.", "Use in-flight batching, and a scheduler policy that does not wait for whole batches.", "", "More slots of a batch are in use, and tokens a second rise.",
    KvCapacity = "kv_capacity": "The KV cache is full: requests wait for blocks, or are paused.", "Give the KV cache more memory (`free_gpu_memory_fraction`; `max_tokens`, if it is set), store it as FP8, or add replicas. Until then, limit concurrency at the gateway.", "If too little memory is left beside the cache, the server runs out of memory under load. FP8 can change answers, and replicas cost GPUs.", "The share of used blocks falls or more requests run, and no request is paused.",
    KvReservation = "kv_reservation": "Requests wait because the scheduler reserves more of the KV cache than is used.", "Lower the `max_tokens` that clients ask for, or set the scheduler policy MAX_UTILIZATION.", "A lower `max_tokens` cuts long answers. MAX_UTILIZATION pauses requests when the cache is full, and computes them again.", "More requests run while more of the blocks are in use.",
    KvThrash = "kv_thrash": "Cached blocks are evicted before they are used again, so prompts are computed again.", "Keep evicted blocks on the host (`host_cache_size`), give the cache more memory, or route requests with the same beginning to the same engine.", "Blocks on the host take its memory, and copies use PCIe. Such routing can load the engines unequally.", "The hit ratio of the KV cache rises, and fewer prompt tokens are computed.",
    ContextWork = "context_work": "Computing prompts is the work, and takes nearly all the time.", "Reuse blocks of prompts that begin alike (`enable_block_reuse`), shorten prompts, or add replicas or context servers.", "Replicas and context servers cost GPUs.", "Prompts take a smaller share of the time, and first tokens come earlier.",
    ContextBlocking = "context_blocking": "Long prompts stop the answers of other requests while they are computed.", "Set `enable_chunked_prefill` (`enable_chunked_context`), and lower `max_num_tokens` (512 to 2048).", "First tokens of long prompts come later. A limit that is too low makes requests wait: `token_limit` asks for the opposite.", "The slowest iterations that decode become shorter, and so does the time per token of the slowest requests.",
    GenerationWork = "generation_work": "Decoding is the work, and takes most of the time.", "Add replicas, quantise the model or its KV cache, shorten contexts, or speculate where batches are small.", "Replicas cost GPUs, quantisation can change answers, and speculation makes large batches slower.", "The time per token falls at the same load.",
    Speculation = "speculation": "Draft tokens cost more time than they save.", "Lower `max_draft_len`, or switch speculation off; `max_concurrency` of `speculative_config` does so for large batches.", "While few requests run, answers become slower.", "Tokens a second rise at the same load.",
    Host = "host": "The GPU waits for the host between iterations.", "Give the process its own CPU cores, and use the overlap scheduler and CUDA graphs.", "CUDA graphs take GPU memory.", "The share of the time without a kernel falls, and so does the time of an iteration.",
    Spikes = "spikes": "Single iterations take much longer than their work explains.", "Find what interrupts the process: CPU limits, garbage collection, swapping, a profiler.", "", "The longest iterations are as long as others with as much work.",
    Ranks = "ranks": "Ranks or pipeline stages have unequal work, and all wait for the slowest.", "Balance the ranks (`attention_dp_config.enable_balance`) or the stages of the pipeline.", "Requests can wait some iterations until the ranks are balanced.", "The share of the time that ranks wait falls, and so does the time of an iteration.",
    Transfer = "transfer": "Requests wait for their KV cache from a context server.", "Use a faster path between the servers (`cache_transceiver_config`: UCX or NIXL over NVLink or InfiniBand).", "A larger `max_tokens_in_buffer` takes GPU memory.", "The time of transfers falls, and first tokens come earlier.",
    GenerationQueue = "generation_queue": "Requests wait in the queue of a generation server, and only their times are known.", "Read the verdict of the generation servers; add one, or raise what limits them.", "Another server costs GPUs.", "The queue time of the generation servers falls.",
    Frontend = "frontend": "Requests lose their time in the HTTP server, before and after the engine.", "Give the server more CPU cores, set `num_postprocess_workers`, and raise `stream_interval`. Or run several frontends (`--num_serve_frontends`) with PROMETHEUS_MULTIPROC_DIR set.", "Several frontends without that directory make the server's request numbers unknown. With postprocess workers, requests have no breakdown of their times. With a larger interval, tokens are sent in groups.", "The time that the server adds to the first token falls.",
    Adapters = "adapters": "Requests wait until their LoRA adapter is loaded.", "Give adapters more memory (`lora_config`), or send requests of one adapter to the same engine.", "The KV cache gets less memory. Such routing can load the engines unequally.", "Fewer requests wait, and fewer adapters are loaded.",
    Tuner = "tuner": "The tuner moves the batch limit up and down.", "Switch the batch size tuner off and set `max_batch_size`, or widen its window.", "", "The batch limit stays the same for five minutes.",
    Clocks = "clocks": "Power, heat or hardware limits the clocks of a GPU.", "Check cooling, power supply and power limit of the GPU.", "The node must supply and cool the additional power.", "The clock is near its maximum, and no limit is active.",
    Gpu = "gpu": "A GPU is slow without a reason that it names, hangs, or is gone.", "Drain the node and run a diagnosis of the GPU.", "Until it is back, the other engines serve its requests.", "The slowdown is near 1, and the GPU draws as much power as the others.",
    Slowdown = "slowdown": "Equal work takes longer than it did before.", "Find what changed (a deploy, its settings, a driver, another load on the node), and roll it back.", "", "The slowdown is near 1 for ten minutes.",
    Memory = "memory": "Host memory grows without end, or allocations fail.", "Restart the engine before its memory is used up, and report the leak with its release.", "A restart ends the running requests and empties the KV cache.", "Host memory does not rise during an hour of the usual load.",
    Load = "load": "More requests arrive than this engine can serve with any setting.", "Add replicas, or limit what arrives.", "Replicas cost GPUs; with a limit, some requests are refused or wait longer.", "No request waits for more than 100 ms, and headroom is above 0.2.",
    Errors = "errors": "Requests fail or time out.", "Read the server's log; raise the time limit if requests time out.", "With a longer limit, requests that nobody waits for any more can keep their seats.", "The share of requests that fail stays below 2 %.",
    Statistics = "statistics": "Statistics are off, lost, or read by somebody else, so conclusions are uncertain.", "Switch statistics on (`enable_iter_perf_stats`), and let only one program read them.", "", "No iteration is lost or unreported, and every request has a record.",
    Unavailable = "unavailable": "The engine does not answer, hangs, or loads its model.", "Start the server, correct its address, or wait until the model is loaded.", "", "The engine answers, and its state is busy or idle.",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_causes_has_each_remedy() {
        let document = include_str!("../../../docs/verdict.md");
        for cause in Cause::ALL.into_iter().filter(|cause| *cause != Cause::None) {
            let start = format!("| `{}` | {} | ", cause.name(), cause.meaning());
            let end = format!(" | {} |", cause.remedy());
            assert!(document.lines().any(|row| row.starts_with(&start) && row.ends_with(&end)), "{start}…{end}");
        }
    }

    #[test]
    fn each_cause_says_what_shows_that_its_remedy_helped() {
        for cause in Cause::ALL {
            assert_eq!(cause.helped_if().is_empty(), cause == Cause::None, "{cause:?}");
        }
    }

    #[test]
    fn remedies_that_pull_in_opposite_directions_say_so() {
        assert!(Cause::TokenLimit.trade_off().contains("`context_blocking`"));
        assert!(Cause::ContextBlocking.trade_off().contains("`token_limit`"));
    }
}
