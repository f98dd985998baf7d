//! The source `perf-metrics:DIR` of the real daemon: lines of finished requests, read from files without a server.

use std::fs;

use crate::support::daemon::{Daemon, doctor};
use crate::support::page::Page;
use crate::support::{ensure, until, write_line};

/// The lines that a context server, a generation server and their orchestrator write for one request.
const PAIR: &str = include_str!("../fixtures/perf_metrics_lines_SHAPE_2026H2.jsonl");

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
    write_line(lines.path(), "server", format!("{context}\n{generation}"));
    daemon.poll(&[], 30);
    assert_eq!(observed(&daemon.page()), 0.0, "the parts alone");
    let notice = || daemon.engine()["notice"].clone();
    until(|| ensure(notice().as_str().is_some_and(|text| text.contains("orchestrator")), || notice().to_string()));
    write_line(lines.path(), "disagg", orchestrator);
    let page = daemon.until_state(&[], "busy");
    assert_eq!(observed(&page), 1.0);
    // The latency is the time from the arrival at the context server to the last token of the generation server.
    let seconds = page.get("nv_trt_llm_e2e_request_latency_seconds_sum", &[]);
    assert!((seconds - (1000.27 - 1000.001)).abs() < 1e-3, "{seconds}");
    assert_eq!(page.count("nv_trt_llm_objective_requests_total", &["objective=e2e", "outcome=met"]), 1);
    assert!(notice().is_null(), "{}", notice());
    assert_eq!(page.find("nv_trt_llm_goodput_tokens_total", &[]), None, "nothing tells its length");
    daemon.until_diagnosed(&["goodput-unknown"]);
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
    write_line(&missing, "disagg", PAIR.lines().nth(2).unwrap());
    daemon.until(|page| ensure(observed(page) == 1.0, || "no request was observed".to_owned()));
    daemon.until_logged(&["source recovered"]);
}
