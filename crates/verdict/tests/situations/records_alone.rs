//! What most people have: `enable_iter_perf_stats` and nothing else. No entries, no rows, no page of the server, no readings of the GPU.

use std::sync::Mutex;

use trtllm_sim::config::{CacheManager, Era, Release};
use trtllm_sim::load::{Arrivals, Length};
use trtllm_sim::scenario::all;
use trtllm_sim::{Config, Engine};
use trtllm_verdict::cause::Cause;
use trtllm_verdict::verdict::{Confidence, Severity};

use crate::play::Play;
use crate::{UNTIL, play_each};

const RELEASES: [Release; 3] = [
    Release::PyTorch { era: Era::One, cache: CacheManager::V1 },
    Release::PyTorch { era: Era::Ranks, cache: CacheManager::V1 },
    Release::PyTorch { era: Era::Frames, cache: CacheManager::V2 },
];

/// 64 seats, answers of 8 to 200 tokens.
fn engine(release: Release, overlap: bool) -> Config {
    let mut config = Config { release, ..Config::default() };
    config.costs.overlap = overlap;
    config.limits.max_batch_size = 64;
    (config.load.prompt, config.load.output) = (Length::Fixed(200), Length::Sample((8..200).collect()));
    (config.statistics.entries, config.statistics.rows) = (false, false);
    config
}

/// Requests per second that the engine serves at most.
fn capacity(config: &Config) -> f64 {
    let mut config = config.clone();
    config.load.arrivals = Arrivals::Offline { requests: 100_000 };
    let mut engine = Engine::new(config, 3);
    engine.run(60.0, |_| ());
    engine.truth().completed as f64 / 60.0
}

fn with_rate(config: &Config, per_second: f64) -> Config {
    let mut config = config.clone();
    config.load.arrivals = Arrivals::Ramp { from: per_second, to: per_second, seconds: 1.0 };
    config
}

/// Plays each scenario with records alone: no requests, no page of the server, no GPU.
#[test]
fn nothing_that_is_told_with_high_confidence_is_wrong_where_much_cannot_be_seen() {
    let told = Mutex::new(Vec::new());
    let failures = play_each(all(), |scenario, play| {
        play.records_only = true;
        play.until(UNTIL);
        let verdict = play.verdicts.verdict()?;
        let is_right = verdict.cause.name() == scenario.cause;
        told.lock().unwrap().push((is_right, verdict.confidence));
        let wrong = !is_right && verdict.confidence == Confidence::High;
        wrong.then(|| format!("{}, not {}: {}", verdict.cause.name(), scenario.cause, verdict.says))
    });
    let told = told.into_inner().unwrap();
    let count = |right, confidence| told.iter().filter(|one| **one == (right, confidence)).count();
    let [high, low, wrong] =
        [count(true, Confidence::High), count(true, Confidence::Low), count(false, Confidence::Low)];
    println!("right with high confidence {high}, with low {low}; wrong with low {wrong}");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn a_full_batch_with_a_thousand_waiting_requests_is_named_and_their_number_is_known() {
    for release in RELEASES {
        for overlap in [true, false] {
            let config = engine(release, overlap);
            let capacity = capacity(&config);
            // About a thousand wait after a minute and a half.
            let mut play = Play::new(&with_rate(&config, capacity + 12.0), 1);
            play.records_only = true;
            for until in [60.0, 90.0, 120.0] {
                play.until(until);
                let truth = play.engine.waiting_for_seat() as f64;
                let estimate = play.observed.fold.latest().and_then(|latest| latest.waiting_for_seat).unwrap();
                let case = format!("{release:?}, overlap {overlap}, at {until}");
                assert!(truth > 500.0 && (estimate / truth - 1.0).abs() < 0.2, "{case}: {estimate} of {truth}");
                let verdict = play.verdicts.verdict().unwrap();
                assert!(matches!(verdict.cause, Cause::BatchLimit | Cause::Load), "{case}: {verdict:?}");
                assert_eq!(verdict.severity, Severity::Warning, "{case}: {verdict:?}");
            }
        }
    }
}

#[test]
fn an_engine_on_which_nobody_waits_has_no_cause_at_half_and_at_nearly_full_load() {
    for release in RELEASES {
        for overlap in [true, false] {
            let config = engine(release, overlap);
            let capacity = capacity(&config);
            for load in [0.5, 0.95] {
                let mut play = Play::new(&with_rate(&config, load * capacity), 2);
                play.records_only = true;
                play.until(150.0);
                let wrong: Vec<_> = play.history.iter().filter(|(_, cause, _)| *cause != Cause::None).collect();
                assert!(wrong.is_empty(), "{release:?}, overlap {overlap}, load {load}: {wrong:?}");
            }
        }
    }
}
