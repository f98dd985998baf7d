//! Tests that each rule finds its problem, and finds nothing where all is healthy.

use std::collections::{BTreeSet, HashMap, VecDeque};

use trtllm_analysis::ObservedEngine;
use trtllm_analysis::cost_model::{EqualWork, Work};
use trtllm_analysis::window::{Mark, Window};
use trtllm_fold::EngineState;
use trtllm_fold::orchestrator::OrchestratorFold;
use trtllm_records::OrchestratorReading;
use trtllm_records::bench_report::{BenchPerformance, BenchReport, BenchRequests};
use trtllm_records::gpu::{ClockReasons, Gpu, GpuIdentity, GpuInventory, GpuReadings, GpuState, NvmlState};
use trtllm_records::orchestrator::{OrchestratorCount, OrchestratorCounter, OrchestratorTime, Side, WorkerCounts};

use super::engine::EngineCase;
use super::exporter::ExporterMark;
use super::orchestrator::{MARKS, OrchestratorMark};
use super::*;
use crate::cause::Cause;
use crate::gpu_window::{GpuMark, GpuWindow};
use crate::input::{EngineFacts, Notices, VerdictInput};
use crate::verdict::Severity;

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
    has_drafted: bool,
    decoding_step: Option<[EqualWork; 2]>,
    unread_keys: Vec<String>,
    bench: Option<BenchReport>,
}

impl Scene {
    fn new() -> Self {
        let engine = ObservedEngine::new(std::time::Duration::from_secs(15));
        let (before, mut after) = (Mark::of(&engine, 0.0), Mark::of(&engine, 60.0));
        after.counts.iterations = 6000.0;
        (after.counts.started, after.counts.completed) = (100.0, 100.0);
        after.polling.polls = 60.0;
        after.sums.iterations = 6000.0;
        after.sums.scheduled = 6000.0 * 8.0;
        (after.sums.generation_requests, after.sums.work.generation_tokens) = (6000.0 * 8.0, 6000.0 * 8.0);
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
            has_drafted: false,
            decoding_step: None,
            unread_keys: Vec::new(),
            bench: None,
        }
    }

    fn found(&self) -> Vec<Finding> {
        let mut window = Window::default();
        window.push(self.before);
        window.push(self.after);
        let facts =
            EngineFacts { state: EngineState::Busy, notices: self.notices, is_pytorch: true, ..EngineFacts::default() };
        engine::findings(&EngineCase {
            subject: "m 1",
            input: &VerdictInput::of(facts, &window, &[]).unwrap(),
            cause: self.cause,
            completed: 100.0,
            has_no_latencies: self.has_no_latencies,
            has_no_goodput: self.has_no_goodput,
            has_drafted: self.has_drafted,
            decoding_step: self.decoding_step,
            unread_keys: &self.unread_keys,
            bench: self.bench.as_ref(),
        })
    }

    fn with(change: impl FnOnce(&mut Self)) -> Vec<Finding> {
        let mut scene = Self::new();
        change(&mut scene);
        scene.found()
    }
}

fn decoding(generation_tokens: f64, seconds: f64) -> EqualWork {
    EqualWork {
        iterations: 100.0,
        seconds,
        work: Work { generation_tokens, ..Work::default() },
        ..EqualWork::default()
    }
}

