//! Tests synthetic load on an engine.

#![cfg(simulated_sdk)]
// Clippy allows unwrap and panic in #[test] functions, but not in the functions that they call.
#![allow(clippy::unwrap_used)]

mod engines;

use engines::{KEEP_ALL, all_finished as rows, all_iterations, finished, poll_until, wait_until};
use trtllm_bridge::{BridgeError, Executor, FinishReason, FinishedRequest, Load, LoadProgress};

const LOAD: Load =
    Load { in_flight: 4, prompt_tokens: 100, shared_prefix_tokens: 0, output_tokens: 7, requests: Some(40) };

/// A simulated engine without its own load.
fn silent(more: &str) -> Executor {
    Executor::open(&format!("sim:?rate=0&speed=max&{more}"), &KEEP_ALL).unwrap()
}

fn wait_for(engine: &Executor, reached: impl Fn(&LoadProgress) -> bool) -> LoadProgress {
    poll_until(|| engine.load_progress(), reached)
}

#[test]
fn a_load_sends_its_requests_and_ends() {
    let mut engine = silent("");
    engine.start_load(&LOAD).unwrap();
    let progress = wait_for(&engine, |progress| progress.finished == 40);
    assert_eq!((progress.enqueued, progress.failed, progress.refused, progress.rows_lost), (40, 0, 0, 0));
    let truth = wait_until(&engine, |truth| truth.requests_completed == 40);
    assert_eq!(truth.requests_arrived, 40);
    assert_eq!(truth.first_tokens + truth.generation_tokens, 40 * 7);
    let finished = rows(&mut engine);
    assert_eq!(finished.len(), 40);
    assert!(finished.iter().all(|row| (row.prompt_tokens, row.output_tokens) == (100, 7)));
    assert!(rows(&mut engine).is_empty());
}

#[test]
fn a_load_never_exceeds_its_requests_in_flight() {
    let mut engine = silent("iterations=0");
    engine.start_load(&LOAD).unwrap();
    wait_for(&engine, |progress| progress.enqueued == 4);
    engine.stop_load().unwrap();
    assert_eq!(engine.load_progress().enqueued, 4);
}

#[test]
fn an_endless_load_can_be_stopped() {
    let mut engine = silent("");
    engine.start_load(&Load { requests: None, ..LOAD }).unwrap();
    wait_for(&engine, |progress| progress.finished > 100);
    engine.stop_load().unwrap();
    let stopped = engine.load_progress();
    assert!(!stopped.running);
    // The engine still finishes the requests that were enqueued before the stop.
    wait_until(&engine, |truth| truth.requests_completed == stopped.enqueued);
    assert_eq!(engine.load_progress(), stopped);
}

#[test]
fn a_load_can_be_replaced_and_restarted() {
    let mut engine = silent("");
    for total in [40, 80] {
        engine.start_load(&LOAD).unwrap();
        wait_for(&engine, |progress| progress.finished == total);
        engine.stop_load().unwrap();
        engine.stop_load().unwrap();
    }
    engine.start_load(&Load { requests: Some(0), ..LOAD }).unwrap();
    engine.start_load(&Load { requests: Some(2), output_tokens: 3, ..LOAD }).unwrap();
    wait_for(&engine, |progress| progress.finished == 82);
    assert_eq!(rows(&mut engine).last().unwrap().output_tokens, 3);
}

#[test]
fn the_row_of_a_single_request_has_its_id() {
    let mut engine = silent("");
    let ids: Vec<u64> = (1..=3).map(|output| engine.enqueue_synthetic(50, output).unwrap()).collect();
    wait_for(&engine, |progress| progress.finished == 3);
    let mut rows = rows(&mut engine);
    rows.sort_by_key(|row| row.id);
    assert_eq!(
        rows.iter().map(|row| (row.id, row.output_tokens)).collect::<Vec<_>>(),
        [1, 2, 3].map(|output| (ids[output - 1], output as i64))
    );
}

#[test]
fn equal_prompts_reuse_cache_blocks() {
    let mut engine = silent("");
    let prompt: Vec<i32> = (1..=320).collect();
    for count in 1..=2 {
        engine.enqueue(&prompt, 4).unwrap();
        wait_for(&engine, |progress| progress.finished == count);
    }
    let rows = rows(&mut engine);
    assert!(rows.iter().all(|row| (row.prompt_tokens, row.output_tokens) == (320, 4)), "{rows:?}");
    if cfg!(sim_since = "1.0") {
        assert_eq!(rows[0].num_reused_blocks, 0);
        assert!(rows[1].num_reused_blocks > 5, "{:?}", rows[1]);
    }
    assert!(engine.enqueue(&[], 1).is_err() && engine.enqueue(&prompt, 0).is_err());
}

