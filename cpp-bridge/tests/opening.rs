//! Tests opening an engine with valid options, and the errors for invalid ones.

#![cfg(simulated_sdk)]
// Clippy allows unwrap and panic in #[test] functions, but not in the functions that they call.
#![allow(clippy::unwrap_used, clippy::panic)]

mod engines;

use engines::{KEEP_ALL, all_iterations, finished};
use trtllm_bridge::{BridgeError, Executor, ExecutorOptions};

fn cause(engine: &str, options: &ExecutorOptions) -> String {
    match Executor::open(engine, options) {
        Err(BridgeError::Open { cause, engine: named }) if named == engine => cause,
        other => panic!("{engine} gave {other:?}"),
    }
}

#[test]
fn the_defaults_of_the_options_are_tensorrt_llms() {
    let options = ExecutorOptions::default();
    assert_eq!((options.iter_stats_max_iterations, options.request_stats_max_iterations), (1000, 0));
}

#[test]
fn an_engine_opens_without_options_and_reports_its_version() {
    for name in ["sim:", "sim:?", "sim:?&"] {
        let engine = Executor::open(name, &ExecutorOptions::default()).unwrap();
        assert!(engine.is_simulated() && engine.can_enqueue_requests());
        // Releases before 0.12 do not report a version.
        let version = concat!(env!("TRTLLM_SIM_RELEASE_NAME"), ".0+simulated");
        assert_eq!(engine.version(), if cfg!(sim_since = "0.13") { version } else { "" });
    }
}

#[test]
fn blocks_are_reused_as_the_release_does_by_default() {
    let mut engine = finished(50, "rate=50", &KEEP_ALL);
    let reused = all_iterations(&mut engine).last().unwrap().kv_reused_blocks;
    assert_eq!(reused > 0, cfg!(sim_since = "1.0"), "{reused}");
}

#[test]
fn an_unknown_option_is_rejected_with_a_list_of_the_valid_ones() {
    let cause = cause("sim:?rate=5&sped=2", &KEEP_ALL);
    assert!(cause.starts_with("sim: unknown option sped; use one of rate, "), "{cause}");
    assert!(cause.contains("speed"));
    assert!(!cause.contains('\n') && !cause.contains(".cc"), "{cause}");
}

#[test]
fn an_invalid_value_is_rejected_with_the_valid_range() {
    for (option, accepted) in [
        ("rate=fast", "0 to 100000 requests per second"),
        ("rate=nan", "0 to 100000 requests per second"),
        ("seed=-1", "an unsigned integer"),
        ("speed=0", "0.001 to 1000000, or max"),
        ("trace=", "a file name"),
        ("requests=1.5", "an unsigned integer"),
        ("iterations=", "an unsigned integer"),
        ("prefix_share=1.01", "0 to 1"),
        ("max_batch_size=0", "1 to 65536"),
        ("max_num_tokens=1e3", "1 to 1000000"),
        ("kv_blocks=1", "2 to 10000000"),
        ("tokens_per_block=0", "1 to 1024"),
        ("policy=fair", "max_utilization or guaranteed_no_evict"),
        ("batching=none", "inflight or static"),
        ("spec_draft_len=65", "0 to 64 tokens"),
        ("disagg=yes", "generation, context, 1 for generation, or 0"),
        ("throws=often", "standard or foreign"),
        ("request_stats=2", "0 or 1"),
    ] {
        let cause = cause(&format!("sim:?{option}"), &KEEP_ALL);
        assert_eq!(cause, format!("sim: invalid option {option}; use {accepted}"));
    }
}

#[test]
fn an_unreadable_trace_is_rejected_with_its_name() {
    let cause = cause("sim:?trace=/nowhere/arrivals", &KEEP_ALL);
    let wanted =
        "sim: cannot read trace=/nowhere/arrivals: No such file or directory (os error 2); name a readable file";
    assert_eq!(cause, wanted);
}

#[test]
fn an_invalid_line_of_a_trace_is_rejected_with_its_number() {
    let file = engines::trace("bad.trace", &[(0.0, 10, 10), (1.0, 0, 10)]);
    let cause = cause(&format!("sim:?trace={file}"), &KEEP_ALL);
    assert!(cause.contains(": line 2 is invalid"), "{cause}");
}

#[test]
fn an_engine_directory_is_rejected_by_the_simulated_library() {
    let cause = cause("/models/llama", &KEEP_ALL);
    assert!(cause.contains("/models/llama") && cause.contains("TENSORRT_LLM_ROOT"), "{cause}");
}

#[test]
fn a_ring_size_above_the_engines_maximum_is_rejected() {
    let options = ExecutorOptions { iter_stats_max_iterations: u32::MAX, ..KEEP_ALL };
    assert_eq!(cause("sim:", &options), "iter_stats_max_iterations 4294967295 is too large; the maximum is 2147483647");
}
