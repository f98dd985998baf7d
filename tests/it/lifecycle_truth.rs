//! Compares latencies that are derived from request rows (`requestStats`) with the exact times of the simulated engine.
//! The derived latencies may be too long by at most one iteration, and never too short.

use std::time::{Duration, Instant};

use trtllm_analysis::ObservedEngine;
use trtllm_bridge::{
    Executor, ExecutorOptions, FinishedRequest, RequestStatsPerIteration as SharedRequests, SyntheticLoad,
};
use trtllm_fold::histogram::Histogram;
use trtllm_fold::request_totals::RequestSource;
use trtllm_records::perf_metrics::TimingMetrics;
use trtllm_records::{IterationStats, PerfMetricsEntry, RecordTime, RequestStatsPerIteration};
use trtllm_sources::executor::records;

const KEEP_ALL: ExecutorOptions =
    ExecutorOptions { iter_stats_max_iterations: 1_000_000, request_stats_max_iterations: 1_000_000 };

/// The records and request rows of an engine, and the exact times of its requests.
#[derive(Default)]
struct Served {
    iterations: Vec<IterationStats>,
    requests: Vec<RequestStatsPerIteration>,
    finished: Vec<PerfMetricsEntry>,
    /// Time of the engine's clock after its last batch, in milliseconds.
    ended_ms: f64,
}

/// Repeats [`served_once`] until the engine was idle only at the end. So no latency contains a wait for work.
fn served(engine: &str, load: &SyntheticLoad) -> Served {
    for _ in 0..50 {
        let served = served_once(engine, load);
        if served.iterations.iter().filter(|record| is_flush(record)).count() == 1 {
            return served;
        }
    }
    panic!("the engine is idle again and again: the load comes too slowly");
}

fn served_once(engine: &str, load: &SyntheticLoad) -> Served {
    let mut executor = Executor::open(engine, &KEEP_ALL).unwrap();
    executor.start_load(load).unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    let (mut served, mut ended) = (Served::default(), vec![FinishedRequest::default(); 64]);
    while served.finished.len() < load.requests.unwrap() as usize || !executor.truth().unwrap().idle {
        assert!(Instant::now() < deadline, "{} requests ended", served.finished.len());
        std::thread::sleep(Duration::from_millis(5));
        let count = executor.drain_finished(&mut ended).unwrap();
        served.finished.extend(ended[..count].iter().map(records::finished));
    }
    served.ended_ms = executor.truth().unwrap().virtual_time_ms;
    let mut drained =
        vec![trtllm_bridge::IterationStats::default(); executor.truth().unwrap().records_pushed as usize + 1];
    let count = executor.drain_iterations(&mut drained).unwrap();
    // The engine counts iterations from 0. Add 1, so that `fold` can insert a record with number 0 before the first.
    let later = |iter: Option<u64>| iter.map(|iter| iter + 1);
    let records = drained[..count].iter().map(records::iteration);
    served.iterations = records.map(|record| IterationStats { iter: later(record.iter), ..record }).collect();
    let mut requests = SharedRequests::default();
    while executor.next_requests(&mut requests).unwrap() {
        let requests = records::requests(&requests);
        served.requests.push(RequestStatsPerIteration { iter: later(requests.iter), ..requests });
    }
    served
}

fn is_flush(record: &IterationStats) -> bool {
    record.num_active_requests == Some(0) && record.iter_latency_ms == Some(0.0)
}

/// Sets the timestamp of a record. The engine runs as fast as it can, so the wall clock does not measure its requests.
/// The test uses the sum of the previous latencies instead: the engine writes a record when the previous batch has
/// ended and the batch of the record has started.
fn at(record: &IterationStats, micros: i64) -> IterationStats {
    IterationStats { timestamp: Some(RecordTime { micros, zoned: true }), ..record.clone() }
}

fn fold(Served { iterations, requests, ended_ms, .. }: &Served) -> (ObservedEngine, f64) {
    let now = Instant::now();
    let mut engine = ObservedEngine::new(Duration::from_secs(3600));
    let (mut end_ms, mut longest_ms, mut requests) = (0.0, 0.0_f64, requests.iter().peekable());
    // A record before the engine's first one shows that the exporter started before the first request.
    let before = IterationStats { iter: Some(0), ..IterationStats::default() };
    let no_requests = |iter| RequestStatsPerIteration { iter, request_stats: Some(Vec::new()) };
    engine.absorb(&at(&before, 0), now, 0).unwrap();
    engine.absorb_requests(&no_requests(before.iter), now).unwrap();
    for record in iterations {
        // The latency of the previous batch. The last record (flush record) follows the last batch and has latency 0.
        let before_ms = if is_flush(record) { ended_ms - end_ms } else { record.iter_latency_ms.unwrap_or(0.0) };
        end_ms += before_ms;
        longest_ms = longest_ms.max(before_ms);
        engine.absorb(&at(record, (end_ms * 1000.0) as i64), now, 0).unwrap();
        match requests.next_if(|requests| requests.iter == record.iter) {
            Some(of_this) => engine.absorb_requests(of_this, now).unwrap(),
            None => engine.absorb_requests(&no_requests(record.iter), now).unwrap(),
        }
    }
    assert!(requests.peek().is_none(), "{} groups of rows belong to no record", requests.count());
    engine.settle(false, now + Duration::from_secs(60));
    (engine, longest_ms / 1000.0)
}

