//! Tests the JSON API of the real binary. It has the values of the page, and reading it consumes nothing.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support;
use crate::support::daemon::{Daemon, Launch};
use crate::support::ensure;
use crate::support::http::{self, request};
use crate::support::ingest::Ingest;
use crate::support::lookalike::{Lookalike, steady};
use crate::support::sessions::{SESSION, session};
use crate::support::standin::Standin;

/// Two engines with the same model and different versions.
fn two_versions() -> Daemon {
    let engine = |version: &str| format!("- source: {SESSION}\n  model: llama\n  version: '{version}'\n");
    let daemon = Daemon::configured(&["1", "2"].map(engine).concat(), &["--stale-after", "1h"]);
    for version in ["version=1", "version=2"] {
        daemon.until_state(&[version], "idle");
    }
    daemon
}

fn get(daemon: &Daemon, path: &str, status: u16) -> Value {
    let answer = daemon.get(path);
    assert_eq!((answer.status, answer.header("content-type")), (status, Some("application/json")), "{path}");
    answer.json()
}

#[test]
fn the_findings_are_the_verdicts_and_what_else_is_worth_knowing() {
    let lookalike = Lookalike::start(&steady(100), &[]);
    let exporter = Daemon::start(&["--source", &lookalike.source(), "--stale-after", "1s"]);
    exporter.until_state(&[], "busy");
    let answer = get(&exporter, "/api/v1/findings", 200);
    assert_eq!((&answer["apiVersion"], &answer["findings"]), (&json!(1), &json!([])));
    drop(lookalike);
    let engine = support::until(|| {
        let answer = get(&exporter, "/api/v1/findings", 200);
        let engine = answer["engines"][0].clone();
        ensure(engine["verdict"]["cause"] == "unavailable", || answer.to_string()).map(|()| engine)
    });
    assert_eq!((&engine["model"], &engine["version"]), (&json!("tensorrt_llm"), &json!("1")));
    let verdict = &engine["verdict"];
    assert!(verdict["says"].as_str().unwrap().starts_with("Nothing answers for "), "{verdict}");
    assert!(verdict["remedy"].as_str().unwrap().contains("Start the server"), "{verdict}");
    assert_eq!(get(&exporter, "/api/v1/engines", 200)[0]["verdict"]["cause"], "unavailable");
}

#[test]
fn the_gpus_are_those_of_the_page() {
    let standin = Standin::new(&format!("gpus=3\n{}", include_str!("../fixtures/busy_gpu.state")));
    let daemon = Launch::new().gpus(&standin).start(&[]);
    daemon.until(|page| {
        let up = (0..3).filter(|gpu| page.find("nv_gpu_info", &[&format!("index={gpu}")]).is_some()).count();
        ensure(up == 3, || format!("{up} GPUs"))
    });
    let answer = get(&daemon, "/api/v1/gpus", 200);
    let page = daemon.page();
    assert_eq!((&answer["nvml"], answer["gpus"].as_array().unwrap().len()), (&json!("up"), 3));
    let gpu = &answer["gpus"][1];
    let of_gpu = |name: &str| page.get(name, &["gpu_uuid=GPU-b"]);
    assert_eq!((&gpu["uuid"], &gpu["index"], &gpu["state"]), (&json!("GPU-b"), &json!(1), &json!("ok")));
    for (key, name) in [
        ("utilizationRatio", "nv_gpu_utilization"),
        ("memoryUsedBytes", "nv_gpu_memory_used_bytes"),
        ("memoryTotalBytes", "nv_gpu_memory_total_bytes"),
        ("powerLimitWatts", "nv_gpu_power_limit"),
    ] {
        assert_eq!(gpu[key].as_f64(), Some(of_gpu(name)), "{key}");
    }
    assert_eq!(gpu["clocksLimitedBy"], json!(["sw_power_cap", "hw_thermal_slowdown"]));
    // If GPU metrics are off, the answer gives the reason for the empty list.
    let off = Daemon::start(&["--gpu", "off"]);
    let answer = get(&off, "/api/v1/gpus", 200);
    assert_eq!((&answer["gpus"], &answer["why"]), (&json!([]), &json!("GPU metrics are switched off (--gpu off).")));
}

