//! A simulated engine as the exporter sees it: its records and entries as text, its server's page, its GPU, in virtual time.

use std::time::{Duration, Instant};

use trtllm_analysis::ObservedEngine;
use trtllm_analysis::iteration_sums::ConfiguredLimits;
use trtllm_analysis::objectives::ObjectiveTotals;
use trtllm_analysis::window::{Mark, SLOT_SECONDS, Window};
use trtllm_records::Message;
use trtllm_records::perf_metrics::FinishReason;
use trtllm_records::server_metrics::{ServerCount, ServerCounter};
use trtllm_records::{Objectives, RequestStatsPerIteration, ServerMetrics};
use trtllm_sim::config::Release;
use trtllm_sim::{Config, End, Engine, Step, write};
use trtllm_sources::{Batch, trtllm_json};
use trtllm_verdict::cause::Cause;
use trtllm_verdict::gpu_window::{GpuMark, GpuWindow};
use trtllm_verdict::input::{EngineFacts, Silence, VerdictInput};
use trtllm_verdict::judge::{DebouncedVerdict, judge};
use trtllm_verdict::verdict::Severity;

const EPOCH_US: i64 = 1_760_000_000_000_000;

pub(crate) struct Play {
    pub(crate) engine: Engine,
    pub(crate) observed: ObservedEngine,
    pub(crate) window: Window,
    pub(crate) gpus: Vec<GpuWindow>,
    pub(crate) verdicts: DebouncedVerdict,
    /// Time, cause and severity of each judgement.
    pub(crate) history: Vec<(f64, Cause, Severity)>,
    objectives: Objectives,
    release: Release,
    last_answer: f64,
    has_answered: bool,
    start: Instant,
    now: f64,
    polled: f64,
    next: Option<f64>,
    /// The exporter reads the records only: not the server's page, and no GPU.
    pub(crate) records_only: bool,
}

impl Play {
    pub(crate) fn new(config: &Config, seed: u64) -> Self {
        let mut observed = ObservedEngine::new(Duration::from_secs(15));
        if !config.release.is_cpp() {
            observed.analysis.iterations.configured = ConfiguredLimits {
                batch: Some(config.limits.max_batch_size.into()),
                tokens: Some(config.limits.max_num_tokens.into()),
            };
        }
        let mut play = Self {
            engine: Engine::new(config.clone(), seed),
            observed,
            window: Window::default(),
            gpus: (0..config.ranks.pipeline.max(1)).map(|stage| GpuWindow::new(format!("GPU-{stage}"))).collect(),
            verdicts: DebouncedVerdict::default(),
            history: Vec::new(),
            objectives: Objectives::default(),
            release: config.release,
            last_answer: 0.0,
            has_answered: false,
            start: Instant::now(),
            now: 0.0,
            polled: 0.0,
            next: Some(0.0),
            records_only: false,
        };
        play.mark();
        play
    }

    pub(crate) fn set_objectives(&mut self, objectives: Objectives) {
        self.objectives = objectives;
        self.observed.analysis.objectives = Some(ObjectiveTotals::new(objectives));
    }

    /// Plays until this time, slot by slot.
    pub(crate) fn until(&mut self, seconds: f64) {
        while self.now + SLOT_SECONDS <= seconds {
            let end = self.now + SLOT_SECONDS;
            while let Some(time) = self.next.filter(|time| *time < end) {
                // A poll of a server each second.
                if time.floor() > self.polled {
                    self.polled = time.floor();
                    self.observed.settle(true, self.instant(self.polled));
                    assert!(!self.observed.fold.has_several_engines(), "one engine looks like several at {time} s");
                }
                let step = self.engine.step(time);
                self.next = step.next;
                self.fold_step(step, time);
            }
            self.now = end;
            let now = self.instant(end);
            if self.engine.is_up(end) {
                if !self.records_only {
                    let page = self.page();
                    self.observed.absorb_server_metrics(&page, now);
                }
                self.observed.fold.health.answered(now);
                (self.last_answer, self.has_answered) = (end, true);
            }
            self.observed.settle(true, now);
            self.mark();
            let verdict = self.input().and_then(|input| judge(&input, self.now));
            self.verdicts.update(verdict);
            let verdict = self.verdicts.verdict();
            self.history.extend(verdict.map(|verdict| (self.now, verdict.cause, verdict.severity)));
        }
    }

