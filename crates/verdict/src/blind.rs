//! What cannot be seen of an engine, and which causes that leaves open. A verdict is certain only if every number that proves its
//! cause, and every one that would rule it out, is known.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use trtllm_records::named_variants::named_variants;

use crate::cause::Cause;
use crate::texts::Texts;

named_variants! {
    /// A kind of numbers that no source of the engine tells. `blind.md` has the texts of each.
    pub enum Blind {
        Gpu = "gpu",
        Failures = "failures",
        RequestTimes = "request_times",
        BatchLimit = "batch_limit",
        TokenLimit = "token_limit",
        Ranks = "ranks",
        Transfer = "transfer",
        Host = "host",
    }
}

const TEXTS: Texts = Texts(include_str!("blind.md"));

impl Blind {
    pub fn why(self) -> &'static str {
        TEXTS.sentence(self.name())
    }

    /// What to change so that the numbers are known. `in_log`: only the iteration log of the engine is read.
    fn switch_on(self, in_log: bool) -> &'static str {
        let of_log = TEXTS.item(self.name(), "Change for a log");
        if in_log && !of_log.is_empty() { of_log } else { TEXTS.item(self.name(), "Change") }
    }
}

/// JSON of `/api/v1`: a blind spot of a verdict, as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlindSpot {
    pub what: Cow<'static, str>,
    pub why: Cow<'static, str>,
    pub switch_on: Cow<'static, str>,
}

impl BlindSpot {
    pub(crate) fn of(blind: Blind, in_log: bool) -> Self {
        Self { what: blind.name().into(), why: blind.why().into(), switch_on: blind.switch_on(in_log).into() }
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
            let row = format!("| `{}` | {} | {} |", blind.name(), blind.why(), blind.switch_on(false));
            assert!(document.contains(&row), "{row}");
        }
    }
}
