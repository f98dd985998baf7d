//! The batch of one record, with in-flight or static batching, and sums over batches.

use trtllm_records::IterationStats;
use trtllm_records::iteration::SpecDecodingStats;

use super::batch_time::seconds;
use super::saturating::{add, unsigned};

/// Requests of the batch, with in-flight or static batching.
pub(crate) fn scheduled(record: &IterationStats) -> Option<u64> {
    let scheduled = match (&record.inflight_batching_stats, &record.static_batching_stats) {
        (Some(inflight), _) => inflight.num_scheduled_requests,
        (None, fixed) => fixed.and_then(|fixed| fixed.num_scheduled_requests),
    };
    scheduled.map(unsigned)
}

/// Whether the executor runs static batches (upstream: `TrtGptModelV1`). A pass runs a batch from its first to its last token, and then
/// writes its record. All its requests end at the begin of the next pass, so a flush follows almost every batch.
pub(crate) fn is_static(record: &IterationStats) -> bool {
    record.static_batching_stats.is_some() && record.inflight_batching_stats.is_none()
}

/// Tokens of the batch's context phases.
pub(crate) fn context_tokens(record: &IterationStats) -> u64 {
    let tokens = match (&record.inflight_batching_stats, &record.static_batching_stats) {
        (Some(inflight), _) => inflight.num_ctx_tokens,
        (None, fixed) => fixed.and_then(|fixed| fixed.num_ctx_tokens),
    };
    tokens.map_or(0, unsigned)
}

/// Requests that were paused in this iteration. KV cache manager V2 counts an eviction twice: as a paused request of the batch, and
/// as a suspended request.
pub(crate) fn pauses(record: &IterationStats) -> Option<i64> {
    let paused = record.inflight_batching_stats.and_then(|batch| batch.num_paused_requests);
    paused.max(record.iter_suspended_requests)
}

/// Tokens of the batch's generation phases: requests times the mean number of tokens. The result is rounded, because
/// the mean is an inexact float. The PyTorch engine leaves the mean at 0 (upstream issue 6364). A generation request
/// then decodes one token, and with speculative decoding the accepted draft tokens, too. 0 for a static batch: its record has only
/// the tokens that requests may decode at most.
pub(crate) fn generation_tokens(record: &IterationStats) -> u64 {
    let Some(inflight) = &record.inflight_batching_stats else { return 0 };
    let requests = inflight.num_gen_requests.map_or(0, unsigned);
    match inflight.avg_num_decoded_tokens_per_iter.filter(|mean| *mean > 0.0) {
        Some(mean) => (requests as f64 * mean).round() as u64,
        None => {
            let accepted = speculation(record).and_then(|spec| spec.num_accepted_tokens);
            requests.saturating_add(accepted.map_or(0, unsigned))
        }
    }
}

/// Tokens of batches.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BatchTokens {
    /// Tokens computed in context phases, so without cache hits.
    pub context: u64,
    /// Tokens decoded in generation phases. The first token of a request comes from its context phase and is not included.
    pub generation: u64,
}

impl BatchTokens {
    pub(crate) fn of(record: &IterationStats) -> Self {
        Self { context: context_tokens(record), generation: generation_tokens(record) }
    }

    /// Without the decoded tokens of `discarded` requests, which belong to no answer.
    pub(crate) fn without(mut self, discarded: u64, record: &IterationStats) -> Self {
        let requests = record.inflight_batching_stats.and_then(|batch| batch.num_gen_requests).map_or(0, unsigned);
        let tokens = self.generation;
        self.generation -= tokens.saturating_mul(discarded).checked_div(requests).unwrap_or(0).min(tokens);
        self
    }

    pub(crate) fn add(&mut self, more: Self) {
        add(&mut self.context, more.context);
        add(&mut self.generation, more.generation);
    }

    pub(crate) fn sum(self) -> u64 {
        self.context.saturating_add(self.generation)
    }
}

/// The drafts of the batch. The record of another attention-DP rank without `rank` has a copy of the drafts of rank 0 beside its own
/// batch (upstream: `_make_rank_iter_stats`). Its requests are assumed to have as many drafts and accepted tokens as those of
/// rank 0, on average.
pub(crate) fn speculation(record: &IterationStats) -> Option<SpecDecodingStats> {
    let of_rank_0 = record.spec_decoding_stats?.measured();
    if record.rank.is_some() || record.attention_dp_rank.is_none_or(|rank| rank == 0) {
        return Some(of_rank_0);
    }
    let requests = record.inflight_batching_stats?.num_gen_requests.map_or(0, unsigned);
    let drafted = of_rank_0.num_requests_with_draft_tokens.filter(|drafted| *drafted > 0).map(unsigned)?;
    let of_requests = |tokens: Option<i64>| {
        let tokens = share_of(unsigned(tokens?), requests, drafted, record.iter.unwrap_or(0));
        Some(i64::try_from(tokens).unwrap_or(i64::MAX))
    };
    Some(SpecDecodingStats {
        num_draft_tokens: of_requests(of_rank_0.num_draft_tokens),
        num_accepted_tokens: of_requests(of_rank_0.num_accepted_tokens),
        num_requests_with_draft_tokens: i64::try_from(requests).ok(),
        // All ranks draft at the same time.
        iter_latency_ms: None,
        ..of_rank_0
    })
}

/// `tokens` × `requests` ÷ `of`, rounded up in so many iterations and down in the others that the sum over iterations has no error.
fn share_of(tokens: u64, requests: u64, of: u64, iter: u64) -> u64 {
    let product = u128::from(tokens) * u128::from(requests);
    let (of, iter) = (u128::from(of), u128::from(iter));
    let remainder = product % of;
    let tokens = product / of + ((iter % of + 1) * remainder / of - (iter % of) * remainder / of);
    u64::try_from(tokens).unwrap_or(u64::MAX)
}

/// Sums over the batches of iterations.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BatchSums {
    pub tokens: BatchTokens,
    /// Some batches were static, so their tokens are unknown.
    has_static_batches: bool,
    pub spec_decode_draft_tokens: u64,
    pub spec_decode_accepted_tokens: u64,
    /// Generation requests that had draft tokens.
    pub spec_decode_drafted_requests: u64,
    /// Seconds spent drafting.
    pub spec_decode_draft_seconds: f64,
}

impl BatchSums {
    /// `discarded`: requests whose tokens belong to no answer.
    pub(crate) fn absorb_tokens(&mut self, record: &IterationStats, discarded: u64) {
        self.tokens.add(BatchTokens::of(record).without(discarded, record));
        // The PyTorch engine always sends zeros here. Its in-flight batch may have been left out because it was impossible.
        let has_static = record.static_batching_stats.is_some_and(|batch| !batch.is_all_zero());
        self.has_static_batches |= has_static && is_static(record);
    }

    /// Tokens decoded in generation phases. Absent with static batches.
    #[must_use]
    pub fn decoded_tokens(&self) -> Option<u64> {
        (!self.has_static_batches).then_some(self.tokens.generation)
    }

    pub(crate) fn absorb_speculation(&mut self, record: &IterationStats) {
        let Some(spec) = speculation(record) else { return };
        add(&mut self.spec_decode_draft_tokens, spec.num_draft_tokens.map_or(0, unsigned));
        add(&mut self.spec_decode_accepted_tokens, spec.num_accepted_tokens.map_or(0, unsigned));
        add(&mut self.spec_decode_drafted_requests, spec.num_requests_with_draft_tokens.map_or(0, unsigned));
        self.spec_decode_draft_seconds += seconds(spec.iter_latency_ms).unwrap_or(0.0);
    }
}