#[test]
fn a_healthy_engine_has_no_finding_and_each_problem_one() {
    assert_eq!(names(&Scene::new().found()), [""; 0]);
    type Change = fn(&mut Scene);
    let cases: [(&str, Change); 14] = [
        ("engine-restarted", |scene| scene.after.counts.restarts = 1.0),
        ("source-failing", |scene| scene.after.polling.polls_failed = 6.0),
        ("records-rejected", |scene| scene.after.polling.records_rejected = 1.0),
        ("records-rejected", |scene| scene.after.polling.values_rejected = 1.0),
        ("statistics-sampled", |scene| scene.after.sampling = 10.0),
        ("engine-newer", |scene| scene.unread_keys.push("numDreams".to_owned())),
        ("speculation-off", |scene| (scene.has_drafted, scene.after.sums.generation_iterations) = (true, 100.0)),
        ("decoding-step", |scene| scene.decoding_step = Some([decoding(8.0, 0.01), decoding(16.0, 0.05)])),
        ("request-latencies-missing", |scene| scene.has_no_latencies = true),
        ("first-token-early", |scene| {
            (scene.notices.first_token_is_early, scene.after.distributions.ttft.count) = (true, 9.0);
        }),
        ("requests-without-reason", |scene| scene.after.counts.ended_well = 95.0),
        ("objectives-unknown", |scene| scene.after.counts.unjudged = 5.0),
        ("goodput-unknown", |scene| (scene.has_no_goodput, scene.after.counts.all.met) = (true, 1.0)),
        ("statistics-incomplete", |scene| scene.after.counts.iterations_lost = 3.0),
    ];
    for (rule, change) in cases {
        assert_eq!(names(&Scene::with(change)), [rule]);
    }
    // No finding if less than a tenth of the polls fail, if no request met its objectives, or if the outcome of some
    // requests is known.
    assert_eq!(names(&Scene::with(|scene| scene.after.polling.polls_failed = 5.0)), [""; 0]);
    assert_eq!(names(&Scene::with(|scene| scene.has_no_goodput = true)), [""; 0], "no request has met them");
    let known = Scene::with(|scene| (scene.after.counts.unjudged, scene.after.counts.all.met) = (5.0, 1.0));
    assert_eq!(names(&known), [""; 0]);
    let drafts = Scene::with(|scene| {
        (scene.has_drafted, scene.after.sums.generation_iterations, scene.after.sums.draft_tokens) =
            (true, 6000.0, 5.0);
    });
    assert_eq!(names(&drafts), [""; 0], "it still drafts");
    let step = Scene::with(|scene| scene.decoding_step = Some([decoding(9.0, 0.01), decoding(16.0, 0.05)]));
    assert_eq!(names(&step), [""; 0], "the batches are smaller");
    // The page with the reasons is read later than the records.
    assert_eq!(names(&Scene::with(|scene| scene.after.counts.ended_well = 96.0)), [""; 0]);
}

