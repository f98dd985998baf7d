//! Tests that each rule finds its problem, and finds nothing where all is healthy.

use std::collections::BTreeSet;

use trtllm_engine::orchestrator::OrchestratorFold;
use trtllm_engine::window::{Mark, Window};
use trtllm_engine::{EngineFold, EngineState};
use trtllm_model::bench_report::{BenchPerformance, BenchReport, BenchRequests};
use trtllm_model::gpu::{GpuInventory, GpuReadings, GpuSnapshot, GpuState, LastXid, NvmlState};
use trtllm_model::orchestrator::{OrchestratorCount, OrchestratorCounter, Side, WorkerCounts};
use trtllm_model::{Objectives, OrchestratorReading};

use super::engine::EngineCase;
use super::exporter::ExporterMark;
use super::orchestrator::OrchestratorMark;
use super::*;
use crate::cause::Cause;
use crate::gpu_window::{GpuMark, GpuWindow};
use crate::reading::{Given, Notices, Reading};

fn names(found: &[Finding]) -> Vec<&str> {
    found.iter().map(|finding| &*finding.rule).collect()
}

/// An engine that has run 6000 iterations in the last minute, without a problem.
struct Scene {
    before: Mark,
    after: Mark,
    notices: Notices,
    cause: Option<Cause>,
    has_no_latencies: bool,
    has_no_goodput: bool,
    unread_keys: Vec<String>,
    bench: Option<BenchReport>,
}

impl Scene {
    fn new() -> Self {
        let engine = EngineFold::new(std::time::Duration::from_secs(15));
        let (before, mut after) = (Mark::of(&engine, 0.0), Mark::of(&engine, 60.0));
        after.counts.iterations = 6000.0;
        (after.counts.started, after.counts.completed) = (100.0, 100.0);
        after.polling.polls = 60.0;
        after.sums.iterations = 6000.0;
        after.sums.scheduled = 6000.0 * 8.0;
        after.sums.generation_requests = 6000.0 * 8.0;
        after.sums.decoded_tokens = 6000.0 * 8.0;
        // Iterations ran half of the time.
        after.distributions.iteration.sum = 30.0;
        Self {
            before,
            after,
            notices: Notices::default(),
            cause: None,
            has_no_latencies: false,
            has_no_goodput: false,
            unread_keys: Vec::new(),
            bench: None,
        }
    }

    fn found(&self) -> Vec<Finding> {
        let mut window = Window::default();
        window.push(self.before);
        window.push(self.after);
        let given = Given {
            state: EngineState::Busy,
            silence: None,
            notices: self.notices,
            is_pytorch: true,
            never_reserves: false,
            gpu_count: None,
            objectives: Objectives::default(),
            before: None,
        };
        engine::findings(&EngineCase {
            subject: "m 1",
            reading: &Reading::of(given, &window, &[]).unwrap(),
            cause: self.cause,
            completed: 100.0,
            has_no_latencies: self.has_no_latencies,
            has_no_goodput: self.has_no_goodput,
            unread_keys: &self.unread_keys,
            missing_endpoints: &[],
            bench: self.bench.as_ref(),
        })
    }

    fn with(change: impl FnOnce(&mut Self)) -> Vec<Finding> {
        let mut scene = Self::new();
        change(&mut scene);
        scene.found()
    }
}

#[test]
fn a_healthy_engine_has_no_finding_and_each_problem_one() {
    assert_eq!(names(&Scene::new().found()), [""; 0]);
    type Change = fn(&mut Scene);
    let cases: [(&str, Change); 10] = [
        ("engine-restarted", |scene| scene.after.counts.restarts = 1.0),
        ("source-failing", |scene| scene.after.polling.polls_failed = 6.0),
        ("records-rejected", |scene| scene.after.polling.records_rejected = 1.0),
        ("statistics-sampled", |scene| scene.after.sampling = 10.0),
        ("engine-newer", |scene| scene.unread_keys.push("numDreams".to_owned())),
        ("request-latencies-missing", |scene| scene.has_no_latencies = true),
        ("first-token-early", |scene| {
            (scene.notices.first_token_is_early, scene.after.distributions.ttft.count) = (true, 9.0);
        }),
        ("objectives-unknown", |scene| scene.after.counts.unknown_all = 5.0),
        ("goodput-unknown", |scene| (scene.has_no_goodput, scene.after.counts.met_all) = (true, 1.0)),
        ("statistics-incomplete", |scene| scene.after.counts.iterations_lost = 3.0),
    ];
    for (rule, change) in cases {
        assert_eq!(names(&Scene::with(change)), [rule]);
    }
    // No finding if less than a tenth of the polls fail, if no request met its objectives, or if the outcome of some
    // requests is known.
    assert_eq!(names(&Scene::with(|scene| scene.after.polling.polls_failed = 5.0)), [""; 0]);
    assert_eq!(names(&Scene::with(|scene| scene.has_no_goodput = true)), [""; 0], "no request has met them");
    let known = Scene::with(|scene| (scene.after.counts.unknown_all, scene.after.counts.met_all) = (5.0, 1.0));
    assert_eq!(names(&known), [""; 0]);
}

