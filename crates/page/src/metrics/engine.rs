//! Turns one engine into samples. A stale engine has no load gauges, the load of an idle engine is 0, and a value
//! that the engine did not send is absent.

use trtllm_engines::EngineSlot;
use trtllm_records::ErrorKind;
use trtllm_records::orchestrator::SOURCE as ORCHESTRATOR;

use super::catalog::table::{
    benchmark, engine_counters, engine_gauges, engine_gpus, engine_histograms, orchestrator, triton, verdict,
};
use super::compat::CompatSets;
use super::engine_series::EngineSeries;
use super::engine_view::EngineView;
use super::family::{Group, Id};
use super::page::Page;
use super::writer::SeriesWriter;

/// The families of VisualGen, which tells no more than its requests.
const OF_VISUAL_GEN: [Id; 6] =
    [Id::RequestMetrics, Id::QueuedRequests, Id::RequestLatencyInfo, Id::EngineState, Id::EngineInfo, Id::StartupTime];

impl EngineSeries {
    /// Adds the samples of one engine or orchestrator. An orchestrator has families of its own for requests, so that a
    /// sum over engines does not count the same requests again.
    pub(super) fn write(&self, slot: &EngineSlot, compat: CompatSets, page: &mut Page) {
        let engine = &**slot.lock();
        let load = engine.load();
        slot.with_judged(|judged| {
            let view = EngineView {
                engine,
                source: self.name.source,
                totals: engine.totals(),
                requests: engine.requests(),
                times: &engine.requests().times,
                latest: engine.latest(),
                load: load.as_ref(),
                bench: engine.source.bench_report.as_deref(),
                gpus: engine.gpus.as_deref(),
                gpu_hour_cost: slot.gpu_hour_cost,
                judged,
                // A stale engine serves nothing, and where the records copy rank 0, what all ranks have is unknown.
                headroom: load.as_ref().filter(|load| !load.copies_rank_0()).and_then(|_| judged.headroom()),
            };
            let mut writer = SeriesWriter::new(page, &self.labels);
            writer.table(engine_gpus::WRITE, &view);
            writer.table(verdict::WRITE, &view);
            if self.name.source == ORCHESTRATOR || engine.orchestrator().is_some() {
                writer.table(orchestrator::WRITE, &view);
                return;
            }
            let is_visual_gen = view.latest.is_some_and(|latest| latest.is_visual_gen);
            let is_shown = |id| !is_visual_gen || OF_VISUAL_GEN.contains(&id);
            for table in [engine_counters::WRITE, engine_histograms::WRITE, engine_gauges::WRITE, benchmark::WRITE] {
                writer.table_if(table, &view, is_shown);
            }
            // The other families of this table have the label values of the original metrics specification.
            let has_spec = |id: Id| compat.spec || id.metric().group != Group::Compat;
            writer.table_if(triton::WRITE, &view, |id| is_shown(id) && has_spec(id));
            if !is_visual_gen {
                self.write_compat(&view, compat, page);
            }
        });
    }

