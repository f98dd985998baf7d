//! What holds for any library that is not the simulated one in this crate's own archive.

#![cfg(not(simulated_sdk))]

use trtllm_bridge::{BridgeError, Executor, ExecutorOptions};

#[test]
fn an_engine_that_does_not_exist_is_an_error_in_the_librarys_words() {
    let opened = Executor::open("/nowhere", &ExecutorOptions::default());
    assert!(matches!(&opened, Err(BridgeError::Open { cause, .. }) if !cause.is_empty()), "{opened:?}");
}

#[test]
fn the_simulated_engine_is_refused_with_what_to_do() {
    let opened = Executor::open("sim:", &ExecutorOptions::default());
    let expected = "build without TENSORRT_LLM_ROOT to simulate";
    assert!(matches!(&opened, Err(BridgeError::Open { cause, .. }) if cause.ends_with(expected)), "{opened:?}");
}
