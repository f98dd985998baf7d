use serde_json::json;

use super::*;

/// A pod of trtllm-serve that runs, with `changes` merged into it.
fn pod(changes: Value) -> Option<ServingPod> {
    serving(&object(changes), &PodSelection::default())
}

fn object(changes: Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": "llama-7d4b9-x2k8p", "namespace": "team-a", "uid": "u1"},
        "spec": {"nodeName": "gpu-1", "containers": [{"name": "server", "image": "registry/models:1", "command": ["trtllm-serve", "/models/llama"]}]},
        "status": {"phase": "Running", "podIP": "10.0.0.7", "containerStatuses": [{"name": "server", "ready": true, "state": {"running": {}}}]},
    });
    merge(&mut pod, changes);
    pod
}

/// Lists and plain values are replaced, maps are merged.
fn merge(into: &mut Value, changes: Value) {
    match (into, changes) {
        (Value::Object(into), Value::Object(changes)) => {
            changes.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
        }
        (into, changes) => *into = changes,
    }
}

fn with_container(container: Value) -> Option<ServingPod> {
    let mut server = json!({"name": "server", "image": "registry/models:1"});
    merge(&mut server, container);
    pod(json!({"spec": {"containers": [server]}}))
}

fn with_status(status: Value) -> Option<PodTrouble> {
    pod(json!({"status": status})).unwrap().pod.trouble
}

fn with_state(state: Value) -> Option<PodTrouble> {
    with_status(json!({"containerStatuses": [state]}))
}

#[test]
fn a_pod_is_found_by_its_command_or_its_image() {
    let found = pod(json!({})).unwrap();
    let name = PodName { namespace: "team-a".to_owned(), pod: "llama-7d4b9-x2k8p".to_owned() };
    let expected = FoundPod {
        uid: "u1".to_owned(),
        name,
        node: "gpu-1".to_owned(),
        replica: "x2k8p".to_owned(),
        model: Some("llama".to_owned()),
        trouble: None,
        ended: false,
    };
    assert_eq!((found.pod, found.target.as_deref(), found.left), (expected, Some("http://10.0.0.7:8000"), None));
    for container in [
        json!({"command": ["/bin/sh", "-c", "set -e; export A=1 && exec trtllm-serve serve \"org/m\" --port 8000"]}),
        json!({"command": ["python3"], "args": ["-m", "tensorrt_llm.commands.serve", "m"]}),
        json!({"image": "nvcr.io/nvidia/tensorrt-llm/release:1.2.0"}),
    ] {
        assert!(with_container(container.clone()).is_some(), "{container}");
    }
    for container in [
        json!({"command": ["vllm", "serve", "m"]}),
        json!({"image": "registry/trtllm-exporter:1", "args": ["--source=trtllm-serve:http://h:8000"]}),
        json!({"command": ["trtllm-serve", "disaggregated_mpi_worker", "-c", "f"]}),
    ] {
        assert_eq!(with_container(container.clone()), None, "{container}");
    }
    // With a label selector, it does not matter what the pod runs.
    let other = json!({"spec": {"containers": [{"name": "a", "image": "b"}]}});
    let selected = PodSelection { selector: Some("app=a".to_owned()), ..PodSelection::default() };
    assert!(pod(other.clone()).is_none() && serving(&object(other), &selected).is_some());
    assert!(with_container(json!({"command": ["trtllm-serve", "disaggregated", "-c", "f"]})).unwrap().orchestrator);
}

#[test]
fn the_model_is_only_known_where_the_command_line_is_certain() {
    let model = |command: &[&str]| with_container(json!({"command": command})).unwrap().pod.model;
    assert_eq!(model(&["trtllm-serve", "serve", "org/llama", "--port", "1"]).as_deref(), Some("llama"));
    assert_eq!(model(&["trtllm-serve", "/m/a", "--served_model_name=b"]).as_deref(), Some("b"));
    assert_eq!(model(&["trtllm-serve", "--backend", "pytorch", "m"]), None);
    assert_eq!(model(&["sh", "-c", "trtllm-serve $MODEL"]), None);
}