    /// Adds what the endpoint picker of a Kubernetes gateway reads: five series. They must disappear together: if one
    /// remained, the picker would treat the pod as fresh and keep using the last values of the others. An engine that
    /// refuses connections leaves the page at once. If it stayed until it is stale, the picker would send it requests
    /// that fail. Here, `waiting` is all that wait, also for a seat: the picker asks how long a new request would wait.
    pub(super) fn write_gateway(&self, slot: &EngineSlot, page: &mut Page) {
        let engine = &**slot.lock();
        let refused = engine.source.last_failure.as_ref().is_some_and(|failure| failure.kind == ErrorKind::Connect);
        let Some(latest) = engine.load().filter(|_| !refused) else { return };
        let (scheduled, waiting) = (latest.scheduled(), latest.all_waiting_rounded());
        let mut writer = SeriesWriter::new(page, &self.labels);
        let mut requests = writer.of(Id::RequestMetrics);
        requests.with([("request_type", "scheduled")], scheduled);
        requests.with([("request_type", "waiting")], waiting);
        if let Some(kv) = &latest.kv {
            let mut blocks = writer.of(Id::KvCacheBlockMetrics);
            blocks.with([("kv_cache_block_type", "max")], kv.max_num_blocks);
            blocks.with([("kv_cache_block_type", "tokens_per")], kv.tokens_per_block);
            blocks.with([("kv_cache_block_type", "fraction")], kv.used_fraction());
        }
        // The same numbers under trtllm-serve's names. On the full page (`/metrics`) these names have trtllm-serve's
        // meaning. Here they have the gateway's, so that a picker decides the same under both names.
        let labels = self.trtllm_labels(engine);
        let mut writer = SeriesWriter::new(page, &labels);
        writer.of(Id::TrtllmNumRequestsRunning).one(scheduled);
        writer.of(Id::TrtllmNumRequestsWaiting).one(waiting);
        if let Some(kv) = &latest.kv {
            writer.of(Id::TrtllmKvCacheUtilization).one(kv.used_fraction());
            writer.of(Id::TrtllmKvCacheTokensPerBlock).one(kv.tokens_per_block);
            writer.of(Id::TrtllmKvCacheMaxBlocks).one(kv.max_num_blocks);
        }
    }
}

/// The page of one engine after `change` was applied.
#[cfg(test)]
pub(super) fn page_of(change: impl FnOnce(&mut trtllm_engines::Engine), compat: CompatSets) -> Page {
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
    use trtllm_engines::Engine;

    use super::*;

    #[test]
    fn an_engine_that_stalls_has_no_headroom() {
        let state = trtllm_engines::State::new(vec![trtllm_records::EngineName::new("m", "1", "test")]);
        let slot = std::sync::Arc::clone(&state.slots()[0]);
        let (start, second) = (std::time::Instant::now(), std::time::Duration::from_secs);
        slot.lock().observed = trtllm_analysis::ObservedEngine::new(second(5));
        // For 70 s, 40 iterations in 5 s, all with queued requests.
        for at in 0..560_u64 {
            let now = start + second(at) / 8;
            if at % 40 == 0 {
                state.judge(at as f64 / 8.0, at as f64 / 8.0);
            }
            let record = serde_json::json!({"iter": at, "numActiveRequests": 8, "numQueuedRequests": 4, "maxNumActiveRequests": 8,
                "numCompletedRequests": 1, "numNewActiveRequests": 1, "iterLatencyMS": 100.0,
                "inflightBatchingStats": {"numScheduledRequests": 8, "numGenRequests": 8, "numContextRequests": 0}});
            slot.lock().observed.absorb(&serde_json::from_value(record).unwrap(), now, at as i64 * 125_000).unwrap();
        }
        let has_headroom = |state| {
            slot.lock().state = state;
            let mut page = Page::default();
            EngineSeries::new(&slot.name, true).write(&slot, CompatSets::default(), &mut page);
            page.samples().iter().any(|sample| sample.metric == Id::Headroom)
        };
        use trtllm_fold::EngineState::{Busy, Stalled};
        assert_eq!([Busy, Stalled].map(has_headroom), [true, false]);
    }

    #[test]
    fn what_a_source_of_finished_requests_does_not_tell_is_absent() {
        let shown = |only_requests| {
            let sets = CompatSets { triton_core: true, ..CompatSets::default() };
            let page = page_of(|engine| engine.source.only_requests = only_requests, sets);
            [
                Id::Iterations,
                Id::RequestsStarted,
                Id::RequestsCompleted,
                Id::ContextTokens,
                Id::GenerationTokens,
                Id::KvBlocksReused,
                Id::SpecDraftTokens,
                Id::InferenceExecCount,
                Id::InferenceRequestSuccess,
            ]
            .map(|id| page.samples().iter().any(|sample| sample.metric == id))
        };
        assert_eq!([shown(false), shown(true)], [[true; 9], [false; 9]]);
    }

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
}
