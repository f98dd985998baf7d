//! The source `trtllm-disagg:URL` of the real daemon, which reads a server that imitates the orchestrator of
//! disaggregated serving.

use serde_json::json;

use crate::support::daemon::{Daemon, doctor_prints};
use crate::support::orchestrator::{CountedSide, DisaggServer, cluster_info};
use crate::support::page::Page;
use crate::support::{ensure, until};

fn start(server: &DisaggServer) -> Daemon {
    let daemon = Daemon::start(&["--source", &server.source(), "--model", "llama"]);
    daemon.until_is("nv_trt_llm_disagg_ready", &["model=llama"], 1.0);
    daemon
}

fn until_requests(daemon: &Daemon, mode: &str, requests: u64) -> Page {
    daemon.until_is("nv_trt_llm_disagg_requests_total", &[&format!("mode={mode}")], requests as f64)
}

#[test]
fn its_requests_count_from_the_first_reading_by_side_and_with_its_own_buckets() {
    let server = DisaggServer::start();
    let daemon = start(&server);
    let page = daemon.page();
    assert_eq!(page.count("nv_trt_llm_disagg_requests_total", &["mode=stream"]), 0, "what it counted before");
    assert_eq!(page.count("nv_trt_llm_disagg_worker_requests_total", &["side=generation"]), 0);
    for (side, workers) in [("side=context", 2), ("side=generation", 1)] {
        assert_eq!(page.count("nv_trt_llm_disagg_ready_workers", &[side]), workers);
        assert_eq!(page.count("nv_trt_llm_disagg_minimal_workers", &[side]), 1);
    }
    server.change(|counted| {
        counted.whole += 1;
        counted.invalid += 2;
        counted.http_errors += 3;
        counted.context = CountedSide { sent: 107, retried: 9, ..CountedSide::default() };
        counted.generation = CountedSide { sent: 105, failed: 3, first_bytes: 94, reads: 9100, retried: 0 };
        counted.streamed += 6;
    });
    let page = until_requests(&daemon, "stream", 6);
    assert_eq!(page.count("nv_trt_llm_disagg_requests_total", &["mode=nonstream"]), 1);
    assert_eq!(page.count("nv_trt_llm_disagg_responses_total", &[]), 4);
    for (kind, errors) in [("validation", 2), ("http", 3), ("internal", 0)] {
        assert_eq!(page.count("nv_trt_llm_disagg_request_errors_total", &[&format!("kind={kind}")]), errors, "{kind}");
    }
    for (side, [sent, retried, failed]) in [("context", [7, 5, 0]), ("generation", [5, 0, 2])] {
        let count =
            |family: &str| page.count(&format!("nv_trt_llm_disagg_worker_{family}_total"), &[&format!("side={side}")]);
        assert_eq!(
            [count("requests"), count("retries"), count("errors"), count("requests_ended")],
            [sent, retried, failed, sent],
            "{side}"
        );
    }
    let time = |family: &str, le: &str| {
        let name = format!("nv_trt_llm_disagg_worker_{family}_seconds_bucket");
        page.count(&name, &["side=generation", &format!("le={le}")])
    };
    assert_eq!((time("request_time", "0.3"), time("request_time", "0.5"), time("request_time", "+Inf")), (0, 3, 3));
    assert_eq!((time("time_to_first_byte", "0.1"), time("time_to_first_byte", "0.25")), (0, 4));
    assert_eq!((time("read_interval", "0.01"), time("read_interval", "0.02")), (0, 100));
    assert_eq!(page.count("nv_trt_llm_disagg_queue_time_seconds_bucket", &["le=0.005"]), 7);
    let sum = page.get("nv_trt_llm_disagg_worker_request_time_seconds_sum", &["side=generation"]);
    assert!((sum - 3.0 * 0.4).abs() < 1e-6, "{sum}");
    // The orchestrator has no encoders. None of its numbers may appear in a family of engines.
    let others = |series: &str| series.starts_with("nv_") && !series.starts_with("nv_trt_llm_disagg_");
    let foreign: Vec<&String> = page.series.iter().map(|(series, _)| series).filter(|series| others(series)).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    assert!(page.series.iter().all(|(series, _)| !series.contains("encoder") && !series.contains("secret")));
    let source = ["model=llama", "version=1", "source=trtllm-disagg"];
    assert_eq!(page.get("trtllm_exporter_source_up", &source), 1.0);
    assert_eq!(server.asked(), ["GET /cluster_info", "GET /health", "GET /prometheus/metrics", "GET /version"]);
    let engine = daemon.engine();
    assert_eq!((&engine["engineVersion"], &engine["totals"]), (&json!("1.3.0rc24"), &json!(null)));
    let expected = json!({"ready": true, "requests": 7, "responses": 4, "validationErrors": 2, "httpErrors": 3,
        "internalErrors": 0, "sides": {
        "context": {"readyWorkers": 2, "minimalWorkers": 1, "requests": 7, "retries": 5, "errors": 0, "requestsEnded": 7},
        "generation": {"readyWorkers": 1, "minimalWorkers": 1, "requests": 5, "retries": 0, "errors": 2, "requestsEnded": 5}}});
    assert_eq!(engine["orchestrator"], expected);
    until(|| ensure(daemon.engine()["state"] == "idle", || daemon.engine().to_string()));
    until(|| {
        server.change(|counted| counted.streamed += 1);
        let state = daemon.engine()["state"].clone();
        ensure(state == "busy", || format!("{state} while requests arrive"))
    });
    assert!(daemon.text("/metrics/gateway").is_empty());
}

