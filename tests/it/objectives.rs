//! Latency objectives: the page of the real daemon must count requests with known latencies as met, missed or unknown.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::daemon::Daemon;
use crate::support::ensure;
use crate::support::page::Page;

/// A finished request. The times are seconds after its arrival.
fn entry(first_token: Value, last_token: Value, tokens: Option<u64>, reason: &str) -> String {
    let at = |seconds: &Value| seconds.as_f64().map(|seconds| 1000.0 + seconds);
    let timing =
        json!({"arrival_time": 1000.0, "first_token_time": at(&first_token), "last_token_time": at(&last_token)});
    let metrics = json!({"timing_metrics": timing});
    json!({"perf_metrics": metrics, "output_tokens": tokens, "finish_reason": reason}).to_string()
}

/// Requests for the objectives `ttft=500ms,tpot=50ms,e2e=2s`.
fn requests() -> Vec<String> {
    vec![
        // All objectives are met, each exactly at its limit: 0.5 s, 30 × 0.05 s, 2 s.
        entry(json!(0.5), json!(2.0), Some(31), "stop"),
        // Only the time per token misses its objective: 0.9 s for 10 tokens.
        entry(json!(0.5), json!(1.4), Some(11), "length"),
        // Only the time per token is met.
        entry(json!(1.0), json!(5.0), Some(101), "stop"),
        // A request with a single token has no time per token, so it cannot miss the objective `tpot`.
        entry(json!(0.25), json!(0.25), Some(1), "stop"),
        // The number of tokens is unknown.
        entry(json!(0.25), json!(0.5), None, "stop"),
        // The time of the first token is unknown, and the request ends too late.
        entry(Value::Null, json!(3.0), Some(10), "stop"),
        // The first token before the arrival shows that the clock was set back, so only the time per token is known: 1.5 s for 3
        // further tokens are too long.
        entry(json!(-1.0), json!(0.5), Some(4), "stop"),
        // The client cancelled the request, long after each limit.
        entry(json!(10.0), json!(20.0), Some(3), "cancelled"),
    ]
}

/// The entries of three engines that replay this file: with all objectives, with these, and without any.
fn engines(requests: &Path, of_one: &str) -> String {
    let of_one = &format!(", objectives: {of_one}");
    [("all", ", objectives: {ttft: 500ms, tpot: 50ms, e2e: 2s}"), ("one", of_one), ("none", "")]
        .map(|(model, objectives)| {
            let source = format!("replay:{}?speed=max", requests.display());
            format!("- {{model: {model}, source: '{source}'{objectives}}}\n")
        })
        .concat()
}

/// Number of requests by objective and outcome.
fn judged(page: &Page, model: &str) -> BTreeMap<String, [f64; 3]> {
    let mut judged = BTreeMap::new();
    for objective in ["ttft", "tpot", "e2e", "all"] {
        let labels =
            |outcome| [format!("model={model}"), format!("objective={objective}"), format!("outcome={outcome}")];
        let count = |outcome| {
            let labels = labels(outcome);
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            page.find("nv_trt_llm_objective_requests_total", &labels)
        };
        if let [Some(met), Some(missed), Some(unknown)] = ["met", "missed", "unknown"].map(count) {
            judged.insert(objective.to_owned(), [met, missed, unknown]);
        }
    }
    judged
}

fn expected(of: &[(&str, [f64; 3])]) -> BTreeMap<String, [f64; 3]> {
    of.iter().map(|(objective, counts)| ((*objective).to_owned(), *counts)).collect()
}

/// The page after the replay has counted all requests.
fn replayed(daemon: &Daemon, model: &str, requests: f64) -> Page {
    daemon.until(|page| {
        let all: f64 = judged(page, model).get("all").map_or(0.0, |counts| counts.iter().sum());
        ensure(all >= requests, || format!("{all} of {requests} requests of {model} are judged"))
    })
}

#[test]
fn each_request_is_judged_whole_and_counts_of_other_objectives_begin_at_zero() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, requests().join("\n") + "\n").unwrap();
    let daemon = Daemon::configured(&engines(file.path(), "{e2e: 2s}"), &[]);
    replayed(&daemon, "all", 8.0);
    let page = replayed(&daemon, "one", 8.0);
    let counted = expected(&[
        ("ttft", [4.0, 1.0, 3.0]),
        ("tpot", [3.0, 2.0, 3.0]),
        ("e2e", [4.0, 2.0, 2.0]),
        ("all", [2.0, 2.0, 4.0]),
    ]);
    assert_eq!(judged(&page, "all"), counted);
    assert_eq!(page.get("nv_trt_llm_goodput_tokens_total", &["model=all"]), 32.0);
    for (objective, seconds) in [("ttft", 0.5), ("tpot", 0.05), ("e2e", 2.0)] {
        let objective = format!("objective={objective}");
        assert_eq!(page.get("nv_trt_llm_objective_seconds", &["model=all", &objective]), seconds);
    }
    assert_eq!(judged(&page, "one"), expected(&[("e2e", [4.0, 2.0, 2.0]), ("all", [4.0, 2.0, 2.0])]));
    assert_eq!(page.get("nv_trt_llm_goodput_tokens_total", &["model=one"]), 43.0);
    for name in
        ["nv_trt_llm_objective_requests_total", "nv_trt_llm_goodput_tokens_total", "nv_trt_llm_objective_seconds"]
    {
        assert_eq!(page.find(name, &["model=none"]), None, "{name} without objectives");
    }

    // After a reload, only the counts of the engine with new objectives restart at 0. Its file now has other requests.
    std::fs::write(&file, entry(json!(0.5), json!(2.0), Some(31), "stop") + "\n").unwrap();
    daemon.reload(&engines(file.path(), "{e2e: 1s}"));
    let page = daemon.until(|page| {
        let limit = page.find("nv_trt_llm_objective_seconds", &["model=one"]);
        let now = judged(page, "one");
        ensure(limit == Some(1.0) && now.get("all").is_some_and(|all| all[1] > 0.0), || format!("{limit:?} {now:?}"))
    });
    assert_eq!(judged(&page, "one"), expected(&[("e2e", [0.0, 1.0, 0.0]), ("all", [0.0, 1.0, 0.0])]));
    assert_eq!(judged(&page, "all"), counted);
}

#[cfg(feature = "executor")]
#[test]
fn a_flag_holds_for_all_sources_and_each_completed_request_is_judged_once() {
    let source = "sim:?requests=60&rate=200";
    let engines = ["--source", source, "--source", source, "--model", "a", "--model", "b"];
    let daemon = Daemon::start(&[&engines[..], &["--objectives", "ttft=1h,e2e=1us"]].concat());
    for model in ["a", "b"] {
        let page = replayed(&daemon, model, 60.0);
        let met_and_missed = |objective: &str| {
            let [met, missed, unknown] = judged(&page, model)[objective];
            // Requests that arrived before the exporter's first poll have unknown times.
            assert!(unknown <= 5.0, "{unknown} are unknown: {objective}");
            assert_eq!(met + missed + unknown, 60.0, "{objective}");
            (met > 0.0, missed > 0.0)
        };
        assert_eq!(page.get("nv_trt_llm_requests_completed_total", &[&format!("model={model}")]), 60.0);
        assert_eq!(met_and_missed("ttft"), (true, false));
        assert_eq!((met_and_missed("e2e"), met_and_missed("all")), ((false, true), (false, true)));
    }
}
