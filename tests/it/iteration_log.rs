//! The iteration log of a server as a source of the daemon (`log:`), as a replay, and for `trtllm-doctor diagnose
//! --log`.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::path::Path;

use serde_json::Value;

use crate::support::daemon::{Daemon, Launch, doctor, doctor_prints, refused};
use crate::support::ensure;
use crate::support::page::Page;

/// Lines of a release 1.3 with 20 requests in each batch, one of them in its context phase in every tenth. `waiting`
/// requests do not fit into the KV cache.
fn lines(iters: RangeInclusive<u64>, waiting: u64) -> String {
    let mut text = String::new();
    for iter in iters {
        let context = u64::from(iter % 10 == 0);
        let (milliseconds, used) = (10 + 30 * u64::from(iter % 10 == 1), if waiting > 0 { 0.99 } else { 0.25 });
        let seconds = iter / 80;
        let time = format!("2026-08-19 14:{:02}:{:02}", seconds / 60, seconds % 60);
        let _ = writeln!(
            text,
            "INFO: 127.0.0.1 - \"POST /v1/completions HTTP/1.1\" 200 OK\n\
             [08/19/2026-14:11:49] [TRT-LLM] [I] [_torch][RANK 0] iter = {iter}, global_rank = 0, rank = 0, num_scheduled_requests = 20, \
             kv_cache_util = {used}, currank_total_requests = 0/{fetched}, host_step_time = {milliseconds}.0ms, prev_device_step_time = \
             {milliseconds}.0ms, timestamp = {time}, states = {{'num_ctx_requests': {context}, 'num_ctx_tokens': {tokens}, \
             'num_generation_tokens': {generation}, 'cached_kv_tokens': 9000}}, num_active = {active}, num_fetched = {context}, \
             num_dummy = 0, num_unscheduled = {waiting}",
            fetched = 100 + iter / 10,
            tokens = 700 * context,
            generation = 20 - context,
            active = 20 + waiting,
        );
    }
    text
}

fn add(path: &Path, text: &str) {
    OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// Iterations, those that are lost, those whose time is known, started requests, and the used share of the KV cache.
fn numbers(page: &Page) -> [f64; 5] {
    let find = |name: &str, labels: &[&str]| page.find(name, labels).unwrap_or(-1.0);
    [
        find("nv_trt_llm_iterations_total", &[]),
        find("nv_trt_llm_iterations_lost_total", &[]),
        find("nv_trt_llm_iteration_latency_seconds_count", &[]),
        find("nv_trt_llm_requests_started_total", &[]),
        find("nv_trt_llm_kv_cache_block_metrics", &["kv_cache_block_type=fraction"]),
    ]
}

#[test]
fn a_log_that_grows_and_is_rotated_and_truncated_is_counted_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("serve.log");
    add(&path, &lines(1..=9, 0));
    let daemon = Daemon::start(&["--source", &format!("log:{}", path.display())]);
    let until = |expected: [f64; 5]| {
        daemon
            .until(|page| ensure(numbers(page) == expected, || format!("{:?} instead of {expected:?}", numbers(page))))
    };
    daemon.poll(&[], 3);
    assert_eq!(numbers(&daemon.page())[0], 0.0, "the lines from before the start");
    add(&path, &lines(10..=21, 0));
    // The last line needs no next one after two seconds, because an idle server writes none. Its batch then has no
    // time.
    until([12.0, 0.0, 11.0, 1.0, 0.25]);
    add(&path, &lines(22..=30, 0));
    fs::rename(&path, directory.path().join("serve.log.1")).unwrap();
    add(&path, &lines(31..=41, 0));
    until([32.0, 0.0, 30.0, 3.0, 0.25]);
    OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    // Lines 42 to 50 are lost.
    add(&path, &lines(51..=60, 0));
    let page = until([42.0, 9.0, 39.0, 5.0, 0.25]);
    assert_eq!(
        page.find("nv_trt_llm_kv_cache_block_metrics", &["kv_cache_block_type=max"]),
        None,
        "the log has no blocks"
    );
    assert_eq!(page.find("nv_trt_llm_requests_completed_total", &[]), None, "nor ends of requests");
    let page = daemon.until_state(&[], "idle");
    assert_eq!(page.get("nv_trt_llm_request_metrics", &["request_type=scheduled"]), 0.0);
    assert_eq!(page.get("nv_trt_llm_engine_restarts_total", &[]), 0.0);
}

