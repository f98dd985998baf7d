//! Finished requests as samples: how long they took, how long they were, what they used and why they ended.

use crate::state::EngineSnapshot;

use super::catalog::Id;
use super::engine::Writer;

impl Writer<'_> {
    pub(super) fn requests(&mut self, snapshot: &EngineSnapshot) {
        let requests = &snapshot.requests;
        self.put(Id::DisaggregatedServingMetrics, 0, Some(requests.kv_cache_transfer_ms));
        self.put(Id::DisaggregatedServingMetrics, 1, Some(requests.disaggregated_requests));
        for (metric, histogram) in [
            (Id::InputTokenLen, &requests.input_token_len),
            (Id::OutputTokenLen, &requests.output_token_len),
            (Id::TimeToFirstToken, &requests.times.time_to_first_token),
            (Id::TimePerOutputToken, &requests.times.time_per_output_token),
            (Id::E2eLatency, &requests.times.e2e_latency),
            (Id::RequestQueueTime, &requests.times.queue_time),
            (Id::RequestPrefillTime, &requests.times.prefill_time),
            (Id::RequestDecodeTime, &requests.times.decode_time),
            (Id::RequestInferenceTime, &requests.times.inference_time),
            (Id::KvCacheTransferTime, &requests.times.kv_cache_transfer),
            (Id::KvCacheTransferBytes, &requests.times.kv_cache_transfer_bytes),
            (Id::RequestKvHitRatio, &requests.times.kv_cache_hit_ratio),
        ] {
            self.one(metric, histogram);
        }
        for (metric, histogram) in [
            (Id::ServerTimeToFirstToken, &requests.times.server_time_to_first_token),
            (Id::RequestKvBlocks, &requests.times.kv_cache_blocks),
            (Id::RequestKvNewBlocks, &requests.times.kv_cache_new_blocks),
            (Id::RequestIterations, &requests.times.iterations),
            (Id::RequestDecodedTokens, &requests.times.decoded_tokens_per_iteration),
            (Id::RequestSpecAcceptance, &requests.times.spec_decode_acceptance_ratio),
        ] {
            self.told(metric, histogram);
        }
        for (at, count) in requests.finished.into_iter().flatten().enumerate() {
            self.put(Id::RequestsFinished, at, Some(count));
        }
        if let Some((proposed, accepted)) = requests.draft_tokens {
            self.put(Id::RequestDraftTokens, 0, Some(proposed));
            self.put(Id::RequestDraftTokens, 1, Some(accepted));
        }
    }
}
