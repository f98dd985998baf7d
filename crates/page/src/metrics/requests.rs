//! Writes those families of finished requests that have several series.

use trtllm_analysis::attribution::PARTS;
use trtllm_analysis::objectives::{ObjectiveTotals, Outcomes};

use super::catalog::Id;
use super::engine_readings::EngineReadings;
use super::value::{Value, seen};
use super::writer::EngineWriter;

impl EngineWriter<'_> {
    pub(super) fn requests(&mut self, engine: &EngineReadings<'_>) {
        let (requests, times) = (engine.requests, engine.times);
        let disaggregated = [
            ("kv_cache_transfer_ms", Some(Value::from(requests.kv_cache_transfer_ms))),
            ("request_count", Some(Value::from(requests.disaggregated_requests))),
        ];
        self.named(Id::DisaggregatedServingMetrics, disaggregated);
        self.in_order(Id::RequestGpuForwardTime, times.gpu_forward.iter().map(seen));
        self.in_order(Id::RequestGpuSampleTime, times.gpu_sample.iter().map(seen));
        self.in_order(Id::RequestsFinished, requests.finished.into_iter().flatten().map(Some));
        self.by_label(Id::RequestErrors, "code", &requests.server.errors);
        self.each(Id::RequestDraftTokens, requests.draft_tokens);
        self.objectives(engine);
        self.request_parts(engine);
    }

    fn request_parts(&mut self, engine: &EngineReadings<'_>) {
        let Some(parts) =
            engine.engine.observed.analysis.attribution.totals.filter(|parts| parts.all.iter().sum::<f64>() > 0.0)
        else {
            return;
        };
        self.in_order(Id::RequestTime, parts.all.map(Some));
        let limits = engine.engine.objectives().map(|objectives| objectives.limits).unwrap_or_default().limits();
        let missed = limits.into_iter().zip(parts.missed).filter(|((_, limit), _)| limit.is_some());
        for ((objective, _), seconds) in missed {
            for (part, seconds) in PARTS.into_iter().zip(seconds) {
                self.with(Id::MissedRequestTime, [("objective", objective), ("part", part)], seconds);
            }
        }
    }

    fn objectives(&mut self, engine: &EngineReadings<'_>) {
        for (objective, limit) in engine.engine.objectives().into_iter().flat_map(|totals| totals.limits.limits()) {
            if let Some(limit) = limit {
                self.with(Id::ObjectiveLimit, [("objective", objective)], limit.as_secs_f64());
            }
        }
        let Some(ObjectiveTotals { ttft, tpot, e2e, all, .. }) = engine.objectives().copied() else { return };
        for (objective, outcomes) in [("ttft", ttft), ("tpot", tpot), ("e2e", e2e), ("all", Some(all))] {
            let Some(Outcomes { met, missed, unknown }) = outcomes else { continue };
            for (outcome, requests) in [("met", met), ("missed", missed), ("unknown", unknown)] {
                self.with(Id::ObjectiveRequests, [("objective", objective), ("outcome", outcome)], requests);
            }
        }
    }
}
