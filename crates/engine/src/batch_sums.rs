//! Sums over the batches of all iterations. An engine that reports only some iterations adds to them only in part, so what it
//! adds is kept aside: it never becomes part of a total that others take as complete.

use trtllm_model::IterationStats;

use super::batch::{context_tokens, generation_tokens};

/// Sums over batches.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BatchSums {
    /// Tokens computed in context phases, so without cache hits.
    pub context_tokens: u64,
    /// Tokens decoded in generation phases. The first token of a request comes from its context phase and is not included.
    pub generation_tokens: u64,
    pub spec_decode_draft_tokens: u64,
    pub spec_decode_accepted_tokens: u64,
    /// Generation requests that had draft tokens.
    pub spec_decode_drafted_requests: u64,
    /// Seconds spent drafting.
    pub spec_decode_draft_seconds: f64,
}

impl BatchSums {
    pub fn absorb_tokens(&mut self, record: &IterationStats) {
        add(&mut self.context_tokens, context_tokens(record));
        add(&mut self.generation_tokens, generation_tokens(record));
    }

    pub fn absorb_speculation(&mut self, record: &IterationStats) {
        let Some(spec) = &record.spec_decoding_stats else { return };
        add(&mut self.spec_decode_draft_tokens, unsigned(spec.num_draft_tokens));
        add(&mut self.spec_decode_accepted_tokens, unsigned(spec.num_accepted_tokens));
        add(&mut self.spec_decode_drafted_requests, unsigned(spec.num_requests_with_draft_tokens));
        if let Some(ms) = spec.iter_latency_ms.filter(|ms| *ms > 0.0) {
            self.spec_decode_draft_seconds += ms / 1000.0;
        }
    }

    pub fn add(&mut self, more: &Self) {
        add(&mut self.context_tokens, more.context_tokens);
        add(&mut self.generation_tokens, more.generation_tokens);
        add(&mut self.spec_decode_draft_tokens, more.spec_decode_draft_tokens);
        add(&mut self.spec_decode_accepted_tokens, more.spec_decode_accepted_tokens);
        add(&mut self.spec_decode_drafted_requests, more.spec_decode_drafted_requests);
        self.spec_decode_draft_seconds += more.spec_decode_draft_seconds;
    }
}

/// Saturating: an absurd number from a publisher must not wrap a total to 0.
fn add(total: &mut u64, more: u64) {
    *total = total.saturating_add(more);
}

fn unsigned(value: Option<i64>) -> u64 {
    value.and_then(|value| u64::try_from(value).ok()).unwrap_or(0)
}
