//! What cannot be seen of an engine, and which causes that leaves open. A verdict is certain only if every number that proves its
//! cause, and every one that would rule it out, is known.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use trtllm_records::named_variants::named_variants;

use crate::cause::Cause;

/// Defines the blind spots: for each one its variant, its name in `nv_trt_llm_limited_by_blind`, why it is blind, and what shows it.
macro_rules! blind_spots {
    ($($variant:ident = $name:literal: $why:literal, $switch_on:literal,)*) => {
        named_variants! {
            /// A kind of numbers that no source of the engine tells.
            pub enum Blind { $(#[doc = $why] $variant = $name),* }
        }

        impl Blind {
            #[must_use]
            pub const fn why(self) -> &'static str {
                match self { $(Self::$variant => $why,)* }
            }

            /// What to change so that the numbers are known.
            #[must_use]
            pub const fn switch_on(self) -> &'static str {
                match self { $(Self::$variant => $switch_on,)* }
            }
        }
    };
}

blind_spots! {
    Gpu = "gpu": "No readings of the engine's GPUs.",
        "Run the exporter on the node of the engine, and name its GPUs (`gpus:` of the engine in the file of --config.file) if they are not found.",
    Failures = "failures": "Neither a server nor a publisher tells of each request that fails.",
        "The log of the server, or the errors that its clients or its gateway count. Only an engine that the exporter hosts (`executor:`) shows all of them.",
    RequestTimes = "request_times": "Nothing tells the times of requests.",
        "`return_perf_metrics: true`, or `enable_iter_req_stats: true`.",
    BatchLimit = "batch_limit": "Nothing tells max_batch_size.",
        "A publisher that sends the engine's settings.",
    TokenLimit = "token_limit": "Nothing tells max_num_tokens.",
        "A publisher that sends the engine's settings. The records of the PyTorch engine do not contain this limit.",
    Ranks = "ranks": "Nothing tells the work of each rank.",
        "Readings of all GPUs of the engine; with attention data parallelism `TLLM_METRICS_ALL_RANKS=1`.",
    Transfer = "transfer": "Nothing tells how long transfers of KV caches take.",
        "`return_perf_metrics: true`, or `enable_iter_req_stats: true`.",
    Host = "host": "Nothing tells how long the GPU works in a batch.",
        "Readings of the engine's GPUs, or a release that reports `gpuForwardTimeMS`.",
}

/// JSON of `/api/v1`: a blind spot of a verdict, as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlindSpot {
    pub what: Cow<'static, str>,
    pub why: Cow<'static, str>,
    pub switch_on: Cow<'static, str>,
}

/// What to do about a blind spot of an iteration log.
const READ_THE_SERVER: &str =
    "Read the server itself (`trtllm-serve:http://HOST:PORT`), because an iteration log does not tell this.";

impl BlindSpot {
    /// `in_log`: only the iteration log of the engine is read.
    pub(crate) fn of(blind: Blind, in_log: bool) -> Self {
        let switch_on = match blind {
            Blind::RequestTimes | Blind::BatchLimit | Blind::Transfer if in_log => READ_THE_SERVER,
            Blind::Ranks if in_log => "With attention data parallelism `TLLM_PROFILE_LOG_RANKS=all` on the server.",
            _ => blind.switch_on(),
        };
        Self { what: blind.name().into(), why: blind.why().into(), switch_on: switch_on.into() }
    }
}

/// What must be seen so that this cause is certain. A rule that was applied knows the numbers that prove its cause, so most of these would
/// rule it out: a cause that is judged earlier explains it.
pub(crate) const fn needed(cause: Cause) -> &'static [Blind] {
    use Blind::{BatchLimit, Failures, Gpu, Host, Ranks, RequestTimes, TokenLimit, Transfer};
    match cause {
        // Nothing that could limit the engine may be unseen.
        Cause::None => &[Gpu, Failures, RequestTimes, BatchLimit, TokenLimit, Ranks, Transfer, Host],
        // Slow clocks make prompts long, too.
        Cause::Slowdown | Cause::Adapters | Cause::Ranks | Cause::ContextBlocking => &[Gpu],
        Cause::Host => &[Host],
        Cause::ContextWork | Cause::GenerationWork | Cause::Load => &[Gpu, Ranks, Transfer, Host],
        Cause::KvCapacity => &[BatchLimit, Transfer],
        Cause::BatchLimit => &[BatchLimit, Transfer],
        Cause::TokenLimit => &[BatchLimit, TokenLimit, Transfer],
        // Adapters that load hold requests back like reserved blocks. Without the GPU's idle time, they are not seen.
        Cause::KvReservation => &[Gpu, BatchLimit, TokenLimit, Transfer],
        Cause::Unavailable
        | Cause::Memory
        | Cause::Errors
        | Cause::Clocks
        | Cause::Gpu
        | Cause::Spikes
        | Cause::Tuner
        | Cause::StaticBatching
        | Cause::Speculation
        | Cause::Transfer
        | Cause::GenerationQueue
        | Cause::Frontend
        | Cause::KvThrash
        | Cause::Statistics => &[],
    }
}

/// Whether the remedy of this cause costs money or quality.
pub(crate) const fn is_costly(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::Load
            | Cause::GenerationWork
            | Cause::ContextWork
            | Cause::KvCapacity
            | Cause::KvReservation
            | Cause::Speculation
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_lists_each_blind_spot() {
        let document = include_str!("../../../docs/verdict.md");
        for blind in Blind::ALL {
            let row = format!("| `{}` | {} | {} |", blind.name(), blind.why(), blind.switch_on());
            assert!(document.contains(&row), "{row}");
        }
    }
}
