//! Tests with a TensorRT-LLM library other than the simulated one that this crate links.

#![cfg(not(simulated_sdk))]

use trtllm_bridge::{BridgeError, Executor, ExecutorOptions};

#[test]
fn a_missing_engine_returns_the_librarys_error() {
    let opened = Executor::open("/nowhere", &ExecutorOptions::default());
    assert!(matches!(&opened, Err(BridgeError::Open { cause, .. }) if !cause.is_empty()), "{opened:?}");
}

#[test]
fn the_simulated_engine_is_rejected_with_a_remedy() {
    let opened = Executor::open("sim:", &ExecutorOptions::default());
    let expected = "build without TENSORRT_LLM_ROOT to simulate";
    assert!(matches!(&opened, Err(BridgeError::Open { cause, .. }) if cause.ends_with(expected)), "{opened:?}");
}