/// Checks that each bucket count is possible if every time is at most one iteration longer than the exact time, or at
/// most `shorter` seconds shorter.
fn at_most_one_iteration_longer(name: &str, shown: &Histogram, truth: &[f64], iteration: f64, shorter: f64) {
    assert_eq!(shown.count() as usize, truth.len(), "{name}");
    let at_most = |limit: f64| truth.iter().filter(|seconds| **seconds <= limit).count() as u64;
    for (bound, count) in shown.cumulative() {
        let (least, most) = (at_most(bound.value - iteration), at_most(bound.value + shorter));
        assert!(
            (least..=most).contains(&count),
            "{name} le={}: {count} requests, by their own times {} (between {least} and {most})",
            bound.text,
            at_most(bound.value)
        );
    }
    let mean = |sum: f64| sum / truth.len() as f64;
    let (shown, truth) = (mean(shown.sum()), mean(truth.iter().sum()));
    let range = truth - shorter..=truth + iteration;
    assert!(range.contains(&shown), "{name}: a mean of {shown} s, by their own times {truth} s");
    println!("{name}: {shown:.4} s, true {truth:.4} s, one iteration at most {iteration:.4} s");
}

fn latencies_are_right(engine: &str, load: &SyntheticLoad) {
    let served = served(engine, load);
    let (engine, iteration) = fold(&served);
    let totals = &engine.fold.requests.totals;
    assert_eq!((totals.source, engine.fold.totals.losses.lost), (Some(RequestSource::Rows), 0));
    let times = &totals.times;
    assert_eq!(served.finished.len() as u64, load.requests.unwrap());
    let timing = |entry: &PerfMetricsEntry| entry.perf_metrics.as_ref().unwrap().timing_metrics.unwrap();
    let between = |from: fn(&TimingMetrics) -> Option<f64>, to: fn(&TimingMetrics) -> Option<f64>| -> Vec<f64> {
        served.finished.iter().map(|entry| to(&timing(entry)).unwrap() - from(&timing(entry)).unwrap()).collect()
    };
    let arrival = |times: &TimingMetrics| times.arrival_time;
    let scheduled = |times: &TimingMetrics| times.first_scheduled_time;
    let first_token = |times: &TimingMetrics| times.first_token_time;
    let last_token = |times: &TimingMetrics| times.last_token_time;
    for (name, histogram, truth) in [
        ("time to first token", &times.time_to_first_token, between(arrival, first_token)),
        ("end to end", &times.e2e_latency, between(arrival, last_token)),
        ("queue", &times.queue_time, between(arrival, scheduled)),
        ("prefill", &times.prefill_time, between(scheduled, first_token)),
        ("decode", &times.decode_time, between(first_token, last_token)),
        ("inference", &times.inference_time, between(scheduled, last_token)),
    ] {
        // Times are rounded to whole microseconds.
        at_most_one_iteration_longer(name, histogram, &truth, iteration, 1e-5);
    }
    let per_token: Vec<f64> = between(first_token, last_token)
        .iter()
        .zip(&served.finished)
        .map(|(seconds, entry)| seconds / (entry.output_tokens.unwrap() - 1) as f64)
        .collect();
    at_most_one_iteration_longer("per token", &times.time_per_output_token, &per_token, iteration, 1e-5);
}

#[test]
fn latencies_of_many_short_requests_are_within_one_iteration_of_the_true_ones() {
    let load = SyntheticLoad { in_flight: 400, prompt_tokens: 300, output_tokens: 40, requests: Some(400) };
    latencies_are_right("sim:?speed=max&rate=0&max_batch_size=16", &load);
}

#[test]
fn latencies_of_prompts_in_several_chunks_are_within_one_iteration_of_the_true_ones() {
    let load = SyntheticLoad { in_flight: 200, prompt_tokens: 3000, output_tokens: 25, requests: Some(200) };
    latencies_are_right("sim:?speed=max&rate=0&max_batch_size=16", &load);
}