#[test]
fn an_engine_has_the_values_of_the_page() {
    let daemon = session(&["--model", "llama"]);
    let engines = get(&daemon, "/api/v1/engines", 200);
    let page = daemon.page();
    assert_eq!(engines.as_array().unwrap().len(), 1);
    let engine = &engines[0];
    assert_eq!(
        (&engine["model"], &engine["version"], &engine["source"]),
        (&json!("llama"), &json!("1"), &json!("replay"))
    );
    assert_eq!(
        (&engine["state"], &engine["simulated"], &engine["labels"]),
        (&json!("idle"), &json!(false), &json!({}))
    );
    for (key, name) in [
        ("iterations", "nv_trt_llm_iterations_total"),
        ("iterationsLost", "nv_trt_llm_iterations_lost_total"),
        ("requestsStarted", "nv_trt_llm_requests_started_total"),
        ("requestsCompleted", "nv_trt_llm_requests_completed_total"),
        ("contextTokens", "nv_trt_llm_context_tokens_total"),
        ("generationTokens", "nv_trt_llm_generation_tokens_total"),
        ("kvCacheBlocksReused", "nv_trt_llm_kv_cache_blocks_reused_total"),
    ] {
        assert_eq!(engine["totals"][key].as_u64(), Some(page.count(name, &[])), "{key}");
    }
    assert!(engine["totals"]["iterations"].as_u64().unwrap() > 0);
    let last = page.get("nv_trt_llm_last_iteration_timestamp_seconds", &[]);
    assert_eq!(engine["lastRecordTimestampSeconds"].as_f64(), Some(last));
    let poll = &engine["lastPoll"];
    assert_eq!(poll["succeeded"], true);
    assert!(poll["timestampSeconds"].as_f64() >= poll["lastSuccessTimestampSeconds"].as_f64());
    // A value that the exporter does not know is absent instead of null.
    assert!(!engine.to_string().contains("null"), "{engine}");
}

/// `api_golden` has the records of the session.
#[test]
fn the_last_records_are_read_again_by_each_request() {
    let daemon = session(&[]);
    let before = daemon.page().count("nv_trt_llm_iterations_total", &[]);
    let read = get(&daemon, "/api/v1/iterations?last=128", 200);
    let read = read.as_array().unwrap();
    // The newest N records, oldest first. A second request returns the same ones, and no total changes.
    for last in 1..=3 {
        for _ in 0..2 {
            let some = get(&daemon, &format!("/api/v1/iterations?engine=tensorrt_llm&last={last}"), 200);
            assert_eq!(some.as_array().unwrap(), &read[read.len() - last..]);
        }
    }
    assert_eq!(daemon.page().count("nv_trt_llm_iterations_total", &[]), before);
}

#[test]
fn the_number_of_kept_records_is_bounded() {
    let record = |iter: u64| format!("{{\"iter\":{iter},\"numActiveRequests\":1,\"iterLatencyMS\":1.5}}\n");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), (1..=1000).map(record).collect::<String>()).unwrap();
    let daemon = Daemon::start(&["--source", &format!("replay:{}?speed=max", file.path().display())]);
    daemon.until_is("nv_trt_llm_iterations_total", &[], 1000.0);
    let kept = get(&daemon, "/api/v1/iterations?last=128", 200);
    let iters: Vec<u64> = kept.as_array().unwrap().iter().map(|record| record["iter"].as_u64().unwrap()).collect();
    assert_eq!(iters, (873..=1000).collect::<Vec<_>>());
    assert_eq!(get(&daemon, "/api/v1/iterations", 200).as_array().unwrap().len(), 10);
}

#[test]
fn an_engine_is_selected_by_model_or_by_model_and_version() {
    let daemon = two_versions();
    for engine in ["llama:1", "llama%3A2"] {
        assert!(!get(&daemon, &format!("/api/v1/iterations?engine={engine}"), 200).as_array().unwrap().is_empty());
    }
    for (query, status, parameter, words) in [
        ("", 400, "engine", "llama:1, llama:2"),
        ("engine=llama", 400, "engine", "llama:1, llama:2"),
        ("engine=gpt", 404, "engine", "engine=gpt is unknown; the engines are llama:1, llama:2"),
        ("engine=llama:1&last=0", 400, "last", "last=0 is not a number from 1 to 128"),
        ("engine=llama:1&last=129", 400, "last", "last=129"),
        ("last=ten&engine=llama:1", 400, "last", "last=ten"),
        ("last=-1", 400, "last", "last=-1"),
    ] {
        let refused = get(&daemon, &format!("/api/v1/iterations?{query}"), status);
        assert_eq!(refused["parameter"], parameter, "{query}");
        assert!(refused["error"].as_str().unwrap().contains(words), "{query}: {refused}");
    }
    assert_eq!(get(&daemon, "/api/v1/engines", 200).as_array().unwrap().len(), 2);
}

#[test]
fn the_api_is_read_only() {
    let daemon = session(&[]);
    for path in ["/metrics", "/api/v1/engines", "/api/v1/iterations"] {
        let post = request("POST", &daemon.address, path, &[], b"x").unwrap();
        assert_eq!((post.status, post.header("allow")), (405, Some("GET,HEAD")), "{path}");
        let head = request("HEAD", &daemon.address, path, &[], b"").unwrap();
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.header("content-type"), daemon.get(path).header("content-type"), "{path}");
    }
    assert_eq!(daemon.get("/api/v1/nothing").status, 404);
}

