//! The Prometheus page of trtllm-serve, served by a stand-in. The exporter counts the increases of the counters on the
//! page, and an invalid or slow page does not delay the records of the engine.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::daemon::Daemon;
use crate::support::page::Page;
use crate::support::server::serve;
use crate::support::{ensure, until, write_line};

const FIXTURE: &str = include_str!("../fixtures/prometheus_trtllm_serve_SHAPE_2026H2.txt");

/// The answers of the server. It sends one record for each `GET /metrics`.
#[derive(Debug, Clone, Default)]
struct Answers {
    page: String,
    page_status: u16,
    page_after: Duration,
    records_status: u16,
    iter: u64,
    /// Additional keys of each record, each preceded by a comma.
    more_keys: &'static str,
    /// The answer of `/server_info`, if the server has it.
    info: Option<serde_json::Value>,
    /// Unread entries of `/perf_metrics`, if the server has it.
    entries: Option<Vec<serde_json::Value>>,
    /// Sends the entries in an object, as a later release might do.
    entries_in_object: bool,
    /// Number of requests for the page that have begun, and of those that have ended.
    begun: u64,
    ended: u64,
    info_reads: u64,
}

#[derive(Debug, Clone)]
struct Server {
    answers: Arc<Mutex<Answers>>,
    source: String,
}

impl Server {
    fn start(page: &str) -> Self {
        let answers = Answers { page: page.to_owned(), page_status: 200, records_status: 200, ..Answers::default() };
        let answers = Arc::new(Mutex::new(answers));
        let serving = Self { answers: Arc::clone(&answers), source: String::new() };
        let port = serve(move |request| {
            let (status, body) = serving.answer(request.path());
            Some((status, body.into_bytes()))
        });
        Self { answers, source: format!("trtllm-serve:http://127.0.0.1:{port}") }
    }

    fn answer(&self, path: &str) -> (u16, String) {
        match path {
            "/metrics" => self.change(|answers| {
                answers.iter += 1;
                let (iter, more) = (answers.iter, answers.more_keys);
                let record = format!(
                    r#"[{{"iter": {iter}, "iterLatencyMS": 5.0, "numActiveRequests": 1, "numCompletedRequests": 1{more}}}]"#
                );
                (answers.records_status, record)
            }),
            "/prometheus/metrics" => {
                let answers = self.change(|answers| {
                    answers.begun += 1;
                    answers.clone()
                });
                std::thread::sleep(answers.page_after);
                self.change(|now| now.ended += 1);
                (answers.page_status, answers.page)
            }
            "/perf_metrics" => self.change(|answers| match &mut answers.entries {
                Some(entries) if answers.entries_in_object => (200, json!({"entries": entries}).to_string()),
                Some(entries) => (200, serde_json::to_string(&std::mem::take(entries)).unwrap()),
                None => (404, String::new()),
            }),
            "/server_info" => self.change(|answers| {
                answers.info_reads += 1;
                answers.info.as_ref().map_or((404, String::new()), |info| (200, info.to_string()))
            }),
            _ => (404, String::new()),
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Answers) -> T) -> T {
        change(&mut self.answers.lock().unwrap())
    }

    fn reads(&self) -> u64 {
        self.change(|answers| answers.begun)
    }

    /// Waits until nobody has read the page for 200 ms. The daemon reads the first page, and a page with lower counts,
    /// several times.
    fn settle(&self) {
        until(|| {
            let before = self.change(|answers| answers.begun);
            std::thread::sleep(Duration::from_millis(200));
            let (begun, ended) = self.change(|answers| (answers.begun, answers.ended));
            ensure(ended > 0 && begun == before && ended == begun, || "the page is being read".to_owned())
        });
    }

    /// Restarts the server, so its records begin again. `page` is the page of the new server.
    fn restart(&self, page: String) {
        self.change(|answers| (answers.iter, answers.page) = (0, page));
    }

    /// Serves another page, and waits until the daemon has read it.
    fn show(&self, daemon: &Daemon, page: String) -> Page {
        let before = self.change(|answers| {
            answers.page = page;
            answers.begun
        });
        // Requests that began before the change may end after it. If more have ended, one began after the change.
        until(|| ensure(self.change(|answers| answers.ended) > before, || "the page was not read".to_owned()));
        self.settle();
        daemon.poll(&[], 3)
    }
}

fn start(server: &Server) -> Daemon {
    let daemon = Daemon::start(&["--source", &server.source, "--metrics.compat", "trtllm,triton-core"]);
    server.settle();
    daemon.poll(&[], 3);
    daemon
}

