//! Tests which requests the request statistics report, and when.

#![cfg(simulated_sdk)]

mod engines;

use engines::{
    COMPLETE, KEEP_ALL, KEEP_ALL_REQUESTS, QUEUED, RequestRow, all_iterations, all_requests, finished, next_requests,
};
use std::collections::HashMap;
use trtllm_bridge::ExecutorOptions;

#[cfg(sim_since = "0.11")]
#[test]
fn each_iteration_reports_all_active_and_queued_requests() {
    let mut engine = finished(100, "rate=100&max_batch_size=8", &KEEP_ALL_REQUESTS);
    let records = all_iterations(&mut engine);
    let mut reported: HashMap<u64, (i64, i64)> = HashMap::new();
    for row in all_requests(&mut engine) {
        let (active, queued) = reported.entry(row.iteration).or_default();
        match row.stage {
            QUEUED => *queued += 1,
            COMPLETE => {}
            _ => *active += 1,
        }
    }
    for record in records.iter().filter(|record| record.num_active_requests > 0) {
        assert_eq!(reported[&(record.iter as u64)], (record.num_active_requests, record.num_queued_requests));
    }
}

#[cfg(sim_since = "1.1")]
#[test]
fn the_row_of_a_completed_request_has_its_costs() {
    let rows = all_requests(&mut finished(100, "", &KEEP_ALL_REQUESTS));
    for row in rows.iter().filter(|row| row.stage == COMPLETE) {
        assert!(row.has_decoded && row.has_hit_rate);
        assert!(row.num_generated_tokens > 0 && row.context_prefill_position > 0);
        assert_eq!(row.avg_num_decoded_tokens_per_iter, 1.0);
        assert!(row.alloc_total_blocks >= row.alloc_new_blocks && row.alloc_total_blocks > 0);
        assert!(!row.has_transfer);
    }
}

#[cfg(sim_since = "0.15")]
#[test]
fn block_counts_of_completed_requests_sum_to_the_engines_counts() {
    let mut engine = finished(100, "kv_blocks=150&policy=max_utilization", &KEEP_ALL_REQUESTS);
    let last = *all_iterations(&mut engine).last().unwrap();
    let rows = all_requests(&mut engine);
    let complete = rows.iter().filter(|row| row.stage == COMPLETE);
    let sums =
        complete.fold((0, 0), |(total, reused), row| (total + row.alloc_total_blocks, reused + row.reused_blocks));
    assert_eq!(sums, (last.kv_alloc_total_blocks, last.kv_reused_blocks));
}

#[test]
fn paused_requests_are_marked() {
    let rows = all_requests(&mut finished(100, "rate=50&kv_blocks=60&policy=max_utilization", &KEEP_ALL_REQUESTS));
    assert!(rows.iter().any(|row| row.paused == 1 && row.scheduled == 0));
    assert!(rows.iter().all(|row| row.paused + row.scheduled < 2));
}

#[cfg(sim_since = "0.15")]
#[test]
fn disaggregated_serving_reports_the_transfer_of_the_cache() {
    let rows = all_requests(&mut finished(20, "disagg=1", &KEEP_ALL_REQUESTS));
    for row in rows.iter().filter(|row| row.stage == COMPLETE) {
        assert!(row.kv_cache_transfer_ms > 0.0);
        assert_eq!(row.kv_cache_size > 0, cfg!(sim_since = "1.1"));
    }
}

#[test]
fn request_statistics_are_disabled_by_default() {
    let mut engine = finished(20, "", &KEEP_ALL);
    assert_eq!(all_requests(&mut engine), []);
}

#[test]
fn each_iteration_of_the_ring_is_returned_once_and_by_itself() {
    let mut engine = finished(20, "rate=50", &KEEP_ALL_REQUESTS);
    let written = engine.truth().unwrap().request_records_pushed;
    let iterations: Vec<Vec<RequestRow>> = std::iter::from_fn(|| next_requests(&mut engine)).collect();
    assert_eq!(iterations.len() as u64, written);
    for rows in iterations {
        let ids: std::collections::HashSet<i64> = rows.iter().map(|row| row.id).collect();
        assert_eq!(ids.len(), rows.len());
    }
}

#[test]
fn a_full_ring_drops_the_rows_of_whole_iterations() {
    let small = ExecutorOptions { request_stats_max_iterations: 5, ..KEEP_ALL };
    let mut engine = finished(50, "", &small);
    let truth = engine.truth().unwrap();
    assert_eq!(truth.request_records_lost, truth.request_records_pushed - 5);
    let mut iterations: Vec<u64> = all_requests(&mut engine).iter().map(|row| row.iteration).collect();
    iterations.dedup();
    assert_eq!(iterations.len(), 5);
}
