//! Tests the simulated engine: the same seed gives the same records, and the records are consistent.

#![cfg(simulated_sdk)]
// Clippy allows unwrap and panic in #[test] functions, but not in the functions that they call.
#![allow(clippy::unwrap_used, clippy::panic)]

mod engines;

use engines::{
    COMPLETE, IterationRow, KEEP_ALL, KEEP_ALL_REQUESTS, all_iterations, all_requests, finished, trace, wait_until,
    without_time,
};
use std::collections::HashMap;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};
use trtllm_bridge::Executor;

fn sum(rows: &[IterationRow], value: impl Fn(&IterationRow) -> i64) -> u64 {
    rows.iter().map(|row| u64::try_from(value(row)).unwrap()).sum()
}

#[test]
fn the_records_do_not_depend_on_the_speed() {
    let run = |speed: &str| {
        let engine = Executor::open(&format!("sim:?requests=20&speed={speed}"), &KEEP_ALL);
        let mut engine = engine.unwrap();
        wait_until(&engine, |truth| truth.idle && truth.requests_completed == 20);
        without_time(all_iterations(&mut engine))
    };
    assert_eq!(run("max"), run("50"));
}

#[test]
fn sums_over_the_records_equal_the_truth_without_repetitions() {
    for options in ["", "kv_blocks=150&policy=max_utilization", "max_num_tokens=256", "rate=2", "max_batch_size=3"] {
        let mut engine = finished(200, options, &KEEP_ALL);
        let truth = engine.truth().unwrap();
        let rows = all_iterations(&mut engine);
        let busy: Vec<_> = rows.iter().copied().filter(|row| row.num_active_requests > 0).collect();
        assert_eq!(rows.len() as u64, truth.iterations + truth.flushes);
        if cfg!(sim_since = "0.15") {
            assert_eq!(sum(&busy, |row| row.num_new_active_requests), truth.requests_started);
        }
        assert_eq!(sum(&rows, |row| row.inflight_num_ctx_tokens), truth.context_tokens);
        assert_eq!(sum(&rows, |row| row.inflight_num_gen_requests), truth.generation_tokens);
        assert_eq!(sum(&rows, |row| row.inflight_num_paused_requests), truth.pauses);
        let mut completed = sum(&rows, |row| row.num_completed_requests);
        for pair in rows.windows(2).filter(|pair| pair[0].iter == pair[1].iter) {
            completed -= pair[1].num_completed_requests as u64;
        }
        if cfg!(sim_since = "0.13") {
            assert_eq!(completed, truth.requests_completed);
        }
        assert_eq!(truth.records_lost, 0);
    }
}

#[test]
fn limits_and_the_cache_are_never_exceeded() {
    let options = "rate=100&max_batch_size=16&max_num_tokens=300&kv_blocks=120&policy=max_utilization";
    for row in all_iterations(&mut finished(200, options, &KEEP_ALL)) {
        assert!(row.inflight_num_scheduled_requests <= 16 && row.num_active_requests <= row.max_num_active_requests);
        assert!(row.inflight_num_ctx_tokens + row.inflight_num_gen_requests <= 300);
        assert_eq!(row.kv_used_num_blocks + row.kv_free_num_blocks, 120);
        assert!(row.kv_used_num_blocks >= 0 && row.kv_free_num_blocks >= 0);
        let parts = row.inflight_num_context_requests + row.inflight_num_gen_requests;
        assert_eq!(row.inflight_num_scheduled_requests, parts);
    }
}

#[test]
fn an_excessive_load_waits_outside_the_engine() {
    let loads = [("", 64 + 256), ("max_batch_size=8", 8 + 256), ("in_flight=20", 20), ("in_flight=1", 1)];
    for (options, most) in loads {
        let overload = format!("rate=5000&output_mean=5&{options}");
        let mut engine = finished(1000, &overload, &KEEP_ALL_REQUESTS);
        // No request is lost: the engine serves the whole load, only later.
        assert_eq!(engine.truth().unwrap().requests_arrived, 1000);
        let rows = all_requests(&mut engine);
        let waiting = rows.iter().filter(|row| row.stage != COMPLETE);
        let mut in_flight = HashMap::new();
        waiting.for_each(|row| *in_flight.entry(row.iteration).or_insert(0) += 1);
        assert_eq!(in_flight.values().max(), Some(&most), "{options}");
        if cfg!(sim_since = "0.11") {
            let reported =
                all_iterations(&mut engine).iter().map(|row| row.num_active_requests + row.num_queued_requests).max();
            assert_eq!(reported, Some(most), "{options}");
        }
    }
}