/// The fixture with other values. Each change replaces one text with another.
fn with(changes: &[(&str, &str)]) -> String {
    let changed = changes.iter().fold(FIXTURE.to_owned(), |page, (from, to)| {
        assert!(page.contains(from), "{from} is not in the fixture");
        page.replace(from, to)
    });
    changed + "trtllm_prompt_tokens_total{pid=\"7\n\u{0}garbage{{{\n"
}

#[test]
fn the_increases_of_its_counters_are_on_our_page() {
    let server = Server::start(FIXTURE);
    let daemon = start(&server);
    let first = daemon.page();
    assert_eq!(first.count("nv_trt_llm_requests_finished_total", &["reason=stop"]), 0);
    assert_eq!(first.count("nv_inference_request_success", &[]), 0);
    assert_eq!(first.count("trtllm_prompt_tokens_total", &[]), 0);
    let info = ["model=/models/\\\"llama\\\"\\\\8b", "dtype=auto", "model_name=tensorrt_llm"];
    assert_eq!(first.get("trtllm_model_config_info", &info), 1.0);
    assert_eq!(first.get("trtllm_parallel_config_info", &["tensor_parallel_size=2"]), 1.0);
    assert_eq!(first.get("trtllm_kv_cache_config_info", &["page_size=32"]), 1.0);
    assert_eq!(first.find("trtllm_speculative_config_info", &[]), None);

    let second = server.show(
        &daemon,
        with(&[
            (
                "finished_reason=\"stop\",model_name=\"llama-3-8b\"} 7",
                "finished_reason=\"stop\",model_name=\"llama-3-8b\"} 10",
            ),
            (
                "finished_reason=\"cancelled\",model_name=\"llama-3-8b\"} 1",
                "finished_reason=\"cancelled\",model_name=\"llama-3-8b\"} 3",
            ),
            ("model_name=\"llama-3-8b\"} 1000", "model_name=\"llama-3-8b\"} 1400"),
            ("model_name=\"llama-3-8b\"} 500", "model_name=\"llama-3-8b\"} 560"),
            ("model_name=\"llama-3-8b\"} 128", "model_name=\"llama-3-8b\"} 160"),
            ("http_code=\"400\",model_name=\"llama-3-8b\"} 2", "http_code=\"404\",model_name=\"llama-3-8b\"} 2"),
            ("token_position=\"1\"} 8", "token_position=\"1\"} 12"),
            ("token_position=\"1\"} 3", "token_position=\"1\"} 5"),
            ("le=\"+Inf\",model_name=\"llama-3-8b\"} 5", "le=\"+Inf\",model_name=\"llama-3-8b\"} 7"),
            ("model_name=\"llama-3-8b\"} 100.078", "model_name=\"llama-3-8b\"} 300.078"),
        ]),
    );
    second.never_below(&first);
    let length = second.find("trtllm_request_success_total", &["finished_reason=length"]);
    assert_eq!(length, None, "as on trtllm-serve's page, a counter appears with its first increase");
    for (family, label, value) in [
        ("nv_trt_llm_requests_finished_total", "reason=stop", 3),
        ("nv_trt_llm_requests_finished_total", "reason=cancelled", 2),
        ("trtllm_request_success_total", "finished_reason=stop", 3),
        ("nv_inference_request_failure", "reason=CANCELED", 2),
        ("nv_trt_llm_request_errors_total", "code=400", 0),
        ("nv_trt_llm_request_errors_total", "code=404", 2),
        ("trtllm_request_error_total", "http_code=404", 2),
        ("trtllm_spec_decode_drafted_tokens_total", "token_position=1", 4),
        ("trtllm_spec_decode_accepted_tokens_total", "token_position=1", 2),
        ("trtllm_time_per_output_token_seconds_bucket", "le=80", 0),
        ("nv_trt_llm_time_per_output_token_seconds_bucket", "le=+Inf", 2),
    ] {
        assert_eq!(second.count(family, &[label]), value, "{family} {label}");
    }
    for (family, value) in [
        ("nv_inference_request_success", 3),
        ("trtllm_prompt_tokens_total", 400),
        ("trtllm_generation_tokens_total", 60),
        ("trtllm_prompt_cached_tokens_total", 32),
        ("nv_trt_llm_time_per_output_token_seconds_count", 2),
        ("trtllm_time_per_output_token_seconds_sum", 200),
    ] {
        assert_eq!(second.count(family, &[]), value, "{family}");
    }

    // The server restarts with a second process. One of its counts is as high as before.
    let new_process = "trtllm_request_success_total{finished_reason=\"stop\",pid=\"9\"} 5\n";
    server.restart(
        with(&[
            (
                "finished_reason=\"stop\",model_name=\"llama-3-8b\"} 7",
                "finished_reason=\"stop\",model_name=\"llama-3-8b\"} 1",
            ),
            ("model_name=\"llama-3-8b\"} 1000", "model_name=\"llama-3-8b\"} 90"),
            ("model_name=\"llama-3-8b\"} 128", "model_name=\"llama-3-8b\"} 160"),
        ]) + new_process,
    );
    let third = until_counted(&daemon, "trtllm_prompt_tokens_total", 400 + 90);
    third.never_below(&second);
    assert_eq!(third.count("nv_trt_llm_requests_finished_total", &["reason=stop"]), 3 + 1 + 5);
    assert_eq!(third.count("trtllm_prompt_cached_tokens_total", &[]), 32 + 160);
    assert_eq!(third.count("nv_trt_llm_engine_restarts_total", &[]), 1);
    assert_eq!(third.count("nv_trt_llm_iterations_lost_total", &[]), 0);
}

