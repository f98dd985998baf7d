//! `kubernetes:` finds the pods that serve TensorRT-LLM, and follows them.

use std::fs;

use serde_json::{Value, json};

use crate::support::daemon::{Daemon, Launch};
use crate::support::kubernetes::{ApiServer, pod};
use crate::support::lookalike::{Lookalike, steady};
use crate::support::{ensure, until};

fn engine(model: &str) -> Lookalike {
    Lookalike::start(&steady(50), &["--model", model])
}

/// Follows the pods of the node `gpu-1`.
fn start(api: &ApiServer, options: &str) -> Daemon {
    let source = format!("kubernetes:?api_server=http://127.0.0.1:{}{options}", api.port);
    Launch::new().variable("NODE_NAME", "gpu-1").start(&["--source", &source])
}

fn until_counted(daemon: &Daemon, pod: &str, more_than: u64) -> u64 {
    let labels = [&format!("pod={pod}")[..], "namespace=team-a", "node=gpu-1"];
    let name = "nv_trt_llm_iterations_total";
    daemon.until_at_least(name, &labels, (more_than + 1) as f64).count(name, &labels)
}

fn until_gone(daemon: &Daemon, pod: &str) {
    daemon.until(|page| {
        let left = page.series.iter().filter(|(series, _)| series.contains(pod)).count();
        ensure(left == 0, || format!("{left} series of {pod}"))
    });
}

/// The JSON of an engine.
fn of_pod(daemon: &Daemon, pod: &str) -> Value {
    let engines: Value = daemon.get("/api/v1/engines").json();
    engines.as_array().unwrap().iter().find(|engine| engine["labels"]["pod"] == pod).cloned().unwrap_or_default()
}

fn until_found(daemon: &Daemon, words: &[&str]) {
    until(|| {
        let found = daemon.text("/api/v1/discovery");
        ensure(words.iter().all(|word| found.contains(word)), || format!("{words:?}: {found}"))
    });
}

#[test]
fn pods_come_and_go_and_say_why_they_do_not_serve() {
    let api = ApiServer::start();
    let [first, second, watched, elsewhere, third] = ["m", "m", "m", "m", "late"].map(engine);
    api.apply(pod("llama-0", "gpu-1", &first));
    api.apply(pod("llama-1", "gpu-1", &second));
    api.apply(pod("far-0", "gpu-2", &elsewhere));
    let mut with_sidecar = pod("watched-0", "gpu-1", &watched);
    with_sidecar["spec"]["initContainers"] = json!([{"name": "trtllm-exporter", "image": "x"}]);
    api.apply(with_sidecar);
    let daemon = start(&api, "");
    let before = until_counted(&daemon, "llama-0", 5);
    until_counted(&daemon, "llama-1", 5);
    let page = daemon.page();
    for (pod, replica) in [("llama-0", "0"), ("llama-1", "1")] {
        let labels = ["model=m", "version=1", &format!("pod={pod}"), &format!("replica={replica}")];
        assert!(page.find("nv_trt_llm_iterations_total", &labels).is_some(), "{pod}");
        let records: Value = daemon.get(&format!("/api/v1/iterations?engine=m:1:team-a/{pod}")).json();
        assert!(!records.as_array().unwrap().is_empty());
    }
    let ambiguous = daemon.get("/api/v1/iterations?engine=m:1");
    assert_eq!(ambiguous.status, 400);
    assert!(ambiguous.text().contains("use one of m:1:team-a/llama-0, m:1:team-a/llama-1"), "{}", ambiguous.text());
    until_found(&daemon, &["team-a/watched-0", "not read: its container trtllm-exporter reads the engine"]);

    // A new pod, and one that is deleted.
    let mut late = pod("late-0", "gpu-1", &third);
    let status = late["status"].take();
    late["status"] = json!({"phase": "Pending", "podIP": "", "containerStatuses": [{"name": "server", "state": {"waiting": {"reason": "ContainerCreating"}}}]});
    api.apply(late.clone());
    until_found(&daemon, &["team-a/late-0", "not ready: ContainerCreating"]);
    late["status"] = status;
    api.apply(late);
    until_counted(&daemon, "late-0", 5);
    api.delete("late-0");
    until_gone(&daemon, "late-0");

    // The pods are listed again when the API server has no events any more.
    drop(second);
    api.change(|api| api.list_status = Some(503));
    api.forget_events();
    let mut crashing = pod("llama-1", "gpu-1", &first);
    crashing["status"]["podIP"] = "127.0.0.9".into();
    crashing["status"]["containerStatuses"] = json!([{
        "name": "server", "ready": false, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}},
    }]);
    crashing["metadata"]["annotations"] = json!({});
    crashing["spec"]["containers"][0]["command"] = json!(["trtllm-serve", "m", "--port", "9"]);
    api.apply(crashing);
    daemon.until_logged(&["level=warn", "cannot list pods"]);
    api.change(|api| api.list_status = None);
    let why = "CrashLoopBackOff after OOMKilled, exit code 137";
    until_found(&daemon, &["team-a/llama-1", "trtllm-serve with model m, not ready", why]);
    until(|| {
        let engine = of_pod(&daemon, "llama-1");
        let says = engine["verdict"]["says"].as_str().unwrap_or_default();
        ensure(engine["why"].as_str().is_some_and(|it| it.contains(why)) && says.contains(why), || engine.to_string())
    });
    assert_eq!(of_pod(&daemon, "llama-1")["verdict"]["cause"], "unavailable");
    until_counted(&daemon, "llama-0", before);
    assert_eq!(daemon.get("/readyz").status, 200);

    // Only the pods of this node were asked for, and no engine of a pod with another reader was asked at all.
    let asked = api.change(|api| api.asked.clone());
    assert!(asked.iter().all(|path| path.contains("fieldSelector=spec.nodeName%3Dgpu-1")), "{asked:?}");
    for other in [&watched, &elsewhere] {
        assert_eq!(other.truth().count("received/iterations"), 0);
    }
}

