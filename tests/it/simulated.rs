//! The simulated Executor through the real bridge and the real binary, as a new user starts it (`--source sim:`).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::daemon::{Daemon, prints};
use crate::support::ensure;
use crate::support::page::Page;

/// The engine runs twenty times as fast as real time. Its load needs fewer iterations than the engine's ring holds, so
/// that a late poll loses none.
const FINITE: &str = "sim:?speed=20&seed=3&requests=100&rate=40";
const KEPT: u64 = 1000;

fn finished() -> (Daemon, Page) {
    let daemon = Daemon::start(&["--source", FINITE, "--model", "demo"]);
    daemon.until_at_least("nv_trt_llm_requests_completed_total", &[], 100.0);
    daemon.until_state(&[], "idle");
    // Requests count once it is known which source tells what.
    let page = daemon.until(|page| {
        let lengths = page.count("nv_llm_output_token_len_count", &[]);
        ensure(lengths >= 100, || format!("{lengths} of 100 requests have a length"))
    });
    (daemon, page)
}

#[test]
fn every_request_of_a_finite_load_is_started_and_completed_once() {
    let (daemon, page) = finished();
    let count = |name: &str| page.count(name, &["model=demo"]);
    assert_eq!((count("nv_trt_llm_requests_started_total"), count("nv_trt_llm_requests_completed_total")), (100, 100));
    assert_eq!((count("nv_llm_input_token_len_count"), count("nv_llm_output_token_len_count")), (100, 100));
    let iterations = count("nv_trt_llm_iterations_total");
    assert!(iterations < KEPT, "{iterations} iterations are more than are kept");
    assert_eq!((count("nv_trt_llm_iterations_lost_total"), count("nv_trt_llm_engine_restarts_total")), (0, 0));
    // The context phase of a request produces its first token. Only the other tokens are generation tokens.
    assert_eq!(count("nv_trt_llm_generation_tokens_total") + 100, page.get("nv_llm_output_token_len_sum", &[]) as u64);
    assert_eq!(page.get("nv_trt_llm_request_metrics", &["request_type=active"]), 0.0);
    // The exporter waits some seconds before it observes requests, because the engine could still send exact times.
    // Requests of the first iteration have no times, because they may have started long before. There is one such
    // request, or more on a busy machine.
    let page = daemon.until_at_least("nv_trt_llm_e2e_request_latency_seconds_count", &[], 95.0);
    // On the engine's clock, no request takes ten seconds. A latency of more than that would contain idle time between
    // requests.
    let slow = page.count("nv_trt_llm_e2e_request_latency_seconds_count", &[])
        - page.count("nv_trt_llm_e2e_request_latency_seconds_bucket", &["le=10"]);
    assert_eq!(slow, 0);
    assert_eq!(page.get("nv_trt_llm_request_latency_info", &["from=request_stats"]), 1.0);
}

#[test]
fn a_scenario_runs_for_each_backend() {
    for (name, backend) in [("context-work", "pytorch"), ("context-work-cpp", "tensorrt")] {
        let source = format!("sim:?scenario={name}&seed=2&speed=5");
        let daemon = Daemon::start(&["--source", &source, "--model", name]);
        let page = daemon.until_at_least("nv_trt_llm_requests_completed_total", &[], 20.0);
        let labels = [&*format!("backend={backend}"), "simulated=true", "source=sim"];
        assert_eq!(page.get("nv_trt_llm_engine_info", &labels), 1.0, "{name}");
        daemon.until_logged(&["simulated", "level=info"]);
        assert_eq!(daemon.engine()["simulated"], true);
        // The requests of this scenario have long prompts and short answers.
        let context = page.count("nv_trt_llm_context_tokens_total", &[]);
        assert!(context > 20 * page.count("nv_trt_llm_generation_tokens_total", &[]), "{name}: {context}");
        assert_eq!(page.count("nv_trt_llm_iterations_lost_total", &[]), 0, "{name}");
    }
}