#[test]
fn the_standard_input_is_read_while_it_is_written_and_to_its_end() {
    let (stdin, mut server) = std::io::pipe().unwrap();
    let daemon = Launch::new().stdin(stdin).start(&["--source", "log:-", "--stale-after", "3s"]);
    let until = |iterations: f64| {
        daemon.until(|page| ensure(numbers(page)[0] == iterations, || format!("{:?}", numbers(page))));
    };
    let text = lines(1..=20, 0);
    let (begin, end) = text.split_at(text.len() - 40);
    server.write_all(begin.as_bytes()).unwrap();
    until(19.0);
    server.write_all(end.as_bytes()).unwrap();
    drop(server);
    until(20.0);
    let page = daemon.until_state(&[], "unreachable");
    assert_eq!((numbers(&page)[0], page.get("trtllm_exporter_source_up", &[])), (20.0, 0.0));
}

#[test]
fn a_replay_of_a_log_counts_what_the_log_has() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("serve.log");
    add(&path, &format!("[TRT-LLM] [I] loading the model\n{}", lines(1..=500, 0)));
    let daemon = Daemon::start(&["--source", &format!("replay:{}?speed=max", path.display())]);
    let expected = [500.0, 0.0, 498.0, 50.0, 0.25];
    let page = daemon.until(|page| ensure(numbers(page) == expected, || format!("{:?}", numbers(page))));
    assert_eq!(page.find("nv_trt_llm_requests_completed_total", &[]), None, "a log does not tell it");
}

/// The report of the doctor as JSON, and its exit code.
fn diagnose(path: &Path) -> (Value, Option<i32>) {
    let output = doctor(&["diagnose", "--format", "json", "--log", &path.display().to_string()]);
    (serde_json::from_slice(&output.stdout).unwrap_or_default(), output.status.code())
}

#[test]
fn the_doctor_says_what_limits_the_engine_of_a_log_and_what_the_log_cannot_tell() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("serve.log");
    add(&path, &lines(1..=9000, 40));
    let (report, code) = diagnose(&path);
    let verdict = &report["exporters"][0]["engines"][0]["verdict"];
    assert_eq!((verdict["cause"].as_str(), code), (Some("kv_capacity"), Some(3)), "{report}");
    let blind = verdict["blind"].as_array().unwrap();
    let of = |what: &str| blind.iter().find(|spot| spot["what"] == what).unwrap_or_else(|| panic!("{what}: {verdict}"));
    assert!(of("request_times")["switchOn"].as_str().unwrap().contains("trtllm-serve:"), "{verdict}");
    let text = doctor_prints(&["diagnose", "--log", &path.display().to_string()]);
    for words in ["WARNING kv_capacity", "does not tell everything", "request times: Nothing", "14:01:52"] {
        assert!(text.contains(words), "{words}: {text}");
    }

    fs::write(&path, lines(1..=9000, 0)).unwrap();
    let (report, code) = diagnose(&path);
    let cause = report["exporters"][0]["engines"][0]["verdict"]["cause"].clone();
    assert_eq!((cause, code), (Value::from("none"), Some(0)), "{report}");
}

#[test]
fn a_file_without_such_lines_is_an_error_with_its_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("serve.log");
    fs::write(&path, "[TRT-LLM] [I] loading the model\nINFO: Started server process [7]\n").unwrap();
    for (path, words) in
        [(&*path, "print_iter_log: true"), (Path::new("/nowhere/serve.log"), "name the log of a server")]
    {
        refused(2, &["trtllm-doctor", "diagnose", "--log", path.to_str().unwrap()], &["--log", words]);
    }
}
