//! Compares the number of requests that wait for a seat, as the exporter estimates it from the records, with the truth of the simulated
//! PyTorch engine.

use trtllm_records::Objectives;
use trtllm_sim::config::{CacheManager, Era, Fault, Release};
use trtllm_sim::load::{Arrivals, Length};
use trtllm_sim::{Config, scenario};

use crate::folded;

const SECONDS: f64 = 100.0;

/// Means over the records after the first seconds: of the true number, and of the error of the estimate.
fn compare(config: &Config) -> (f64, f64) {
    compare_some(|_| true, config)
}

/// Like [`compare`], with the records of the times that `reads` accepts.
fn compare_some(reads: fn(f64) -> bool, config: &Config) -> (f64, f64) {
    let (mut waiting, mut errors, mut samples) = (0.0, 0.0, 0.0);
    folded::fold_some(reads, config, 5, Objectives::default(), SECONDS, |time, engine, observed| {
        let estimate = observed.fold.latest().and_then(|latest| latest.waiting_for_seat).filter(|_| time > 20.0);
        if let Some(estimate) = estimate {
            let truth = engine.waiting_for_seat() as f64;
            (waiting, samples) = (waiting + truth, samples + 1.0);
            errors += (estimate - truth).abs();
        }
    });
    assert!(samples > 100.0);
    (waiting / samples, errors / samples)
}

fn config(name: &str) -> Config {
    let scenario = scenario::all().into_iter().find(|scenario| scenario.name == name);
    scenario.unwrap_or_else(|| panic!("no scenario {name}")).config
}

#[test]
fn the_requests_that_wait_for_a_seat_are_known_within_a_tenth() {
    let limited =
        ["batch-limit", "batch-limit-bursts-v1", "batch-limit-closed-loop", "kv-capacity", "kv-reservation-v1", "load"];
    for name in limited {
        let (waiting, error) = compare(&config(name));
        assert!(waiting > 10.0 && error < 0.1 * waiting, "{name}: {waiting} wait, error {error}");
    }
    for name in ["healthy-default", "healthy-busy", "healthy-bursts"] {
        let (waiting, error) = compare(&config(name));
        assert!(error < 0.2, "{name}: {waiting} wait, error {error}");
    }
}

#[test]
fn the_estimate_stays_within_a_tenth_in_each_loop_with_sampled_lost_and_late_records() {
    for name in ["serial", "bursts", "sampled", "lossy", "gaps", "late", "1.2"] {
        let (mut config, mut reads): (_, fn(f64) -> bool) = (config("batch-limit"), |_| true);
        match name {
            "serial" => config.costs.overlap = false,
            "sampled" => config.statistics.interval = 10,
            "lossy" => config.faults.push(Fault::LoseRecords { share: 0.3 }),
            "bursts" => config.load.arrivals = Arrivals::Bursty { rate: 5.0, burst: 150 },
            "gaps" => reads = |time| time % 30.0 < 18.0,
            "late" => reads = |time| time >= 40.0,
            _ => config.release = Release::PyTorch { era: Era::One, cache: CacheManager::V1 },
        }
        let (waiting, error) = compare_some(reads, &config);
        assert!(waiting > 50.0 && error < 0.1 * waiting, "{name}: {waiting} wait, error {error}");
    }
}

#[test]
fn rows_that_copy_rank_0_tell_the_mean_number_that_waits_one_wait_later() {
    let mut config = config("batch-limit-closed-loop");
    config.release = Release::PyTorch { era: Era::Ranks, cache: CacheManager::V1 };
    config.ranks.attention_dp = 2;
    config.limits.max_batch_size /= 2;
    let (waiting, error) = compare(&config);
    assert!(waiting > 20.0 && error < 0.2 * waiting, "{waiting} wait, error {error}");
}

/// All arrive at once, and a few of them after the fetch of a pass, so that a record counts these few.
#[test]
fn of_a_burst_that_records_hardly_counted_at_least_as_many_wait_as_took_seats_during_one_wait() {
    let mut config = config("batch-limit");
    config.load.arrivals = Arrivals::Bursty { rate: 50.0, burst: 1000 };
    config.load.requests = Some(1000);
    config.frontend.workers = 1000;
    let mut checked = 0;
    folded::fold(&config, 5, Objectives::default(), SECONDS, |time, engine, observed| {
        let truth = engine.waiting_for_seat() as f64;
        if time > 20.0 && truth > 500.0 {
            let estimate = observed.fold.latest().and_then(|latest| latest.waiting_for_seat).unwrap();
            let seated = 1000.0 - truth;
            assert!((0.6 * seated..1.4 * seated).contains(&estimate), "{estimate} of {truth} at {time}");
            checked += 1;
        }
    });
    assert!(checked > 100);
}

/// A seat is free only after the last token is handled, so batches of short answers have fewer requests than seats.
#[test]
fn a_batch_of_short_answers_is_full_when_its_seats_are_taken() {
    let mut config = config("batch-limit");
    config.limits.max_batch_size = 32;
    config.load.output = Length::Fixed(8);
    config.load.arrivals = Arrivals::Poisson { rate: 200.0 };
    let (mut scheduled, mut records, mut full) = (0, 0, 0);
    folded::fold(&config, 5, Objectives::default(), 40.0, |time, _, observed| {
        let latest = observed.fold.latest().filter(|latest| time > 10.0 && latest.scheduled() > Some(0));
        if let Some(latest) = latest {
            assert!(latest.all_waiting().unwrap() >= 1.0, "at {time}");
            records += 1;
            scheduled += latest.scheduled().unwrap();
            full += i64::from(latest.is_full_of_running());
        }
    });
    assert!(10 * scheduled < 9 * 32 * records, "some seats wait to be handled: {scheduled} in {records}");
    assert!(20 * full >= 19 * records, "{full} of {records}");
}
