//! Tests that options reach the engine, and that options which the release does not support are rejected by name.

#![cfg(simulated_sdk)]
// Clippy allows unwrap and panic in #[test] functions, but not in the functions that they call.
#![allow(clippy::unwrap_used, clippy::panic)]

mod engines;

use engines::{IterationRow, KEEP_ALL, all_iterations, wait_until};
use trtllm_bridge::{BatchingType, BridgeError, CommMode, Executor, HostOptions, ModelType};

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

#[test]
fn static_batching_can_be_selected() {
    let fixed = HostOptions { batching_type: Some(BatchingType::Static), ..options() };
    assert!(records(&fixed).iter().all(|row| row.has_static && !row.has_inflight));
    let inflight = HostOptions { batching_type: Some(BatchingType::Inflight), ..options() };
    assert!(records(&inflight).iter().all(|row| row.has_inflight && !row.has_static));
}

#[test]
fn chunked_context_splits_a_long_prompt() {
    let longest = |chunked: bool| {
        let chosen = HostOptions { enable_chunked_context: Some(chunked), ..options() };
        let mut engine = Executor::open_with("sim:?speed=max&requests=20&prompt_mean=3000&rate=1", &chosen).unwrap();
        wait_until(&engine, |truth| truth.idle && truth.requests_completed == 20);
        let truth = engine.truth().unwrap();
        assert!(all_iterations(&mut engine).iter().all(|row| row.inflight_num_ctx_tokens <= 2048));
        truth.context_tokens
    };
    // Prompts above the token budget of an iteration are only served in chunks.
    assert!(longest(true) > longest(false));
}

#[test]
fn the_model_type_reaches_the_engine() {
    let opened = |model_type| Executor::open_with("sim:", &HostOptions { model_type, ..options() });
    assert!(opened(ModelType::DecoderOnly).is_ok());
    for model_type in [ModelType::EncoderOnly, ModelType::EncoderDecoder] {
        assert_eq!(opened(model_type).is_ok(), cfg!(sim_since = "0.11"), "{model_type:?}");
    }
}

#[test]
fn the_first_participant_is_the_leader() {
    let among = |ids: &[u32]| HostOptions { participant_ids: ids.to_vec(), device_ids: vec![0, 1], ..options() };
    assert!(Executor::open_with("sim:?rank=2", &among(&[2, 3])).unwrap().can_enqueue_requests());
    let mut follower = Executor::open_with("sim:?rank=3", &among(&[2, 3])).unwrap();
    assert!(!follower.can_enqueue_requests());
    assert_eq!(engines::drain_some(&mut follower), Err(BridgeError::NotLeader));
}

#[test]
fn leader_mode_can_be_selected_in_every_release() {
    let leader = HostOptions { comm_mode: Some(CommMode::Leader), ..options() };
    assert!(Executor::open_with("sim:", &leader).unwrap().can_enqueue_requests());
}

#[test]
fn a_number_that_is_too_large_is_rejected_with_its_name() {
    let beyond = HostOptions { device_ids: vec![u32::MAX], ..options() };
    assert_eq!(cause("sim:", &beyond), "device_ids 4294967295 is too large; the maximum is 2147483647");
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
    fn the_cache_has_the_smaller_size_of_tokens_and_fraction() {
        let blocks = |max_tokens, free_gpu_memory_fraction| {
            records(&HostOptions { max_tokens, free_gpu_memory_fraction, ..options() })[0].kv_max_num_blocks
        };
        let whole = blocks(None, None);
        assert_eq!(blocks(None, Some(0.45)), whole / 2);
        assert_eq!(blocks(Some(100 * 32), None), 100);
        assert_eq!(blocks(Some(100 * 32), Some(0.45)), 100);
        assert_eq!(blocks(Some(1_000_000), Some(0.45)), whole / 2);
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
    fn an_orchestrator_has_statistics_and_its_workers_have_none() {
        let process = |is_orchestrator| HostOptions {
            comm_mode: Some(CommMode::Orchestrator),
            is_orchestrator: Some(is_orchestrator),
            worker_executable: Some("/usr/bin/executorWorker".to_owned()),
            ..options()
        };
        assert!(Executor::open_with("sim:", &process(true)).unwrap().can_enqueue_requests());
        let mut worker = Executor::open_with("sim:", &process(false)).unwrap();
        assert_eq!(engines::drain_some(&mut worker), Err(BridgeError::NotLeader));
    }

    #[test]
    fn a_value_that_the_engine_rejects_fails_with_the_engines_message() {
        for fraction in [0.0, 1.0, f32::NAN] {
            let refused = HostOptions { free_gpu_memory_fraction: Some(fraction), ..options() };
            assert!(cause("sim:", &refused).contains("freeGpuMemoryFraction"));
        }
        assert!(cause("sim:", &HostOptions { max_batch_size: Some(0), ..options() }).contains("maxBatchSize > 0"));
    }
}

#[cfg(sim_since = "0.13")]
#[test]
fn a_full_queue_rejects_requests() {
    let short = HostOptions { max_queue_size: Some(2), ..options() };
    let mut engine = Executor::open_with("sim:?rate=0&iterations=0", &short).unwrap();
    for _ in 0..2 {
        engine.enqueue_synthetic(10, 10).unwrap();
    }
    let refused = engine.enqueue_synthetic(10, 10);
    assert!(matches!(&refused, Err(BridgeError::Failed { what }) if what.contains("maximum of 2")), "{refused:?}");
}

#[cfg(sim_since = "0.13")]
#[test]
fn an_orchestrator_can_run_without_spawning_workers() {
    let quiet = HostOptions {
        comm_mode: Some(CommMode::Orchestrator),
        is_orchestrator: Some(true),
        spawn_processes: Some(false),
        ..options()
    };
    assert!(Executor::open_with("sim:", &quiet).is_ok());
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
        (HostOptions { max_tokens: Some(64), ..options() }, "max_tokens", "setMaxTokens"),
        (HostOptions { max_batch_size: Some(8), ..options() }, "max_batch_size", "setMaxBatchSize"),
        (HostOptions { max_num_tokens: Some(8), ..options() }, "max_num_tokens", "setMaxNumTokens"),
        (HostOptions { max_queue_size: Some(8), ..options() }, "max_queue_size", "setMaxQueueSize"),
        (
            HostOptions { comm_mode: Some(CommMode::Orchestrator), ..options() },
            "the orchestrator mode",
            "CommunicationMode::kORCHESTRATOR",
        ),
        (HostOptions { is_orchestrator: Some(true), ..options() }, "the orchestrator's options", "OrchestratorConfig"),
    ] {
        let expected = format!("this release of TensorRT-LLM has no {setter}; remove {option}");
        assert_eq!(cause("sim:", &refused), expected);
    }
}
