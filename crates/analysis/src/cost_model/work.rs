//! The work of an iteration, and the steps in which it is counted.

use serde::{Deserialize, Serialize};
use trtllm_fold::Latest;

use crate::numbers::{number, numbers};

pub(super) const FEATURES: usize = 4;

numbers! {
    /// JSON of `/api/v1/model`: what costs time in an iteration, or sums or means of it.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Work {
        context_tokens,
        /// Tokens computed for decoding requests, drafts included. The tokens of answers are fewer.
        generation_tokens,
        /// Tokens in the KV cache that decoding reads: as reported, or by the used blocks.
        kv_tokens,
    }
}

/// The requests of an iteration, and their work.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Batch {
    pub context_requests: f64,
    pub generation_requests: f64,
    pub work: Work,
}

impl Batch {
    pub fn of(latest: &Latest) -> Self {
        let batch = latest.inflight.unwrap_or_default();
        let fixed = latest.static_batching.unwrap_or_default();
        let drafts = number(latest.spec_decoding.and_then(|drafts| drafts.num_draft_tokens));
        let generation_requests = match latest.static_batching {
            Some(_) => number(fixed.num_gen_tokens),
            None => number(batch.num_gen_requests),
        };
        let kv_used = latest.kv.and_then(|kv| kv.used_num_blocks?.checked_mul(kv.tokens_per_block?));
        Self {
            context_requests: number(batch.num_context_requests.or(fixed.num_context_requests)),
            generation_requests,
            work: Work {
                context_tokens: number(batch.num_ctx_tokens.or(fixed.num_ctx_tokens)),
                generation_tokens: generation_requests + drafts,
                kv_tokens: number(batch.num_gen_kv_tokens.filter(|tokens| *tokens > 0).or(kv_used)),
            },
        }
    }

    pub(crate) fn scheduled(&self) -> f64 {
        self.context_requests + self.generation_requests
    }

    /// Whether the iteration is at the token limit: its tokens nearly reach the limit, or the batch has room for one more
    /// request but a prompt as long as the current ones would exceed the limit. Without chunked context, a prompt is computed
    /// in one iteration.
    pub(crate) fn is_full_of_tokens(&self, limit: f64, batch: Option<f64>) -> bool {
        let tokens = self.work.context_tokens + self.work.generation_tokens;
        let prompt = self.work.context_tokens / self.context_requests.max(1.0);
        let has_place = batch.is_none_or(|batch| self.scheduled() < batch);
        tokens >= 0.9 * limit || has_place && prompt > 0.0 && tokens + prompt > limit
    }
}

impl Work {
    /// The work, in units in which all values are about 1, so that the fit is well conditioned.
    pub(super) fn features(&self) -> [f64; FEATURES] {
        [1.0, self.context_tokens / 1e3, self.generation_tokens / 1e2, self.kv_tokens / 1e5]
    }

    /// The steps of generation tokens and of context tokens. Work at the same steps is about the same.
    pub fn steps(&self) -> [usize; 2] {
        let requests = match self.context_tokens > 0.0 {
            true => step(self.generation_tokens, 1.0, STEPS_OF_REQUESTS),
            false => decoding_step(self.generation_tokens),
        };
        [requests, step(self.context_tokens, 32.0, STEPS_OF_TOKENS)]
    }
}

/// Number of steps in which work is counted: one for no work, then two for each doubling.
pub(super) const STEPS_OF_REQUESTS: usize = 32;
pub(super) const STEPS_OF_TOKENS: usize = 24;

fn step(value: f64, first: f64, steps: usize) -> usize {
    if value <= 0.0 {
        return 0;
    }
    let doublings = (value / first).max(1.0).log2();
    (1 + (2.0 * doublings).ceil() as usize).min(steps - 1)
}

/// Up to this size, batches that only decode have a step for each CUDA graph.
const GRAPHS: f64 = 128.0;

/// The step of a batch that only decodes. A PyTorch engine that pads such batches to the next CUDA graph has graphs for 1, 2, 4 and the
/// multiples of 8 up to 128 requests, then for powers of two or multiples of 64 (upstream: `_generate_cuda_graph_batch_sizes`).
pub(super) fn decoding_step(tokens: f64) -> usize {
    match tokens {
        ..=0.0 => 0,
        ..=8.0 => 1 + tokens.log2().ceil().max(0.0) as usize,
        ..=GRAPHS => 3 + (tokens / 8.0).ceil() as usize,
        _ => (19 + (2.0 * (tokens / GRAPHS).log2()).ceil() as usize).min(STEPS_OF_REQUESTS - 1),
    }
}

/// The most tokens of such a step.
pub(super) fn end_of_step(step: usize) -> f64 {
    match step {
        0..=4 => f64::exp2(step as f64 - 1.0),
        5..=19 => 8.0 * (step - 3) as f64,
        _ => GRAPHS * f64::exp2((step - 19) as f64 / 2.0),
    }
}