#[test]
fn the_limit_in_flight_changes_only_the_queue() {
    let without_queue = |in_flight: u32| {
        let overload = format!("rate=60&in_flight={in_flight}");
        let rows = without_time(all_iterations(&mut finished(400, &overload, &KEEP_ALL)));
        let without = |row| IterationRow { num_queued_requests: 0, new_active_requests_queue_latency_ms: 0.0, ..row };
        rows.into_iter().map(without).collect::<Vec<_>>()
    };
    assert_eq!(without_queue(100), without_queue(1_000_000));
}

#[cfg(sim_since = "0.13")]
#[test]
fn queue_time_does_not_include_the_wait_outside_the_engine() {
    let rows = all_iterations(&mut finished(200, "rate=5000&max_batch_size=8&in_flight=8", &KEEP_ALL));
    // From the second iteration on, more requests wait outside the engine than fit into it. So an admitted request
    // joins the batch immediately.
    assert!(rows.iter().skip(2).all(|row| row.new_active_requests_queue_latency_ms == 0.0));
}

#[test]
fn a_record_has_either_in_flight_or_static_statistics() {
    let inflight = all_iterations(&mut finished(20, "", &KEEP_ALL));
    assert!(inflight.iter().all(|row| row.has_inflight && !row.has_static));
    let mut engine = finished(50, "batching=static&rate=50", &KEEP_ALL);
    let truth = engine.truth().unwrap();
    let fixed = all_iterations(&mut engine);
    // Later releases have static batching as a policy of the in-flight scheduler.
    let is_static = !cfg!(sim_since = "1.0");
    assert!(fixed.iter().all(|row| row.has_static == is_static && row.has_inflight != is_static));
    if is_static {
        assert!(fixed.iter().any(|row| row.static_empty_gen_slots > 0));
        // The tokens that the requests of a batch may have at most.
        assert!(sum(&fixed, |row| row.static_num_gen_tokens) >= truth.generation_tokens);
    }
}

#[test]
fn a_trace_is_replayed_request_by_request() {
    let file = trace("replay.trace", &[(0.5, 64, 3), (0.0, 32, 2)]);
    let mut engine = finished(2, &format!("trace={file}&prefix_share=0"), &KEEP_ALL);
    let truth = engine.truth().unwrap();
    assert_eq!((truth.context_tokens, truth.first_tokens, truth.generation_tokens), (96, 2, 3));
    assert_eq!(all_iterations(&mut engine)[0].inflight_num_ctx_tokens, 32);
}

#[test]
fn timestamps_are_in_local_time() {
    let offset_s = {
        let zone = String::from_utf8(Command::new("date").arg("+%z").output().unwrap().stdout).unwrap();
        let number: i64 = zone.trim().parse().unwrap();
        (number / 100 * 60 + number % 100) * 60
    };
    let mut engine = finished(5, "", &KEEP_ALL);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    for row in all_iterations(&mut engine) {
        // Format: "07-25-2025 16:54:34.140189".
        let text = std::str::from_utf8(&row.timestamp).unwrap();
        let number = |at: usize| text[at..at + 2].parse::<i64>().unwrap();
        let second = (number(11) * 60 + number(14)) * 60 + number(17);
        // The engine ran a few seconds ago at most.
        let late = (now + offset_s - second).rem_euclid(86_400);
        assert!(late <= 5, "{text}");
        let day = Command::new("date").args(["-u", &format!("-d@{}", now + offset_s - late), "+%m-%d-%Y"]).output();
        assert_eq!(text[..10], *String::from_utf8(day.unwrap().stdout).unwrap().trim());
    }
}

#[test]
fn timestamps_are_in_local_time_in_a_zone_other_than_utc() {
    let here = std::env::current_exe().unwrap();
    let run = Command::new(here).env("TZ", "XST-5:30").args(["--exact", "timestamps_are_in_local_time"]).output();
    let run = run.unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
}