#[test]
fn a_source_that_never_answered_is_told_from_one_without_a_record_and_from_an_idle_engine() {
    let socket = Ingest::new();
    let engines = format!(
        "- source: trtllm-serve:http://127.0.0.1:1\n  model: refused\n\
         - source: {}\n  model: waiting\n- source: {SESSION}\n  model: idle\n",
        socket.source()
    );
    let daemon = Daemon::configured(&engines, &["--stale-after", "1h"]);
    daemon.until_state(&["model=idle"], "idle");
    daemon.poll(&["model=refused"], 1);
    let engines = get(&daemon, "/api/v1/engines", 200);
    let of = |key: &str| engines.as_array().unwrap().iter().map(|engine| engine[key].clone()).collect::<Vec<_>>();
    assert_eq!(of("state"), ["starting", "starting", "idle"]);
    assert_eq!(of("startPhase"), [json!("never_answered"), json!("no_publisher"), Value::Null]);
    assert_eq!(of("why")[1..], ["no publisher has connected yet", "no requests"]);
    let poll = &engines[0]["lastPoll"];
    let error = poll["error"].as_str().unwrap();
    assert!(error.starts_with("cannot connect to http://127.0.0.1:1: Connection refused"), "{error}");
    assert_eq!(of("why")[0], format!("the source has never answered: {error}"));
    // The time counts from the first poll that failed, not from the last one.
    assert!(poll["unansweredSinceTimestampSeconds"].as_f64() < poll["timestampSeconds"].as_f64(), "{poll}");
    assert_eq!(engines[2]["lastPoll"].get("unansweredSinceTimestampSeconds"), None);
}

#[test]
fn readiness_names_no_address_and_the_page_for_people_allows_only_its_own_script() {
    // Nothing listens on this port.
    let daemon = Daemon::start(&["--source", "trtllm-serve:http://127.0.0.1:1", "--model", "m"]);
    daemon.until_at_least("trtllm_exporter_poll_errors_total", &["kind=connect"], 1.0);
    let ready = daemon.get("/readyz");
    assert_eq!(
        (ready.status, ready.text()),
        (503, "m 1 (trtllm-serve): the source has never answered: no connection (connect); see the log\n")
    );
    assert_eq!(daemon.get("/favicon.ico").status, 204);
    let page = daemon.get("/");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-") && !policy.contains("unsafe"), "{policy}");
}

const PATHS: [&str; 8] = [
    "/",
    "/metrics",
    "/metrics/gateway",
    "/prometheus/metrics",
    "/api/v1/engines",
    "/api/v1/findings",
    "/api/v1/history?engine=m",
    "/api/v1/discovery",
];

fn with_host(daemon: &Daemon, path: &str, host: &str) -> http::Response {
    http::request("GET", &daemon.address, path, &[("Host", host)], b"").unwrap()
}

#[test]
fn pages_and_api_answer_only_for_the_allowed_host_names() {
    let daemon = Daemon::start(&["--source", "sim:", "--web.allowed-hosts", "exporter.example.org,gpu7"]);
    let port = daemon.address.rsplit_once(':').unwrap().1;
    for path in PATHS {
        let refused = with_host(&daemon, path, "exporter.example.org.evil.example:8002");
        assert_eq!(refused.status, 421, "{path}");
        assert!(refused.text().contains("--web.allowed-hosts"), "{}", refused.text());
        for host in ["exporter.example.org", &format!("127.0.0.1:{port}")] {
            assert_ne!(with_host(&daemon, path, host).status, 421, "{path} {host}");
        }
        // A URL in the first line has priority over the header.
        let absolute = format!("http://evil.example{path}");
        assert_eq!(with_host(&daemon, &absolute, "gpu7").status, 421, "{absolute}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(with_host(&daemon, path, "evil.example").status, 200, "{path}");
    }
    assert!(daemon.page().count("trtllm_exporter_http_refused_total", &["reason=bad_request"]) > 0);
}

#[test]
fn every_answer_forbids_browsers_to_guess_its_type_and_caches_to_keep_it() {
    let daemon = Daemon::start(&["--source", "sim:", "--web.allowed-hosts", "gpu7"]);
    let mut answers: Vec<_> =
        PATHS.into_iter().chain(["/healthz", "/readyz", "/favicon.ico", "/no-such-path"]).collect();
    answers.extend(["/metrics?collect[]=nothing", "/api/v1/iterations?engine=nothing", "http://evil.example/"]);
    for path in answers {
        for method in ["GET", "HEAD", "POST"] {
            let answer = http::request(method, &daemon.address, path, &[], b"").unwrap();
            let headers = [answer.header("x-content-type-options"), answer.header("cache-control")];
            assert_eq!(headers, [Some("nosniff"), Some("no-store")], "{method} {path}: {}", answer.status);
        }
    }
    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(100_000));
    for (sent, status) in [("NO HEAD AT ALL\r\n\r\n", "400 "), (&long, "431 ")] {
        let mut stream = TcpStream::connect(&daemon.address).unwrap();
        _ = stream.write_all(sent.as_bytes());
        let mut answer = Vec::new();
        // The system may reset the connection behind the answer, because some of the head was never read.
        _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).to_lowercase();
        let headers = ["x-content-type-options: nosniff\r\n", "cache-control: no-store\r\n"];
        assert!(answer.starts_with(&format!("http/1.1 {status}")), "{answer}");
        assert!(headers.iter().all(|header| answer.contains(header)), "{answer}");
    }
}
