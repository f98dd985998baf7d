//! Tests draining the statistics rings.

#![cfg(simulated_sdk)]
// Clippy allows unwrap and panic in #[test] functions, but not in the functions that they call.
#![allow(clippy::unwrap_used)]

mod engines;

use engines::{
    IterationRow, KEEP_ALL, KEEP_ALL_REQUESTS, PART, all_iterations, drain_some, finished, next_requests, wait_until,
    without_time,
};
use trtllm_bridge::{BridgeError, Executor, ExecutorOptions, IterationStats, RequestStatsPerIteration};

#[test]
fn draining_empties_the_ring() {
    let mut engine = finished(20, "", &KEEP_ALL);
    assert!(!all_iterations(&mut engine).is_empty());
    assert_eq!(drain_some(&mut engine), Ok(0));
}

#[test]
fn a_long_drain_is_returned_in_parts_without_loss() {
    let mut engine = finished(200, "", &KEEP_ALL);
    let records = engine.truth().unwrap().records_pushed;
    assert!(records > 2 * PART as u64, "{records} records");
    let all = all_iterations(&mut engine);
    assert_eq!(all.len() as u64, records);
    // A slice that has room for all records gets the same records.
    let mut whole = vec![IterationStats::default(); records as usize + 1];
    assert_eq!(finished(200, "", &KEEP_ALL).drain_iterations(&mut whole), Ok(records as usize));
    let whole = whole[..records as usize].iter().map(IterationRow::of).collect();
    assert_eq!(without_time(all), without_time(whole));
}

#[test]
fn a_drain_ends_even_if_the_engine_writes_faster_than_it_reads() {
    let mut engine = Executor::open("sim:?speed=max&rate=10", &KEEP_ALL_REQUESTS).unwrap();
    let written =
        |engine: &Executor| (engine.truth().unwrap().records_pushed, engine.truth().unwrap().request_records_pushed);
    wait_until(&engine, |truth| truth.records_pushed > 2 * PART as u64);
    let before = written(&engine);
    assert!(next_requests(&mut engine).is_some());
    assert_eq!(drain_some(&mut engine), Ok(PART));
    let begun = written(&engine);
    // The engine writes many more records before the drain continues.
    wait_until(&engine, |truth| truth.records_pushed > 2 * begun.0);
    let records = (PART + all_iterations(&mut engine).len()) as u64;
    assert!((before.0..=begun.0).contains(&records), "{records}, {before:?} to {begun:?}");
    let iterations = 1 + std::iter::from_fn(|| next_requests(&mut engine)).count() as u64;
    assert!((before.1..=begun.1).contains(&iterations), "{iterations}, {before:?} to {begun:?}");
}

#[test]
fn a_full_ring_drops_its_oldest_records_and_only_truth_counts_them() {
    let small = ExecutorOptions { iter_stats_max_iterations: 10, ..KEEP_ALL };
    let mut engine = finished(50, "", &small);
    let truth = engine.truth().unwrap();
    let rows = all_iterations(&mut engine);
    assert_eq!(rows.len(), 10);
    assert_eq!(truth.records_lost, truth.records_pushed - 10);
    assert_eq!(rows.last().unwrap().iter as u64, truth.iterations);
}

#[test]
fn a_ring_of_size_zero_disables_statistics() {
    let off = ExecutorOptions { iter_stats_max_iterations: 0, request_stats_max_iterations: 0 };
    let mut engine = finished(20, "", &off);
    assert_eq!(all_iterations(&mut engine), []);
    assert_eq!(engine.truth().unwrap().records_pushed, 0);
}

#[test]
fn draining_after_a_shutdown_returns_shut_down() {
    let mut engine = finished(20, "", &KEEP_ALL);
    assert!(engine.can_enqueue_requests());
    engine.shutdown().unwrap();
    assert!(!engine.can_enqueue_requests());
    assert_eq!(drain_some(&mut engine), Err(BridgeError::ShutDown));
    assert_eq!(engine.next_requests(&mut RequestStatsPerIteration::default()), Err(BridgeError::ShutDown));
    assert_eq!(engine.shutdown(), Err(BridgeError::ShutDown));
}

#[test]
fn the_rest_of_a_drain_survives_the_shutdown() {
    let mut engine = finished(200, "", &KEEP_ALL);
    let taken = drain_some(&mut engine).unwrap() as u64;
    let kept = engine.truth().unwrap().records_pushed - taken;
    engine.shutdown().unwrap();
    assert!(kept > 0);
    assert_eq!(all_iterations(&mut engine).len() as u64, kept);
    assert_eq!(drain_some(&mut engine), Err(BridgeError::ShutDown));
}

#[test]
fn draining_a_worker_rank_returns_not_leader() {
    for rank in [1, 3] {
        let mut engine = Executor::open(&format!("sim:?rank={rank}"), &KEEP_ALL).unwrap();
        assert!(!engine.can_enqueue_requests());
        assert_eq!(drain_some(&mut engine), Err(BridgeError::NotLeader));
        assert_eq!(engine.next_requests(&mut RequestStatsPerIteration::default()), Err(BridgeError::NotLeader));
    }
}

#[test]
fn two_threads_drain_two_engines_in_parallel() {
    let drain = |seed: u64| {
        let mut engine = Executor::open(&format!("sim:?speed=max&iterations=5000&seed={seed}"), &KEEP_ALL).unwrap();
        std::thread::spawn(move || {
            let mut rows = Vec::new();
            let mut done = false;
            while !done {
                // Check this before the drain, so that the last drain happens after the engine finished.
                done = wait_until(&engine, |truth| truth.iterations > 0).iterations == 5000;
                rows.extend(all_iterations(&mut engine).into_iter().filter(|row| row.num_active_requests > 0));
            }
            assert_eq!(engine.truth().unwrap().records_lost, 0);
            rows.into_iter().map(|row| row.iter).collect::<Vec<_>>()
        })
    };
    let threads = [drain(1), drain(2)];
    for thread in threads {
        assert_eq!(thread.join().unwrap(), (0..5000).collect::<Vec<_>>());
    }
}

#[test]
fn an_engine_that_hangs_with_active_requests_writes_no_more_records() {
    let mut engine = Executor::open("sim:?speed=max&iterations=50&rate=200", &KEEP_ALL).unwrap();
    wait_until(&engine, |truth| truth.iterations == 50);
    let rows = all_iterations(&mut engine);
    assert!(rows.last().unwrap().num_active_requests > 0);
    assert_eq!(drain_some(&mut engine), Ok(0));
    assert!(engine.can_enqueue_requests());
}