    fn instant(&self, seconds: f64) -> Instant {
        self.start + Duration::from_secs_f64(seconds)
    }

    fn mark(&mut self) {
        self.window.push(Mark::of(&self.observed, self.now));
        for (window, gpu) in self.gpus.iter_mut().zip(self.engine.gpus(self.now)) {
            window.push(GpuMark {
                at: self.now,
                utilization: Some(gpu.utilization),
                watts: Some(gpu.power_watts),
                clock_share: Some(gpu.sm_clock_mhz / gpu.max_sm_clock_mhz),
                has_lowered_limit: Some(gpu.power_limit_watts < gpu.default_power_limit_watts),
                throttled_by_power: Some(gpu.throttled_by_power),
                throttled_by_heat: Some(gpu.throttled_by_heat),
                throttled_by_hardware: Some(0.0),
                xids: 0.0,
                ecc_errors: Some(0.0),
                is_ok: true,
            });
        }
    }

    pub(crate) fn input(&self) -> Option<VerdictInput> {
        let gpus = if self.records_only { &[] } else { self.gpus.as_slice() };
        VerdictInput::of(self.facts(), &self.window, gpus)
    }

    pub(crate) fn facts(&self) -> EngineFacts {
        let silent = self.now - self.last_answer;
        let silence = (silent >= 15.0 || !self.has_answered).then(|| Silence {
            seconds: silent,
            why: "connection refused".to_owned(),
            ..Silence::default()
        });
        EngineFacts {
            state: self.observed.fold.health.state(self.instant(self.now)),
            silence,
            never_reserves: self.observed.fold.latest().is_some_and(trtllm_fold::Latest::never_reserves),
            is_hosted: self.release.is_cpp(),
            is_pytorch: !self.release.is_cpp(),
            objectives: self.objectives,
            before: self.verdicts.cause(),
            ..EngineFacts::default()
        }
    }

    /// How requests ended, as the host of a C++ Executor counts it, or trtllm-serve's own page. The page does not count requests that
    /// fail, time out or are cancelled.
    fn page(&self) -> ServerMetrics {
        let ended = |end: End| self.engine.truth().requests.iter().filter(|r| r.end == end).count() as u64;
        let count = |counter, value| ServerCount { counter, series: 0, value };
        let mut counts = vec![
            count(ServerCounter::Finished(FinishReason::Stop), ended(End::Stop)),
            count(ServerCounter::Finished(FinishReason::Length), ended(End::Length)),
        ];
        if self.release.is_cpp() {
            counts.extend([
                count(ServerCounter::Finished(FinishReason::Timeout), ended(End::TimedOut)),
                count(ServerCounter::Finished(FinishReason::Cancelled), ended(End::Cancelled)),
                count(ServerCounter::Errors("500".to_owned()), ended(End::Error)),
            ]);
        }
        ServerMetrics { counts, ..ServerMetrics::default() }
    }

    fn fold_step(&mut self, step: Step, time: f64) {
        let (now, wall) = (self.instant(time), EPOCH_US + (time * 1e6) as i64);
        let array = |values: Vec<serde_json::Value>| serde_json::Value::from(values).to_string();
        let mut batch = Batch::default();
        let records = step.records.iter().map(|record| write::record(record, self.release, EPOCH_US)).collect();
        trtllm_json::parse_records(array(records).as_bytes(), &mut batch).unwrap();
        let version = if self.release.is_cpp() { write::Version::Host } else { write::Version::V2 };
        let entries = step.entries.iter().map(|entry| write::entry(entry, version)).collect();
        trtllm_json::parse_perf_metrics(array(entries).as_bytes(), &mut batch).unwrap();
        for item in batch.drain() {
            match item {
                Message::Record(record) => self.observed.absorb(&record, now, wall).unwrap(),
                Message::FinishedRequest(entry) => self.observed.absorb_perf_metrics(&entry, now).unwrap(),
                other => panic!("{other:?}"),
            }
        }
        for (iter, rows) in &step.rows {
            let text = write::rows(*iter, rows, self.release).to_string();
            let parsed: RequestStatsPerIteration = serde_json::from_str(&text).unwrap();
            self.observed.absorb_requests(&parsed, now).unwrap();
        }
    }
}
