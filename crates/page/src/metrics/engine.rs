//! Turns one engine into samples. A stale engine has no load gauges, the load of an idle engine is 0, and a value
//! that the engine did not send is absent.

use trtllm_engines::{Engine, EngineSlot};
use trtllm_fold::EngineState;
use trtllm_fold::request_totals::LatencySource;
use trtllm_records::ErrorKind;
use trtllm_records::orchestrator::SOURCE as ORCHESTRATOR;
use trtllm_verdict::blind::Blind;
use trtllm_verdict::cause::Cause;

use super::catalog::Id;
use super::catalog::table::{OF_ORCHESTRATORS, VALUES_OF_ALL, VALUES_OF_ENGINES};
use super::compat::CompatSets;
use super::engine_readings::EngineReadings;
use super::engine_series::EngineSeries;
use super::page::Page;
use super::writer::EngineWriter;

impl EngineSeries {
    /// Adds the samples of one engine or orchestrator.
    pub(super) fn write(&self, slot: &EngineSlot, compat: CompatSets, page: &mut Page) {
        let engine = &**slot.lock();
        let load = engine.load();
        slot.with_judged(|judged| {
            let readings = EngineReadings {
                engine,
                totals: engine.totals(),
                requests: engine.requests(),
                times: &engine.requests().times,
                latest: engine.latest(),
                load: load.as_ref(),
                bench: engine.source.bench_report.as_deref(),
                gpus: engine.gpus.as_deref(),
                gpu_hour_cost: slot.gpu_hour_cost(),
                judged,
                headroom: judged.headroom(),
            };
            let mut writer = EngineWriter { page, labels: &self.labels };
            VALUES_OF_ALL.iter().for_each(|values| writer.put_all(values, &readings));
            writer.gpus(&readings);
            writer.verdict(&readings);
            if self.name.source == ORCHESTRATOR || engine.orchestrator().is_some() {
                let labels = self.orchestrator.get_or_init(|| self.labels.for_families(OF_ORCHESTRATORS));
                EngineWriter { page, labels }.orchestrator(&readings);
                return;
            }
            if readings.latest.is_some_and(|latest| latest.is_visual_gen) {
                writer.requests_in_flight(&readings);
                writer.state(&readings, self.name.source);
                return;
            }
            VALUES_OF_ENGINES.iter().for_each(|values| writer.put_all(values, &readings));
            writer.load(&readings);
            writer.limits(&readings);
            writer.ranks(engine);
            writer.kv_cache_totals(engine.totals());
            writer.requests(&readings);
            writer.state(&readings, self.name.source);
            writer.config(engine);
            if let Some(report) = readings.bench {
                writer.bench_report(report);
            }
            self.write_compat(&readings, compat, page);
        });
    }

    /// Adds what the endpoint picker of a Kubernetes gateway reads. An engine that refuses connections leaves the page
    /// at once. If it stayed until it is stale, the picker would send it requests that fail.
    pub(super) fn write_gateway(&self, slot: &EngineSlot, page: &mut Page) {
        let engine = &**slot.lock();
        let refused = engine.source.last_failure.as_ref().is_some_and(|failure| failure.kind == ErrorKind::Connect);
        let Some(latest) = engine.load().filter(|_| !refused) else { return };
        EngineWriter { page, labels: &self.labels }.gateway(&latest);
        let labels = self.trtllm_labels(engine);
        EngineWriter { page, labels: &labels }.gateway_of_trtllm_serve(&latest);
    }
}

