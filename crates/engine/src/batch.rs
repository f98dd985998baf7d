//! The batch of one record, with in-flight or static batching, and sums over batches.

use trtllm_model::IterationStats;

use super::saturating::{add, unsigned};

/// Requests of the batch, with in-flight or static batching.
pub(crate) fn scheduled(record: &IterationStats) -> Option<u64> {
    let scheduled = match (&record.inflight_batching_stats, &record.static_batching_stats) {
        (Some(inflight), _) => inflight.num_scheduled_requests,
        (None, fixed) => fixed.and_then(|fixed| fixed.num_scheduled_requests),
    };
    scheduled.map(unsigned)
}

/// Tokens of the batch's context phases.
pub(crate) fn context_tokens(record: &IterationStats) -> u64 {
    let tokens = match (&record.inflight_batching_stats, &record.static_batching_stats) {
        (Some(inflight), _) => inflight.num_ctx_tokens,
        (None, fixed) => fixed.and_then(|fixed| fixed.num_ctx_tokens),
    };
    tokens.map_or(0, unsigned)
}

/// Tokens of the batch's generation phases: requests times the mean number of tokens. The result is rounded, because
/// the mean is an inexact float. The PyTorch engine leaves the mean at 0 (upstream issue 6364). A generation request
/// then decodes one token, and with speculative decoding the accepted draft tokens, too.
pub(crate) fn generation_tokens(record: &IterationStats) -> u64 {
    let Some(inflight) = &record.inflight_batching_stats else {
        return record.static_batching_stats.and_then(|fixed| fixed.num_gen_tokens).map_or(0, unsigned);
    };
    let requests = inflight.num_gen_requests.map_or(0, unsigned);
    // The rows of other attention-DP ranks copy the mean and the accepted tokens from rank 0.
    if record.rank.is_none() && record.attention_dp_rank.is_some_and(|rank| rank != 0) {
        return requests;
    }
    match inflight.avg_num_decoded_tokens_per_iter.filter(|mean| *mean > 0.0) {
        Some(mean) => (requests as f64 * mean).round() as u64,
        None => {
            let accepted = record.spec_decoding_stats.and_then(|spec| spec.num_accepted_tokens);
            requests.saturating_add(accepted.map_or(0, unsigned))
        }
    }
}

/// All tokens of the batch.
pub(crate) fn tokens(record: &IterationStats) -> u64 {
    context_tokens(record).saturating_add(generation_tokens(record))
}

/// Sums over the batches of iterations. The sums of an engine that reports only some iterations are incomplete. They are kept
/// aside and never become part of a total that readers take as complete.
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
    pub(crate) fn absorb_tokens(&mut self, record: &IterationStats) {
        add(&mut self.context_tokens, context_tokens(record));
        add(&mut self.generation_tokens, generation_tokens(record));
    }

    pub(crate) fn absorb_speculation(&mut self, record: &IterationStats) {
        let Some(spec) = &record.spec_decoding_stats else { return };
        add(&mut self.spec_decode_draft_tokens, spec.num_draft_tokens.map_or(0, unsigned));
        add(&mut self.spec_decode_accepted_tokens, spec.num_accepted_tokens.map_or(0, unsigned));
        add(&mut self.spec_decode_drafted_requests, spec.num_requests_with_draft_tokens.map_or(0, unsigned));
        if let Some(ms) = spec.iter_latency_ms.filter(|ms| *ms > 0.0) {
            self.spec_decode_draft_seconds += ms / 1000.0;
        }
    }

    pub(crate) fn add(&mut self, more: &Self) {
        add(&mut self.context_tokens, more.context_tokens);
        add(&mut self.generation_tokens, more.generation_tokens);
        add(&mut self.spec_decode_draft_tokens, more.spec_decode_draft_tokens);
        add(&mut self.spec_decode_accepted_tokens, more.spec_decode_accepted_tokens);
        add(&mut self.spec_decode_drafted_requests, more.spec_decode_drafted_requests);
        self.spec_decode_draft_seconds += more.spec_decode_draft_seconds;
    }
}