/// Waits until the counter has this value. It must never exceed it.
fn until_counted(daemon: &Daemon, family: &str, value: u64) -> Page {
    daemon.until(|page| {
        let counted = page.count(family, &[]);
        assert!(counted <= value, "{family} is {counted}, not {value}");
        ensure(counted == value, || format!("{family} is {counted}, not {value}"))
    })
}

/// The page after `requests` requests. Each time of each request is 0.4 s.
fn times(requests: u64) -> String {
    let names = ["time_to_first_token_seconds", "time_per_output_token_seconds", "e2e_request_latency_seconds"];
    let parts = ["queue", "prefill", "decode", "inference"].map(|part| format!("request_{part}_time_seconds"));
    let labels = "engine_type=\"pytorch\",model_name=\"llama-3-8b\"";
    let mut page = format!("trtllm_request_success_total{{finished_reason=\"stop\",{labels}}} {requests}.0\n");
    for name in names.into_iter().map(str::to_owned).chain(parts) {
        page += &format!("# TYPE trtllm_{name} histogram\n");
        for (bound, count) in [("0.01", 0), ("0.1", 0), ("0.5", requests), ("+Inf", requests)] {
            page += &format!("trtllm_{name}_bucket{{{labels},le=\"{bound}\"}} {count}.0\n");
        }
        page += &format!("trtllm_{name}_count{{{labels}}} {requests}.0\n");
        page += &format!("trtllm_{name}_sum{{{labels}}} {}\n", requests as f64 * 0.4);
    }
    page
}

fn entry() -> serde_json::Value {
    let times = json!({"arrival_time": 10.0, "first_scheduled_time": 10.125, "first_token_time": 10.25, "last_token_time": 12.0});
    json!({"request_id": 7, "perf_metrics": {"timing_metrics": times}})
}

fn source_of_latencies(page: &Page, from: &str) -> f64 {
    page.get("nv_trt_llm_request_latency_info", &[&format!("from={from}")])
}

#[test]
fn a_request_with_a_line_is_not_observed_again_from_the_page() {
    let server = Server::start(&times(10));
    let lines = tempfile::tempdir().unwrap();
    write_line(lines.path(), "server", entry());
    let source = format!("{}?perf_metrics_dir={}", server.source, lines.path().display());
    let daemon = Daemon::start(&["--source", &source, "--objectives", "ttft=500ms,tpot=100ms"]);
    server.settle();
    daemon.poll(&[], 30);
    server.change(|answers| answers.page = times(12));
    write_line(lines.path(), "server", entry());
    write_line(lines.path(), "server", entry());
    let page = daemon.until_is("nv_trt_llm_requests_finished_total", &["reason=stop"], 2.0);
    assert_eq!(page.count("nv_trt_llm_e2e_request_latency_seconds_count", &[]), 2, "not that of an earlier start");
    assert_eq!(page.get("nv_trt_llm_e2e_request_latency_seconds_sum", &[]), 4.0);
    assert_eq!(source_of_latencies(&page, "perf_metrics"), 1.0);
    assert_eq!(page.count("nv_trt_llm_objective_requests_total", &["objective=ttft", "outcome=met"]), 2);
    // The lines lack the time per output token. On the page, it is above 0.1 s.
    assert_eq!(page.count("nv_trt_llm_time_per_output_token_seconds_count", &[]), 2);
    for objective in ["objective=tpot", "objective=all"] {
        let outcome = |outcome| page.count("nv_trt_llm_objective_requests_total", &[objective, outcome]);
        assert_eq!(["outcome=met", "outcome=missed", "outcome=unknown"].map(outcome), [0, 2, 0], "{objective}");
    }
}