#[test]
fn rows_are_returned_in_parts_and_survive_the_shutdown() {
    let mut engine = silent("");
    engine.start_load(&Load { requests: Some(1000), ..LOAD }).unwrap();
    wait_for(&engine, |progress| progress.finished == 1000);
    let first = engine.drain_finished(&mut [FinishedRequest::default(); 10]).unwrap();
    assert_eq!(first, 10);
    engine.shutdown().unwrap();
    assert_eq!(rows(&mut engine).len(), 1000 - first);
    assert!(!engine.load_progress().running);
    assert_eq!(engine.start_load(&LOAD), Err(BridgeError::ShutDown));
    assert_eq!(engine.enqueue_synthetic(1, 1), Err(BridgeError::ShutDown));
}

#[test]
fn a_request_that_ends_with_an_error_becomes_a_failed_row() {
    let mut engine = silent("kv_blocks=4");
    engine.start_load(&Load { prompt_tokens: 1000, requests: Some(5), ..LOAD }).unwrap();
    let progress = wait_for(&engine, |progress| progress.finished == 5);
    assert_eq!(progress.failed, 5);
    assert!(progress.last_error.contains("1000 tokens"), "{}", progress.last_error);
    let rows = rows(&mut engine);
    assert!(rows.len() == 5 && rows.iter().all(|row| row.reason == FinishReason::Other && !row.has_metrics));
}

#[test]
fn a_worker_rank_rejects_a_load() {
    let mut follower = silent("rank=1");
    assert_eq!(follower.start_load(&LOAD), Err(BridgeError::NotLeader));
    assert_eq!(follower.enqueue_synthetic(1, 1), Err(BridgeError::NotLeader));
}

#[test]
fn a_request_without_tokens_is_rejected() {
    let mut engine = silent("");
    for (prompt_tokens, output_tokens) in [(0, 1), (1, 0), (u32::MAX, 1)] {
        let refused = engine.start_load(&Load { prompt_tokens, output_tokens, ..LOAD });
        assert!(matches!(refused, Err(BridgeError::Failed { .. })), "{refused:?}");
    }
}

#[test]
fn an_engine_can_be_dropped_during_a_load() {
    for more in ["", "iterations=3"] {
        let mut engine = silent(more);
        engine.start_load(&Load { requests: None, ..LOAD }).unwrap();
        wait_for(&engine, |progress| progress.enqueued >= 4);
    }
}

#[test]
fn a_load_can_run_during_drains() {
    let mut engine = silent("");
    engine.start_load(&Load { requests: Some(500), ..LOAD }).unwrap();
    let mut started = 0;
    while engine.load_progress().finished < 500 || started < 500 {
        started += all_iterations(&mut engine).iter().map(|row| row.inflight_num_context_requests).sum::<i64>();
    }
    // Each prompt is computed in one iteration.
    assert_eq!(started, 500);
}

#[test]
fn a_simulated_engine_with_its_own_load_accepts_another_load() {
    let mut engine = finished(20, "", &KEEP_ALL);
    engine.start_load(&LOAD).unwrap();
    wait_for(&engine, |progress| progress.finished == 40);
    wait_until(&engine, |truth| truth.requests_completed == 60);
}

#[cfg(sim_since = "1.0")]
mod with_perf_metrics {
    use super::*;

    #[test]
    fn a_row_has_the_times_of_its_request() {
        let mut engine = silent("iter_base_ms=10&ctx_token_us=0&gen_request_us=0&jitter=0");
        engine.start_load(&Load { in_flight: 1, ..LOAD }).unwrap();
        wait_for(&engine, |progress| progress.finished == 40);
        for row in rows(&mut engine) {
            assert!(row.has_kv_cache && row.total_draft_tokens == 0 && !row.has_transfer);
            assert_eq!(row.reason, FinishReason::Length);
            assert!(row.arrival_s > 0.0 && row.arrival_s <= row.first_scheduled_s);
            assert!((row.first_token_s - row.first_scheduled_s - 0.010).abs() < 1e-6);
            assert!((row.last_token_s - row.first_token_s - 6.0 * 0.010).abs() < 1e-6);
            assert_eq!(row.last_iter - row.first_iter, 6);
        }
    }

    #[test]
    fn only_the_shared_prefix_of_a_prompt_is_reused() {
        let reused = |shared_prefix_tokens| {
            let mut engine = silent("");
            engine.start_load(&Load { in_flight: 1, shared_prefix_tokens, ..LOAD }).unwrap();
            wait_for(&engine, |progress| progress.finished == 40);
            rows(&mut engine)[20].num_reused_blocks
        };
        assert_eq!((reused(0), reused(64), reused(100)), (0, 2, 3));
    }

    #[test]
    fn rows_have_speculation_and_cache_transfers_if_there_are_any() {
        let mut engine = silent("spec_draft_len=4&spec_acceptance=1&disagg=1");
        engine.start_load(&LOAD).unwrap();
        wait_for(&engine, |progress| progress.finished == 40);
        for row in rows(&mut engine) {
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
    wait_for(&engine, |progress| progress.finished == 40);
    let rows = rows(&mut engine);
    assert_eq!(rows.len(), 40);
    for row in rows {
        assert_eq!(row.reason != FinishReason::Absent, cfg!(sim_since = "0.13"));
        assert!(!row.has_metrics);
    }
}
