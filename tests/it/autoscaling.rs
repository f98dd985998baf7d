//! NVIDIA's published autoscaling rules and dashboard queries return the right values in a real Prometheus that scrapes a
//! daemon with `--metrics.compat triton-core`. `prometheus` has the queries about GPUs.

use crate::support::daemon::Daemon;
use crate::support::lookalike::{Lookalike, steady};
use crate::support::prometheus::{Prometheus, prometheus_3};
use crate::support::{ensure, until};

/// The rules of the guide (triton-inference-server/tutorials, TensorRT-LLM_Autoscaling_and_Load_Balancing), word for word.
const RULES: &str = "groups:
- name: triton
  interval: 1s
  rules:
  - record: triton:queue_compute:ratio
    expr: rate(nv_inference_queue_duration_us[1m])/clamp_min(rate(nv_inference_compute_infer_duration_us[1m]),1)
  - record: triton:compute_duration:average
    expr: rate(nv_inference_compute_infer_duration_us[1m])/clamp_min(rate(nv_inference_request_success[1m]),1)
  - record: triton:queue_duration:average
    expr: rate(nv_inference_queue_duration_us[1m])/clamp_min(rate(nv_inference_request_success[1m]),1)
  - record: triton:request_duration:average
    expr: rate(nv_inference_request_duration_us[1m])/clamp_min(rate(nv_inference_request_success[1m]),1)
";

/// Prometheus extrapolates a rate to both ends of its window, so values may differ by 15 %.
fn is_about(value: f64, wanted: f64) -> bool {
    (value - wanted).abs() <= 0.15 * wanted.abs()
}

#[test]
fn the_rules_and_queries_of_nvidias_guide_return_the_right_values() {
    let engine = Lookalike::start_stopped(&steady(200), &["--ring", "50000"]);
    // The engine is paused with work outstanding while the test reads its load gauges.
    let arguments = ["--source", &engine.source(), "--metrics.compat", "triton-core", "--stale-after", "1h"];
    let daemon = Daemon::start(&arguments);
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.yml");
    std::fs::write(&rules, RULES).unwrap();
    let config = format!(
        "global: {{scrape_interval: 500ms, scrape_timeout: 400ms, evaluation_interval: 1s}}\nrule_files: ['{}']\n\
         scrape_configs:\n- job_name: triton\n  static_configs: [{{targets: ['{}']}}]\n",
        rules.display(),
        daemon.address
    );
    let prometheus = Prometheus::start(&prometheus_3(), &config);
    // The window of one minute starts with counters of 0, so their increases equal the values on the page.
    prometheus.until_value("nv_inference_request_success", 0.0);
    engine.resume();
    until(|| {
        let completed = engine.truth().count("completed_requests");
        ensure(completed >= 400, || format!("{completed} requests"))
    });
    let truth = engine.stop();
    until(|| ensure(engine.truth().count("in_ring") == 0, || "the exporter has not read all records".to_owned()));
    daemon.poll(&[], 2);
    let page = daemon.until(|page| {
        let latencies = page.count("nv_trt_llm_e2e_request_latency_seconds_count", &[]);
        // The engine reports no finish reasons, so its requests count as successes after five seconds.
        let (success, completed) =
            (page.count("nv_inference_request_success", &[]), page.count("nv_trt_llm_requests_completed_total", &[]));
        ensure(latencies == truth.count("perf_metrics") && success == completed, || {
            format!("{latencies} request latencies, {success} of {completed} successes")
        })
    });
    let total = |name: &str| page.get(&format!("nv_inference_{name}"), &[]);
    let (queue, infer, request) =
        (total("queue_duration_us"), total("compute_infer_duration_us"), total("request_duration_us"));
    let success = total("request_success");
    assert!(queue > 0.0 && infer > 0.0 && success >= 400.0);
    // A request consists of queue time and inference. Triton's other two parts, input and output, are 0.
    assert!((queue + infer - request).abs() <= 3.0, "{queue} + {infer} is not {request}");
    assert!((request - 1e6 * page.get("nv_trt_llm_e2e_request_latency_seconds_sum", &[])).abs() <= 1.0);
    prometheus.until_value("nv_inference_request_success", success);
    prometheus.until_value("nv_inference_request_duration_us", request);

    let recorded = |name: &str, wanted: f64| {
        until(|| {
            let value = prometheus.value(&format!("triton:{name}"), None);
            ensure(value.is_some_and(|value| (value / wanted - 1.0).abs() < 1e-6), || {
                format!("triton:{name} is {value:?}, not {wanted}")
            })
        });
    };
    recorded("queue_compute:ratio", queue / infer);
    recorded("compute_duration:average", infer / success);
    recorded("queue_duration:average", queue / success);
    recorded("request_duration:average", request / success);

    // Wait for the values of the dashboard's panels: on a busy machine, a late scrape leaves a gap until the next one.
    let value =
        |query: &str| until(|| prometheus.value(query, None).ok_or_else(|| format!("{query} returns no value")));
    assert!((value("max by(job)(triton:queue_compute:ratio)") / (queue / infer) - 1.0).abs() < 1e-6);
    let per_minute = 60.0 * value("sum by(job)(rate(nv_inference_request_success[1m]))");
    assert!(is_about(per_minute, success), "{per_minute} requests a minute, {success} were completed");
    prometheus.until_value("sum by(job)(rate(nv_inference_request_failure[1m]))", 0.0);
    for part in ["compute_input", "compute_output"] {
        let query = format!(
            "sum by(job)(rate(nv_inference_{part}_duration_us[1m])) / sum by(job)(rate(nv_inference_request_success[1m]))"
        );
        prometheus.until_value(&query, 0.0);
    }
    // Some panels sum a whole family. Its only label values are those of Triton, so the sum is correct.
    let family = |name: &str| page.series.iter().filter(|(series, _)| series.starts_with(name)).map(|(_, v)| v).sum();
    let inflight: f64 = family("nv_trt_llm_inflight_batcher_metrics{");
    prometheus.until_value("sum by(job)(nv_trt_llm_inflight_batcher_metrics)", inflight);
    prometheus.until_value("count(nv_trt_llm_inflight_batcher_metrics)", 4.0);
    prometheus.until_value("count(nv_trt_llm_request_metrics)", 5.0);
    assert!(value("avg by(job)(rate(nv_trt_llm_general_metrics[1m]))") > 0.0);
    assert!(value("sum by(job)(rate(nv_trt_llm_request_metrics[1m]))") >= 0.0);
}
