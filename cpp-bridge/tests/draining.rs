//! Tests draining the statistics rings.

#![cfg(simulated_sdk)]
// Clippy allows unwrap and panic in #[test] functions, but not in the functions that they call.
#![allow(clippy::unwrap_used)]

mod engines;

use engines::{
    IterationRow, KEEP_ALL, KEEP_ALL_REQUESTS, PART, all_iterations, all_requests, drain_some, finished, next_requests,
    wait_until,
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
    // A slice that holds all of them gets the same records.
    let mut whole = vec![IterationStats::default(); records as usize + 1];
    assert_eq!(finished(200, "", &KEEP_ALL).drain_iterations(&mut whole), Ok(records as usize));
    let whole = whole[..records as usize].iter().map(IterationRow::of).collect();
    assert_eq!(without_time(all), without_time(whole));
}

#[test]
fn a_drain_ends_even_if_the_engine_writes_faster_than_it_reads() {
    let mut engine = Executor::open("sim:?speed=max&rate=0", &KEEP_ALL_REQUESTS).unwrap();
    let serve = |engine: &mut Executor, so_far: u64| {
        engine.enqueue_synthetic(50, 500).unwrap();
        wait_until(engine, |truth| truth.idle && truth.requests_completed == so_far)
    };
    let before = serve(&mut engine, 1);
    // There is one request at a time, so each record has one row.
    let requests = next_requests(&mut engine).unwrap().len() as u64;
    let records = drain_some(&mut engine).unwrap() as u64;
    assert!(requests < before.request_records_pushed && records < before.records_pushed);
    let after = serve(&mut engine, 2);
    assert_eq!(all_requests(&mut engine).len() as u64, before.request_records_pushed - requests);
    assert_eq!(all_iterations(&mut engine).len() as u64, before.records_pushed - records);
    let more = after.request_records_pushed - before.request_records_pushed;
    assert!((more - 1..=more).contains(&(all_requests(&mut engine).len() as u64)));
    assert_eq!(all_iterations(&mut engine).len() as u64, after.records_pushed - before.records_pushed);
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
    for place in ["rank=1", "rank=3&comm_mode=orchestrator"] {
        let mut engine = Executor::open(&format!("sim:?{place}"), &KEEP_ALL).unwrap();
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
                // Checked before the drain, so that the last drain happens after the engine finished.
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

#[test]
fn an_engine_can_be_dropped_while_it_runs() {
    for speed in ["max", "1"] {
        drop(Executor::open(&format!("sim:?rate=100&speed={speed}"), &KEEP_ALL).unwrap());
    }
}

fn without_time(rows: Vec<IterationRow>) -> Vec<IterationRow> {
    rows.into_iter().map(|row| IterationRow { timestamp: [0; 26], ..row }).collect()
}

#[cfg(sim_since = "1.1")]
mod kv_events {
    use super::*;
    use trtllm_bridge::{HostOptions, KvEventKind, KvEventRow};

    fn events_with_buffer(event_buffer_max_size: Option<u32>) -> Vec<KvEventRow> {
        let options = HostOptions { statistics: KEEP_ALL, event_buffer_max_size, ..HostOptions::default() };
        let mut engine = Executor::open_with("sim:?speed=max&requests=50&rate=50&kv_blocks=200", &options).unwrap();
        engines::wait_until(&engine, |truth| truth.idle && truth.requests_completed == 50);
        let mut rows = [KvEventRow::default(); 7];
        let mut all = Vec::new();
        loop {
            let count = engine.drain_kv_events(&mut rows).unwrap();
            all.extend_from_slice(&rows[..count]);
            if count < rows.len() {
                engine.shutdown().unwrap();
                assert_eq!(engine.drain_kv_events(&mut rows), Err(BridgeError::ShutDown));
                return all;
            }
        }
    }

    #[test]
    fn events_arrive_once_and_in_order_for_any_slice_size() {
        let all = events_with_buffer(Some(1_000_000));
        assert_eq!((all[0].event_id, all[0].kind, all[0].value), (0, KvEventKind::Created, 200));
        assert!(all.windows(2).all(|two| two[1].event_id - two[0].event_id <= 1));
        let mut stored = std::collections::HashSet::new();
        for row in &all {
            match row.kind {
                KvEventKind::Stored => assert!(stored.insert(row.value), "a block is stored twice"),
                KvEventKind::Removed => assert!(stored.remove(&row.value), "a block that is not there is removed"),
                _ => {}
            }
        }
        assert!(!stored.is_empty() && stored.len() <= 200);
    }

    #[test]
    fn a_full_buffer_drops_the_oldest_events_and_leaves_a_gap_in_their_numbers() {
        let all = events_with_buffer(Some(3));
        assert!(all[0].event_id > 0 && all.last().unwrap().event_id - all[0].event_id == 2);
    }

    #[test]
    fn without_a_buffer_there_are_no_events() {
        assert!(events_with_buffer(None).is_empty());
    }
}