#[test]
fn request_times_of_a_server_that_writes_no_lines_come_from_its_page() {
    let server = Server::start(&times(10));
    let lines = tempfile::tempdir().unwrap();
    let source = format!("{}?perf_metrics_dir={}", server.source, lines.path().display());
    let daemon = Daemon::start(&["--source", &source]);
    let notice = || daemon.engine()["notice"].clone();
    // Wait until the exporter has used the first page.
    daemon.until_shown("nv_trt_llm_requests_finished_total", &["reason=stop"], true);
    assert!(notice().is_null(), "no request has ended: {}", notice());
    server.change(|answers| answers.page = times(13));
    let observed = |page: &Page| page.count("nv_trt_llm_e2e_request_latency_seconds_count", &[]);
    let page = daemon.until_at_least("nv_trt_llm_e2e_request_latency_seconds_count", &[], 1.0);
    assert_eq!((observed(&page), source_of_latencies(&page, "server_metrics")), (3, 1.0));
    until(|| {
        ensure(notice().as_str().is_some_and(|text| text.contains("perf_metrics_output_dir")), || notice().to_string())
    });
    daemon.until_logged(&["statistics are missing", "perf_metrics_output_dir"]);
    // Later lines belong to requests that the page has already counted.
    write_line(lines.path(), "server", entry());
    daemon.poll(&[], 30);
    assert_eq!(observed(&daemon.page()), 3);
    assert_eq!(daemon.page().get("trtllm_exporter_source_records_missing", &[]), 0.0, "records are not missing");
}

fn until_unread(daemon: &Daemon, names: &[&str]) {
    let unread = || daemon.engine()["unreadKeys"].clone();
    until(|| ensure(unread() == json!(names), || unread().to_string()));
}

#[test]
fn new_names_and_answers_of_another_shape_are_noticed_until_an_older_server_answers() {
    let server = Server::start(&(FIXTURE.to_owned() + "# TYPE trtllm_dreams_total counter\ntrtllm_dreams_total 3.0\n"));
    let mut newer = entry();
    newer["perf_metrics"]["timing_metrics"]["wish_time"] = json!(10.5);
    server.change(|answers| {
        answers.entries = Some(vec![newer]);
        answers.more_keys = r#", "numDreams": 3, "kvCacheStats": {"used_num_blocks": 1, "wishes": [{"7": 1}]}"#;
    });
    let daemon = start(&server);
    until_unread(&daemon, &["numDreams", "trtllm_dreams_total", "wish_time", "wishes"]);
    server.change(|answers| {
        answers.entries_in_object = true;
        answers.page = "<html>moved</html>".to_owned();
    });
    let paths = ["/perf_metrics", "/prometheus/metrics"];
    until_unread(&daemon, &[&paths[..], &["numDreams", "trtllm_dreams_total", "wish_time", "wishes"]].concat());
    assert_eq!(daemon.poll(&[], 3).get("trtllm_exporter_source_unread_keys", &[]), 6.0);
    assert_eq!(daemon.engine()["missingEndpoints"], json!([]));
    let until_found = |is_found: bool| {
        until(|| {
            let findings = daemon.text("/api/v1/findings");
            let found = ["engine-newer", "numDreams"].map(|words| findings.contains(words));
            ensure(found == [is_found; 2], || findings)
        });
    };
    until_found(true);
    server.change(|answers| answers.records_status = 503);
    daemon.until_is("trtllm_exporter_source_up", &[], 0.0);
    server.change(|answers| {
        (answers.records_status, answers.more_keys, answers.entries) = (200, "", None);
        answers.page = FIXTURE.to_owned();
    });
    until_unread(&daemon, &[]);
    assert_eq!(daemon.engine()["missingEndpoints"], json!(["/perf_metrics"]));
    until_found(false);
}

#[test]
fn a_slow_page_delays_no_records() {
    let server = Server::start(FIXTURE);
    // The delay exceeds the timeout, so that the first request fails and the exporter requests the page again.
    server.change(|answers| answers.page_after = Duration::from_secs(6));
    let daemon = Daemon::start(&["--source", &server.source]);
    let read_during = |reading: u64| {
        until(|| ensure(server.reads() == reading, || "the page was not requested".to_owned()));
        let before = daemon.page().get("nv_trt_llm_iterations_total", &[]);
        daemon.until_at_least("nv_trt_llm_iterations_total", &[], before + 10.0);
        assert!(server.change(|answers| answers.ended) < reading, "the records waited for the page");
    };
    read_during(1);
    server.change(|answers| answers.page_after = Duration::from_secs(3));
    read_during(2);
    let page = daemon.until_shown("nv_trt_llm_requests_finished_total", &["reason=stop"], true);
    assert_eq!(page.count("trtllm_exporter_poll_errors_total", &["kind=timeout"]), 0);
    assert_eq!(page.get("trtllm_exporter_source_up", &[]), 1.0);
}

