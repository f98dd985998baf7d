//! `--source auto` finds each trtllm-serve, and disturbs nothing else.

use std::process::{Command, Stdio};

use crate::support;
use crate::support::daemon::Daemon;
use crate::support::lookalike::{self, Lookalike, reserved_port, steady};
use crate::support::orchestrator::DisaggServer;
use crate::support::process::Process;
use crate::support::served::Served;
use crate::support::{ensure, until};

/// A look-alike whose process is called trtllm-serve.
fn trtllm_serve(folder: &std::path::Path, port: u16, model: &str) -> Process {
    let program = folder.join("trtllm-serve");
    std::fs::copy(lookalike::program(), &program).unwrap();
    let mut command = Command::new(program);
    command.args(["--port", &port.to_string(), "--model", model]);
    Process::spawn(command.stdout(Stdio::null()))
}

const ITERATIONS: &str = "nv_trt_llm_iterations_total";

fn until_counted(daemon: &Daemon, labels: &[&str]) -> u64 {
    daemon.until_at_least(ITERATIONS, labels, 6.0).count(ITERATIONS, labels)
}

#[test]
fn servers_on_the_given_ports_are_found_and_others_are_left_alone() {
    let engines = ["ports-a", "/models/ports-b/"].map(|model| Lookalike::start(&steady(50), &["--model", model]));
    let configured = Lookalike::start(&steady(50), &["--model", "ports-configured"]);
    let vllm = Served::start(&[("/v1/models", 200, r#"{"object":"list","data":[{"id":"m","owned_by":"vllm"}]}"#)]);
    let web = Served::start(&[("/v1/models", 200, "<html></html>")]);
    let silent = Served::start(&[("/v1/models", 0, "")]);
    let ports = [engines[0].port(), engines[1].port(), configured.port(), vllm.port, web.port, silent.port];
    let ports = ports.map(|port| port.to_string()).join(",");
    let auto = format!("auto:?ports={ports}");
    let own = format!("- source: trtllm-serve:http://localhost:{}\n  model: own-name\n", configured.port());
    let daemon = Daemon::configured(&format!("- source: {auto}\n  labels: {{team: search}}\n{own}"), &[]);
    until_counted(&daemon, &["model=ports-a", "version=1", "team=search"]);
    until_counted(&daemon, &["model=ports-b", "version=1", "team=search"]);
    until_counted(&daemon, &["model=own-name"]);
    for words in ["owned by \\\"vllm\\\"", "no list of models", "read by another source"] {
        daemon.until_logged(&["auto: found", words]);
    }
    let page = daemon.page();
    assert!(page.series.iter().all(|(series, _)| !series.contains("ports-configured")), "two readers of one server");
    let found = daemon.text("/api/v1/discovery");
    let address = format!("http://127.0.0.1:{}", engines[0].port());
    let expected = format!("{{\"address\":\"{address}\",\"finding\":\"trtllm-serve with model ports-a\"}}");
    assert!(found.contains(&expected), "{found}");
    // A second search also requests only `/v1/models`, and does not repeat log lines.
    until(|| ensure(vllm.asked().len() >= 2, || "not searched again".to_owned()));
    for other in [&vllm, &web, &silent] {
        is_asked_for_models_only(other);
    }
    daemon.until_logged(&["auto: found", "vllm"]);
    let lost = daemon.page().count("nv_trt_llm_iterations_lost_total", &["model=own-name"]);
    assert_eq!(lost, 0, "no other reader took its records");
    // A reload without `auto` removes its engines.
    daemon.reload(&own);
    daemon.until(|page| {
        let found = page.series.iter().any(|(series, _)| series.contains("ports-"));
        ensure(!found, || "its engines are still there".to_owned())
    });
    until_counted(&daemon, &["model=own-name"]);
}

#[test]
fn an_entry_for_a_server_that_was_found_takes_it_over_with_its_name() {
    let servers = ["found-a", "found-b"].map(|model| Lookalike::start(&steady(50), &["--model", model]));
    let [first, second] = [0, 1].map(|index| servers[index].port());
    let auto = format!("- source: auto:?ports={first},{second}\n");
    let entry = |port: u16| format!("- source: trtllm-serve:http://localhost:{port}\n  model: found-a\n");
    let daemon = Daemon::configured(&auto, &[]);
    until_counted(&daemon, &["model=found-a"]);
    until_counted(&daemon, &["model=found-b"]);
    // A configured engine cannot have the name of an engine that was found.
    daemon.reload(&(auto.clone() + &entry(second)));
    let refused = ["configuration not reloaded", "found-a", "an engine that trtllm-exporter has found"];
    daemon.until_logged(&refused);
    until_counted(&daemon, &["model=found-b"]);

    daemon.reload(&(auto + &entry(first)));
    daemon.until_logged(&["configuration reloaded", "added=1"]);
    let before = until_counted(&daemon, &["model=found-a"]);
    daemon.until_logged(&["auto: found", "read by another source"]);
    let page = daemon.until_at_least(ITERATIONS, &["model=found-a"], (before + 21) as f64);
    let of_it = page.series.iter().filter(|(series, _)| series.starts_with("nv_trt_llm_iterations_total{"));
    assert_eq!(of_it.filter(|(series, _)| series.contains("found-a")).count(), 1);
    assert_eq!(page.count("nv_trt_llm_iterations_lost_total", &["model=found-a"]), 0, "one reader takes its records");
}

#[test]
fn a_process_is_found_by_its_name_followed_when_it_comes_back_and_forgotten_when_it_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let (_unused, unused) = reserved_port();
    let daemon = Daemon::start(&["--source", &format!("auto:?ports={unused}"), "--engine.forget-after", "12s"]);
    // Other tests on this machine may also run a process called trtllm-serve. The name of its model distinguishes it.
    until(|| ensure(daemon.get("/readyz").status == 200, || "waits for something".to_owned()));
    let [a, b] = ["a", "b"].map(|name| format!("process-{name}-{}", std::process::id()));
    let [of_a, of_b] = [&a, &b].map(|model| format!("model={model}"));
    let (_reserved, port) = reserved_port();
    let first = trtllm_serve(folder.path(), port, &a);
    let before = until_counted(&daemon, &[&of_a]);
    drop(first);
    daemon.until_is("trtllm_exporter_source_up", &[&of_a], 0.0);
    // The same model runs on the same port again, so its totals continue.
    let second = trtllm_serve(folder.path(), port, &a);
    daemon.until_at_least(ITERATIONS, &[&of_a], (before + 6) as f64);
    drop(second);
    // Another model on the same port is another engine.
    let third = trtllm_serve(folder.path(), port, &b);
    until_counted(&daemon, &[&of_b]);
    drop(third);
    daemon.until(|page| {
        let left = page.series.iter().filter(|(series, _)| series.contains(&a) || series.contains(&b)).count();
        ensure(left == 0, || format!("{left} series of engines that are gone"))
    });
}

/// Any user may start a process called trtllm-serve, so its arguments are not trusted.
#[test]
fn the_arguments_of_a_process_never_become_a_path_that_is_asked_for() {
    let other = Served::start(&[("/v1/models", 200, "{}")]);
    let host = format!("127.0.0.1:{}/admin/shutdown?x=", other.port);
    // The process is a shell that waits for input. `trtllm-serve` is one of its arguments, as if Python ran it.
    let mut process = Command::new("sh");
    process.args(["-c", "read x", "trtllm-serve", "--host", &host]).stdin(Stdio::piped());
    let process = Process::spawn(&mut process);
    let engine = Lookalike::start(&steady(50), &["--model", "beside-a-fake"]);
    // The other server receives requests because its port is also configured.
    let auto = format!("auto:?ports={},{}", engine.port(), other.port);
    let daemon = Daemon::start(&["--source", &auto]);
    until_counted(&daemon, &["model=beside-a-fake"]);
    until(|| ensure(other.asked().len() >= 2, || "not searched again".to_owned()));
    is_asked_for_models_only(&other);
    assert_eq!(daemon.logged(&["shutdown"]), 0, "{}", daemon.stderr());
    drop(process);
}

fn is_asked_for_models_only(server: &Served) {
    assert!(server.asked().iter().all(|request| request == "GET /v1/models"), "{:?}", server.asked());
}

/// Checks that the orchestrator received only harmless requests.
fn only_reads(asked: &[String]) {
    let allowed = [
        "GET /cluster_info",
        "GET /health",
        "GET /prometheus/metrics",
        "GET /v1/models",
        "GET /version",
        "HEAD /metrics",
    ];
    assert!(asked.iter().all(|request| allowed.contains(&request.as_str())), "{asked:?}");
}

#[test]
fn an_orchestrator_is_never_read_as_an_engine_and_its_worker_is_read_once() {
    let orchestrator = DisaggServer::start();
    let worker = Lookalike::start(&steady(50), &["--model", "disagg-worker"]);
    let auto = format!("auto:?ports={},{}", orchestrator.port, worker.port());
    let daemon = Daemon::start(&["--source", &auto]);
    until_counted(&daemon, &["model=disagg-worker", "version=1"]);
    // Version 1 is the orchestrator on the configured port, because configured ports are searched first. Another test
    // may run a process that looks like an orchestrator.
    let found = ["model=disaggregated", "version=1"];
    let page = daemon.until_is("nv_trt_llm_disagg_ready", &found, 1.0);
    assert_eq!(
        page.get("trtllm_exporter_source_up", &["model=disaggregated", "version=1", "source=trtllm-disagg"]),
        1.0
    );
    assert_eq!(page.count("nv_trt_llm_disagg_ready_workers", &["model=disaggregated", "version=1", "side=context"]), 2);
    // An orchestrator lists the models of a worker. It must not be read as that worker.
    let engines: Vec<&String> = page
        .series
        .iter()
        .map(|(series, _)| series)
        .filter(|series| series.starts_with("nv_trt_llm_iterations_total{"))
        .collect();
    assert!(engines.iter().all(|series| !series.contains("llama")), "{engines:?}");
    assert_eq!(engines.iter().filter(|series| series.contains("disagg-worker")).count(), 1, "{engines:?}");
    let address = format!("http://127.0.0.1:{}", orchestrator.port);
    daemon.until_logged(&["auto: found", &address, "trtllm-serve disaggregated, an orchestrator"]);
    // Without workers, an orchestrator lists no models. It is still detected as an orchestrator.
    orchestrator.change(|counted| (counted.models, counted.health) = (503, 503));
    daemon.until_is("nv_trt_llm_disagg_ready", &found, 0.0);
    only_reads(&orchestrator.asked());
    let lost = daemon.page().count("nv_trt_llm_iterations_lost_total", &["model=disagg-worker"]);
    assert_eq!(lost, 0, "nobody else took the records of the worker");
}

#[test]
fn a_process_of_an_orchestrator_is_found_at_the_address_in_its_file() {
    let orchestrator = DisaggServer::start();
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("trtllm-serve");
    std::fs::write(&program, "import signal\nsignal.pause()\n").unwrap();
    let file = format!("hostname: 0.0.0.0\nport: {}\nbackend: pytorch\n", orchestrator.port);
    std::fs::write(folder.path().join("disagg.yaml"), file).unwrap();
    let mut command = Command::new(support::program("python3"));
    command.arg(&program).args(["disaggregated", "-c", "disagg.yaml"]).current_dir(folder.path());
    let _process = Process::spawn(command.stdout(Stdio::null()));
    let (_unused, unused) = reserved_port();
    let daemon = Daemon::start(&["--source", &format!("auto:?ports={unused}")]);
    let address = format!("http://127.0.0.1:{}", orchestrator.port);
    daemon.until_logged(&["auto: found", &address, "an orchestrator"]);
    only_reads(&orchestrator.asked());
}
