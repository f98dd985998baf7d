//! Judges each engine every five seconds: extends the windows of engines and GPUs, and publishes a verdict and findings.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use trtllm_analysis::window::{Mark, PollCounts, SLOT_SECONDS};
use trtllm_fold::{EngineState, SEVERAL_ENGINES};
use trtllm_records::ErrorKind;
use trtllm_records::gpu::{Gpu, GpuInventory, GpuState, NvmlState};
use trtllm_records::server_metrics::SEVERAL_FRONTENDS;
use trtllm_records::source::whole_start;
use trtllm_service::shutdown::Shutdown;
use trtllm_service::supervise::Task;
use trtllm_service::{log, supervise};
use trtllm_verdict::findings::engine::EngineCase;
use trtllm_verdict::findings::exporter::ExporterMark;
use trtllm_verdict::findings::orchestrator::OrchestratorMark;
use trtllm_verdict::findings::{self, Finding};
use trtllm_verdict::gpu_window::{GpuMark, GpuWindow};
use trtllm_verdict::input::{EngineFacts, Notices, Silence, VerdictInput};
use trtllm_verdict::judge::{judge, judge_orchestrator};

use super::engine::Engine;
use super::judgement::{EngineJudgement, HostJudgement};
use super::slot::EngineSlot;
use super::source::StartPhase;
use super::state::State;

/// Number of marks, one every five seconds, that span a minute.
const MINUTE: usize = 13;
/// The kinds of sources whose engine runs in this process.
const HOSTED: [&str; 2] = ["sim", "executor"];
/// How findings name this exporter.
const THIS_EXPORTER: &str = "this exporter";

impl State {
    /// Judges every five seconds, until the end of the process.
    pub async fn keep_judging(self: Arc<Self>, mut shutdown: Shutdown) {
        let began = Instant::now();
        let mut ticks = tokio::time::interval(Duration::from_secs_f64(SLOT_SECONDS));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                _ = ticks.tick() => {
                    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
                    self.judge(began.elapsed().as_secs_f64(), wall);
                }
                () = shutdown.wait() => return,
            };
        }
    }

    /// Ends a time slot and judges. `at`: seconds of a clock that never runs backwards. `wall`: seconds since 1970.
    pub fn judge(&self, at: f64, wall: f64) {
        let inventory = self.gpus();
        if supervise::catch_now(Task::Fold, || self.judge_host(&inventory, at, wall)).is_err() {
            *self.host.lock() = HostJudgement::default();
        }
        for slot in self.slots().iter() {
            // While NVML is closed or broken, its GPUs say nothing about the engine.
            let gpus = if inventory.nvml == NvmlState::Up { self.gpus_of(slot) } else { Vec::new() };
            // A verdict from before the panic must not stay, because nothing would renew it.
            if supervise::catch_now(Task::Fold, || slot.judge(&gpus, at, wall)).is_err() {
                *slot.judged.lock() = EngineJudgement::default();
            }
            if self.recorder.get().is_some() {
                slot.lock().inventory = Some(Arc::clone(&inventory));
            }
        }
    }

    fn judge_host(&self, inventory: &GpuInventory, at: f64, wall: f64) {
        let mut host = self.host.lock();
        let windows = &mut host.gpus;
        windows.retain(|window| inventory.gpus.iter().any(|gpu| gpu.identity.uuid == window.uuid));
        for gpu in &inventory.gpus {
            let uuid = &gpu.identity.uuid;
            let now = mark(gpu, at);
            match windows.iter_mut().find(|window| window.uuid == *uuid) {
                Some(window) => window.push(now),
                None => {
                    let mut window = GpuWindow::new(uuid.clone());
                    // The exporter counts errors since its own start, so those of the first seconds are new, too. A recording may
                    // begin later.
                    let is_new = gpu.last_xid_us.is_some_and(|us| wall - us as f64 / 1e6 <= SLOT_SECONDS);
                    window.push(GpuMark { xids: if is_new { 0.0 } else { now.xids }, ..now });
                    windows.push(window);
                }
            }
        }
        let now = ExporterMark {
            log_lines_dropped: log::dropped_lines(),
            items_not_recorded: self.recorder.get().map_or(0, |counts| counts.dropped.get()),
            publishers_refused: self.refused_publishers.counts(),
        };
        push(&mut host.exporter, now, MINUTE);
        let before = host.exporter.front().copied().unwrap_or_default();
        let (restarts, reloaded) = (supervise::restarts().iter().sum(), *self.config_reload.lock());
        let mut found = findings::gpu::findings(inventory, &host.gpus, THIS_EXPORTER);
        found.extend(findings::exporter::findings(THIS_EXPORTER, &before, &now, restarts, reloaded));
        host.findings = found;
    }

    /// The windows of the GPUs that serve an engine, if they are known.
    fn gpus_of(&self, slot: &EngineSlot) -> Vec<GpuWindow> {
        let Some(of_engine) = slot.lock().gpus.clone() else { return Vec::new() };
        let host = self.host.lock();
        host.gpus.iter().filter(|window| of_engine.uuids.contains(&window.uuid)).cloned().collect()
    }

    /// The windows of all GPUs.
    pub fn gpu_windows(&self) -> Vec<GpuWindow> {
        self.host.lock().gpus.clone()
    }

    /// All findings, the most severe first.
    pub fn findings(&self) -> Vec<Finding> {
        let mut found = self.host.lock().findings.clone();
        for slot in self.slots().iter() {
            slot.with_judged(|judged| found.extend_from_slice(&judged.findings));
        }
        found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        found
    }
}

