//! The endpoint picker of the Kubernetes gateway reads the exporter. `tests/go/picker` uses its code of release 1.5.0.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::support::daemon::Daemon;
use crate::support::lookalike::{Lookalike, steady};
use crate::support::page::Page;
use crate::support::process::Process;
use crate::support::{build_go, ensure, until};

/// The picker's two names for TensorRT-LLM.
const ENGINE_TYPES: [&str; 2] = ["triton-tensorrt-llm", "trtllm-serve"];

/// A running process of `tests/go/picker`.
struct Picker {
    _process: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Picker {
    fn start(path: &str, exporters: &[(&str, &Daemon)]) -> Self {
        let binary: PathBuf = build_go("picker");
        let mut command = Command::new(binary);
        command.arg(path).args(exporters.iter().map(|(name, daemon)| format!("{name}={}", daemon.address)));
        let mut process = Process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let (input, output) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Self { _process: process, input, output }
    }

    /// Polls every exporter once, under both engine types.
    fn poll(&mut self) -> Value {
        writeln!(self.input, "poll").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Polls until `check` accepts the picker's values of `name` under both engine types.
    fn until(&mut self, name: &str, check: impl Fn(&Value) -> bool) -> [Value; 2] {
        until(|| {
            let all = self.poll();
            let seen = ENGINE_TYPES.map(|engine_type| all[engine_type][name].clone());
            ensure(seen.iter().all(&check), || all.to_string()).map(|()| seen)
        })
    }
}

fn exporter(engine: &Lookalike, stale_after: &str) -> Daemon {
    Daemon::start(&["--source", &engine.source(), "--stale-after", stale_after])
}

/// Stops the engine while it has waiting requests, and returns the page.
fn stop_with_waiting_requests(engine: &Lookalike, daemon: &Daemon) -> Page {
    until(|| {
        engine.stop();
        until(|| ensure(engine.truth().count("in_ring") == 0, || "not all records are read".to_owned()));
        daemon.poll(&[], 2);
        let page = Page::parse(&daemon.text("/metrics/gateway"));
        let waiting = page.get("nv_trt_llm_request_metrics", &["request_type=waiting"]);
        if waiting == 0.0 {
            engine.resume();
        }
        ensure(waiting > 0.0, || "no request waits".to_owned()).map(|()| page)
    })
}

fn is(seen: &Value, key: &str) -> bool {
    seen[key].as_bool().unwrap()
}

#[test]
fn the_gateways_picker_prefers_the_idle_engine_and_drops_one_that_is_stale_or_gone() {
    // The busy engine would become stale only after an hour, so only the refused connection can remove it from the
    // gateway's page.
    let [mut busy, idle, stale] = [(); 3].map(|()| Lookalike::start(&steady(200), &[]));
    let of_busy = exporter(&busy, "1h");
    let of_idle = exporter(&idle, "1h");
    let of_stale = exporter(&stale, "1s");
    of_stale.until_state(&[], "busy");
    idle.control(r#"{"drain":true}"#);
    of_idle.until_state(&[], "idle");
    let page = stop_with_waiting_requests(&busy, &of_busy);
    let shown = |family: &str, kind: &str| page.get(&format!("nv_trt_llm_{family}"), &[kind]);

    let exporters = [("busy", &of_busy), ("idle", &of_idle), ("stale", &of_stale)];
    let mut picker = Picker::start("/metrics/gateway", &exporters);
    // Under both engine types the picker gets the numbers of the page, and prefers the idle engine.
    for seen in picker.until("busy", |seen| is(seen, "updated")) {
        assert_eq!(seen["error"], "", "{seen}");
        for (key, family, kind) in [
            ("waiting", "request_metrics", "request_type=waiting"),
            ("running", "request_metrics", "request_type=scheduled"),
            ("kv_usage", "kv_cache_block_metrics", "kv_cache_block_type=fraction"),
            ("block_size", "kv_cache_block_metrics", "kv_cache_block_type=tokens_per"),
            ("blocks", "kv_cache_block_metrics", "kv_cache_block_type=max"),
        ] {
            assert_eq!(seen[key].as_f64(), Some(shown(family, kind)), "{key} of {seen}");
        }
        assert!(seen["score"].as_f64() < Some(1.0), "{seen}");
    }
    for seen in picker.until("idle", |seen| is(seen, "updated")) {
        assert_eq!(
            (&seen["error"], seen["waiting"].as_u64(), seen["running"].as_u64()),
            (&"".into(), Some(0), Some(0))
        );
        assert_eq!((seen["score"].as_f64(), is(&seen, "chosen")), (Some(1.0), true), "{seen}");
    }

    // An engine that has work but runs no iterations disappears from the page completely. If one of its five series
    // remained, the picker would consider the engine fresh and keep the last values of the other series.
    picker.until("stale", |seen| is(seen, "updated"));
    until(|| {
        let truth = stale.stop();
        let outstanding = truth.count("active_requests") + truth.count("queued_requests");
        if outstanding == 0 {
            stale.resume();
        }
        ensure(outstanding > 0, || "no work outstanding".to_owned())
    });
    for seen in picker.until("stale", |seen| !is(seen, "updated") && !is(seen, "chosen")) {
        assert_eq!(seen["error"].as_str().unwrap().matches("not found").count(), 5, "{seen}");
    }
    assert_eq!(of_stale.page().state(&[]), "stalled");

    // An engine whose port refuses connections disappears long before the time of --stale-after has passed.
    busy.kill();
    for seen in picker.until("busy", |seen| !is(seen, "updated") && !is(seen, "chosen")) {
        assert_eq!(seen["error"].as_str().unwrap().matches("not found").count(), 5, "{seen}");
    }
    assert_eq!(of_busy.page().state(&[]), "busy", "it is not stale yet");
    assert_ne!(Page::parse(&of_busy.text("/metrics")).find("nv_trt_llm_queued_requests", &[]), None);
    for seen in picker.until("idle", |seen| is(seen, "updated")) {
        assert!(is(&seen, "chosen"), "{seen}");
    }
}

#[test]
fn the_page_of_trtllm_serve_has_its_names_without_a_flag() {
    let engine = Lookalike::start(&steady(200), &[]);
    let daemon = exporter(&engine, "1h");
    daemon.until_state(&[], "busy");
    // With its type trtllm-serve, the picker reads `/prometheus/metrics`, the path of trtllm-serve's own page.
    let mut picker = Picker::start("/prometheus/metrics", &[("engine", &daemon)]);
    for seen in picker.until("engine", |seen| is(seen, "updated")) {
        assert_eq!(seen["error"], "", "{seen}");
    }
    let page = Page::parse(&daemon.text("/prometheus/metrics"));
    assert!(page.families.iter().any(|(name, _)| name == "trtllm_num_requests_running"));
    assert!(page.families.iter().any(|(name, _)| name == "nv_trt_llm_iterations_total"));
    assert!(!daemon.page().families.iter().any(|(name, _)| name.starts_with("trtllm_num_")));
    let page = Page::parse(&daemon.text("/prometheus/metrics?collect[]=compat"));
    assert!(page.families.iter().all(|(name, _)| name.starts_with("trtllm_")), "{:?}", page.families);
    assert_eq!(daemon.get("/prometheus/metrics?collect[]=none").status, 400);
    // A user may also set `--web.telemetry-path` to `/prometheus/metrics`.
    let chosen = Daemon::start(&["--source", "sim:", "--web.telemetry-path", "/prometheus/metrics"]);
    chosen.text("/prometheus/metrics");
    chosen.text("/prometheus/metrics/gateway");
}
