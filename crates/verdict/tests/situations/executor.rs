//! Waits of the C++ Executor that no limit and no reserved block explains. Records are made by hand, because the simulated engine
//! has no such waits.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trtllm_analysis::ObservedEngine;
use trtllm_analysis::window::{Mark, Window};
use trtllm_fold::EngineState;
use trtllm_records::IterationStats;
use trtllm_verdict::cause::Cause;
use trtllm_verdict::input::{EngineFacts, VerdictInput};
use trtllm_verdict::judge::judge;

/// The cause after two minutes of iterations of 50 ms.
fn cause(record: impl Fn(u64) -> Value) -> Cause {
    let (mut fold, mut window, start) =
        (ObservedEngine::new(Duration::from_secs(15)), Window::default(), Instant::now());
    for iter in 0..2400_u64 {
        let mut value = record(iter);
        let at_us = 1_760_000_000_000_000 + iter as i64 * 50_000;
        value["iter"] = iter.into();
        value["iterLatencyMS"] = 50.0.into();
        value["maxNumActiveRequests"] = 64.into();
        value["kvCacheStats"] =
            json!({"maxNumBlocks": 1000, "usedNumBlocks": 90, "freeNumBlocks": 910, "tokensPerBlock": 32});
        value["timestamp"] = "10-09-2025 08:00:00.000000".into();
        let record: IterationStats = serde_json::from_value(value).unwrap();
        let _ = fold.absorb(&record, start + Duration::from_millis(50 * iter), at_us);
        if iter.is_multiple_of(100) {
            window.push(Mark::of(&fold, iter as f64 * 0.05));
        }
    }
    let facts = EngineFacts { state: EngineState::Busy, ..EngineFacts::default() };
    let input = VerdictInput::of(facts, &window, &[]).unwrap();
    assert!(input.waits(), "{:?}", input.queue_time());
    judge(&input, 120.0).unwrap().cause
}

/// `active` requests, `batch` of them scheduled, and `queued` more. `begins`: prompts in this batch; `ended`: requests that ended before it.
fn record(active: u64, batch: u64, queued: u64, begins: u64, ended: u64) -> Value {
    json!({
        "numActiveRequests": active, "numQueuedRequests": queued, "numNewActiveRequests": begins, "numCompletedRequests": ended,
        "staticBatchingStats": null,
        "inflightBatchingStats": {
            "numScheduledRequests": batch, "numContextRequests": begins, "numGenRequests": batch - begins, "numPausedRequests": 0,
            "numCtxTokens": 100 * begins, "microBatchId": 0, "avgNumDecodedTokensPerIter": 1.0,
        },
    })
}

#[test]
fn a_queue_that_waits_for_another_beam_width_is_no_reservation() {
    // Ten requests run for 40 iterations. Meanwhile the queue's head has another beam width, and takes no seat.
    let found = cause(|iter| match iter % 40 {
        0 => record(10, 10, 20, 10, 10),
        _ => record(10, 10, 20, 0, 0),
    });
    assert_ne!(found, Cause::KvReservation);
}

#[test]
fn a_request_that_waits_for_the_blocks_of_an_equal_prompt_is_no_reservation() {
    // A held request begins when the prompt of another one is computed, whether or not a request ends.
    let found = cause(|iter| match iter % 10 {
        0 => record(20, 15, 0, 1, u64::from(iter % 40 == 0)),
        _ => record(20, 15, 0, 0, 0),
    });
    assert_ne!(found, Cause::KvReservation);
}

#[test]
fn a_request_that_waits_until_another_one_ends_is_a_reservation() {
    let found = cause(|iter| match iter % 10 {
        0 => record(20, 15, 0, 1, 1),
        _ => record(20, 15, 0, 0, 0),
    });
    assert_eq!(found, Cause::KvReservation);
}