/// Adds a mark. Keeps at most `kept` marks.
fn push<M>(marks: &mut VecDeque<M>, mark: M, kept: usize) {
    if marks.len() >= kept {
        marks.pop_front();
    }
    marks.push_back(mark);
}

fn mark(gpu: &Gpu, at: f64) -> GpuMark {
    let (readings, health) = (&gpu.readings, &gpu.readings.health);
    // The driver counts the seconds of one reason in several counters, some of them under an older name.
    let seconds = |nanos: &[Option<u64>]| nanos.iter().flatten().max().map(|nanos| *nanos as f64 / 1e9);
    let clocks = readings.clock_hertz.sm.zip(health.clock_max_hertz.sm).filter(|(_, max)| *max > 0);
    let limits = health.power_limits_watts;
    let throttled = readings.throttle_ns;
    GpuMark {
        at,
        utilization: readings.utilization_ratio,
        watts: readings.power_usage_watts,
        clock_share: clocks.map(|(now, max)| now as f64 / max as f64),
        has_lowered_limit: limits.enforced.zip(limits.default).map(|(enforced, default)| enforced < default),
        throttled_by_power: seconds(&[throttled.power]),
        throttled_by_heat: seconds(&[throttled.thermal, throttled.sw_thermal_slowdown, throttled.hw_thermal_slowdown]),
        // `reliability` is usual at the top of the clock's range.
        throttled_by_hardware: seconds(&[throttled.hw_power_brake_slowdown]),
        xids: gpu.xids.unwrap_or(0) as f64,
        ecc_errors: health.ecc_errors.uncorrected_volatile.map(|errors| errors as f64),
        // Without permission, nothing is known about the GPU.
        is_ok: matches!(gpu.state, GpuState::Ok | GpuState::NoPermission),
    }
}