#[test]
fn the_port_is_that_of_the_first_of_these_that_tells_it() {
    let of = |metadata: Value, container: Value, port| {
        let mut server = json!({"name": "server", "image": "tensorrt-llm"});
        merge(&mut server, container);
        let object = object(json!({"metadata": metadata, "spec": {"containers": [server]}}));
        serving(&object, &PodSelection { port, ..PodSelection::default() })
            .unwrap()
            .target
            .unwrap()
            .rsplit(':')
            .next()
            .unwrap()
            .parse::<u16>()
            .unwrap()
    };
    let all = json!({
        "args": ["trtllm-serve", "m", "--port", "3"],
        "ports": [{"name": "grpc", "containerPort": 9}, {"name": "http", "containerPort": 4}],
        "readinessProbe": {"httpGet": {"port": 5}},
    });
    assert_eq!(of(json!({"annotations": {"trtllm-exporter.io/port": "1"}}), all.clone(), Some(2)), 1);
    assert_eq!(of(json!({}), all.clone(), Some(2)), 2);
    assert_eq!(of(json!({}), all.clone(), None), 3);
    let mut without_command = all;
    without_command["args"] = json!([]);
    assert_eq!(of(json!({}), without_command, None), 4);
    assert_eq!(of(json!({}), json!({"livenessProbe": {"httpGet": {"port": 5}}}), None), 5);
    let named = json!({"ports": [{"name": "x", "containerPort": 6}], "startupProbe": {"httpGet": {"port": "x"}}});
    assert_eq!(of(json!({}), named, None), 6);
    assert_eq!(of(json!({}), json!({}), None), 8000);
    let address = pod(json!({"status": {"podIP": "fd00::7"}})).unwrap().target;
    assert_eq!(address.as_deref(), Some("http://[fd00::7]:8000"));
    assert_eq!(pod(json!({"status": {"podIP": ""}})).unwrap().target, None);
}

#[test]
fn a_pod_with_another_reader_is_left() {
    let left = |changes: Value| pod(changes).unwrap().left;
    let server = json!({"name": "server", "image": "m", "command": ["trtllm-serve", "m"]});
    for (changes, word) in [
        (json!({"spec": {"initContainers": [{"name": "trtllm-exporter", "image": "x"}]}}), "container trtllm-exporter"),
        (
            json!({"spec": {"containers": [server, {"name": "e", "image": "r:5000/trtllm-exporter:1@sha256:0"}]}}),
            "container e",
        ),
        (json!({"metadata": {"labels": {"trtllm-exporter": "sidecar"}}}), "label"),
        (json!({"metadata": {"annotations": {"trtllm-exporter.io/scrape": "false"}}}), "trtllm-exporter.io/scrape"),
        (json!({"metadata": {"annotations": {"prometheus.io/scrape": "true"}}}), "takes the records"),
        (
            json!({"metadata": {"annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8000"}}}),
            "takes the",
        ),
    ] {
        assert!(left(changes.clone()).is_some_and(|why| why.contains(word)), "{changes}");
    }
    for (path, port) in [("/prometheus/metrics", "8000"), ("/metrics", "9400")] {
        let annotations =
            json!({"prometheus.io/scrape": "true", "prometheus.io/path": path, "prometheus.io/port": port});
        assert_eq!(left(json!({"metadata": {"annotations": annotations}})), None, "{path} {port}");
    }
}