#[test]
fn each_reason_for_missing_records_is_named_and_only_once() {
    let says = |change: fn(&mut Scene)| Scene::with(change).first().map(|finding| finding.says.clone());
    let lost = |scene: &mut Scene| scene.after.counts.iterations_lost = 300.0;
    assert!(says(lost).unwrap().contains("another program takes them"));
    let overflow = |scene: &mut Scene| (scene.after.counts.iterations_lost, scene.after.polling.polls) = (300.0, 10.0);
    assert!(says(overflow).unwrap().contains("the engine drops them"));
    let dropped = |scene: &mut Scene| {
        (scene.after.counts.iterations_lost, scene.after.counts.dropped_by_engine) = (300.0, 300.0);
    };
    assert!(says(dropped).unwrap().contains("the engine drops them"));
    assert!(says(|scene| scene.notices.several_frontends = true).unwrap().contains("Several frontends"));
    assert!(says(|scene| scene.notices.records_missing = true).unwrap().contains("writes no records"));
    // Gaps that are normal for the engine are not a finding.
    assert_eq!(names(&Scene::with(|scene| scene.after.counts.iterations_unexplained = 300.0)), [""; 0]);
    let waits = |scene: &mut Scene| {
        (scene.after.counts.iterations_unexplained, scene.after.distributions.transfer.count) = (3000.0, 9.0);
    };
    assert_eq!(names(&Scene::with(waits)), [""; 0]);
    // The verdict already has this cause, so there is no finding.
    let said =
        Scene::with(|scene| (scene.after.counts.iterations_lost, scene.cause) = (3000.0, Some(Cause::Statistics)));
    assert_eq!(names(&said), [""; 0]);
}

#[test]
fn an_engine_below_its_benchmark_is_named_at_equal_load_only() {
    // 48,100 output tokens in a minute, 4 requests in the engine on average.
    let bench = |rate: f64, concurrent: f64| BenchReport {
        performance: BenchPerformance { token_throughput_per_sec: Some(rate), ..BenchPerformance::default() },
        requests: BenchRequests { count: None, concurrent: Some(concurrent) },
        ..BenchReport::default()
    };
    let with = |rate: f64, concurrent: f64| Scene::with(|scene| scene.bench = Some(bench(rate, concurrent)));
    let found = with(1200.0, 4.0);
    assert_eq!(names(&found), ["below-benchmark"]);
    assert!((found[0].evidence[0].value - 48_100.0 / 60.0 / 1200.0).abs() < 1e-9, "{found:?}");
    assert_eq!(found[0].evidence[0].threshold, Some(engine::BENCHMARK_SHARE));
    for (rate, concurrent) in [(900.0, 4.0), (1200.0, 9.0), (1200.0, 2.0)] {
        assert_eq!(names(&with(rate, concurrent)), [""; 0], "{rate} {concurrent}");
    }
    // The tokens of iterations without a record are not counted, so there is no comparison with the benchmark.
    let hidden = Scene::with(|scene| {
        (scene.bench, scene.after.counts.iterations_lost) = (Some(bench(1200.0, 4.0)), 600.0);
    });
    assert_eq!(names(&hidden), ["statistics-incomplete"]);
}

fn gpu(state: GpuState, reasons: u64) -> GpuSnapshot {
    let readings = GpuReadings { clocks_event_reasons: Some(reasons), ..GpuReadings::default() };
    let identity = trtllm_model::gpu::GpuIdentity { uuid: "GPU-a".to_owned(), ..Default::default() };
    GpuSnapshot { identity, state, readings, last_poll: None, xids: Vec::new(), last_xid: None, reports_xids: true }
}

/// A GPU whose counters have not grown.
fn quiet() -> GpuMark {
    let zero = Some(0.0);
    GpuMark {
        throttled_by_power: zero,
        throttled_by_heat: zero,
        throttled_by_hardware: zero,
        ecc_errors: zero,
        ..GpuMark::default()
    }
}

fn gpu_findings(gpu: GpuSnapshot, later: GpuMark, nvml: NvmlState, expected: u32) -> Vec<Finding> {
    let mut window = GpuWindow::new("GPU-a".to_owned());
    window.push(quiet());
    window.push(GpuMark { at: 60.0, ..later });
    let inventory = GpuInventory { nvml, gpus: vec![gpu], expected, ..GpuInventory::default() };
    gpu::findings(&inventory, &[window], "here")
}

