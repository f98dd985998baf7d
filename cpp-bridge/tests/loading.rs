//! Tests the synthetic load of an engine.

#![cfg(simulated_sdk)]
// Clippy allows unwrap and panic in #[test] functions, but not in the functions that they call.
#![allow(clippy::unwrap_used)]

mod engines;

use engines::{KEEP_ALL, PerfRow, all_finished, all_iterations, finished, wait_until};
use trtllm_bridge::{BridgeError, Executor, FinishReason, FinishedRequest, SyntheticLoad};

const LOAD: SyntheticLoad = SyntheticLoad { in_flight: 4, prompt_tokens: 100, output_tokens: 7, requests: Some(40) };

/// A simulated engine without its own load.
fn silent(more: &str) -> Executor {
    Executor::open(&format!("sim:?rate=0&speed=max&{more}"), &KEEP_ALL).unwrap()
}

/// Waits until `count` requests of the load have ended, and returns them.
fn rows(engine: &mut Executor, count: usize) -> Vec<PerfRow> {
    let start = std::time::Instant::now();
    let mut rows = Vec::new();
    while rows.len() < count {
        assert!(start.elapsed().as_secs() < 60, "{} of {count} requests ended", rows.len());
        rows.extend(all_finished(engine));
    }
    rows
}

#[test]
fn a_load_sends_its_requests_and_ends() {
    let mut engine = silent("");
    engine.start_load(&LOAD).unwrap();
    let finished = rows(&mut engine, 40);
    assert_eq!(finished.len(), 40);
    assert!(finished.iter().all(|row| (row.prompt_tokens, row.output_tokens) == (100, 7)));
    let truth = wait_until(&engine, |truth| truth.idle && truth.requests_completed == 40);
    assert_eq!(truth.requests_arrived, 40);
    assert_eq!(truth.first_tokens + truth.generation_tokens, 40 * 7);
    assert!(all_finished(&mut engine).is_empty());
    assert!(all_iterations(&mut engine).iter().all(|row| row.num_active_requests <= 4), "more than are in flight");
}

#[test]
fn an_endless_load_ends_with_the_engine() {
    let mut engine = silent("");
    engine.start_load(&SyntheticLoad { requests: None, ..LOAD }).unwrap();
    rows(&mut engine, 100);
    engine.shutdown().unwrap();
    assert_eq!(
        engine.start_load(&LOAD),
        Err(BridgeError::Failed { what: "this engine has a load already".to_owned() })
    );
}

#[test]
fn an_engine_that_was_shut_down_rejects_a_load() {
    let mut engine = silent("");
    engine.shutdown().unwrap();
    assert_eq!(engine.start_load(&LOAD), Err(BridgeError::ShutDown));
}

#[test]
fn a_load_without_requests_sends_none() {
    let mut engine = silent("");
    engine.start_load(&SyntheticLoad { requests: Some(0), ..LOAD }).unwrap();
    engine.shutdown().unwrap();
    assert_eq!(engine.truth().unwrap().requests_arrived, 0);
}

#[test]
fn rows_are_returned_in_parts_and_survive_the_shutdown() {
    let mut engine = silent("");
    engine.start_load(&SyntheticLoad { requests: Some(1000), ..LOAD }).unwrap();
    wait_until(&engine, |truth| truth.idle && truth.requests_completed == 1000);
    let first = rows(&mut engine, 10).len();
    engine.shutdown().unwrap();
    let mut last = [FinishedRequest::default(); 3];
    let count = engine.drain_finished(&mut last).unwrap();
    assert!(first + count + all_finished(&mut engine).len() <= 1000);
}

#[test]
fn a_request_that_ends_with_an_error_becomes_a_failed_row() {
    let mut engine = silent("kv_blocks=4");
    engine.start_load(&SyntheticLoad { prompt_tokens: 1000, requests: Some(5), ..LOAD }).unwrap();
    let rows = rows(&mut engine, 5);
    assert!(rows.len() == 5 && rows.iter().all(|row| row.reason == FinishReason::Other && !row.has_metrics));
}

