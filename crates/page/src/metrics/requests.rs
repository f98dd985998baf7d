//! Turns finished requests into samples: latencies, lengths, resource use and finish reasons.

use std::sync::Arc;

use crate::state::EngineSnapshot;
use trtllm_engine::attribution::PARTS;
use trtllm_engine::objectives::{ObjectiveTotals, Outcomes};
use trtllm_engine::request_totals::LatencySource;

use super::catalog::Id;
use super::catalog::table::triton::DisaggregatedServing;
use super::page::Labels;
use super::value::Value;
use super::writer::SampleWriter;

impl SampleWriter<'_> {
    pub(super) fn requests(&mut self, snapshot: &EngineSnapshot) {
        let requests = &snapshot.requests;
        let disaggregated = DisaggregatedServing {
            kv_cache_transfer_ms: Some(Value::from(requests.kv_cache_transfer_ms)),
            requests: Some(Value::from(requests.disaggregated_requests)),
        };
        self.each(Id::DisaggregatedServingMetrics, disaggregated);
        for (family, histogram) in [
            (Id::InputTokenLen, &requests.input_token_len),
            (Id::OutputTokenLen, &requests.output_token_len),
            (Id::TimeToFirstToken, &requests.times.time_to_first_token),
            (Id::E2eLatency, &requests.times.e2e_latency),
            (Id::RequestQueueTime, &requests.times.queue_time),
            (Id::RequestPrefillTime, &requests.times.prefill_time),
            (Id::RequestDecodeTime, &requests.times.decode_time),
            (Id::RequestInferenceTime, &requests.times.inference_time),
            (Id::KvCacheTransferTime, &requests.times.kv_cache_transfer),
            (Id::KvCacheTransferBytes, &requests.times.kv_cache_transfer_bytes),
            (Id::RequestKvHitRatio, &requests.times.kv_cache_hit_ratio),
        ] {
            self.one(family, histogram);
        }
        self.put(Id::TimePerOutputToken, requests.time_per_output_token());
        for (family, histogram) in [
            (Id::ServerTimeToFirstToken, &requests.times.server_time_to_first_token),
            (Id::RequestCachedTokens, &requests.times.cached_tokens),
            (Id::RequestKvBlocks, &requests.times.kv_cache_blocks),
            (Id::RequestKvNewBlocks, &requests.times.kv_cache_new_blocks),
            (Id::RequestIterations, &requests.times.iterations),
            (Id::RequestDecodedTokens, &requests.times.decoded_tokens_per_iteration),
            (Id::RequestSpecAcceptance, &requests.times.spec_decode_acceptance_ratio),
            (Id::InterTokenLatency, &requests.times.inter_token),
            (Id::InterStepLatency, &requests.times.inter_step),
        ] {
            self.observed(family, histogram);
        }
        for (family, phases) in [
            (Id::RequestGpuForwardTime, &requests.times.gpu_forward),
            (Id::RequestGpuSampleTime, &requests.times.gpu_sample),
        ] {
            self.in_order(family, phases.iter().map(|histogram| (histogram.count() > 0).then_some(histogram)));
        }
        self.in_order(Id::RequestsFinished, requests.finished.into_iter().flatten().map(Some));
        self.by_label(Id::RequestErrors, "code", &requests.server.errors);
        self.each(Id::RequestDraftTokens, requests.draft_tokens);
        self.objectives(snapshot);
        self.request_parts(snapshot);
    }

    fn request_parts(&mut self, snapshot: &EngineSnapshot) {
        let Some(parts) = &snapshot.request_parts else { return };
        self.one(Id::RequestsUnattributed, parts.unattributed);
        if parts.all.iter().sum::<f64>() <= 0.0 {
            return;
        }
        self.in_order(Id::RequestTime, parts.all.map(Some));
        let limits = snapshot.requests.objectives.map(|objectives| objectives.limits).unwrap_or_default().limits();
        let missed = limits.into_iter().zip(parts.missed).filter(|((_, limit), _)| limit.is_some());
        for ((objective, _), seconds) in missed {
            for (part, seconds) in PARTS.into_iter().zip(seconds) {
                let labels = Labels::extend(self.labels.base(), [("objective", objective), ("part", part)]);
                self.page.push(Id::MissedRequestTime, &Arc::new(labels), seconds);
            }
        }
    }

    fn objectives(&mut self, snapshot: &EngineSnapshot) {
        let Some(totals) = &snapshot.requests.objectives else { return };
        for (objective, limit) in totals.limits.limits() {
            if let Some(limit) = limit {
                let labels = Labels::extend(self.labels.base(), [("objective", objective)]);
                self.page.push(Id::ObjectiveLimit, &Arc::new(labels), limit.as_secs_f64());
            }
        }
        // Not all requests have rows then.
        if snapshot.totals.is_sampled() && snapshot.requests.source == LatencySource::RequestStats {
            return;
        }
        let ObjectiveTotals { ttft, tpot, e2e, all, .. } = *totals;
        for (objective, outcomes) in [("ttft", ttft), ("tpot", tpot), ("e2e", e2e), ("all", Some(all))] {
            let Some(Outcomes { met, missed, unknown }) = outcomes else { continue };
            for (outcome, requests) in [("met", met), ("missed", missed), ("unknown", unknown)] {
                let labels = Labels::extend(self.labels.base(), [("objective", objective), ("outcome", outcome)]);
                self.page.push(Id::ObjectiveRequests, &Arc::new(labels), requests);
            }
        }
        self.put(Id::GoodputTokens, totals.goodput_tokens);
    }
}
