//! The records of `tests/fixtures/overlap` have the true time of each batch.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::*;
use crate::EngineFold;

/// The records of a file, and the milliseconds that each batch took.
fn sample(kind: &str) -> (Vec<IterationStats>, BTreeMap<u64, f64>) {
    let read = |name: String| {
        let path = format!("{}/../../tests/fixtures/overlap/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let records = read(format!("{kind}.jsonl"));
    let records = records.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let truth = read(format!("{kind}.truth.csv"));
    let of = |line: &str| line.split_once(',').map(|(iter, ms)| (iter.parse().unwrap(), ms.parse().unwrap())).unwrap();
    (records, truth.lines().skip(1).map(of).collect())
}

/// Folds the records. Returns the time of each batch in milliseconds, by the iteration of its record.
fn times(records: &[IterationStats]) -> BTreeMap<u64, (f64, Option<f64>)> {
    let (mut engine, now) = (EngineFold::new(Duration::from_secs(15)), Instant::now());
    let mut times = BTreeMap::new();
    for record in records {
        let wall_us = record.timestamp.map_or(0, |time| time.micros);
        engine.absorb(record, now, wall_us, &mut ()).unwrap();
        if let Some(TimedBatch { iter: Some(iter), time, .. }) = engine.timed_batch {
            times.insert(iter, (time.seconds * 1e3, time.device_seconds.map(|seconds| seconds * 1e3)));
        }
    }
    times
}

/// Relative errors, ascending.
fn errors(times: &BTreeMap<u64, (f64, Option<f64>)>, truth: &BTreeMap<u64, f64>) -> Vec<(f64, u64)> {
    let error = |(iter, (ms, _)): (&u64, &(f64, Option<f64>))| ((ms / truth[iter] - 1.0).abs(), *iter);
    let mut errors: Vec<_> = times.iter().map(error).collect();
    errors.sort_by(|one, other| one.0.total_cmp(&other.0));
    errors
}

fn assert_true(kind: &str, records: &[IterationStats], truth: &BTreeMap<u64, f64>, untold: usize) {
    let times = times(records);
    let errors = errors(&times, truth);
    let (median, worst) = (errors[errors.len() / 2], errors[errors.len() - 1]);
    assert!(median.0 < 0.02 && worst.0 < 0.1, "{kind}: median {median:?}, worst {worst:?}");
    assert!(records.len() - times.len() <= untold, "{kind}: {} of {} told", times.len(), records.len());
}

#[test]
fn the_time_of_each_batch_is_the_true_one_in_each_kind_of_record() {
    // Without a host step, the time of the first batch is unknown, and so is the begin of the second.
    for (kind, untold) in [("today", 0), ("stable", 2), ("serial", 1)] {
        let (records, truth) = sample(kind);
        assert_true(kind, &records, &truth, untold);
    }
}

#[test]
fn the_forward_pass_is_the_part_of_the_device() {
    let (records, truth) = sample("today");
    for (iter, (ms, device)) in times(&records) {
        let forward = records.iter().find(|record| record.iter == Some(iter)).unwrap().gpu_forward_time_ms.unwrap();
        assert!((device.unwrap() - forward.min(ms)).abs() < 1e-9, "{iter}");
        assert!(ms - device.unwrap() < 0.1 * truth[&iter] + 3.0, "{iter}: {ms} {device:?}");
    }
}

#[test]
fn records_that_are_lost_or_sampled_do_not_spoil_those_that_come() {
    for kind in ["today", "stable", "serial"] {
        let (records, truth) = sample(kind);
        // Each tenth record is lost, in a row of three.
        let left: Vec<_> = records.iter().filter(|record| record.iter.unwrap() % 30 > 2).cloned().collect();
        // After a gap, only a host step tells the time.
        assert_true(kind, &left, &truth, if kind == "today" { 0 } else { 8 });
    }
    let (records, truth) = sample("today");
    let sampled: Vec<_> = records.iter().filter(|record| record.iter.unwrap() % 10 == 0).cloned().collect();
    let sampled: Vec<_> = (1..).zip(sampled).map(|(n, r)| IterationStats { stats_sequence: Some(n), ..r }).collect();
    // What a pass does after it has handled the batch is not in the latency: half a millisecond here.
    let times_of_sampled = times(&sampled);
    assert_eq!(times_of_sampled.len(), sampled.len());
    assert!(errors(&times_of_sampled, &truth).iter().all(|(error, _)| *error < 0.08));
    let (records, _) = sample("stable");
    let sampled: Vec<_> = records.into_iter().filter(|record| record.iter.unwrap() % 10 == 0).collect();
    assert!(times(&sampled).is_empty(), "two batches in one latency, and no neighbour");
}

/// A loop that overlaps: `seconds` of each batch, of which the first follows an idle time.
fn overlapped(batches: &[f64], mode: Option<SchedulerMode>) -> Vec<IterationStats> {
    let (stable, _) = sample("stable");
    let build = 0.002;
    let mut handled = build + batches[0];
    let mut records = Vec::new();
    let mut pass = (0.0, build);
    for (place, seconds) in batches.iter().enumerate() {
        if place > 0 {
            pass = (pass.1, handled);
            handled += seconds;
        }
        records.push(IterationStats {
            timestamp: Some(trtllm_records::RecordTime { micros: (pass.0 * 1e6) as i64, zoned: true }),
            iter: Some(place as u64 + 100),
            iter_latency_ms: Some((handled - pass.0) * 1e3),
            host_step_time_ms: mode.map(|_| (pass.1 - pass.0) * 1e3),
            scheduler_mode: mode,
            num_active_requests: Some(2),
            num_completed_requests: Some(0),
            num_new_active_requests: Some(0),
            ..stable[0].clone()
        });
    }
    records
}

#[test]
fn a_long_batch_among_short_ones_has_its_own_time() {
    for mode in [None, Some(SchedulerMode::Overlap)] {
        let batches = [0.01, 0.01, 0.3, 0.01, 0.01];
        let times = times(&overlapped(&batches, mode));
        for (place, seconds) in batches.iter().enumerate().skip(1) {
            let ms = times[&(place as u64 + 100)].0;
            assert!((ms / (seconds * 1e3) - 1.0).abs() < 0.01, "{mode:?}, batch {place}: {ms}");
        }
    }
}

#[test]
fn a_batch_that_is_handled_after_an_idle_time_has_no_time() {
    let mode = Some(SchedulerMode::Overlap);
    let mut records = overlapped(&[0.01; 4], mode);
    // The requests end by a stop word in batch 101. Batch 102 computes one more token for them, which nobody needs. The engine
    // handles that batch when the next request has come, 5 s later.
    records[1].num_completed_requests = Some(2);
    records[2].iter_latency_ms = Some(5000.0);
    let last = &mut records[3];
    last.timestamp = last.timestamp.map(|at| trtllm_records::RecordTime { micros: at.micros + 5_000_000, ..at });
    (last.iter_latency_ms, last.host_step_time_ms) = (Some(5012.0), Some(5002.0));
    last.num_new_active_requests = Some(2);
    let times = times(&records);
    assert_eq!(times.keys().copied().collect::<Vec<_>>(), [100, 101, 103]);
    assert!((times[&103].0 - 12.0).abs() < 1.5, "{times:?}");
}
