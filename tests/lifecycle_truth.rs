//! Compares latencies that are derived from request rows with the exact times of the simulated engine. They may differ by
//! at most one iteration.
#![cfg(feature = "executor")]
// A test fails by a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::time::{Duration, Instant};

use trtllm_bridge::{
    BatchingType, Executor, ExecutorOptions, HostOptions, IterationRow, Load, PerfRow, RequestRow,
    RequestStage as Stage,
};
use trtllm_exporter::engine::Engine;
use trtllm_exporter::engine::histogram::Histogram;
use trtllm_exporter::engine::requests::LatencySource;
use trtllm_exporter::model::iteration::InflightBatchingStats;
use trtllm_exporter::model::request::{RequestStage, RequestStats};
use trtllm_exporter::model::{IterationStats, RecordTime, RequestStatsPerIteration};

const KEEP_ALL: ExecutorOptions =
    ExecutorOptions { iter_stats_max_iterations: 1_000_000, request_stats_max_iterations: 1_000_000 };

/// Like [`served_once`], with an engine that was never idle: no record has the duration of a pass before an idle time.
fn served(engine: &str, options: &HostOptions, load: &Load) -> (Vec<IterationRow>, Vec<RequestRow>, Vec<PerfRow>) {
    for _ in 0..50 {
        let (iterations, requests, perf) = served_once(engine, options, load);
        if iterations.iter().filter(|row| is_flush(row)).count() == 1 {
            return (iterations, requests, perf);
        }
    }
    panic!("the engine is idle again and again: the load comes too slowly");
}