impl EngineSlot {
    fn judge(&self, gpus: &[GpuWindow], at: f64, wall: f64) {
        let subject = self.name.words();
        let engine = self.lock();
        let mut judged = self.judged.lock();
        let (silence, source) = (silence(&engine, at, wall, &mut judged.silent_since), &engine.source);
        let unread_keys = source.unread_keys.clone().unwrap_or_default();
        if let Some(totals) = engine.orchestrator() {
            push(&mut judged.orchestrator, OrchestratorMark::of(totals, at), findings::orchestrator::MARKS);
            judged.verdict.update(judge_orchestrator(engine.state, silence.as_ref(), wall));
            // While the orchestrator does not answer, its current state is unknown.
            judged.findings = match judged.verdict.cause() {
                None => findings::orchestrator::findings(&subject, totals, &judged.orchestrator),
                Some(_) => Vec::new(),
            };
            judged.findings.extend(findings::engine::newer(&subject, &unread_keys));
            return;
        }
        let (latest, requests, objectives) = (engine.latest(), engine.requests(), engine.objectives());
        let (iterations, gpus_now) = (&engine.observed.analysis.iterations, engine.gpus.as_deref());
        judged.window.push(Mark {
            polling: polling(&engine),
            joules: gpus_now.and_then(|gpus| gpus.energy_joules),
            gpus: gpus_now.filter(|gpus| gpus.missing == 0).map_or(0, |gpus| gpus.uuids.len()),
            ..Mark::of(&engine.observed, at)
        });
        let facts = EngineFacts {
            state: engine.state,
            silence,
            notices: Notices {
                only_requests: source.only_requests,
                only_log: source.only_log,
                first_token_is_early: engine.about.stamps_first_token_early(),
                records_missing: source.records_missing,
                several_frontends: source.notice == Some(SEVERAL_FRONTENDS),
                several_engines: source.notice == Some(SEVERAL_ENGINES),
                is_wedged: engine.state == EngineState::Stalled && latest.is_some_and(trtllm_fold::Latest::is_blocked),
            },
            never_reserves: latest.is_some_and(trtllm_fold::Latest::never_reserves),
            is_hosted: HOSTED.contains(&self.name.source),
            gpu_count: engine.gpu_count(),
            // A publisher of the C++ Executor does not name its backend. Its records show it.
            is_pytorch: match &engine.about.backend {
                Some(backend) => backend != "tensorrt",
                None => latest.is_none_or(|latest| latest.is_pytorch),
            },
            objectives: objectives.map(|objectives| objectives.limits).unwrap_or_default(),
            before: judged.verdict.cause(),
        };
        let completed = engine.totals().requests_completed as f64;
        let has_no_latencies = requests.source.is_none();
        let has_no_goodput = objectives.is_some_and(|totals| totals.goodput_tokens.is_none());
        let (has_drafted, decoding_step) = (iterations.has_drafted, iterations.model.decoding_step());
        let bench = source.bench_report.clone();
        // The engine is not locked while its numbers are judged.
        drop(engine);
        let Some(input) = VerdictInput::of(facts, &judged.window, gpus) else {
            (judged.slowdown, judged.capacity, judged.findings) = (None, None, Vec::new());
            judged.verdict.update(None);
            return;
        };
        judged.slowdown = input.slowdown.map(|slowdown| slowdown.ratio);
        judged.verdict.update(judge(&input, wall));
        judged.findings = findings::engine::findings(&EngineCase {
            subject: &subject,
            input: &input,
            cause: judged.verdict.cause(),
            completed,
            has_no_latencies,
            has_no_goodput,
            has_drafted,
            decoding_step,
            unread_keys: &unread_keys,
            bench: bench.as_deref(),
        });
    }

    /// Reads the last five minutes and the verdict. The engine is not judged while `read` runs.
    pub fn with_judged<T>(&self, read: impl FnOnce(&EngineJudgement) -> T) -> T {
        read(&self.judged.lock())
    }
}

fn polling(engine: &Engine) -> PollCounts {
    let metrics = &engine.source.metrics;
    let sum = |counters: &[prometheus_client::metrics::counter::Counter]| {
        counters.iter().map(|counter| counter.get() as f64).sum()
    };
    PollCounts {
        polls: metrics.polls.get() as f64,
        polls_failed: sum(&metrics.errors),
        records_rejected: sum(&metrics.rejected),
        values_rejected: engine.source.values_rejected.values().sum::<u64>() as f64,
    }
}

