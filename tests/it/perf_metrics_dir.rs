//! The source `perf-metrics:DIR` of the real daemon: lines of finished requests, read from files without a server.

use std::fs;
use std::path::Path;

use crate::support::daemon::{Daemon, doctor, run};
use crate::support::page::Page;
use crate::support::{ensure, until};

/// The lines that a context server, a generation server and their orchestrator write for one request.
const PAIR: &str = include_str!("../fixtures/perf_metrics_lines_SHAPE_2026H2.jsonl");

fn write(directory: &Path, kind: &str, lines: &[&str]) {
    let path = directory.join(format!("perf_metrics-{kind}-gpu7-41-20261101T000000Z.jsonl"));
    fs::write(path, lines.join("\n") + "\n").unwrap();
}

fn observed(page: &Page) -> f64 {
    page.find("nv_trt_llm_e2e_request_latency_seconds_count", &[]).unwrap_or(0.0)
}

#[test]
fn a_request_of_a_deployment_counts_once_and_the_engine_is_busy_meanwhile() {
    // Built before the finding, which is about the last minute.
    doctor(&["--version"]);
    let lines = tempfile::tempdir().unwrap();
    let source = format!("perf-metrics:{}", lines.path().display());
    let daemon = Daemon::start(&["--source", &source, "--objectives", "ttft=500ms,e2e=2s"]);
    daemon.until_state(&[], "idle");
    let [context, generation, orchestrator] = PAIR.lines().collect::<Vec<_>>()[..] else { panic!("{PAIR}") };
    write(lines.path(), "server", &[context, generation]);
    daemon.poll(&[], 30);
    assert_eq!(observed(&daemon.page()), 0.0, "the parts alone");
    let notice = || daemon.get("/api/v1/engines").json()[0]["notice"].clone();
    until(|| ensure(notice().as_str().is_some_and(|text| text.contains("orchestrator")), || notice().to_string()));
    write(lines.path(), "disagg", &[orchestrator]);
    let page = daemon.until_state(&[], "busy");
    assert_eq!(observed(&page), 1.0);
    // The latency is the time from the arrival at the context server to the last token of the generation server.
    let seconds = page.get("nv_trt_llm_e2e_request_latency_seconds_sum", &[]);
    assert!((seconds - (1000.27 - 1000.001)).abs() < 1e-3, "{seconds}");
    assert_eq!(page.count("nv_trt_llm_objective_requests_total", &["objective=e2e", "outcome=met"]), 1);
    assert!(notice().is_null(), "{}", notice());
    assert_eq!(page.find("nv_trt_llm_goodput_tokens_total", &[]), None, "nothing tells its length");
    until(|| {
        let report = doctor(&["diagnose", &format!("http://{}", daemon.address)]);
        let text = String::from_utf8_lossy(&report.stdout);
        ensure(text.contains("goodput-unknown"), || text.to_string())
    });
    let page = daemon.until_state(&[], "idle");
    assert_eq!((observed(&page), page.get("trtllm_exporter_source_records_missing", &[])), (1.0, 0.0));
}

#[test]
fn a_directory_that_cannot_be_read_is_named_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("later");
    let daemon = Daemon::start(&["--source", &format!("perf-metrics:{}?from_start=true", missing.display())]);
    daemon.until_logged(&["source failed", "later", "check that it exists"]);
    fs::create_dir(&missing).unwrap();
    write(&missing, "disagg", &[PAIR.lines().nth(2).unwrap()]);
    daemon.until(|page| ensure(observed(page) == 1.0, || "no request was observed".to_owned()));
    daemon.until_logged(&["source recovered"]);

    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for source in [
        format!("perf-metrics:{}", file.display()),
        format!("trtllm-serve:http://127.0.0.1:9?perf_metrics_dir={}", file.display()),
    ] {
        let output = run(&["--source", &source]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("cannot read the directory") && text.contains("--source"), "{text}");
    }
    for (source, expected) in [
        ("perf-metrics:", "use perf-metrics:PATH"),
        ("perf-metrics:/d?from=start", "use one of from_start"),
        ("trtllm-serve:http://h:1?perf_metrics_from_start=true", "needs perf_metrics_dir"),
        ("trtllm-serve:http://h:1?perf_metrics_dir=", "perf_metrics_dir must be a path"),
    ] {
        let output = run(&["--source", source]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(expected), "{source}: {text}");
    }
}

#[test]
fn the_steps_of_requests_are_on_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lines.jsonl");
    // The generation server of the pair uses speculative decoding. The server of this line does not, and it also
    // processes the prompt.
    let alone = r#"{"request_id":3,"perf_metrics":{"timing_metrics":{"arrival_time":5.0,"last_token_time":6.0}},"time_breakdown_metrics":
        {"ctx_chunk_metrics":[{"token_time":70.5,"gpu_forward_time":0,"gpu_sample_time":0}],"step_metrics":[{"token_time":70.625},
        {"token_time":70.6875}]},"status":"complete"}"#;
    let pair: Vec<&str> = PAIR.lines().take(2).collect();
    fs::write(&file, format!("{}\n{}\n", pair.join("\n"), alone.replace('\n', ""))).unwrap();
    let source = format!("replay:{}?speed=max", file.display());
    let daemon = Daemon::start(&["--source", &source, "--metrics.compat", "vllm"]);
    let page = daemon.until(|page| ensure(observed(page) == 3.0, || "the lines were not read".to_owned()));
    for (family, labels, count, sum) in [
        ("nv_trt_llm_inter_step_latency_seconds", None, 2, 0.06),
        ("nv_trt_llm_inter_token_latency_seconds", None, 2, 0.1875),
        ("vllm:inter_token_latency_seconds", None, 2, 0.1875),
        ("nv_trt_llm_request_gpu_forward_time_seconds", Some("phase=context"), 1, 0.1),
        ("nv_trt_llm_request_gpu_forward_time_seconds", Some("phase=generation"), 1, 0.0163),
        ("nv_trt_llm_request_gpu_sample_time_seconds", Some("phase=context"), 1, 0.0018),
        ("nv_trt_llm_request_gpu_sample_time_seconds", Some("phase=generation"), 1, 0.0008),
    ] {
        let labels: Vec<&str> = labels.into_iter().collect();
        assert_eq!(page.count(&format!("{family}_count"), &labels), count, "{family} {labels:?}");
        let seconds = page.get(&format!("{family}_sum"), &labels);
        assert!((seconds - sum).abs() < 1e-9, "{family} {labels:?}: {seconds}");
    }
}