#[test]
fn a_container_that_starts_is_loading_and_one_that_has_ended_is_down() {
    let loading = |why: &str| Some(PodTrouble::Loading(why.to_owned()));
    let down = |why: &str| Some(PodTrouble::Down(why.to_owned()));
    let waiting = |reason: &str| json!({"name": "server", "state": {"waiting": {"reason": reason}}});
    let killed = json!({"terminated": {"reason": "OOMKilled", "exitCode": 137}});
    let unscheduled = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}]);
    assert_eq!(
        with_status(json!({"phase": "Pending", "containerStatuses": [], "conditions": unscheduled})),
        loading("Unschedulable: 0/3 nodes are available")
    );
    assert_eq!(with_status(json!({"phase": "Pending", "containerStatuses": []})), loading("Pending"));
    assert_eq!(with_state(waiting("ContainerCreating")), loading("ContainerCreating"));
    assert_eq!(with_state(waiting("ImagePullBackOff")), loading("ImagePullBackOff"));
    let init = json!({
        "containerStatuses": [waiting("PodInitializing")],
        "initContainerStatuses": [{"name": "fetch", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
    });
    assert_eq!(with_status(init), down("CrashLoopBackOff of init container fetch"));
    let mut crashing = waiting("CrashLoopBackOff");
    crashing["lastState"] = killed.clone();
    assert_eq!(with_state(crashing), down("CrashLoopBackOff after OOMKilled, exit code 137"));
    assert_eq!(with_state(json!({"name": "server", "state": killed})), down("OOMKilled, exit code 137"));
    let starting = |last: Value, started| json!({"name": "server", "ready": false, "started": started, "state": {"running": {}}, "lastState": last});
    assert_eq!(with_state(starting(json!({}), false)), loading("the startup probe has not succeeded yet"));
    let restarted = || Some(PodTrouble::Restarted("started again after OOMKilled, exit code 137".to_owned()));
    assert_eq!(with_state(starting(killed.clone(), true)), restarted());
    let finished = json!({"terminated": {"reason": "Completed", "exitCode": 0}});
    assert_eq!(with_state(starting(finished, true)), loading("started again after Completed, exit code 0"));
    // It was ready after an old restart, so it does not load: the server itself says why it no longer answers.
    let unready_at = |time: Value| {
        let mut container = starting(killed.clone(), true);
        container["state"]["running"] = json!({"startedAt": "2026-11-29T20:00:00Z"});
        let condition = json!({"type": "ContainersReady", "status": "False", "lastTransitionTime": time});
        with_status(json!({"containerStatuses": [container], "conditions": [condition]}))
    };
    assert_eq!(
        ["2026-11-29T19:59:50Z", "2026-11-29T20:00:02Z"].map(|time| unready_at(json!(time))),
        [restarted(), restarted()]
    );
    assert_eq!(unready_at(Value::Null), restarted());
    assert_eq!(unready_at(json!("2026-11-30T08:00:00Z")), None);
    // It runs, and its readiness probe fails: the server itself says why.
    assert_eq!(with_state(starting(json!({}), true)), None);
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."});
    assert_eq!(with_status(evicted.clone()), down("Evicted: The node was low on resource: memory."));
    let ended = pod(json!({"status": evicted})).unwrap();
    assert!(ended.pod.ended && ended.target.is_none(), "another pod may have its address");
    assert_eq!(with_status(json!({"reason": "NodeLost"})), down("NodeLost"));
    assert_eq!(with_status(json!({"phase": "Unknown"})), down("Unknown"));
    let conditions = |ready: &str| json!({"conditions": [{"type": "Ready", "status": ready}, {"type": "ContainersReady", "status": "True"}]});
    assert_eq!(
        (with_status(conditions("True")), with_status(conditions("False"))),
        (None, down("the node is not ready"))
    );
}

#[test]
fn a_pod_that_is_deleted_serves_until_its_container_has_ended() {
    let deleted =
        |status: Value| pod(json!({"metadata": {"deletionTimestamp": "2026-11-29T20:00:00Z"}, "status": status}));
    assert!(deleted(json!({})).is_some());
    let ended = json!([{"name": "server", "state": {"terminated": {"exitCode": 0}}}]);
    assert_eq!(deleted(json!({"containerStatuses": ended})), None);
    assert_eq!(pod(json!({"status": {"phase": "Succeeded"}})), None);
}

#[test]
fn a_part_of_a_pod_is_no_pod() {
    let whole = r#"{"metadata": {"name": "a"}, "spec": {"containers": []}, "status": {"phase": "Running"}}"#;
    assert!(serde_json::from_str::<Pod>(whole).is_ok());
    for length in 0..whole.len() {
        assert!(serde_json::from_str::<Pod>(&whole[..length]).is_err(), "{length}");
    }
}