#[test]
fn values_that_it_does_not_report_are_absent() {
    let server = DisaggServer::start();
    let daemon = start(&server);
    let (workers, generation) = ("nv_trt_llm_disagg_ready_workers", &["side=generation"]);
    // The orchestrator reports that the generation side has no workers.
    server.change(|counted| (counted.cluster_info, counted.health) = (cluster_info(2, 0), 503));
    let page = daemon.until_is(workers, generation, 0.0);
    assert_eq!(page.get("nv_trt_llm_disagg_ready", &[]), 0.0);
    // This body is in MessagePack, as a coordinator of several processes sends it.
    let packed = b"\x82\xafcurrent_workers\x81\xafcontext_servers\x91\xa1a".to_vec();
    for (answer, expected) in
        [(Some(packed), json!(["/cluster_info"])), (None, json!(["/cluster_info"])), (Some(Vec::new()), json!([]))]
    {
        server.change(|counted| (counted.cluster_info, counted.health) = (answer, 500));
        let page = daemon.until_shown(workers, generation, false);
        assert_eq!(page.find("nv_trt_llm_disagg_ready", &[]), None, "neither ready nor not");
        assert_eq!(page.get("trtllm_exporter_source_up", &[]), 1.0);
        let missing = || daemon.engine()["missingEndpoints"].clone();
        until(|| ensure(missing() == expected, || missing().to_string()));
        server.change(|counted| counted.cluster_info = cluster_info(1, 1));
        daemon.until_is(workers, generation, 1.0);
    }
}

#[test]
fn an_orchestrator_that_does_not_answer_has_no_workers_and_keeps_its_totals() {
    let server = DisaggServer::start();
    let daemon = Daemon::start(&["--source", &server.source(), "--stale-after", "5s"]);
    daemon.until_is("nv_trt_llm_disagg_ready", &[], 1.0);
    server.change(|counted| counted.streamed += 2);
    let before = until_requests(&daemon, "stream", 2);
    server.change(|counted| counted.page_status = 500);
    let page = daemon.until_shown("nv_trt_llm_disagg_ready", &[], false);
    page.never_below(&before);
    assert_eq!(page.find("nv_trt_llm_disagg_ready_workers", &["side=context"]), None);
    assert_eq!(page.get("trtllm_exporter_source_up", &[]), 0.0);
}

#[test]
fn a_server_that_is_no_orchestrator_is_named_with_the_remedy() {
    let server = DisaggServer::start();
    let worker = include_str!("../fixtures/prometheus_trtllm_serve_SHAPE_2026H2.txt");
    server.change(|counted| counted.page = Some(worker.to_owned()));
    let daemon = Daemon::start(&["--source", &server.source()]);
    daemon.until_logged(&["source failed", "is not the page of an orchestrator", "trtllm-serve:http://HOST:PORT"]);
    assert!(daemon.page().series.iter().all(|(series, _)| !series.starts_with("nv_trt_llm_")));
    // A coordinator, or a worker without return_perf_metrics, answers 404.
    server.change(|counted| counted.page_status = 404);
    daemon.until_logged(&["source failed", "status 404", "not of a worker or a coordinator"]);
    server.change(|counted| (counted.page, counted.page_status) = (None, 200));
    daemon.until_logged(&["source recovered"]);
}

