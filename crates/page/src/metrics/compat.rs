//! Writes an engine's values under other exporters' names. Each value has the meaning that the other exporter gives it,
//! as far as TensorRT-LLM's statistics allow: trtllm-serve's "running" is not Triton's "scheduled". All name sets are
//! off by default.

use trtllm_engines::Engine;

use super::catalog::table::{dynamo, triton_core, trtllm, vllm};
use super::engine_series::EngineSeries;
use super::engine_view::EngineView;
use super::page::Page;
use super::series_labels::SeriesLabels;
use super::writer::SeriesWriter;

/// `--metrics.compat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompatSets {
    /// trtllm-serve's `trtllm_*`, and the families that Dynamo's worker adds.
    pub trtllm: bool,
    /// vLLM's `vllm:*`.
    pub vllm: bool,
    /// Triton's `nv_inference_*`.
    pub triton_core: bool,
    /// dcgm-exporter's `DCGM_FI_*`.
    pub dcgm: bool,
    /// The label values of the original metrics specification.
    pub spec: bool,
}

impl EngineSeries {
    pub(super) fn write_compat(&self, engine: &EngineView<'_>, sets: CompatSets, page: &mut Page) {
        let model = self.name.model.as_str();
        if sets.trtllm {
            SeriesWriter::new(page, &self.trtllm_labels(engine.engine)).table(trtllm::WRITE, engine);
            // Dynamo's worker calls every engine `trtllm`. Only a worker that decodes receives a KV cache, so `decode`
            // is the mode of all transfers.
            let theirs = [("disaggregation_mode", "decode"), ("engine_type", "trtllm"), ("model_name", model)];
            SeriesWriter::new(page, &self.compat_labels(theirs, dynamo::FAMILIES)).table(dynamo::WRITE, engine);
        }
        if sets.vllm {
            // vLLM numbers the engines of one server from 0. Here, such a number would pass to another engine when an
            // engine disappears, so all engines have 0, and the label `version` distinguishes them.
            let labels = self.compat_labels([("engine", "0"), ("model_name", model)], vllm::FAMILIES);
            SeriesWriter::new(page, &labels).table(vllm::WRITE, engine);
        }
        if sets.triton_core {
            SeriesWriter::new(page, &self.labels).table(triton_core::WRITE, engine);
        }
    }

    pub(super) fn trtllm_labels(&self, engine: &Engine) -> SeriesLabels {
        let backend = engine.about.backend.as_deref().unwrap_or("unknown");
        self.compat_labels([("engine_type", backend), ("model_name", &self.name.model)], trtllm::FAMILIES)
    }
}

#[cfg(test)]
mod tests {
    use super::super::engine::page_of;
    use super::super::family::Id;
    use super::super::page::Value;
    use super::*;
    use trtllm_fold::EngineState;

    #[test]
    fn tritons_successes_leave_out_the_requests_that_failed() {
        let finished = |engine: &mut Engine| {
            let fold = &mut engine.observed.fold;
            fold.totals.requests_completed = 5;
            let requests = &mut fold.requests.totals;
            (requests.succeeded, requests.finished) = (3, Some([2, 1, 0, 2, 0]));
        };
        let page = page_of(finished, CompatSets { triton_core: true, ..CompatSets::default() });
        let shown =
            |id| page.samples().iter().filter(move |sample| sample.metric == id).map(|sample| sample.value.clone());
        for id in [Id::InferenceRequestSuccess, Id::InferenceCount] {
            assert_eq!(shown(id).collect::<Vec<_>>(), [Value::Count(3)]);
        }
        assert_eq!(shown(Id::InferenceRequestFailure).collect::<Vec<_>>(), [0, 2, 0, 0].map(Value::Count));
    }

    #[test]
    fn a_stale_engine_keeps_its_limits_and_loses_its_load() {
        let record = serde_json::json!({"numActiveRequests": 3, "maxNumActiveRequests": 64, "maxBatchSizeStatic": 64,
            "maxBatchSizeRuntime": 48, "maxNumTokensStatic": 64, "maxNumTokensRuntime": 48});
        let record = serde_json::from_value(record).unwrap();
        let shown = |state| {
            let read = |engine: &mut Engine| {
                engine.observed.absorb(&record, std::time::Instant::now(), 0).unwrap();
                engine.state = state;
            };
            let page = page_of(read, CompatSets { trtllm: true, ..CompatSets::default() });
            let has = |id| page.samples().iter().any(|sample| sample.metric == id);
            [
                has(Id::TrtllmNumRequestsRunning),
                has(Id::TrtllmMaxNumActiveRequests),
                has(Id::TrtllmMaxBatchSizeStatic),
                has(Id::TrtllmMaxBatchSizeRuntime),
                has(Id::TrtllmMaxNumTokensRuntime),
            ]
        };
        assert_eq!(shown(EngineState::Busy), [true; 5]);
        assert_eq!(shown(EngineState::Unreachable), [false, true, true, true, true]);
    }
}
