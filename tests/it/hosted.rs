//! The source `executor:DIR`: an engine in the process of the daemon, with a synthetic load.

use std::path::{Path, PathBuf};

use crate::support::daemon::{Daemon, refused};
use crate::support::ensure;
use crate::support::page::Page;

/// An engine directory for the simulated TensorRT-LLM. The simulated engine creates no requests by itself.
fn engine(folder: &Path, limits: &str) -> PathBuf {
    let engine = folder.join("engine");
    std::fs::create_dir_all(&engine).unwrap();
    std::fs::write(engine.join("simulated.engine"), format!("sim:?rate=0&iter_base_ms=1&gen_request_us=10{limits}\n"))
        .unwrap();
    engine
}

fn hosted(engine: &Path, query: &str) -> Daemon {
    Daemon::start(&["--source", &format!("executor:{}?{query}", engine.display()), "--model", "hosted"])
}

fn until_completed(daemon: &Daemon, requests: u64) -> Page {
    daemon.until_at_least("nv_trt_llm_requests_completed_total", &["model=hosted"], requests as f64);
    daemon.until_state(&[], "idle")
}

#[test]
fn a_synthetic_load_is_on_the_page_with_exact_times() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = hosted(
        &engine(folder.path(), "&max_batch_size=4&max_num_tokens=1024"),
        "load=synthetic&requests=60&in_flight=6&prompt_tokens=200&output_tokens=11",
    );
    until_completed(&daemon, 60);
    // Requests count once it is known which source tells what.
    let page = daemon.until(|page| {
        let lengths = page.count("nv_llm_output_token_len_sum", &["model=hosted"]);
        ensure(lengths == 60 * 11, || format!("{lengths} tokens"))
    });
    let count = |name: &str| page.count(name, &["model=hosted"]);
    assert_eq!((count("nv_trt_llm_requests_started_total"), count("nv_trt_llm_requests_completed_total")), (60, 60));
    assert_eq!(count("nv_llm_input_token_len_sum"), 60 * 200);
    assert_eq!(count("nv_trt_llm_generation_tokens_total"), 60 * 10);
    assert_eq!(count("nv_trt_llm_iterations_lost_total"), 0);
    assert_eq!(page.get("nv_trt_llm_request_metrics", &["request_type=max"]), 4.0);
    assert_eq!(page.get("nv_trt_llm_engine_info", &["source=executor", "simulated=true"]), 1.0);
    // Each request is observed once, with its exact times.
    assert_eq!(page.get("nv_trt_llm_request_latency_info", &["from=perf_metrics"]), 1.0);
    for name in ["time_to_first_token", "e2e_request_latency"] {
        daemon.until_is(&format!("nv_trt_llm_{name}_seconds_count"), &["model=hosted"], 60.0);
    }
    assert!(daemon.page().count("nv_trt_llm_time_per_output_token_seconds_count", &["model=hosted"]) <= 60);
}

#[test]
fn a_model_that_loads_for_an_hour_blocks_neither_the_page_nor_the_shutdown() {
    let mut daemon = Daemon::start(&["--source", "sim:?load_seconds=3600", "--model", "slow"]);
    assert_eq!(daemon.get("/healthz").status, 200);
    let ready = daemon.get("/readyz");
    assert!(ready.status == 503 && ready.text().contains("still loading its model"), "{}", ready.text());
    let page = daemon.until_state(&["model=slow"], "starting");
    assert_eq!(page.get("trtllm_exporter_source_up", &["model=slow"]), 0.0);
    assert_eq!(page.count("trtllm_exporter_poll_errors_total", &["model=slow", "kind=timeout"]), 0);
    // The constructor cannot be interrupted. If the daemon waited for it, the test would take an hour.
    assert_eq!(daemon.terminate().code(), Some(0));
    daemon.until_logged(&["level=warn", "engine is still loading; abandoning it"]);
}

#[test]
fn a_model_that_has_loaded_is_polled_without_an_error_before() {
    let daemon = Daemon::start(&["--source", "sim:?load_seconds=2", "--poll.timeout", "100ms", "--stale-after", "1s"]);
    daemon.until_state(&[], "starting");
    let page = daemon.until_state(&[], "busy");
    assert_eq!(page.get("trtllm_exporter_source_up", &[]), 1.0);
    assert_eq!(page.count("trtllm_exporter_poll_errors_total", &["kind=timeout"]), 0);
    assert_eq!(daemon.logged(&["level=warn"]), 0, "an engine that loads longer than --stale-after is not stale");
}

#[test]
fn the_settings_in_the_directory_of_an_engine_are_on_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path(), "&max_batch_size=48");
    let config = serde_json::json!({"pretrained_config": {"dtype": "bfloat16", "mapping": {"tp_size": 4}},
        "build_config": {"max_batch_size": 96}});
    let info = |config: &str, labels: &[&str]| {
        std::fs::write(engine.join("config.json"), config).unwrap();
        let daemon = hosted(&engine, "load=synthetic&requests=2");
        until_completed(&daemon, 2).find("nv_trt_llm_engine_config_info", labels)
    };
    // The running engine may have lower limits than its directory states.
    let known = ["dtype=bfloat16", "tensor_parallel_size=4", "quantization=unknown", "max_batch_size=48"];
    assert_eq!(info(&config.to_string(), &known), Some(1.0));
    let unknown = ["dtype=unknown", "tensor_parallel_size=unknown", "max_batch_size=48"];
    for unusable in ["{\"pretrained_config\": ", &format!("{config}{}", " ".repeat(5 << 20))] {
        assert_eq!(info(unusable, &unknown), Some(1.0));
    }
}

#[test]
fn the_engine_ends_with_the_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = hosted(&engine(folder.path(), ""), "load=synthetic");
    daemon.until_state(&[], "busy");
    assert_eq!(daemon.terminate().code(), Some(0));
    assert_eq!(daemon.logged(&["abandoning it"]), 0);
}

#[test]
fn an_engine_that_cannot_be_hosted_ends_the_start_with_one_message() {
    let folder = tempfile::tempdir().unwrap();
    refused(2, &["--source", &format!("executor:{}", folder.path().display())], &["TENSORRT_LLM_ROOT"]);
}
