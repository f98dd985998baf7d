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
    fn each_resource_is_compared_with_the_limit_that_the_engine_tells() {
        let cpp = serde_json::json!({
            "iter": 1, "numActiveRequests": 12, "numQueuedRequests": 20, "maxNumActiveRequests": 64,
            "maxBatchSizeStatic": 32, "maxBatchSizeRuntime": 16, "maxNumTokensStatic": 8192, "maxNumTokensRuntime": 1000,
            "kvCacheStats": {"maxNumBlocks": 100, "usedNumBlocks": 75},
            "inflightBatchingStats": {
                "numScheduledRequests": 8, "numContextRequests": 2, "numGenRequests": 6, "numCtxTokens": 490,
                "avgNumDecodedTokensPerIter": 1.5,
            },
        });
        // Limits below the batch: only the queue is above 1.
        let lowered = serde_json::json!({
            "iter": 1, "numActiveRequests": 12, "numQueuedRequests": 20, "maxBatchSizeRuntime": 4, "maxNumTokensRuntime": 100,
            "kvCacheStats": {"maxNumBlocks": 100, "usedNumBlocks": 101},
            "inflightBatchingStats": {"numScheduledRequests": 8, "numContextRequests": 8, "numCtxTokens": 490},
        });
        let pytorch = serde_json::json!({
            "iter": 1, "numActiveRequests": 10, "numQueuedRequests": 6, "maxNumActiveRequests": 16,
            "maxBatchSizeStatic": 0, "maxBatchSizeRuntime": 0, "maxNumTokensRuntime": 0,
            "inflightBatchingStats": {"numScheduledRequests": 8, "numGenRequests": 8, "numCtxTokens": 0},
        });
        let fixed = serde_json::json!({
            "iter": 1, "maxBatchSizeRuntime": 8, "kvCacheStats": {"maxNumBlocks": 0, "usedNumBlocks": 0},
            "staticBatchingStats": {"numScheduledRequests": 4, "numContextRequests": 1, "numGenTokens": 3, "numCtxTokens": 5},
        });
        let own = |number| {
            let mut row = rank(number);
            (row["rank"], row["maxNumTokensRuntime"]) = (number.into(), 206.into());
            row
        };
        let cpp = latest(&[cpp]);
        for (name, latest, [batch, tokens, kv_cache, queue]) in [
            ("C++ executor", cpp, [Some(0.5), Some(0.499), Some(0.75), Some(1.5)]),
            ("idle", cpp.idle(), [Some(0.0), Some(0.0), Some(0.75), Some(0.0)]),
            ("lowered limits", latest(&[lowered]), [Some(1.0), Some(1.0), Some(1.0), Some(6.0)]),
            ("PyTorch limits only active requests", latest(&[pytorch]), [Some(0.5), None, None, Some(0.5)]),
            ("rows that copy rank 0", latest(&[0, 1, 2, 3].map(rank)), [Some(0.25), None, None, None]),
            // 4 of 16 in each rank; 103 of 206 tokens; 6 - 4 active and 4 queued of 16.
            ("own rows of ranks", latest(&[0, 1].map(own)), [Some(0.25), Some(0.5), Some(0.5), Some(0.375)]),
            ("static batches, and a cache without blocks", latest(&[fixed]), [Some(0.5), None, None, None]),
        ] {
            assert_eq!(Saturation::of(&latest), Saturation { batch, tokens, kv_cache, queue }, "{name}");
        }
    }
}