#[test]
fn a_worker_rank_rejects_a_load() {
    let mut follower = silent("rank=1");
    assert_eq!(follower.start_load(&LOAD), Err(BridgeError::NotLeader));
}

#[test]
fn a_request_without_tokens_is_rejected() {
    let mut engine = silent("");
    for (prompt_tokens, output_tokens) in [(0, 1), (1, 0), (u32::MAX, 1)] {
        let refused = engine.start_load(&SyntheticLoad { prompt_tokens, output_tokens, ..LOAD });
        assert!(matches!(refused, Err(BridgeError::Failed { .. })), "{refused:?}");
    }
}

#[test]
fn an_engine_can_be_dropped_during_a_load() {
    for more in ["", "iterations=3"] {
        let mut engine = silent(more);
        engine.start_load(&SyntheticLoad { requests: None, ..LOAD }).unwrap();
        // On a busy machine, an engine that stops after three iterations may stop before all requests arrive.
        wait_until(&engine, |truth| truth.requests_arrived >= 4 || truth.iterations == 3);
    }
}

#[test]
fn a_load_can_run_during_drains() {
    let mut engine = silent("");
    engine.start_load(&SyntheticLoad { requests: Some(500), ..LOAD }).unwrap();
    let mut started = 0;
    while engine.truth().unwrap().requests_completed < 500 || started < 500 {
        started += all_iterations(&mut engine).iter().map(|row| row.inflight_num_context_requests).sum::<i64>();
    }
    // Each prompt fits into one iteration.
    assert_eq!(started, 500);
}

#[test]
fn a_simulated_engine_with_its_own_load_accepts_another_load() {
    let mut engine = finished(20, "", &KEEP_ALL);
    engine.start_load(&LOAD).unwrap();
    rows(&mut engine, 40);
    wait_until(&engine, |truth| truth.requests_completed == 60);
}

#[cfg(sim_since = "1.0")]
mod with_perf_metrics {
    use super::*;

    #[test]
    fn a_row_has_the_times_of_its_request() {
        let mut engine = silent("iter_base_ms=10&ctx_token_us=0&gen_request_us=0&jitter=0");
        engine.start_load(&SyntheticLoad { in_flight: 1, ..LOAD }).unwrap();
        for row in rows(&mut engine, 40) {
            assert!(row.has_kv_cache && row.total_draft_tokens == 0 && !row.has_transfer);
            assert_eq!(row.reason, FinishReason::Length);
            assert!(row.arrival_s > 0.0 && row.arrival_s <= row.first_scheduled_s);
            assert!((row.first_token_s - row.first_scheduled_s - 0.010).abs() < 1e-6);
            assert!((row.last_token_s - row.first_token_s - 6.0 * 0.010).abs() < 1e-6);
            assert_eq!(row.last_iter - row.first_iter, 6);
        }
    }

    #[test]
    fn no_two_prompts_share_blocks() {
        let mut engine = silent("");
        engine.start_load(&SyntheticLoad { in_flight: 1, ..LOAD }).unwrap();
        assert!(rows(&mut engine, 40).iter().all(|row| row.num_reused_blocks == 0));
    }

    #[test]
    fn rows_have_speculation_and_cache_transfers_if_there_are_any() {
        let mut engine = silent("spec_draft_len=4&spec_acceptance=1&disagg=1");
        engine.start_load(&LOAD).unwrap();
        for row in rows(&mut engine, 40) {
            assert!(row.total_accepted_draft_tokens > 0 && row.acceptance_rate == 1.0);
            assert!(row.kv_cache_transfer_end_s > row.kv_cache_transfer_start_s && row.kv_cache_size > 0);
        }
    }
}

#[cfg(not(sim_since = "1.0"))]
#[test]
fn rows_of_a_release_without_perf_metrics_have_no_times() {
    let mut engine = silent("");
    engine.start_load(&LOAD).unwrap();
    let rows = rows(&mut engine, 40);
    assert_eq!(rows.len(), 40);
    for row in rows {
        assert_eq!(row.reason != FinishReason::Absent, cfg!(sim_since = "0.13"));
        assert!(!row.has_metrics);
    }
}