/// The rows of `catalog --scenarios`: first the scenarios, then the drills.
fn listed(more: &[&str]) -> [Vec<Value>; 2] {
    let json = prints(&[&["catalog", "--scenarios", "--format", "json"], more].concat());
    let rows: Vec<Value> = serde_json::from_str(&json).unwrap();
    let (drills, scenarios) = rows.into_iter().partition(|row| row["name"].as_str().unwrap().starts_with("drill-"));
    [scenarios, drills]
}

#[test]
fn the_scenarios_are_listed_with_the_cause_that_is_expected_of_the_verdict() {
    let list = prints(&["--source", "sim:?scenario=list"]);
    assert_eq!(list, prints(&["catalog", "--scenarios"]));
    let [scenarios, drills] = listed(&[]);
    assert!(scenarios.iter().filter(|scenario| scenario["cause"] != "none").count() >= 60);
    assert!(scenarios.iter().filter(|scenario| scenario["cause"] == "none").count() >= 24);
    for scenario in &scenarios {
        let [name, backend, cause, description] =
            ["name", "backend", "cause", "description"].map(|key| scenario[key].as_str().unwrap());
        assert!(list.contains(&format!("| `{name}` | {backend} | `{cause}` | {description} |\n")), "{name}");
    }
    // The table has two header lines.
    assert_eq!(list.lines().count(), scenarios.len() + drills.len() + 2);
}

#[test]
fn a_drill_is_listed_without_its_answer_unless_the_answers_are_asked_for() {
    let [scenarios, drills] = listed(&[]);
    let list = prints(&["catalog", "--scenarios"]);
    for (number, drill) in (1..=10).zip(&drills) {
        let row = format!("| `drill-{number}` | pytorch |  | An incident: find out what it is. |\n");
        assert!(list.contains(&row), "{list}");
        assert_eq!(drill.as_object().unwrap().len(), 3, "{drill}");
    }
    let [with_answers, answers] = listed(&["--answers"]);
    assert_eq!((with_answers, answers.len(), drills.len()), (scenarios.clone(), 10, 10));
    for answer in &answers {
        let named = |scenario: &&Value| answer["description"].as_str().unwrap().starts_with(&of(scenario));
        let scenario = scenarios.iter().find(named).unwrap();
        assert_eq!((&answer["cause"], &answer["cure"]), (&scenario["cause"], &scenario["cure"]));
    }
    let healthy = answers.iter().filter(|answer| answer["cause"] == "none").count();
    let causes: BTreeSet<_> = answers.iter().map(|answer| answer["cause"].as_str()).collect();
    assert_eq!((healthy, causes.len()), (2, 9));
}

/// The name of a scenario and its description.
fn of(scenario: &Value) -> String {
    format!("{}: {}", scenario["name"].as_str().unwrap(), scenario["description"].as_str().unwrap())
}

#[test]
fn nothing_that_is_served_names_the_scenario_of_a_drill() {
    let [scenarios, drills] = listed(&[]);
    let engine = |drill: &Value| {
        format!("- {{source: 'sim:?scenario={0}&speed=5', model: {0}}}\n", drill["name"].as_str().unwrap())
    };
    let engines: String = drills.iter().map(engine).collect();
    let daemon = Daemon::configured(&engines, &["--metrics.profile", "full", "--log.level", "debug"]);
    daemon.until(|page| {
        let idle = |drill: &&Value| {
            let model = format!("model={}", drill["name"].as_str().unwrap());
            page.count("nv_trt_llm_iterations_total", &[&model]) < 20
        };
        ensure(!drills.iter().any(|drill| idle(&drill)), || "some drills do not run".to_owned())
    });
    let routes =
        ["/metrics", "/", "/api/v1/engines", "/api/v1/findings", "/api/v1/discovery", "/api/v1/history?model=drill-1"];
    let mut texts: Vec<_> = routes.iter().map(|route| daemon.text(route)).collect();
    texts.push(daemon.stderr());
    assert!(texts.iter().any(|text| text.contains("drill-10")));
    for scenario in &scenarios {
        // Names without a hyphen are words of HELP texts, too; no drill has such a scenario.
        let name = scenario["name"].as_str().unwrap();
        let shown = texts.iter().find(|text| name.contains('-') && text.contains(name));
        assert!(shown.is_none(), "{name}: {shown:?}");
    }
}
