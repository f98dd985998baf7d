//! Disaggregated serving: slow batches of a generation server are no slow transfers, and what an orchestrator's lines tell alone.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trtllm_analysis::ObservedEngine;
use trtllm_analysis::window::{Mark, SLOT_SECONDS, Window};
use trtllm_fold::EngineState;
use trtllm_records::{Objectives, PerfMetricsEntry};
use trtllm_sim::Config;
use trtllm_sim::config::{CacheManager, Era, Release, Role};
use trtllm_sim::load::{Arrivals, Length};
use trtllm_verdict::cause::Cause;
use trtllm_verdict::input::{EngineFacts, Notices, VerdictInput};
use trtllm_verdict::judge::judge;

use crate::play::Play;

/// The cause on a generation server, with the seconds of a batch without work and of a transfer.
fn cause_on_generation_server(overlap: bool, batch: f64, transfer: f64) -> Cause {
    let release = Release::PyTorch { era: Era::Frames, cache: CacheManager::V2 };
    let mut config = Config { release, role: Role::GenerationOnly, keeps_requests: true, ..Config::default() };
    config.costs.overlap = overlap;
    config.costs.base = batch;
    config.load.arrivals = Arrivals::Poisson { rate: 4.0 };
    config.load.output = Length::Fixed(40);
    (config.transfer.seconds, config.transfer.bytes_per_second) = (transfer, 1e12);
    let mut play = Play::new(&config, 7);
    play.until(150.0);
    let transfers = play.window.last().unwrap().distributions.transfer;
    assert!(transfers.count > 300.0, "the entries tell the transfers");
    play.verdicts.cause().unwrap_or(Cause::None)
}

#[test]
fn slow_batches_of_a_generation_server_are_no_slow_transfers() {
    for overlap in [true, false] {
        for batch in [0.02, 0.06, 0.09] {
            assert_ne!(cause_on_generation_server(overlap, batch, 0.01), Cause::Transfer, "{overlap}, {batch} s");
            assert_eq!(cause_on_generation_server(overlap, batch, 0.2), Cause::Transfer, "{overlap}, {batch} s");
        }
    }
}

/// The seconds of each part of a request, and whether it is streamed.
#[derive(Clone, Copy)]
struct Parts {
    context: f64,
    queue: f64,
    transfer: f64,
    decode: f64,
    is_streamed: bool,
}

const HEALTHY: Parts = Parts { context: 0.3, queue: 0.005, transfer: 0.02, decode: 5.0, is_streamed: true };

/// A line of the orchestrator, as upstream writes it: the client's first token is sent when the generation server schedules the
/// request. No line has a record beside it.
fn line(at: f64, parts: Parts) -> Value {
    let context = at + 0.002 + parts.context;
    let handed_over = context + 0.005;
    let scheduled = handed_over + parts.queue + parts.transfer;
    let (first, last) = (scheduled + 0.025, scheduled + parts.decode);
    let seen = if parts.is_streamed { scheduled + 0.001 } else { last + 0.002 };
    let part = |timing: Value| json!({"request_id": 1, "perf_metrics": {"timing_metrics": timing}});
    json!({
        "ctx_server": "a:1", "gen_server": "b:1", "status": "complete",
        "disagg_server_arrival_time": at, "disagg_server_first_token_time": seen,
        "ctx_perf_metrics": part(json!({
            "server_arrival_time": at + 0.001, "arrival_time": at + 0.002, "first_scheduled_time": at + 0.004,
            "first_token_time": context, "last_token_time": context, "server_first_token_time": context + 0.001,
            "kv_cache_transfer_start": context,
        })),
        "gen_perf_metrics": part(json!({
            "server_arrival_time": handed_over, "arrival_time": handed_over, "first_scheduled_time": scheduled,
            "first_token_time": first, "last_token_time": last, "server_first_token_time": seen,
            "kv_cache_transfer_start": scheduled - parts.transfer, "kv_cache_transfer_end": scheduled,
        })),
    })
}

/// The cause, and the share of the requests that miss a time to the first token of 500 ms.
fn told_by_lines(parts: Parts) -> (Cause, f64) {
    let objectives = Objectives { ttft: Some(Duration::from_millis(500)), ..Objectives::default() };
    let mut fold = ObservedEngine::new(Duration::from_secs(15)).with_objectives(objectives);
    let (mut window, start) = (Window::default(), Instant::now());
    window.push(Mark::of(&fold, 0.0));
    for slot in 1..=20 {
        let now = f64::from(slot) * SLOT_SECONDS;
        for request in 0..20 {
            let entry: PerfMetricsEntry =
                serde_json::from_value(line(1000.0 + now + f64::from(request) * 0.25, parts)).unwrap();
            fold.absorb_perf_metrics(&entry, start + Duration::from_secs_f64(now)).unwrap();
        }
        fold.settle(false, start + Duration::from_secs_f64(now));
        window.push(Mark::of(&fold, now));
    }
    let notices = Notices { only_requests: true, ..Notices::default() };
    let facts = EngineFacts { state: EngineState::Busy, notices, is_pytorch: true, ..EngineFacts::default() };
    let input = VerdictInput::of(facts, &window, &[]).unwrap();
    let missed = input.now.counts.ttft.missed_share().unwrap();
    (judge(&input, 120.0).map_or(Cause::None, |verdict| verdict.cause), missed)
}

#[test]
fn lines_of_an_orchestrator_tell_what_delays_the_first_token() {
    assert_eq!(told_by_lines(HEALTHY), (Cause::None, 0.0));
    let full = Parts { queue: 3.0, ..HEALTHY };
    assert_eq!(told_by_lines(full), (Cause::GenerationQueue, 1.0), "neither the transfer nor the HTTP server");
    let slow = Parts { transfer: 0.6, ..HEALTHY };
    assert_eq!(told_by_lines(slow), (Cause::Transfer, 1.0));
    let long_prompts = Parts { context: 0.48, queue: 0.0, transfer: 0.001, ..HEALTHY };
    assert_eq!(told_by_lines(long_prompts), (Cause::None, 0.0), "the context server computes");
}

#[test]
fn requests_that_are_not_streamed_have_no_cause_on_a_healthy_deployment() {
    let whole = Parts { is_streamed: false, ..HEALTHY };
    assert_eq!(told_by_lines(whole), (Cause::None, 0.0));
    let full = Parts { queue: 3.0, ..whole };
    assert_eq!(told_by_lines(full), (Cause::GenerationQueue, 1.0));
}

#[test]
fn batch_jobs_without_streaming_have_no_cause_on_a_healthy_engine() {
    for nonstream_share in [1.0, 0.0] {
        let release = Release::PyTorch { era: Era::Frames, cache: CacheManager::V2 };
        let mut config = Config { release, keeps_requests: true, ..Config::default() };
        config.load.nonstream_share = nonstream_share;
        config.load.output = Length::Fixed(600);
        config.load.arrivals = Arrivals::Poisson { rate: 2.0 };
        let mut play = Play::new(&config, 11);
        play.until(150.0);
        let distributions = play.window.last().unwrap().distributions;
        assert!(distributions.e2e.mean().unwrap() > 4.0 && distributions.ttft.count > 100.0, "{nonstream_share}");
        // The server stamps the first token of a whole answer when it has all of it.
        assert_eq!(distributions.server_ttft.count > 0.0, nonstream_share < 1.0, "{nonstream_share}");
        let told: Vec<_> = play.history.iter().filter(|(_, cause, _)| *cause != Cause::None).collect();
        assert!(told.is_empty(), "{nonstream_share}: {told:?}");
    }
}
