//! How full each resource of an engine is. 1 means full. Only the queue can be above 1. A resource without a known limit has no
//! value.

use trtllm_fold::Latest;
use trtllm_fold::share::ratio;

/// Shares of the limits.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Saturation {
    /// Scheduled requests ÷ requests that fit into a batch.
    pub batch: Option<f64>,
    /// Tokens of the iteration ÷ tokens that fit into an iteration.
    pub tokens: Option<f64>,
    /// Used blocks ÷ all blocks of the KV cache.
    pub kv_cache: Option<f64>,
    /// Requests that wait ÷ requests that fit into a batch. Above 1, more than a whole batch waits.
    pub queue: Option<f64>,
}

impl Saturation {
    #[must_use]
    pub fn of(latest: &Latest) -> Self {
        let batch_limit = latest.batch_limit(None);
        let tokens = latest.batch_tokens.and_then(|tokens| i64::try_from(tokens).ok());
        let waiting = latest.active_of_all().and(latest.scheduled()).and(latest.all_waiting());
        // Records that copy the cache of rank 0 say nothing about the whole engine.
        let kv = latest.kv.filter(|_| !latest.copies_rank_0());
        Self {
            batch: full_at_1(fullness(latest.scheduled(), batch_limit)),
            tokens: full_at_1(fullness(tokens, latest.token_limit(None))),
            kv_cache: full_at_1(kv.and_then(|kv| fullness(kv.used_num_blocks, kv.max_num_blocks))),
            queue: waiting.zip(batch_limit.filter(|limit| *limit > 0)).map(|(waiting, limit)| waiting / limit as f64),
        }
    }
}

/// Limits a share to 1. It could be higher, because the tuner may lower a limit below what the iteration runs, and because the
/// number of generation tokens is computed from a mean.
fn full_at_1(share: Option<f64>) -> Option<f64> {
    share.map(|share| share.min(1.0))
}

/// A negative number counts as 0.
fn fullness(part: Option<i64>, whole: Option<i64>) -> Option<f64> {
    ratio(part.map(|part| part.max(0)), whole)
}

#[cfg(test)]
mod tests {
    use trtllm_records::IterationStats;

    use super::*;

    fn latest(rows: &[serde_json::Value]) -> Latest {
        let mut latest = Latest::default();
        for (number, row) in rows.iter().enumerate() {
            let record: IterationStats = serde_json::from_value(row.clone()).unwrap();
            if number == 0 { latest.update(&record, 0, None) } else { latest.add_sibling(&record) }
        }
        latest
    }

    fn rank(number: i64) -> serde_json::Value {
        serde_json::json!({
            "iter": 1, "attentionDpRank": number, "numActiveRequests": 6, "numQueuedRequests": 4, "maxNumActiveRequests": 16,
            "kvCacheStats": {"maxNumBlocks": 100, "usedNumBlocks": 50},
            "inflightBatchingStats": {"numScheduledRequests": 4, "numContextRequests": 1, "numGenRequests": 3, "numCtxTokens": 100},
        })
    }

    #[test]
    fn the_cpp_engine_tells_the_limit_of_each_resource() {
        let latest = latest(&[serde_json::json!({
            "iter": 1, "numActiveRequests": 12, "numQueuedRequests": 20, "maxNumActiveRequests": 64,
            "maxBatchSizeStatic": 32, "maxBatchSizeRuntime": 16, "maxNumTokensStatic": 8192, "maxNumTokensRuntime": 1000,
            "kvCacheStats": {"maxNumBlocks": 100, "usedNumBlocks": 75},
            "inflightBatchingStats": {
                "numScheduledRequests": 8, "numContextRequests": 2, "numGenRequests": 6, "numCtxTokens": 490,
                "avgNumDecodedTokensPerIter": 1.5,
            },
        })]);
        let expected = Saturation { batch: Some(0.5), tokens: Some(0.499), kv_cache: Some(0.75), queue: Some(1.5) };
        assert_eq!(Saturation::of(&latest), expected);
        let idle = Saturation { batch: Some(0.0), tokens: Some(0.0), kv_cache: Some(0.75), queue: Some(0.0) };
        assert_eq!(Saturation::of(&latest.idle()), idle);
    }

    #[test]
    fn a_limit_that_was_lowered_below_the_batch_is_full_and_only_the_queue_is_above_1() {
        let latest = latest(&[serde_json::json!({
            "iter": 1, "numActiveRequests": 12, "numQueuedRequests": 20, "maxBatchSizeRuntime": 4, "maxNumTokensRuntime": 100,
            "kvCacheStats": {"maxNumBlocks": 100, "usedNumBlocks": 101},
            "inflightBatchingStats": {"numScheduledRequests": 8, "numContextRequests": 8, "numCtxTokens": 490},
        })]);
        let expected = Saturation { batch: Some(1.0), tokens: Some(1.0), kv_cache: Some(1.0), queue: Some(6.0) };
        assert_eq!(Saturation::of(&latest), expected);
    }

    #[test]
    fn the_pytorch_engine_has_the_limit_of_active_requests_and_no_limit_of_tokens() {
        let latest = latest(&[serde_json::json!({
            "iter": 1, "numActiveRequests": 10, "numQueuedRequests": 6, "maxNumActiveRequests": 16,
            "maxBatchSizeStatic": 0, "maxBatchSizeRuntime": 0, "maxNumTokensRuntime": 0,
            "inflightBatchingStats": {"numScheduledRequests": 8, "numGenRequests": 8, "numCtxTokens": 0},
        })]);
        let expected = Saturation { batch: Some(0.5), tokens: None, kv_cache: None, queue: Some(0.5) };
        assert_eq!(Saturation::of(&latest), expected);
    }

    #[test]
    fn rows_that_copy_rank_0_have_only_a_batch() {
        let expected = Saturation { batch: Some(0.25), ..Saturation::default() };
        assert_eq!(Saturation::of(&latest(&[rank(0), rank(1), rank(2), rank(3)])), expected);
    }

    #[test]
    fn own_rows_of_ranks_are_summed() {
        let own = |number| {
            let mut row = rank(number);
            row["rank"] = number.into();
            row["maxNumTokensRuntime"] = 206.into();
            row
        };
        // 4 of 16 in each rank; 103 of 206 tokens; 6 - 4 active and 4 queued of 16.
        let expected = Saturation { batch: Some(0.25), tokens: Some(0.5), kv_cache: Some(0.5), queue: Some(0.375) };
        assert_eq!(Saturation::of(&latest(&[own(0), own(1)])), expected);
    }

    #[test]
    fn static_batches_have_no_limits_of_tokens_and_a_cache_without_blocks_has_no_share() {
        let latest = latest(&[serde_json::json!({
            "iter": 1, "maxBatchSizeRuntime": 8, "kvCacheStats": {"maxNumBlocks": 0, "usedNumBlocks": 0},
            "staticBatchingStats": {"numScheduledRequests": 4, "numContextRequests": 1, "numGenTokens": 3, "numCtxTokens": 5},
        })]);
        assert_eq!(Saturation::of(&latest), Saturation { batch: Some(0.5), ..Saturation::default() });
    }
}