#[test]
fn doctor_finds_a_side_without_workers_and_requests_that_fail_and_nothing_else() {
    let server = DisaggServer::start();
    let daemon = start(&server);
    let doctor = || {
        let report = doctor_prints(&["diagnose", &daemon.address, "--no-sources", "--format", "json"]);
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        let findings = report["findings"].as_array().unwrap().clone();
        findings.iter().map(|finding| finding["rule"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // A thread lets requests arrive until the test ends.
    let serving = server.clone();
    std::thread::spawn(move || {
        loop {
            serving.change(|counted| {
                counted.streamed += 10;
                counted.context.sent += 10;
                counted.generation.sent += 10;
                counted.generation.first_bytes += 10;
                if counted.health == 503 {
                    counted.generation.failed += 2;
                }
            });
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    });
    // Findings about GPUs are ignored, because they depend on this machine.
    let of_orchestrators =
        |found: Vec<String>| found.into_iter().filter(|rule| !rule.starts_with("gpu")).collect::<Vec<_>>();
    // The exporter judges its engines every five seconds, so no finding may appear for seven seconds.
    for _ in 0..7 {
        assert_eq!(of_orchestrators(doctor()), [""; 0]);
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    server.change(|counted| (counted.cluster_info, counted.health) = (cluster_info(2, 0), 503));
    daemon.until_is("nv_trt_llm_disagg_ready", &[], 0.0);
    until(|| {
        let found = of_orchestrators(doctor());
        std::thread::sleep(std::time::Duration::from_millis(300));
        ensure(found == ["orchestrator-not-ready", "orchestrator-errors"], || format!("{found:?}"))
    });
}

#[test]
fn a_recording_of_an_orchestrator_replays_its_totals() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().to_str().unwrap();
    let server = DisaggServer::start();
    let mut daemon = Daemon::start(&["--source", &server.source(), "--record.dir", record]);
    daemon.until_is("nv_trt_llm_disagg_ready", &[], 1.0);
    server.change(|counted| {
        counted.generation = CountedSide { sent: 103, failed: 2, first_bytes: 92, reads: 9010, retried: 0 };
        counted.streamed += 3;
    });
    let before = until_requests(&daemon, "stream", 3);
    daemon.terminate();
    let replay = Daemon::start(&["--source", &format!("replay:{record}?speed=max")]);
    let page = until_requests(&replay, "stream", 3);
    let disagg = |page: &Page| -> Vec<(String, f64)> {
        page.series.iter().filter(|(series, _)| series.starts_with("nv_trt_llm_disagg_")).cloned().collect()
    };
    assert_eq!(disagg(&page), disagg(&before));
    assert!(disagg(&page).len() > 100);
}

#[test]
fn counts_of_several_processes_that_answer_in_turn_are_absent_until_one_answers() {
    let server = DisaggServer::start();
    let daemon = start(&server);
    server.change(|counted| counted.second_process = Some(1));
    let page = daemon.until_shown("nv_trt_llm_disagg_requests_total", &["mode=stream"], false);
    assert_eq!(page.get("nv_trt_llm_disagg_ready", &[]), 1.0);
    let notice = || daemon.engine()["notice"].as_str().unwrap_or_default().to_owned();
    until(|| ensure(notice().contains("num_workers"), notice));
    // After a failed poll, an orchestrator with a single process answers.
    server.change(|counted| (counted.second_process, counted.page_status) = (None, 500));
    daemon.until_is("trtllm_exporter_source_up", &[], 0.0);
    server.change(|counted| counted.page_status = 200);
    until_requests(&daemon, "stream", 0);
    server.change(|counted| counted.streamed += 4);
    until_requests(&daemon, "stream", 4);
    assert_eq!(notice(), "");
}
