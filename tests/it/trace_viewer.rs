//! Perfetto's viewer opens an exported trace in a real Chromium, and has read all of it. `judges/trace_viewer.py` asks the viewer.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::support;
use crate::support::daemon::{Launch, doctor};
use crate::support::lookalike::{Lookalike, often_idle};
use crate::support::standin::Standin;
use crate::support::{ensure, until};

/// The number of events of each name.
fn count<'a>(events: impl Iterator<Item = (&'a str, u64)>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (name, events) in events {
        // The names of requests have their ids.
        let name = if name.starts_with("request ") { "request" } else { name };
        *counts.entry(name.to_owned()).or_default() += events;
    }
    counts
}

/// What the viewer read: its rows of [process, track, name, number], by the name in the last column but one.
fn rows(read: &Value) -> impl Iterator<Item = (&str, u64)> {
    read.as_array().unwrap().iter().map(|row| {
        let row = row.as_array().unwrap();
        (row[row.len() - 2].as_str().unwrap(), row[row.len() - 1].as_u64().unwrap())
    })
}

#[test]
fn perfetto_reads_every_event_of_a_trace() {
    support::program("chromedriver");
    let viewer = support::tool("TRTLLM_TEST_PERFETTO", "perfetto/index.html");
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("recording");
    let engine = Lookalike::start(&often_idle(200), &[]);
    let standin = Standin::new(&format!("gpus=2\n{}", include_str!("../fixtures/busy_gpu.state")));
    let engines =
        format!("- source: {:?}\n  model: m\n  gpus: [GPU-00000000-0000-4000-8000-000000000000]\n", engine.source());
    let recording = recording.to_str().unwrap();
    let mut daemon = Launch::new().config(&engines).gpus(&standin).start(&["--record.dir", recording]);
    daemon.until_at_least("nv_trt_llm_iterations_total", &[], 400.0);
    daemon.until_at_least("nv_trt_llm_e2e_request_latency_seconds_count", &[], 6.0);
    let trace = folder.path().join("trace.json");
    let export = || {
        let file = trace.to_str().unwrap();
        let exported = doctor(&["export", recording, "--output", file]);
        assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
        std::fs::read_to_string(&trace).unwrap()
    };
    // Readings of GPUs are recorded when the engine is judged.
    until(|| ensure(export().matches("power W").count() > 1, || "no readings of the GPU".to_owned()));
    assert!(daemon.terminate().success());
    let written: Value = serde_json::from_str(&export()).unwrap();

    let output = Command::new(support::python())
        .arg(support::root().join("tests/judges/trace_viewer.py"))
        .args([viewer.parent().unwrap(), &trace])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(read["lost"], Value::Array(Vec::new()));
    let events = &written["traceEvents"];
    let of = |phases: &'static [&str]| {
        events.as_array().unwrap().iter().filter(move |event| phases.contains(&event["ph"].as_str().unwrap()))
    };
    let slices = count(rows(&read["slices"]));
    assert_eq!(slices, count(of(&["X", "b", "i"]).map(|event| (event["name"].as_str().unwrap(), 1))));
    assert!(slices["iteration"] > 300 && slices["request"] > 5 && slices["queue"] > 5, "{slices:?}");
    // The viewer has a counter for each value of an event.
    let values = of(&["C"]).flat_map(|event| {
        let name = event["name"].as_str().unwrap();
        event["args"].as_object().unwrap().keys().map(move |value| format!("{name} {value}"))
    });
    let values: Vec<String> = values.collect();
    let counters = count(rows(&read["counters"]));
    assert_eq!(counters, count(values.iter().map(|name| (name.as_str(), 1))));
    assert!(counters["rank 0 requests active"] > 300 && counters["power W value"] > 1, "{counters:?}");
}