#[test]
fn gpus_that_are_lost_slowed_down_or_in_error_are_named() {
    let healthy = || gpu(GpuState::Ok, 0x4);
    let quiet = quiet();
    let up = NvmlState::Up;
    assert_eq!(names(&gpu_findings(healthy(), quiet, up, 1)), [""; 0], "the power cap alone says nothing");
    assert_eq!(names(&gpu_findings(gpu(GpuState::Stalled, 0), quiet, up, 1)), ["gpu-lost"]);
    assert_eq!(names(&gpu_findings(gpu(GpuState::Lost, 0), quiet, up, 1)), ["gpu-absent", "gpu-lost"]);
    assert_eq!(names(&gpu_findings(gpu(GpuState::Lost, 0), quiet, NvmlState::Released, 1)), [""; 0], "paused");
    assert_eq!(names(&gpu_findings(healthy(), quiet, NvmlState::Failed, 0)), ["gpus-unread"]);
    assert_eq!(names(&gpu_findings(healthy(), quiet, up, 2)), ["gpu-absent"]);
    let throttled = gpu_findings(gpu(GpuState::Ok, 0x40), quiet, up, 1);
    assert_eq!(names(&throttled), ["gpu-throttled"]);
    assert_eq!(throttled[0].says, "Heat or the power supply slows the GPU down: hw_thermal_slowdown.");
    let heat = GpuMark { throttled_by_heat: Some(3.0), ..quiet };
    assert_eq!(names(&gpu_findings(healthy(), heat, up, 1)), ["gpu-throttled"]);
    let capped = GpuMark { throttled_by_power: Some(31.0), throttled_by_heat: Some(2.9), ..quiet };
    assert_eq!(names(&gpu_findings(healthy(), capped, up, 1)), ["gpu-power-capped"]);
    let mut with_xid = healthy();
    (with_xid.xids, with_xid.last_xid) = (vec![(79, 1)], Some(LastXid { code: 79, at_us: 0 }));
    let errors = gpu_findings(with_xid.clone(), GpuMark { xids: 1.0, ..quiet }, up, 1);
    assert_eq!(names(&errors), ["gpu-errors"]);
    assert!(errors[0].evidence.iter().any(|fact| fact.name == "last Xid" && fact.value == 79.0));
    assert_eq!(names(&gpu_findings(with_xid, quiet, up, 1)), [""; 0], "an old error is nothing new");
}

#[test]
fn an_orchestrator_without_workers_or_with_errors_is_named() {
    let mut fold = OrchestratorFold::default();
    let mut absorb = |requests: u64, failed: u64, retried: u64, workers: u64| {
        let count = |counter, value| OrchestratorCount { counter, value };
        fold.absorb(&OrchestratorReading {
            ready: Some(true),
            workers: WorkerCounts { context: Some(1), generation: Some(workers) },
            minimal_workers: WorkerCounts { context: Some(1), generation: Some(1) },
            counts: vec![
                count(OrchestratorCounter::Streamed, requests),
                count(OrchestratorCounter::Whole, 0),
                count(OrchestratorCounter::HttpErrors, failed),
                count(OrchestratorCounter::Sent(Side::Context), requests),
                count(OrchestratorCounter::Retried(Side::Context), retried),
                count(OrchestratorCounter::Failed(Side::Context), 0),
            ],
            ..OrchestratorReading::default()
        });
        (OrchestratorMark::of(&fold.totals, 0.0), fold.totals.clone())
    };
    let (first, totals) = absorb(0, 0, 0, 1);
    assert_eq!(names(&orchestrator::findings("o 1", &totals, None)), [""; 0]);
    let (second, totals) = absorb(100, 5, 5, 1);
    assert_eq!(names(&orchestrator::findings("o 1", &totals, Some(&second.since(&first)))), [""; 0], "a few");
    let (third, totals) = absorb(200, 11, 11, 1);
    let found = orchestrator::findings("o 1", &totals, Some(&third.since(&second)));
    assert_eq!(names(&found), ["orchestrator-errors", "orchestrator-retries"]);
    assert_eq!(found[0].says, "Requests through the orchestrator fail: 6 % with an error status.");
    let (_, totals) = absorb(200, 11, 11, 0);
    let found = orchestrator::findings("o 1", &totals, None);
    assert_eq!(found[0].says, "The orchestrator cannot serve: 0 of 1 generation workers.");
}

#[test]
fn what_the_exporter_lost_or_refused_in_the_last_minute_is_named() {
    let before = ExporterMark { log_lines_dropped: 7, items_not_recorded: 3, publishers_refused: [1, 0, 0, 0, 0] };
    let found = |now: &ExporterMark, restarts, reloaded| exporter::findings("here", &before, now, restarts, reloaded);
    assert_eq!(names(&found(&before, 0, Some(true))), [""; 0]);
    let now = ExporterMark { log_lines_dropped: 8, items_not_recorded: 5, publishers_refused: [1, 0, 2, 1, 0] };
    let all = found(&now, 1, Some(false));
    let wanted = [
        "exporter-task-restarted",
        "log-lines-dropped",
        "recording-incomplete",
        "publishers-refused",
        "config-not-reloaded",
    ];
    assert_eq!(names(&all), wanted);
    assert!(all[3].says.ends_with("are missing: uid, name.") && all[3].evidence[0].value == 3.0, "{:?}", all[3]);
}

#[test]
fn rules_have_different_names_and_whole_sentences() {
    let names: BTreeSet<&str> = rules().map(|rule| rule.name).collect();
    assert_eq!(names.len(), rules().count());
    for rule in rules() {
        assert!(rule.when.ends_with('.') && rule.says.len() > 20, "{}", rule.name);
    }
}
