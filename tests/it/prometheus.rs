//! Prometheus servers scrape the real binary. They must store the page's names, and values that match the engine's own
//! records.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support;
use crate::support::daemon::{Daemon, Launch, doctor};
use crate::support::lookalike::{Lookalike, often_idle, steady};
use crate::support::prometheus::{Prometheus, now, prometheus_2, prometheus_3};
use crate::support::sessions::SESSION;
use crate::support::standin::Standin;
use crate::support::{ensure, until};

fn config(daemon: &Daemon) -> String {
    config_of(&format!("'{}'", daemon.address))
}

fn config_of(targets: &str) -> String {
    format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 900ms}}\n\
         scrape_configs:\n- job_name: engines\n  static_configs: [{{targets: [{targets}]}}]\n"
    )
}

/// An engine that does not iterate yet, and a daemon that has polled the engine and a GPU of the stand-in for NVML.
fn engine_and_daemon() -> (Lookalike, Daemon, Standin) {
    let gpu = Standin::new("gpu.0.energy_mj=1000000");
    let engine = Lookalike::start_stopped(&steady(100), &["--ring", "50000"]);
    let daemon = Launch::new().gpus(&gpu).start(&["--source", &engine.source()]);
    daemon.until_up(&[]);
    // The activity of the GPU is known after two polls. Then all of its values are on the page.
    daemon.until_shown("nv_gpu_sm_active_ratio", &[], true);
    (engine, daemon, gpu)
}

#[test]
fn rates_in_prometheus_are_what_the_engine_emitted() {
    const ITERATIONS: &str = "nv_trt_llm_iterations_total";
    const COMPLETED: &str = "nv_trt_llm_requests_completed_total";
    let (engine, daemon, _gpu) = engine_and_daemon();
    let prometheus = Prometheus::start(&prometheus_3(), &config(&daemon));
    prometheus.until_up();
    prometheus.until_value("up", 1.0);
    // While the engine is paused, the stored values equal the engine's own counts.
    let before = engine.truth();
    prometheus.until_value(ITERATIONS, before.count("iterations") as f64);
    prometheus.until_value(COMPLETED, before.count("completed_requests") as f64);
    let still = now();
    // Waits for one more scrape, so that the window below starts with these values.
    let stored_at = || prometheus.value(&format!("timestamp({ITERATIONS})"), None);
    until(|| {
        ensure(stored_at() > Some(still), || format!("the last scrape was at {:?}, not after {still}", stored_at()))
    });

    engine.resume();
    let first = engine.truth().count("iterations");
    until(|| {
        let iterations = engine.truth().count("iterations") - first;
        ensure(iterations >= 1000, || format!("{iterations} iterations"))
    });
    let after = engine.stop();
    let emitted = after.count("iterations") - before.count("iterations");
    prometheus.until_value(ITERATIONS, after.count("iterations") as f64);
    prometheus.until_value(COMPLETED, after.count("completed_requests") as f64);
    let end = now();
    prometheus.until_value("nv_trt_llm_iterations_lost_total", 0.0);
    // `increase` extrapolates to both ends of its window, by at most one scrape interval each.
    let window = (end - still).ceil();
    let increase = prometheus.value(&format!("increase({ITERATIONS}[{window}s])"), Some(end)).unwrap();
    let ratio = increase / emitted as f64;
    assert!((0.85..1.15).contains(&ratio), "Prometheus computes an increase of {increase}, the engine made {emitted}");
    // The count of a histogram is a counter, too.
    let observed = "nv_trt_llm_iteration_scheduled_requests_count";
    prometheus.until_value(observed, after.count("iterations") as f64);
    let steps = "histogram_quantile(0.5, rate(nv_trt_llm_iteration_latency_seconds_bucket[1m]))";
    let median = prometheus.value(steps, None).unwrap();
    assert!((0.005..0.02).contains(&median), "iterations of 10 ms have a median of {median} s");
}

/// Runs Prometheus with the configuration in deploy/prometheus, but with another address and shorter intervals.
fn deployed_configuration_works(binary: &Path) {
    let (engine, daemon, _gpu) = engine_and_daemon();
    engine.resume();
    let folder = support::root().join("deploy/prometheus");
    let mut config = fs::read_to_string(folder.join("scrape.yaml")).unwrap();
    for (from, to) in [
        ("127.0.0.1:8002", daemon.address.as_str()),
        ("scrape_interval: 15s", "scrape_interval: 1s"),
        ("evaluation_interval: 15s", "evaluation_interval: 1s"),
        ("- recording.yml", &format!("- {}", folder.join("recording.yml").display())),
        ("- alerts.yml", &format!("- {}", folder.join("alerts.yml").display())),
        ("- alerts-gpu.yml", &format!("- {}", folder.join("alerts-gpu.yml").display())),
    ] {
        assert!(config.contains(from), "scrape.yaml has no {from}");
        config = config.replace(from, to);
    }
    let prometheus = Prometheus::start(binary, &config);
    prometheus.until_up();
    prometheus.until_value("up{job=\"trtllm-exporter\"}", 1.0);
    // Every alert is evaluated over real series, and a healthy engine raises none. Wait, because the engine may have
    // run no iteration between two scrapes.
    until(|| {
        let groups = prometheus.api("rules", &[])["groups"].clone();
        let rules: Vec<Value> =
            groups.as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect();
        ensure(!rules.is_empty() && rules.iter().all(|rule| rule["health"] == "ok"), || format!("{rules:?}"))
    });
    until(|| {
        let firing = prometheus.value("count(ALERTS{alertstate=\"firing\"})", None);
        ensure(firing.is_none(), || prometheus.api("alerts", &[]).to_string())
    });
}