#[test]
fn an_api_server_that_refuses_is_named_with_the_verb_and_engines_stay() {
    let api = ApiServer::start();
    let [first, second] = ["m", "n"].map(engine);
    api.apply(pod("llama-0", "gpu-1", &first));
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    fs::write(&token, "old").unwrap();
    api.change(|api| api.token = Some("old".to_owned()));
    let daemon = start(&api, &format!("&bearer_token_file={}", token.display()));
    let mut counted = until_counted(&daemon, "llama-0", 5);

    api.change(|api| api.watch_status = Some(403));
    api.end_watches();
    daemon.until_logged(&["level=warn", "the service account must not watch pods in all namespaces", "ClusterRole"]);
    until_found(&daemon, &["must not watch pods", "trtllm-serve with model m"]);
    counted = until_counted(&daemon, "llama-0", counted + 5);
    api.change(|api| api.watch_status = None);
    daemon.until_logged(&["kubernetes: gone", "must not watch pods"]);

    // The token expires, and the kubelet writes a new one.
    api.change(|api| api.token = Some("new".to_owned()));
    api.end_watches();
    daemon.until_logged(&["level=warn", "does not accept the token", token.to_str().unwrap()]);
    counted = until_counted(&daemon, "llama-0", counted + 5);
    fs::write(&token, "new").unwrap();
    api.apply(pod("llama-1", "gpu-1", &second));
    until_counted(&daemon, "llama-1", 5);
    until_counted(&daemon, "llama-0", counted);
    assert_eq!(daemon.logged(&["level=warn", "does not accept the token"]), 1, "{}", daemon.stderr());
}

#[test]
fn a_start_outside_of_a_pod_says_what_is_missing() {
    let run = |source: &str, node: &str| {
        let output = Launch::new().variable("NODE_NAME", node).run(&["--dry-run", "--source", source]);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, why) = run("kubernetes:team-a", "");
    assert!(code == Some(2) && why.contains("NODE_NAME") && why.contains("all_nodes=true"), "{why}");
    let (code, why) = run("kubernetes:team-a", "gpu-1");
    assert!(code == Some(2) && why.contains("KUBERNETES_SERVICE_HOST") && why.contains("api_server"), "{why}");
    assert_eq!(run("kubernetes:team-a?all_nodes=true&api_server=http://127.0.0.1:8001", "").0, Some(0));
}
