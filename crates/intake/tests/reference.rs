//! Checks the output of an engine relative to a benchmark: the ratios must agree with the true output of the simulated
//! engine, whose load falls.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use trtllm_engines::State;
use trtllm_intake::{Intake, Moment};
use trtllm_records::gpu::EngineGpus;
use trtllm_records::{BenchReport, EngineName};
use trtllm_sim::load::Arrivals;
use trtllm_sim::{Config, Engine};
use trtllm_sources::simulated::read_step;
use trtllm_sources::{Batch, Presence};

const EPOCH_US: i64 = 1_760_000_000_000_000;
/// Seconds between two polls.
const INTERVAL: f64 = 0.5;
/// Polls from one judgement to the next.
const JUDGED: u32 = 10;
/// Length of the run in seconds.
const SECONDS: u32 = 1200;

#[test]
fn the_ratios_to_a_benchmark_are_the_true_ones() {
    let mut config = Config::default();
    (config.statistics.rows, config.statistics.entries) = (false, false);
    config.load.arrivals = Arrivals::Ramp { from: 0.2, to: 0.05, seconds: f64::from(SECONDS) };
    let state = State::new(vec![EngineName::new("m", "1", "test")]);
    let slot = Arc::clone(&state.slots()[0]);
    let mut intake = Intake::new(Arc::clone(&slot), Duration::from_secs(15));
    // The virtual time starts a day after the present, so no moment of the test is too early for this process's clock.
    let start = Instant::now() + Duration::from_secs(86_400);
    let (mut engine, mut next) = (Engine::new(config.clone(), 7), Some(0.0));
    // Output tokens and joules at each judgement.
    let mut truth = vec![(0.0, 0.0)];
    state.judge(0.0, EPOCH_US as f64 / 1e6);
    for poll in 1..=SECONDS * 2 {
        let now = f64::from(poll) * INTERVAL;
        let mut batch = Batch::default();
        while let Some(time) = next.filter(|time| *time < now) {
            let step = engine.step(time);
            next = step.next;
            read_step(&step, config.release, EPOCH_US, &mut batch).unwrap();
        }
        let moment = Moment { instant: start + Duration::from_secs_f64(now), unix_us: EPOCH_US + (now * 1e6) as i64 };
        intake.end_poll(&mut batch, Duration::ZERO, Ok(Presence::Present), moment);
        if poll % JUDGED == 0 {
            let (uuids, joules) = (vec!["GPU-0".to_owned()], engine.gpus(now)[0].energy_joules);
            let gpus = EngineGpus { uuids, energy_joules: Some(joules), ..EngineGpus::default() };
            slot.lock().gpus = Some(Arc::new(gpus));
            state.judge(now, moment.unix_us as f64 / 1e6);
            let of = engine.truth();
            truth.push(((of.started + of.decoded_tokens) as f64, joules));
        }
    }
    // The last five minutes.
    let ((tokens, joules), (tokens_now, joules_now)) = (truth[truth.len() - 61], truth[truth.len() - 1]);
    let (per_second, per_joule) = ((tokens_now - tokens) / 300.0, (tokens_now - tokens) / (joules_now - joules));
    let mut bench = BenchReport::default();
    (bench.metadata.num_gpus, bench.performance.token_throughput_per_sec) = (Some(1.0), Some(100.0));
    bench.energy.output_tokens_per_joule = Some(0.5);
    let shown = slot.with_judged(|judged| judged.output_ratios(&bench));
    for (shown, truth) in [(shown.throughput, per_second / 100.0), (shown.efficiency, per_joule / 0.5)] {
        println!("{shown:?}, truly {truth}");
        assert!((shown.unwrap() / truth - 1.0).abs() < 0.01, "{shown:?}, truly {truth}");
    }
}