#[test]
fn a_page_with_a_status_that_does_not_mean_missing_is_requested_again_and_the_error_is_told() {
    let server = Server::start(FIXTURE);
    server.change(|answers| answers.page_status = 429);
    let daemon = Daemon::start(&["--source", &server.source]);
    let notice = || daemon.engine()["notice"].to_string();
    let told = "/prometheus/metrics answered with status 429";
    until(|| ensure(notice().contains(told), notice));
    // Statuses 401 and 403 have an error of their own.
    server.change(|answers| answers.page_status = 401);
    until(|| ensure(notice().contains("status 401; check that bearer_token_file"), notice));
    assert_eq!(daemon.engine()["missingEndpoints"], json!(["/perf_metrics"]));
    daemon.until_logged(&["an endpoint cannot be read", told]);
    let ready = daemon.text("/readyz");
    assert!(ready.contains("an endpoint of the server cannot be read") && !ready.contains("127.0.0.1"), "{ready}");
    server.change(|answers| answers.page_status = 200);
    until(|| ensure(notice() == "null", notice));
    daemon.until_logged(&["all endpoints can be read again"]);
    assert_eq!(daemon.page().find("nv_trt_llm_requests_finished_total", &["reason=stop"]), Some(0.0));
}

#[test]
fn a_page_that_is_missing_is_listed_and_is_no_error() {
    let server = Server::start(FIXTURE);
    server.change(|answers| answers.page_status = 404);
    let daemon = start(&server);
    let engine = daemon.engine();
    assert_eq!(engine["missingEndpoints"], json!(["/perf_metrics", "/prometheus/metrics"]));
    assert!(engine["notice"].is_null(), "{}", engine["notice"]);
    // It is requested again only after the server was replaced.
    let since = Instant::now();
    // Six seconds are longer than the time between two requests for the page.
    daemon.until(|_| ensure(since.elapsed() > Duration::from_secs(6), || "waiting".to_owned()));
    assert_eq!(server.reads(), 1);
    server.change(|answers| (answers.records_status, answers.page_status) = (503, 200));
    daemon.until_is("trtllm_exporter_source_up", &[], 0.0);
    server.change(|answers| answers.records_status = 200);
    until(|| ensure(server.reads() >= 2, || "the page was not requested".to_owned()));
}

#[test]
fn settings_and_the_times_of_a_start_are_read_once_for_each_start_of_the_server() {
    let speculative = "trtllm_speculative_config_info{spec_enabled=\"True\",spec_method=\"eagle3\"} 1.0\n";
    let server = Server::start(&(FIXTURE.to_owned() + speculative));
    let startup = |seconds: f64| json!({"startup_metrics": {"worker_start_seconds": 4, "final_model_engine": {"total_warmup_seconds": seconds}}});
    server.change(|answers| answers.info = Some(startup(31.5)));
    let daemon = start(&server);
    let until_warmup = |seconds: f64| {
        let warmup = ["stage=final_model_engine.total_warmup_seconds"];
        daemon.until_is("nv_trt_llm_startup_seconds", &warmup, seconds)
    };
    let page = until_warmup(31.5);
    assert_eq!(page.get("nv_trt_llm_startup_seconds", &["stage=worker_start_seconds"]), 4.0);
    let known = [
        "dtype=auto",
        "quantization=none",
        "tensor_parallel_size=2",
        "pipeline_parallel_size=1",
        "tokens_per_block=32",
    ];
    let unknown = ["expert_parallel_size=unknown", "kv_cache_dtype=unknown", "max_batch_size=unknown"];
    let labels = [&known[..], &unknown[..], &["speculative_method=eagle3"]].concat();
    assert_eq!(page.get("nv_trt_llm_engine_config_info", &labels), 1.0);
    daemon.poll(&[], 10);
    assert_eq!(server.change(|answers| answers.info_reads), 1);
    // While the server restarts, it does not answer.
    server.change(|answers| (answers.records_status, answers.info) = (503, Some(startup(12.0))));
    daemon.until_at_least("trtllm_exporter_poll_errors_total", &["kind=http_status"], 1.0);
    server.change(|answers| answers.records_status = 200);
    until_warmup(12.0);
}