#[test]
fn the_scrape_configuration_in_deploy_finds_the_exporter_with_prometheus_2() {
    deployed_configuration_works(&prometheus_2());
}

#[test]
fn the_scrape_configuration_in_deploy_finds_the_exporter_with_prometheus_3() {
    deployed_configuration_works(&prometheus_3());
}

/// Two replicas of one model that work, and one whose engine has ended.
#[test]
fn doctor_asks_a_prometheus_which_replica_differs() {
    let engines = [(); 3].map(|()| Lookalike::start(&often_idle(50), &[]));
    let start =
        |engine: &Lookalike| Daemon::start(&["--source", &engine.source(), "--model", "llama", "--stale-after", "1s"]);
    let daemons = [start(&engines[0]), start(&engines[1]), start(&engines[2])];
    let [odd, ..] = engines;
    drop(odd);
    let targets = daemons.iter().map(|daemon| format!("'{}'", daemon.address)).collect::<Vec<_>>().join(", ");
    let prometheus = Prometheus::start(&prometheus_3(), &config_of(&targets));
    let wanted = format!("model llama: 2 of 3 replicas: none\n  {}: unavailable\n", daemons[0].address);
    until(|| {
        let output = doctor(&["diagnose", "--prometheus", &prometheus.url()]);
        std::thread::sleep(std::time::Duration::from_millis(500));
        let text = String::from_utf8(output.stdout).unwrap();
        ensure(text.contains(&wanted) && output.status.code() == Some(3), || text.clone())
    });
    let output = doctor(&["diagnose", "--prometheus", "http://127.0.0.1:1"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("http://127.0.0.1:1: not read: cannot connect") && output.status.code() == Some(4),
        "{text}"
    );
}

/// The queries of NVIDIA's Triton dashboard and of dcgm-exporter's dashboard, with one busy and one idle GPU.
#[test]
fn the_queries_of_nvidias_gpu_dashboards_return_values() {
    let gpus = Standin::new(&format!("gpus=2\n{}", include_str!("../fixtures/busy_gpu.state")));
    let daemon = Launch::new().gpus(&gpus).start(&["--source", SESSION, "--metrics.compat=dcgm"]);
    daemon.until_shown("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", &["UUID=GPU-b"], true);
    let prometheus = Prometheus::start(&prometheus_2(), &config(&daemon));
    prometheus.until_up();
    prometheus.until_value("count(DCGM_FI_DEV_GPU_UTIL)", 2.0);
    let busy = |query: &str| query.replace("$gpu", "gpu=\"1\"").replace("$by", "by (Hostname, modelName, gpu)");
    let [used, free] = [12_345_678_901_u64, 72_575_131_083].map(|bytes| (bytes >> 20) as f64);
    for (query, answer) in [
        ("avg $by (DCGM_FI_DEV_GPU_UTIL{$gpu})", 57.0),
        ("max $by (DCGM_FI_DEV_GPU_TEMP{$gpu})", 61.0),
        ("sum $by (DCGM_FI_DEV_POWER_USAGE{$gpu})", 412.345),
        (
            "avg $by (DCGM_FI_DEV_FB_USED{$gpu} / (DCGM_FI_DEV_FB_USED{$gpu} + DCGM_FI_DEV_FB_FREE{$gpu}))",
            used / (used + free),
        ),
        ("DCGM_FI_DEV_SM_CLOCK{$gpu, instance=~\".+\"} * 1000000", 1.9e9),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{$gpu, Hostname=~\".+\", hostname=~\".+\"}", 0.54),
        ("DCGM_FI_DEV_FB_USED{$gpu}", used),
        ("avg(DCGM_FI_DEV_GPU_TEMP)", f64::midpoint(61.0, 30.0)),
        ("sum(DCGM_FI_DEV_POWER_USAGE)", 412.345 + 75.0),
        ("max(DCGM_FI_DEV_GPU_UTIL) / 100", 0.57),
    ] {
        prometheus.until_value(&busy(query), answer);
    }
    // The dashboards use this query for their variables.
    let models = prometheus.api("label/modelName/values", &[]);
    assert_eq!(models, serde_json::json!(["NVIDIA H100 80GB HBM3", "NVIDIA H200"]));
}
