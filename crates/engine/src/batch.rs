//! The batch of one record, with in-flight or static batching.

use trtllm_model::IterationStats;

/// Requests of the batch, with in-flight or static batching.
pub(crate) fn scheduled(record: &IterationStats) -> Option<u64> {
    let scheduled = match (&record.inflight_batching_stats, &record.static_batching_stats) {
        (Some(inflight), _) => inflight.num_scheduled_requests,
        (None, fixed) => fixed.and_then(|fixed| fixed.num_scheduled_requests),
    };
    scheduled.map(|scheduled| unsigned(Some(scheduled)))
}

/// Tokens of the batch's context phases.
pub(crate) fn context_tokens(record: &IterationStats) -> u64 {
    unsigned(match (&record.inflight_batching_stats, &record.static_batching_stats) {
        (Some(inflight), _) => inflight.num_ctx_tokens,
        (None, fixed) => fixed.and_then(|fixed| fixed.num_ctx_tokens),
    })
}

/// Tokens of the batch's generation phases: requests times the mean number of tokens. The rounding removes the error of the
/// float. The PyTorch engine leaves the mean at 0 (upstream issue 6364). A generation request then decodes one token, and
/// with speculative decoding the accepted draft tokens, too.
pub(crate) fn generation_tokens(record: &IterationStats) -> u64 {
    let Some(inflight) = &record.inflight_batching_stats else {
        return unsigned(record.static_batching_stats.and_then(|fixed| fixed.num_gen_tokens));
    };
    let requests = unsigned(inflight.num_gen_requests);
    // The rows of other attention-DP ranks copy the mean and the accepted tokens from rank 0.
    if record.rank.is_none() && record.attention_dp_rank.is_some_and(|rank| rank != 0) {
        return requests;
    }
    match inflight.avg_num_decoded_tokens_per_iter.filter(|mean| *mean > 0.0) {
        Some(mean) => (requests as f64 * mean).round() as u64,
        None => {
            let accepted = record.spec_decoding_stats.and_then(|spec| spec.num_accepted_tokens);
            requests.saturating_add(unsigned(accepted))
        }
    }
}

/// All tokens of the batch.
pub(crate) fn tokens(record: &IterationStats) -> u64 {
    context_tokens(record).saturating_add(generation_tokens(record))
}

fn unsigned(value: Option<i64>) -> u64 {
    value.and_then(|value| u64::try_from(value).ok()).unwrap_or(0)
}