impl EngineWriter<'_> {
    fn gpus(&mut self, engine: &EngineReadings<'_>) {
        for uuid in engine.gpus.iter().flat_map(|gpus| &gpus.uuids) {
            self.with(Id::EngineGpuInfo, [("gpu_uuid", uuid.clone())], 1_u64);
        }
    }

    /// What limits the engine, with one series per cause, and its output relative to the benchmark.
    fn verdict(&mut self, engine: &EngineReadings<'_>) {
        if let Some(verdict) = engine.judged.verdict.verdict() {
            self.in_order(Id::LimitedBy, Cause::ALL.map(|cause| Some(u64::from(cause == verdict.cause))));
            let is_blind = |what: &str| verdict.blind.iter().any(|spot| spot.what == what);
            self.in_order(Id::LimitedByBlind, Blind::NAMES.map(|what| Some(u64::from(is_blind(what)))));
        }
        if let Some(bench) = engine.bench {
            let output = engine.judged.output_ratios(bench);
            self.in_order(Id::ThroughputOfReference, [output.throughput]);
            self.in_order(Id::EfficiencyOfReference, [output.efficiency]);
        }
    }

    fn state(&mut self, engine: &EngineReadings<'_>, source: &'static str) {
        let about = &engine.engine.about;
        let fed_by = LatencySource::ALL.map(|source| (source == engine.requests.source).then_some(1_u64));
        self.in_order(Id::RequestLatencyInfo, fed_by);
        self.in_order(Id::EngineState, EngineState::ALL.map(|state| Some(state == engine.engine.state)));
        let unknown = || "unknown".to_owned();
        let labels = [
            ("backend", about.backend.clone().unwrap_or_else(unknown)),
            ("engine_version", about.version.clone().unwrap_or_else(unknown)),
            ("simulated", about.simulated.to_string()),
            ("source", source.to_owned()),
        ];
        self.with(Id::EngineInfo, labels, 1_u64);
        for (stage, seconds) in &about.startup {
            self.with(Id::StartupTime, [("stage", stage.clone())], *seconds);
        }
    }

    /// The settings that explain the engine's performance.
    fn config(&mut self, engine: &Engine) {
        let settings = engine.settings();
        if settings.iter().any(|(_, value)| value.is_some()) {
            let known = settings.map(|(label, value)| (label, value.unwrap_or_else(|| "unknown".to_owned())));
            self.with(Id::EngineConfigInfo, known, 1_u64);
        }
    }
}

/// The page of one engine after this change.
#[cfg(test)]
pub(super) fn page_of(change: impl FnOnce(&mut Engine), compat: CompatSets) -> Page {
    let name = trtllm_records::EngineName::new("m", "1", "test");
    let state = trtllm_engines::State::new(vec![name.clone()]);
    let slots = state.slots();
    change(&mut slots[0].lock());
    let mut page = Page::default();
    EngineSeries::new(&name, true).write(&slots[0], compat, &mut page);
    page
}

#[cfg(test)]
mod tests {
    use trtllm_records::perf_metrics::FinishReason;

    use super::*;

    #[test]
    fn of_visual_gen_only_its_requests_are_shown_and_no_counter() {
        let now = std::time::Instant::now();
        let record = serde_json::json!({"iter": 2, "timestamp": "2026-11-28T10:00:00+00:00", "numQueuedRequests": 3,
            "numActiveRequests": 1, "currentStepsProcessed": 0, "currentRequestId": 0, "currentRequestStepIdx": 0});
        let read = |engine: &mut Engine| {
            engine.observed = trtllm_analysis::ObservedEngine::new(std::time::Duration::from_secs(5));
            engine.observed.absorb(&serde_json::from_value(record).unwrap(), now, 0).unwrap();
            engine.state = engine.observed.fold.health.state(now);
        };
        let page = page_of(read, CompatSets::default());
        let shown: Vec<Id> = page.samples().iter().map(|sample| sample.metric).collect();
        let load = [Id::RequestMetrics, Id::QueuedRequests];
        let about = [Id::RequestLatencyInfo, Id::EngineState, Id::EngineInfo];
        assert_eq!(shown.iter().filter(|id| load.contains(id)).count(), 2);
        assert!(shown.iter().all(|id| load.contains(id) || about.contains(id)), "{shown:?}");
    }

    #[test]
    fn states_and_reasons_are_in_the_catalogs_order() {
        let values = |id: Id| id.metric().variant.unwrap().values;
        assert_eq!(values(Id::EngineState), EngineState::ALL.map(EngineState::name));
        assert_eq!(values(Id::RequestLatencyInfo), LatencySource::ALL.map(LatencySource::name));
        assert_eq!(values(Id::RequestsFinished), FinishReason::ALL.map(FinishReason::name));
    }
}
