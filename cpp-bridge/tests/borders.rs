//! Tests that failures of the engine become errors in Rust, and never crash the process.

#![cfg(simulated_sdk)]
// Clippy allows unwrap and panic in #[test] functions, but not in the functions that they call.
#![allow(clippy::unwrap_used)]

mod engines;

use engines::{KEEP_ALL, all_finished, drain_some, finished, wait_until};
use std::sync::{Arc, Barrier, Mutex};
use trtllm_bridge::{BridgeError, Executor, RequestStatsPerIteration, SyntheticLoad};

const LOAD: SyntheticLoad = SyntheticLoad { in_flight: 4, prompt_tokens: 50, output_tokens: 5, requests: None };

/// An engine in which every call throws.
fn throwing(what: &str) -> Executor {
    Executor::open(&format!("sim:?throws={what}&rate=50&speed=max"), &KEEP_ALL).unwrap()
}

#[test]
fn an_executor_that_throws_on_every_call_returns_errors() {
    for (throws, text) in
        [("standard", "sim: throws=standard"), ("foreign", "an exception that is not a std::exception")]
    {
        let mut engine = throwing(throws);
        let failed = BridgeError::Failed { what: text.to_owned() };
        for _ in 0..3 {
            assert!(!engine.can_enqueue_requests());
            assert_eq!(drain_some(&mut engine), Err(failed.clone()));
            assert_eq!(engine.next_requests(&mut RequestStatsPerIteration::default()), Err(failed.clone()));
            assert_eq!(engine.start_load(&LOAD), Err(failed.clone()));
            assert_eq!(engine.shutdown(), Err(failed.clone()));
        }
        assert_eq!(all_finished(&mut engine), []);
        drop(engine);
    }
}

#[test]
fn an_executor_shut_down_with_a_full_ring_frees_it() {
    let mut engine = finished(300, "rate=100", &KEEP_ALL);
    engine.shutdown().unwrap();
    assert_eq!(drain_some(&mut engine), Err(BridgeError::ShutDown));
}

#[test]
fn an_executor_can_be_dropped_with_and_without_a_shutdown() {
    for shut_down in [true, false] {
        let mut engine = Executor::open("sim:?rate=100&speed=max", &KEEP_ALL).unwrap();
        engine.start_load(&LOAD).unwrap();
        wait_until(&engine, |truth| truth.iterations > 10);
        assert!(drain_some(&mut engine).unwrap() > 0);
        if shut_down {
            engine.shutdown().unwrap();
        }
    }
}

#[test]
fn a_drain_that_races_a_shutdown_gets_records_or_an_error() {
    for _ in 0..20 {
        let engine = Executor::open("sim:?rate=100&speed=max", &KEEP_ALL).unwrap();
        wait_until(&engine, |truth| truth.iterations > 0);
        let engine = Arc::new(Mutex::new(engine));
        let start = Arc::new(Barrier::new(11));
        let drains: Vec<_> = (0..10)
            .map(|_| {
                let (engine, start) = (Arc::clone(&engine), Arc::clone(&start));
                std::thread::spawn(move || {
                    start.wait();
                    loop {
                        if let Err(error) = drain_some(&mut engine.lock().unwrap()) {
                            return error;
                        }
                    }
                })
            })
            .collect();
        start.wait();
        engine.lock().unwrap().shutdown().unwrap();
        for drain in drains {
            assert_eq!(drain.join().unwrap(), BridgeError::ShutDown);
        }
    }
}