/// The rows of an engine that served `load`, and its exact times of each request.
fn served_once(engine: &str, options: &HostOptions, load: &Load) -> (Vec<IterationRow>, Vec<RequestRow>, Vec<PerfRow>) {
    let mut executor = Executor::open_with(engine, options).unwrap();
    executor.start_load(load).unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while executor.load_progress().finished < load.requests.unwrap() || !executor.truth().unwrap().idle {
        assert!(Instant::now() < deadline, "{:?}", executor.load_progress());
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut iterations = all(|rows| executor.drain_iterations(rows).unwrap());
    let mut requests = all(|rows| executor.drain_requests(rows).unwrap());
    // The engine counts from 0. Number 0 is left free for a record before the first one.
    iterations.iter_mut().for_each(|row| row.iter += 1);
    requests.iter_mut().for_each(|row| row.iter += 1);
    let perf = all(|rows| executor.drain_perf_metrics(rows).unwrap());
    (iterations, requests, perf)
}

fn all<Row: Default + Clone>(mut drain: impl FnMut(&mut [Row]) -> usize) -> Vec<Row> {
    let (mut found, mut part) = (Vec::new(), vec![Row::default(); 4096]);
    loop {
        let count = drain(&mut part);
        found.extend_from_slice(&part[..count]);
        if count < part.len() {
            return found;
        }
    }
}

fn is_flush(row: &IterationRow) -> bool {
    row.num_active_requests == 0 && row.iter_latency_ms == 0.0
}

/// Converts a row like the exporter's own source. The engine runs as fast as it can, so its wall clock does not measure its
/// requests. `end_us` is the sum of its latencies. Each record has the latency of the previous pass.
fn record(row: &IterationRow, end_us: i64) -> IterationStats {
    IterationStats {
        timestamp: Some(RecordTime { micros: end_us, zoned: true }),
        iter: Some(row.iter),
        iter_latency_ms: Some(row.iter_latency_ms),
        num_active_requests: Some(row.num_active_requests.into()),
        num_queued_requests: Some(row.num_queued_requests.into()),
        num_completed_requests: Some(row.num_completed_requests.into()),
        inflight_batching_stats: Some(InflightBatchingStats {
            num_scheduled_requests: Some(row.inflight_num_scheduled_requests.into()),
            ..InflightBatchingStats::default()
        }),
        ..IterationStats::default()
    }
}

fn request(row: &RequestRow) -> RequestStats {
    RequestStats {
        id: Some(row.id),
        stage: Some(match row.request_stage() {
            Some(Stage::Queued) => RequestStage::Queued,
            Some(Stage::ContextInProgress) => RequestStage::Context,
            Some(Stage::GenerationInProgress) => RequestStage::Generation,
            Some(Stage::GenerationComplete) => RequestStage::Complete,
            other => panic!("{other:?}"),
        }),
        num_generated_tokens: Some(row.num_generated_tokens.into()),
        scheduled: Some(row.scheduled),
        paused: Some(row.paused),
        ..RequestStats::default()
    }
}

fn fold(iterations: &[IterationRow], requests: &[RequestRow]) -> (Engine, f64) {
    let now = Instant::now();
    let mut engine = Engine::new(Duration::from_secs(3600));
    let (mut end_ms, mut longest_ms, mut rows) = (0.0, 0.0_f64, requests);
    // The exporter was started before the first request.
    let before = IterationRow { iter: iterations[0].iter - 1, ..IterationRow::default() };
    engine.absorb(&record(&before, 0), now, 0).unwrap();
    engine
        .absorb_requests(&RequestStatsPerIteration { iter: Some(before.iter), request_stats: Some(Vec::new()) }, now)
        .unwrap();
    for (at, row) in iterations.iter().enumerate() {
        // The next record has the duration of this pass.
        let own = iterations.get(at + 1).map_or(0.0, |next| next.iter_latency_ms);
        if !is_flush(row) {
            end_ms += own;
            longest_ms = longest_ms.max(own);
        }
        engine.absorb(&record(row, (end_ms * 1000.0) as i64), now, 0).unwrap();
        let of_this: usize = rows.iter().take_while(|request| request.iter == row.iter).count();
        let (mine, rest) = rows.split_at(of_this);
        // The flush has the number of the next iteration. There is none after this load.
        rows = rest;
        let request_stats = Some(mine.iter().map(request).collect());
        engine.absorb_requests(&RequestStatsPerIteration { iter: Some(row.iter), request_stats }, now).unwrap();
    }
    assert!(rows.is_empty(), "{} rows belong to no record", rows.len());
    engine.settle(false, now + Duration::from_secs(60));
    (engine, longest_ms / 1000.0)
}

/// The count of each bucket is between the counts of the exact times with one iteration less and one more.
fn within_one_iteration(name: &str, shown: &Histogram, truth: &[f64], iteration: f64) {
    assert_eq!(shown.count() as usize, truth.len(), "{name}");
    let at_most = |limit: f64| truth.iter().filter(|seconds| **seconds <= limit).count() as u64;
    for (bound, count) in shown.cumulative() {
        let (least, most) = (at_most(bound.value - iteration), at_most(bound.value + iteration));
        assert!(
            (least..=most).contains(&count),
            "{name} le={}: {count} requests, by their own times {} (between {least} and {most})",
            bound.text,
            at_most(bound.value)
        );
    }
    let mean = |sum: f64| sum / truth.len() as f64;
    let (shown, truth) = (mean(shown.sum()), mean(truth.iter().sum()));
    assert!((shown - truth).abs() <= iteration, "{name}: a mean of {shown} s, by their own times {truth} s");
    println!("{name}: {shown:.4} s, true {truth:.4} s, one iteration at most {iteration:.4} s");
}

fn latencies_are_right(engine: &str, load: &Load) {
    let options = HostOptions {
        statistics: KEEP_ALL,
        batching_type: Some(BatchingType::Inflight),
        max_batch_size: Some(16),
        ..HostOptions::default()
    };
    let (iterations, requests, perf) = served(engine, &options, load);
    let (engine, iteration) = fold(&iterations, &requests);
    let totals = &engine.requests.totals;
    assert_eq!((totals.source, engine.totals.iterations_lost), (LatencySource::RequestStats, 0));
    let times = &totals.times;
    assert_eq!(perf.len() as u64, load.requests.unwrap());
    let of = |seconds: fn(&PerfRow) -> f64| perf.iter().map(seconds).collect::<Vec<f64>>();
    for (name, histogram, truth) in [
        ("time to first token", &times.time_to_first_token, of(|row| row.first_token_s - row.arrival_s)),
        ("end to end", &times.e2e_latency, of(|row| row.last_token_s - row.arrival_s)),
        ("queue", &times.queue_time, of(|row| row.first_scheduled_s - row.arrival_s)),
        ("prefill", &times.prefill_time, of(|row| row.first_token_s - row.first_scheduled_s)),
        ("decode", &times.decode_time, of(|row| row.last_token_s - row.first_token_s)),
        ("inference", &times.inference_time, of(|row| row.last_token_s - row.first_scheduled_s)),
    ] {
        within_one_iteration(name, histogram, &truth, iteration);
    }
    let per_token = of(|row| (row.last_token_s - row.first_token_s) / f64::from(row.output_tokens - 1));
    within_one_iteration("per token", &times.time_per_output_token, &per_token, iteration);
}

#[test]
fn latencies_of_many_short_requests_are_within_one_iteration_of_the_true_ones() {
    let load =
        Load { in_flight: 400, prompt_tokens: 300, shared_prefix_tokens: 64, output_tokens: 40, requests: Some(400) };
    latencies_are_right("sim:?speed=max&rate=0", &load);
}

#[test]
fn latencies_of_prompts_in_several_chunks_are_within_one_iteration_of_the_true_ones() {
    let load =
        Load { in_flight: 200, prompt_tokens: 3000, shared_prefix_tokens: 0, output_tokens: 25, requests: Some(200) };
    latencies_are_right("sim:?speed=max&rate=0", &load);
}