#[test]
fn each_reason_for_missing_records_is_named_and_only_once() {
    let says = |change: fn(&mut Scene)| Scene::with(change).first().map(|finding| finding.says.clone());
    let lost = |scene: &mut Scene| scene.after.counts.iterations_lost = 300.0;
    assert!(says(lost).unwrap().contains("another program takes them"));
    // The share of the failed polls is about that of the records, or far below it.
    assert!(
        says(|scene| (scene.after.counts.iterations_lost, scene.after.polling.polls_failed) = (300.0, 3.0))
            .unwrap()
            .contains("polls that failed")
    );
    assert!(
        says(|scene| (scene.after.counts.iterations_lost, scene.after.polling.polls_failed) = (2000.0, 3.0))
            .unwrap()
            .contains("another program takes them")
    );
    let overflow = |scene: &mut Scene| (scene.after.counts.iterations_lost, scene.after.polling.polls) = (300.0, 10.0);
    assert!(says(overflow).unwrap().contains("the engine drops them"));
    let dropped = |scene: &mut Scene| {
        (scene.after.counts.iterations_lost, scene.after.counts.dropped_by_engine) = (300.0, 300.0);
    };
    assert!(says(dropped).unwrap().contains("the engine drops them"));
    assert!(says(|scene| scene.notices.several_frontends = true).unwrap().contains("Several frontends"));
    assert!(says(|scene| scene.notices.several_engines = true).unwrap().contains("Several engines"));
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

fn gpu(state: GpuState, reasons: u64) -> Gpu {
    let identity = GpuIdentity { uuid: "GPU-a".to_owned(), ..GpuIdentity::default() };
    let readings = GpuReadings { clocks_event_reasons: Some(ClockReasons(reasons)), ..GpuReadings::default() };
    Gpu { identity, state, readings, ..Gpu::default() }
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

fn gpu_findings(gpu: Gpu, later: GpuMark, nvml: NvmlState, expected: u32) -> Vec<Finding> {
    let mut window = GpuWindow::new("GPU-a".to_owned());
    window.push(quiet());
    window.push(GpuMark { at: 60.0, ..later });
    let missing = expected.saturating_sub(1);
    let inventory = GpuInventory { nvml, gpus: vec![gpu], expected, missing, ..GpuInventory::default() };
    gpu::findings(&inventory, &[window], "here")
}

#[test]
fn gpus_that_are_lost_slowed_down_or_in_error_are_named() {
    let healthy = || gpu(GpuState::Ok, 0x4);
    let quiet = quiet();
    let up = NvmlState::Up;
    assert_eq!(names(&gpu_findings(healthy(), quiet, up, 1)), [""; 0], "the power cap alone says nothing");
    assert_eq!(names(&gpu_findings(gpu(GpuState::Stalled, 0), quiet, up, 1)), ["gpu-lost"]);
    assert_eq!(names(&gpu_findings(gpu(GpuState::Lost, 0), quiet, up, 1)), ["gpu-lost"], "it is listed");
    assert_eq!(names(&gpu_findings(gpu(GpuState::NoPermission, 0), quiet, up, 1)), ["gpu-no-permission"]);
    assert_eq!(names(&gpu_findings(gpu(GpuState::Lost, 0), quiet, NvmlState::Released, 1)), [""; 0], "paused");
    let unread = |nvml, expected| {
        let found = gpu_findings(gpu(GpuState::Lost, 0), quiet, nvml, expected);
        (names(&found).join(" "), found.first().map(|finding| finding.severity))
    };
    assert_eq!(unread(NvmlState::Failed, 0), ("gpus-unread".to_owned(), Some(Severity::Info)));
    assert_eq!(unread(NvmlState::LibraryNotFound, 0), (String::new(), None), "a machine without GPUs");
    for nvml in [NvmlState::Failed, NvmlState::LibraryNotFound] {
        assert_eq!(unread(nvml, 2), ("gpus-unread".to_owned(), Some(Severity::Warning)), "it had GPUs");
    }
    assert_eq!(names(&gpu_findings(healthy(), quiet, up, 2)), ["gpu-absent"]);
    let throttled = gpu_findings(gpu(GpuState::Ok, 0x40), quiet, up, 1);
    assert_eq!(names(&throttled), ["gpu-throttled"]);
    assert_eq!(throttled[0].says, "Heat or the power supply slows the GPU down: hw_thermal_slowdown.");
    let mut idle = gpu(GpuState::Ok, 0x20);
    assert_eq!(names(&gpu_findings(idle.clone(), quiet, up, 1)), ["gpu-throttled"]);
    idle.readings.utilization_ratio = Some(0.0);
    assert_eq!(names(&gpu_findings(idle, quiet, up, 1)), [""; 0], "it slows nothing down");
    let heat = GpuMark { throttled_by_heat: Some(3.0), ..quiet };
    assert_eq!(names(&gpu_findings(healthy(), heat, up, 1)), ["gpu-throttled"]);
    let capped = GpuMark { throttled_by_power: Some(31.0), throttled_by_heat: Some(2.9), ..quiet };
    assert_eq!(names(&gpu_findings(healthy(), capped, up, 1)), ["gpu-power-capped"]);
    let mut with_xid = healthy();
    (with_xid.xids, with_xid.last_xid) = (Some(1), Some(79));
    let errors = gpu_findings(with_xid.clone(), GpuMark { xids: 1.0, ..quiet }, up, 1);
    assert_eq!(names(&errors), ["gpu-errors"]);
    assert!(errors[0].evidence.iter().any(|fact| fact.name == "last Xid" && fact.value == 79.0));
    assert_eq!(names(&gpu_findings(with_xid, quiet, up, 1)), [""; 0], "an old error is nothing new");
}

/// An orchestrator whose counters are read every five seconds.
#[derive(Default)]
struct Disagg {
    fold: OrchestratorFold,
    counts: HashMap<OrchestratorCounter, u64>,
    workers: u64,
    marks: VecDeque<OrchestratorMark>,
}

impl Disagg {
    fn new() -> Self {
        let mut new = Self { workers: 1, ..Self::default() };
        for counter in [OrchestratorCounter::Streamed, OrchestratorCounter::Whole, OrchestratorCounter::HttpErrors] {
            new.count(counter, 0);
        }
        new.read();
        new
    }

    fn count(&mut self, counter: OrchestratorCounter, more: u64) {
        *self.counts.entry(counter).or_default() += more;
    }

    /// Adds requests that took as many seconds. The buckets of a page are cumulative.
    fn took(&mut self, time: OrchestratorTime, requests: u64, seconds: f64) {
        for bound in ["0.1", "0.25", "1.0", "5.0", "10.0", "20.0", "40.0", "80.0", "160.0", "+Inf"] {
            let within = if seconds <= bound.parse().unwrap() { requests } else { 0 };
            self.count(OrchestratorCounter::Time(time, bound.to_owned()), within);
        }
        self.count(OrchestratorCounter::TimeNanos(time), requests * (seconds * 1e9) as u64);
    }

    fn read(&mut self) {
        let counts = self.counts.iter();
        self.fold.absorb(&OrchestratorReading {
            ready: Some(true),
            workers: WorkerCounts { context: Some(1), generation: Some(self.workers) },
            minimal_workers: WorkerCounts { context: Some(1), generation: Some(1) },
            counts: counts
                .map(|(counter, value)| OrchestratorCount { counter: counter.clone(), value: *value })
                .collect(),
            ..OrchestratorReading::default()
        });
        let at = self.marks.back().map_or(0.0, |last| last.at + 5.0);
        if self.marks.len() == MARKS {
            self.marks.pop_front();
        }
        self.marks.push_back(OrchestratorMark::of(&self.fold.totals, at));
    }

    fn found(&self) -> Vec<Finding> {
        orchestrator::findings("o 1", &self.fold.totals, &self.marks)
    }
}

#[test]
fn an_orchestrator_without_workers_or_with_errors_is_named() {
    let mut disagg = Disagg::new();
    let mut absorb = |errors: u64, workers: u64| {
        disagg.count(OrchestratorCounter::Streamed, 100);
        disagg.count(OrchestratorCounter::HttpErrors, errors);
        disagg.count(OrchestratorCounter::Sent(Side::Context), 100);
        disagg.count(OrchestratorCounter::Retried(Side::Context), errors);
        disagg.workers = workers;
        disagg.marks.drain(..disagg.marks.len() - 1);
        disagg.read();
        disagg.found()
    };
    assert_eq!(names(&absorb(5, 1)), [""; 0], "a few");
    let found = absorb(6, 1);
    assert_eq!(names(&found), ["orchestrator-errors", "orchestrator-retries"]);
    assert_eq!(found[0].says, "Requests through the orchestrator fail: 6 % with an error status.");
    assert_eq!(absorb(0, 0)[0].says, "The orchestrator cannot serve: 0 of 1 generation workers.");
}

/// A change of the requests of one side in a minute.
type Change = (fn(Side) -> OrchestratorCounter, u64);

#[test]
fn an_attempt_that_was_repeated_is_no_failure_and_each_other_error_is_one() {
    use OrchestratorCounter::{Ended, Failed, Retried};
    const TO_GENERATION: &str = "Requests through the orchestrator fail: 10 % to generation workers.";
    const TO_CONTEXT: &str = "Requests through the orchestrator fail: 10 % to context workers.";
    // The side, the part of 100 requests that got first bytes, and what is counted of them.
    let cases: [(&str, Side, u64, &[Change], &str); 6] = [
        (
            "streams break before the first line, then succeed",
            Side::Generation,
            100,
            &[(Failed, 10), (Retried, 10), (Ended, 110)],
            "",
        ),
        ("streams break after the first line", Side::Generation, 100, &[(Failed, 10), (Ended, 100)], TO_GENERATION),
        (
            "20 % break, and half of them succeed later",
            Side::Generation,
            100,
            &[(Failed, 20), (Retried, 10), (Ended, 110)],
            TO_GENERATION,
        ),
        (
            "without streams, all attempts fail",
            Side::Context,
            0,
            &[(Failed, 10), (Retried, 10), (Ended, 100)],
            TO_CONTEXT,
        ),
        ("without streams, the second attempt succeeds", Side::Context, 0, &[(Retried, 10), (Ended, 100)], ""),
        (
            "streams are refused, in a release that counts them",
            Side::Generation,
            90,
            &[(Failed, 10), (Ended, 100)],
            TO_GENERATION,
        ),
    ];
    for (case, side, first_bytes, changes, wanted) in cases {
        let mut disagg = Disagg::new();
        disagg.count(OrchestratorCounter::Streamed, 100);
        disagg.count(OrchestratorCounter::Sent(side), 100);
        disagg.took(OrchestratorTime::FirstBytes(side), first_bytes, 0.2);
        for (counter, requests) in changes {
            disagg.count(counter(side), *requests);
        }
        disagg.read();
        let found = disagg.found();
        let errors: Vec<_> = found
            .iter()
            .filter(|finding| finding.rule == "orchestrator-errors")
            .map(|finding| &*finding.says)
            .collect();
        assert_eq!(errors.join(""), wanted, "{case}");
        assert_eq!(
            found.len() > errors.len(),
            changes.iter().any(|(counter, _)| counter(side) == Retried(side)),
            "{case}"
        );
    }
}

/// What a load of streams does in the five seconds before a time in seconds: the number of streams that are sent, the
/// number that get their first bytes, and the time until then.
type Load = fn(u64) -> (u64, u64, f64);

/// The times at which streams without an answer are reported.
fn unanswered(load: Load, until: u64) -> Vec<u64> {
    let mut disagg = Disagg::new();
    let mut times = Vec::new();
    for time in (5..=until).step_by(5) {
        let (sent, answered, seconds) = load(time);
        disagg.count(OrchestratorCounter::Streamed, sent);
        disagg.count(OrchestratorCounter::Sent(Side::Generation), sent);
        disagg.took(OrchestratorTime::FirstBytes(Side::Generation), answered, seconds);
        disagg.read();
        let found = disagg.found();
        if let Some(finding) = found.first() {
            assert!(finding.says.ends_with("of the streams to generation workers got no answer."), "{}", finding.says);
            times.push(time);
        }
    }
    times
}

#[test]
fn streams_that_generation_workers_refuse_are_found() {
    // The load, how long it is followed, and when it is reported for the first time at the latest.
    let cases: [(&str, Load, u64, u64); 4] = [
        ("a worker ends after 400 s", |time| if time <= 400 { (50, 50, 0.2) } else { (50, 0, 0.0) }, 460, 435),
        (
            "few requests, and no worker after 400 s",
            |time| if time <= 400 { (2, 2, 0.2) } else { (2, 0, 0.0) },
            460,
            435,
        ),
        ("no worker from the start", |_| (50, 0, 0.0), 120, 95),
        ("10 % refused", |_| (50, 45, 0.2), 400, 300),
    ];
    for (case, load, until, latest) in cases {
        let times = unanswered(load, until);
        assert!(times.first().is_some_and(|first| *first <= latest), "{case}: {times:?}");
        assert_eq!(times.last(), Some(&until), "{case}: reported until the end");
    }
}

#[test]
fn streams_that_still_wait_are_no_failures() {
    let cases: [(&str, Load); 7] = [
        ("all is answered", |_| (50, 50, 0.2)),
        ("nobody sends requests", |_| (0, 0, 0.0)),
        ("the load starts, and each stream waits 40 s", |time| if time <= 40 { (50, 0, 0.0) } else { (50, 50, 40.0) }),
        ("a burst is answered slowly", |time| match time {
            ..100 => (0, 0, 0.0),
            100 => (1000, 0, 0.0),
            _ => (0, if time <= 200 { 50 } else { 0 }, time as f64 - 100.0),
        }),
        // Streams that wait t seconds after the start of a queue were sent at t ÷ 2, or at t ÷ 4.
        ("twice the load that a side can serve", |time| (100, 50, time as f64 / 2.0)),
        ("after a calm hour, four times that load", |time| {
            if time <= 400 { (50, 50, 0.2) } else { (200, 50, (time - 400) as f64 * 0.75) }
        }),
        ("a stall of 20 s", |time| match time {
            405..=420 => (50, 0, 0.0),
            425 => (50, 250, 20.0),
            _ => (50, 50, 0.2),
        }),
    ];
    for (case, load) in cases {
        assert_eq!(unanswered(load, 600), [0; 0], "{case}");
    }
}

#[test]
fn requests_without_streaming_and_those_that_fail_before_generation_are_no_streams() {
    // In each five seconds: accepted streams, other accepted requests, those that are sent to the generation side, those
    // with first bytes, and whether there is a histogram of them.
    let cases = [
        ("half of the requests do not stream", [25, 25, 50, 25], true, false),
        ("half of the requests do not stream, and all streams are refused", [25, 25, 50, 0], true, true),
        ("nothing streams", [0, 50, 50, 0], true, false),
        ("a third fails on the context side", [50, 25, 50, 33], true, false),
        ("without a histogram of first bytes", [50, 0, 50, 0], false, false),
    ];
    for (case, [streamed, whole, sent, answered], has_histogram, wanted) in cases {
        let mut disagg = Disagg::new();
        if has_histogram {
            disagg.took(OrchestratorTime::FirstBytes(Side::Generation), 0, 0.2);
            disagg.read();
            disagg.took(OrchestratorTime::FirstBytes(Side::Generation), 1, 0.2);
        }
        for _ in 0..MARKS {
            disagg.count(OrchestratorCounter::Streamed, streamed);
            disagg.count(OrchestratorCounter::Whole, whole);
            disagg.count(OrchestratorCounter::Sent(Side::Generation), sent);
            disagg.took(OrchestratorTime::FirstBytes(Side::Generation), answered, 0.2);
            disagg.took(OrchestratorTime::Complete(Side::Generation), sent, 1.0);
            disagg.read();
        }
        assert_eq!(disagg.found().len(), usize::from(wanted), "{case}");
    }
}

#[test]
fn requests_without_streaming_that_wait_for_the_context_side_are_no_streams() {
    let mut disagg = Disagg::new();
    disagg.took(OrchestratorTime::FirstBytes(Side::Generation), 0, 0.2);
    disagg.read();
    disagg.took(OrchestratorTime::FirstBytes(Side::Generation), 1, 0.2);
    for time in (5..500).step_by(5) {
        if time == 50 {
            disagg.count(OrchestratorCounter::Whole, 500);
        }
        if (50..75).contains(&time) {
            disagg.count(OrchestratorCounter::Sent(Side::Generation), 100);
        }
        disagg.read();
        assert_eq!(names(&disagg.found()), [""; 0], "{time}");
    }
}

#[test]
fn an_orchestrator_that_restarts_loses_no_streams() {
    let mut disagg = Disagg::new();
    for time in 0..100 {
        if time == 70 {
            disagg.counts.values_mut().for_each(|value| *value = 0);
        }
        disagg.count(OrchestratorCounter::Streamed, 50);
        disagg.count(OrchestratorCounter::Sent(Side::Generation), 50);
        disagg.took(OrchestratorTime::FirstBytes(Side::Generation), 50, 0.2);
        disagg.read();
        assert_eq!(names(&disagg.found()), [""; 0], "{time}");
    }
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
        assert!(rule.when().ends_with('.') && rule.says().len() > 20 && rule.remedy().len() > 10, "{}", rule.name);
    }
    assert_eq!(include_str!("rules.md").matches("\n## ").count(), names.len(), "each section is a rule");
}
