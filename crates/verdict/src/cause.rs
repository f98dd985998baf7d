//! The causes that can limit an engine.

use serde::{Deserialize, Serialize};
use trtllm_records::named_variants::named_variants;

use crate::texts::Texts;

named_variants! {
    /// JSON of `/api/v1`: what limits an engine. A verdict has exactly one cause. `cause.md` has the texts of each.
    #[derive(Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Cause {
        None = "none",
        BatchLimit = "batch_limit",
        TokenLimit = "token_limit",
        StaticBatching = "static_batching",
        KvCapacity = "kv_capacity",
        KvReservation = "kv_reservation",
        KvThrash = "kv_thrash",
        ContextWork = "context_work",
        ContextBlocking = "context_blocking",
        GenerationWork = "generation_work",
        Speculation = "speculation",
        Host = "host",
        Spikes = "spikes",
        Ranks = "ranks",
        Transfer = "transfer",
        GenerationQueue = "generation_queue",
        Frontend = "frontend",
        Adapters = "adapters",
        Tuner = "tuner",
        Clocks = "clocks",
        Gpu = "gpu",
        Slowdown = "slowdown",
        Memory = "memory",
        Load = "load",
        Errors = "errors",
        Statistics = "statistics",
        Unavailable = "unavailable",
    }
}

const TEXTS: Texts = Texts(include_str!("cause.md"));

impl Cause {
    /// The meaning in one sentence.
    pub fn meaning(self) -> &'static str {
        TEXTS.sentence(self.name())
    }

    /// The remedy of a verdict, if the cause has only one.
    pub(crate) fn remedy(self) -> &'static str {
        TEXTS.item(self.name(), "Remedy")
    }

    /// The remedy of a verdict for one case of the cause, such as a backend.
    pub(crate) fn remedy_for(self, case: &str) -> &'static str {
        TEXTS.item(self.name(), &format!("Remedy for {case}"))
    }

    /// What the remedy costs or makes worse. Empty if nothing.
    pub fn trade_off(self) -> &'static str {
        TEXTS.item(self.name(), "Cost")
    }

    /// What shows that the remedy helped.
    pub fn helped_if(self) -> &'static str {
        TEXTS.item(self.name(), "Helped if")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
