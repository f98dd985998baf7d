//! Tests that options reach the engine, and that options which the release does not support are rejected by name.

#![cfg(simulated_sdk)]
// Clippy allows unwrap and panic in #[test] functions, but not in the functions that they call.
#![allow(clippy::unwrap_used, clippy::panic)]

mod engines;

use engines::{IterationRow, KEEP_ALL, all_iterations, wait_until};
use trtllm_bridge::{BridgeError, Executor, HostOptions};

fn options() -> HostOptions {
    HostOptions { statistics: KEEP_ALL, ..HostOptions::default() }
}

/// The records of fifty requests.
fn records(options: &HostOptions) -> Vec<IterationRow> {
    let mut engine = Executor::open_with("sim:?speed=max&requests=50&rate=50", options).unwrap();
    wait_until(&engine, |truth| truth.idle && truth.requests_completed == 50);
    all_iterations(&mut engine)
}

fn cause(engine: &str, options: &HostOptions) -> String {
    match Executor::open_with(engine, options) {
        Err(BridgeError::Open { cause, .. }) => cause,
        other => panic!("{options:?} gave {other:?}"),
    }
}

#[test]
fn an_unset_option_keeps_the_engines_default() {
    let mut opened = Executor::open("sim:?speed=max&requests=50&rate=50", &KEEP_ALL).unwrap();
    wait_until(&opened, |truth| truth.idle && truth.requests_completed == 50);
    let without_time = |rows: Vec<IterationRow>| -> Vec<IterationRow> {
        rows.into_iter().map(|row| IterationRow { timestamp: [0; 26], ..row }).collect()
    };
    assert_eq!(without_time(records(&options())), without_time(all_iterations(&mut opened)));
}

#[cfg(sim_since = "0.11")]
mod with_setters {
    use super::*;

    #[test]
    fn batch_limits_reach_the_engine() {
        let rows = records(&HostOptions { max_batch_size: Some(3), max_num_tokens: Some(256), ..options() });
        assert!(rows.iter().all(|row| row.max_num_active_requests == 3 && row.inflight_num_ctx_tokens <= 256));
    }

    #[test]
    fn the_cache_has_its_fraction_of_the_memory() {
        let blocks = |free_gpu_memory_fraction| {
            records(&HostOptions { free_gpu_memory_fraction, ..options() })[0].kv_max_num_blocks
        };
        assert_eq!(blocks(Some(0.45)), blocks(None) / 2);
    }

    #[test]
    fn block_reuse_can_be_enabled_and_disabled() {
        let reused = |enable_block_reuse| {
            records(&HostOptions { enable_block_reuse, ..options() }).last().unwrap().kv_reused_blocks
        };
        assert!(reused(Some(true)) > 0);
        assert_eq!(reused(Some(false)), 0);
        assert_eq!(reused(None) > 0, cfg!(sim_since = "1.0"));
    }

    #[test]
    fn a_value_that_the_engine_rejects_fails_with_the_engines_message() {
        for fraction in [0.0, 1.0] {
            let refused = HostOptions { free_gpu_memory_fraction: Some(fraction), ..options() };
            assert!(cause("sim:", &refused).contains("freeGpuMemoryFraction"));
        }
        assert!(cause("sim:", &HostOptions { max_batch_size: Some(0), ..options() }).contains("maxBatchSize > 0"));
    }
}

#[cfg(not(sim_since = "0.11"))]
#[test]
fn options_that_the_first_release_does_not_support_are_rejected_by_name() {
    for (refused, option, setter) in [
        (HostOptions { enable_block_reuse: Some(true), ..options() }, "enable_block_reuse", "setEnableBlockReuse"),
        (
            HostOptions { free_gpu_memory_fraction: Some(0.5), ..options() },
            "free_gpu_memory_fraction",
            "setFreeGpuMemoryFraction",
        ),
        (HostOptions { max_batch_size: Some(8), ..options() }, "max_batch_size", "setMaxBatchSize"),
        (HostOptions { max_num_tokens: Some(8), ..options() }, "max_num_tokens", "setMaxNumTokens"),
    ] {
        let expected = format!("this release of TensorRT-LLM has no {setter}; remove {option}");
        assert_eq!(cause("sim:", &refused), expected);
    }
}
