//! Tests that the simulated engine reproduces the wrong values in TensorRT-LLM's records, which the exporter must
//! correct.

#![cfg(simulated_sdk)]
// Clippy allows unwrap and panic in #[test] functions, but not in the functions that they call.
#![allow(clippy::unwrap_used)]

mod engines;

use engines::{COMPLETE, IterationRow, KEEP_ALL, all_iterations, finished, trace};

const PAUSE_S: f64 = 100.0;

/// Two requests with a long pause between them.
fn with_idle_period(name: &str) -> Vec<IterationRow> {
    let file = trace(name, &[(1.0, 100, 5), (1.0 + PAUSE_S, 100, 5)]);
    all_iterations(&mut finished(2, &format!("trace={file}"), &KEEP_ALL))
}

fn position_of_flush(rows: &[IterationRow]) -> usize {
    rows.iter().position(|row| row.num_active_requests == 0).unwrap()
}

#[test]
fn an_engine_that_becomes_idle_writes_a_record_without_requests() {
    let rows = with_idle_period("flush.trace");
    let flush = rows[position_of_flush(&rows)];
    assert_eq!((flush.inflight_num_scheduled_requests, flush.num_active_requests), (0, 0));
    assert_eq!((flush.iter_latency_ms, flush.new_active_requests_queue_latency_ms), (0.0, 0.0));
    assert_eq!(rows.iter().filter(|row| row.num_active_requests == 0).count(), 2);
}

#[test]
fn the_record_after_a_flush_repeats_its_iteration_and_its_completions() {
    let rows = with_idle_period("repeat.trace");
    let flush = position_of_flush(&rows);
    if cfg!(sim_since = "0.13") {
        assert_eq!(rows[flush].num_completed_requests, 1);
        assert_eq!(rows[flush + 1].num_completed_requests, 1);
    }
    assert_eq!(rows[flush + 1].iter, rows[flush].iter);
    assert_eq!(rows[flush - 1].iter + 1, rows[flush].iter);
}

#[cfg(sim_since = "0.15")]
#[test]
fn the_flush_record_keeps_the_new_requests_of_the_record_before() {
    // With one output token, the request starts and ends in the same iteration.
    let file = trace("stale.trace", &[(1.0, 100, 1)]);
    let rows = all_iterations(&mut finished(1, &format!("trace={file}"), &KEEP_ALL));
    assert_eq!(rows.len(), 2);
    assert_eq!((rows[0].num_new_active_requests, rows[0].num_active_requests), (1, 1));
    assert_eq!((rows[1].num_new_active_requests, rows[1].num_active_requests), (1, 0));
}

#[cfg(sim_since = "0.11")]
#[test]
fn latency_is_zero_in_the_first_record_after_idle_and_includes_the_wait_in_the_second() {
    let rows = with_idle_period("latency.trace");
    let first = position_of_flush(&rows) + 1;
    assert_eq!(rows[first].iter_latency_ms, 0.0);
    assert!(rows[first + 1].iter_latency_ms > 0.99 * PAUSE_S * 1e3);
    assert!(rows[first + 2].iter_latency_ms < 100.0);
}

#[cfg(sim_since = "0.11")]
#[test]
fn latency_is_that_of_the_previous_batch() {
    let file = trace("before.trace", &[(0.0, 2000, 5)]);
    let rows = all_iterations(&mut finished(1, &format!("trace={file}&jitter=0&ctx_token_us=1000"), &KEEP_ALL));
    assert_eq!((rows[0].inflight_num_ctx_tokens, rows[0].iter_latency_ms), (2000, 0.0));
    assert!((rows[1].iter_latency_ms - 2008.0).abs() < 1e-6, "{}", rows[1].iter_latency_ms);
    assert!((rows[2].iter_latency_ms - 8.06).abs() < 1e-6, "{}", rows[2].iter_latency_ms);
}

#[test]
fn an_idle_engine_writes_no_records() {
    let mut engine = finished(5, "", &KEEP_ALL);
    let before = engine.truth().unwrap().records_pushed;
    assert_eq!(all_iterations(&mut engine).len() as u64, before);
    assert_eq!(engine.truth().unwrap().records_pushed, before);
}

#[cfg(sim_since = "1.0")]
#[test]
fn cache_counts_are_totals_since_the_start_of_the_engine() {
    let rows = all_iterations(&mut finished(200, "", &KEEP_ALL));
    let counts = |row: &IterationRow| {
        [row.kv_alloc_total_blocks, row.kv_alloc_new_blocks, row.kv_reused_blocks, row.kv_missed_blocks]
    };
    for pair in rows.windows(2) {
        let (before, after) = (counts(&pair[0]), counts(&pair[1]));
        assert!(before.iter().zip(after).all(|(before, after)| *before <= after), "{before:?} {after:?}");
    }
    let last = rows.last().unwrap();
    let rate = last.kv_reused_blocks as f32 / (last.kv_reused_blocks + last.kv_missed_blocks) as f32;
    assert_eq!(last.kv_cache_hit_rate, f64::from(rate));
    // The total includes allocations that displaced reusable content. Reused blocks do not count as allocated.
    assert!(last.kv_alloc_total_blocks > last.kv_alloc_new_blocks && last.kv_alloc_new_blocks > 0);
    assert!(last.kv_reused_blocks > 0);
}

#[cfg(sim_since = "0.13")]
#[test]
fn request_rows_of_a_flush_and_the_record_after_it_report_a_completion_once() {
    let file = trace("once.trace", &[(1.0, 100, 5), (1.0 + PAUSE_S, 100, 5)]);
    let mut engine = finished(2, &format!("trace={file}"), &engines::KEEP_ALL_REQUESTS);
    let completed: i64 = all_iterations(&mut engine).iter().map(|row| row.num_completed_requests).sum();
    let rows = engines::all_requests(&mut engine);
    let complete = rows.iter().filter(|row| row.stage == COMPLETE).count();
    assert_eq!((completed, complete), (3, 2));
}