/// Why and for how long the source has not answered. `None` if it answers. A socket that waits for its first publisher is not silent.
/// `known`: the wall-clock time of its last answer, and when that was on the clock of `at`. The wall clock may be set meanwhile.
fn silence(engine: &Engine, at: f64, wall: f64, known: &mut Option<(i64, f64)>) -> Option<Silence> {
    let source = &engine.source;
    // Polls of a socket succeed, even if the engine's publisher has ended.
    let publisher_left = source.connections == Some(0) && engine.state == EngineState::Unreachable;
    let since_us = source.unanswered_since_us.or(source.last_success_us.filter(|_| publisher_left));
    *known = since_us.map(|us| match *known {
        Some((known_us, since)) if known_us == us => (us, since),
        // Engines are judged in each slot. Only a publisher is noticed later.
        _ => (us, at - (wall - us as f64 / 1e6).clamp(0.0, if publisher_left { f64::INFINITY } else { SLOT_SECONDS })),
    });
    let (_, since) = (*known)?;
    let failure = source.last_failure.as_ref();
    let has_lost_engine = source.has_lost_engine();
    let is_loading = source.loading.is_some()
        || source.pod_is_loading()
        || failure.is_some_and(|failure| failure.not_ready) && !has_lost_engine
        || !source.ready && source.start_phase() == StartPhase::Loading;
    let pod = source.pod_trouble.clone().filter(|_| failure.is_some());
    let why = failure.map(|failure| failure.text.clone()).or(source.loading.map(str::to_owned));
    Some(Silence {
        seconds: at - since,
        why: why.unwrap_or_else(|| "the last poll failed".to_owned()),
        is_loading,
        is_closed: source.is_closed(),
        has_lost_engine,
        pod,
        has_status: failure.is_some_and(|failure| failure.kind == ErrorKind::HttpStatus),
        is_slow: failure.is_some_and(|failure| failure.kind == ErrorKind::Timeout),
        publisher_left,
        is_no_engine: failure.is_some_and(|failure| failure.kind == ErrorKind::NotJson) && !source.ready,
        longest_load: whole_start(&engine.about.startup),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use trtllm_records::gpu::EngineGpus;
    use trtllm_records::{BenchReport, EngineName, OrchestratorReading, PollFailure};
    use trtllm_verdict::cause::Cause;
    use trtllm_verdict::verdict::Severity;

    /// The throughput of an engine relative to that of a benchmark on 16 GPUs with 200 tokens a second. The engine generates 100
    /// tokens a second. 8 of its GPUs were found.
    fn throughput_of_benchmark(missing: usize) -> f64 {
        let state = State::new(vec![EngineName::new("e", "1", "test")]);
        let slot = Arc::clone(&state.slots()[0]);
        let uuids = (0..8).map(|gpu| format!("GPU-{gpu}")).collect();
        slot.lock().gpus = Some(Arc::new(EngineGpus { uuids, missing, ..EngineGpus::default() }));
        for minute in 0..=6_u32 {
            let mut engine = slot.lock();
            engine.observed.analysis.iterations.sums.decoded_tokens = f64::from(minute * 6000);
            engine.observed.fold.totals.iterations = u64::from(minute * 600);
            drop(engine);
            state.judge(f64::from(minute * 60), 0.0);
        }
        let mut bench = BenchReport::default();
        (bench.metadata.num_gpus, bench.performance.token_throughput_per_sec) = (Some(16.0), Some(200.0));
        slot.with_judged(|judged| judged.output_ratios(&bench)).throughput.unwrap()
    }

    #[test]
    fn an_engine_whose_other_gpus_are_on_another_node_is_not_compared_as_if_it_had_half_of_them() {
        assert_eq!(throughput_of_benchmark(8), 0.5);
        // An engine that has only these 8 GPUs does as much on each of them as the benchmark.
        assert_eq!(throughput_of_benchmark(0), 1.0);
    }

    #[test]
    fn the_time_without_an_answer_does_not_change_with_the_wall_clock() {
        let (mut engine, mut known) = (Engine::starting(), None);
        let mut seconds = |since_s: Option<i64>, at: f64, wall: f64| {
            engine.source.unanswered_since_us = since_s.map(|seconds| seconds * 1_000_000);
            silence(&engine, at, wall, &mut known).map(|silence| silence.seconds)
        };
        assert_eq!(seconds(Some(1_000), 50.0, 1_003.0), Some(3.0));
        assert_eq!([seconds(Some(1_000), 55.0, 12_000.0), seconds(Some(1_000), 60.0, 7.0)], [Some(8.0), Some(13.0)]);
        assert_eq!(seconds(None, 65.0, 12.0), None);
        // The clock is set in the slot in which the source stops to answer.
        assert_eq!([seconds(Some(12), 70.0, 9_999.0), seconds(Some(12), 75.0, 10_004.0)], [Some(5.0), Some(10.0)]);
    }

    fn socket_engine() -> (State, Arc<EngineSlot>) {
        let state = State::new(vec![EngineName::new("e", "1", "socket")]);
        let slot = Arc::clone(&state.slots()[0]);
        (state, slot)
    }

    #[test]
    fn an_engine_whose_publisher_has_left_is_unavailable_and_one_without_a_record_has_no_verdict() {
        let (state, slot) = socket_engine();
        let judged = |of_engine: EngineState, connections, wall: f64| {
            let mut engine = slot.lock();
            engine.state = of_engine;
            (engine.source.connections, engine.source.ready) = (Some(connections), true);
            engine.source.last_success_us = (of_engine != EngineState::Starting).then_some(0);
            drop(engine);
            state.judge(wall, wall);
            slot.with_judged(|judged| {
                let verdict = judged.verdict.verdict();
                verdict.map(|verdict| (verdict.cause, verdict.severity))
            })
        };
        assert_eq!(judged(EngineState::Starting, 0, 0.0), None);
        assert_eq!(judged(EngineState::Idle, 1, 5.0), Some((Cause::None, Severity::None)));
        assert_eq!(judged(EngineState::Unreachable, 0, 20.0), Some((Cause::Unavailable, Severity::Info)));
        let later: Vec<_> = (5..=30).map(|slot| judged(EngineState::Unreachable, 0, 5.0 * f64::from(slot))).collect();
        assert_eq!(later.last(), Some(&Some((Cause::Unavailable, Severity::Warning))));
        assert_eq!(judged(EngineState::Idle, 1, 155.0), Some((Cause::None, Severity::None)));
    }

    #[test]
    fn a_gpu_that_nobody_may_read_or_while_nvml_is_closed_is_no_cause() {
        let (state, slot) = socket_engine();
        slot.lock().state = EngineState::Idle;
        slot.lock().gpus = Some(Arc::new(EngineGpus { uuids: vec!["GPU-a".to_owned()], ..EngineGpus::default() }));
        let mut at = 0.0;
        let mut judged = |nvml, gpu_state| {
            let mut gpu = Gpu { state: gpu_state, ..Gpu::default() };
            gpu.identity.uuid = "GPU-a".to_owned();
            state.publish_gpus(GpuInventory { nvml, gpus: vec![gpu], expected: 1, ..GpuInventory::default() });
            // A cause that is found for a moment only does not replace the current one.
            for _ in 0..12 {
                at += 5.0;
                state.judge(at, at);
            }
            slot.with_judged(|judged| judged.verdict.cause())
        };
        assert_eq!(judged(NvmlState::Up, GpuState::Ok), Some(Cause::None));
        assert_eq!(judged(NvmlState::Up, GpuState::Lost), Some(Cause::Gpu));
        assert_eq!(judged(NvmlState::Released, GpuState::Lost), Some(Cause::None));
        assert_eq!(judged(NvmlState::Up, GpuState::NoPermission), Some(Cause::None));
    }

    #[test]
    fn an_xid_error_of_the_first_seconds_is_a_finding_and_an_older_one_is_not() {
        for (last_xid_us, found) in [(998_000_000, true), (900_000_000, false)] {
            let (state, _) = socket_engine();
            let mut gpu = Gpu { state: GpuState::Ok, xids: Some(1), last_xid: Some(79), ..Gpu::default() };
            gpu.last_xid_us = Some(last_xid_us);
            state.publish_gpus(GpuInventory { nvml: NvmlState::Up, gpus: vec![gpu], ..GpuInventory::default() });
            [0.0, 5.0].into_iter().for_each(|at| state.judge(at, 1000.0 + at));
            assert_eq!(state.findings().iter().any(|finding| finding.rule == "gpu-errors"), found, "{last_xid_us}");
        }
    }

    /// If orchestrators were judged by iterations, the verdict `unavailable` would never end.
    #[test]
    fn an_orchestrator_that_answers_again_is_available_again() {
        let state = State::new(vec![EngineName::new("o", "1", "trtllm-disagg")]);
        let slot = Arc::clone(&state.slots()[0]);
        let reading = OrchestratorReading { ready: Some(false), ..OrchestratorReading::default() };
        let mut at = 0.0;
        let mut judged = |silent: bool| {
            let mut engine = slot.lock();
            engine.state = if silent { EngineState::Unreachable } else { EngineState::Idle };
            engine.observed.absorb_orchestrator(&reading, Instant::now());
            engine.source.unanswered_since_us = silent.then_some(0);
            engine.source.last_failure = silent.then(|| PollFailure {
                kind: ErrorKind::Connect,
                text: "cannot connect".to_owned(),
                not_ready: false,
            });
            drop(engine);
            at += 5.0;
            state.judge(at, at);
            let rules: Vec<_> = state.findings().into_iter().map(|finding| finding.rule).collect();
            (slot.with_judged(|judged| judged.verdict.cause()), rules.contains(&"orchestrator-not-ready".into()))
        };
        assert_eq!(judged(false), (None, true));
        assert_eq!(judged(true), (Some(Cause::Unavailable), false), "it says nothing of its present");
        assert_eq!(judged(false), (None, true));
    }
}
