//! The rules and the dashboard in `deploy/` with a Prometheus that stores classic histograms, native ones, or both.

use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use super::publisher::Publisher;
use crate::support::ingest::Ingest;
use crate::support::prometheus::{Prometheus, prometheus_3};
use crate::support::{ensure, root, until};

const CLASSIC: &str = "nv_trt_llm_new_request_queue_time_seconds_bucket";
const NATIVE: &str = "nv_trt_llm_new_request_queue_time_seconds";

/// The queries of all panels that use quantiles.
fn quantiles_of_the_dashboard() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("deploy/grafana/trtllm-engine.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    // In Grafana's JSON, a collapsed row contains its panels.
    let panels =
        list(&dashboard["panels"]).into_iter().flat_map(|panel| [list(&panel["panels"]), vec![panel]].concat());
    let queries = panels.flat_map(|panel| list(&panel["targets"]));
    let queries = queries.map(|target| target["expr"].as_str().unwrap().to_owned());
    let concrete = |query: String| {
        let query = query.replace("$__rate_interval", "1m");
        let query = query.replace("$model", if query.contains("nv_trt_llm_rank_") { "ranks" } else { "llama" });
        let variables = ["$cluster", "$job", "$namespace", "$pod", "$instance", "$version"];
        variables.iter().fold(query, |query, variable| query.replace(variable, ".*"))
    };
    // The engine of this test has no KV cache transfers and reuses no blocks, so these histograms are absent.
    let absent = ["nv_trt_llm_request_kv_cache_", "nv_trt_llm_kv_cache_transfer_"];
    let has_data =
        |query: &String| query.contains("histogram_quantile") && !absent.iter().any(|name| query.contains(name));
    queries.filter(has_data).map(concrete).collect()
}

/// An engine with two ranks, for the panels of ranks. It runs until the exporter ends.
fn publish_ranks(socket: &Ingest) {
    let mut stream = socket.connect();
    let row = |iter: u64, rank: u64| {
        let batch = json!({"numScheduledRequests": 2, "numGenRequests": 2, "numCtxTokens": 10 * rank});
        json!({"iter": iter, "attentionDpRank": rank, "iterLatencyMS": 5.0, "numActiveRequests": 2, "inflightBatchingStats": batch})
    };
    std::thread::spawn(move || {
        for iter in 1.. {
            if writeln!(stream, "{}\n{}", row(iter, 0), row(iter, 1)).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    });
}

/// The recording rules must judge requests of an engine without objectives by its histograms and the common limits, and
/// every panel must have a value.
fn rules_and_panels_work(flags: &[&str], scrape: &str, classic: bool, native: bool) {
    let (folder, socket, ranks) = (tempfile::tempdir().unwrap(), Ingest::new(), Ingest::new());
    let daemon = socket.serve(&["--source", &ranks.source(), "--model", "llama", "--model", "ranks"]);
    let engine = Publisher::connect(&socket);
    publish_ranks(&ranks);
    let enable = folder.path().join("enable.yml");
    let rule = "groups: [{name: g, rules: [{record: 'trtllm_slo:common_limits:enabled', expr: vector(1)}]}]";
    std::fs::write(&enable, rule).unwrap();
    let config = format!(
        "global: {{scrape_interval: 500ms, scrape_timeout: 400ms, evaluation_interval: 500ms}}\n\
         rule_files: ['{}', '{}']\nscrape_configs:\n- job_name: trtllm-exporter\n{scrape}  \
         static_configs: [{{targets: ['{}']}}]\n",
        enable.display(),
        root().join("deploy/prometheus/recording.yml").display(),
        daemon.address
    );
    let prometheus = Prometheus::with(&prometheus_3(), &config, flags);
    prometheus.until_up();
    // Rates need two scrapes with different counts.
    until(|| {
        engine.finish(2);
        engine.record(&json!({"numNewActiveRequests": 2, "newActiveRequestsQueueLatencyMS": 20_000.0}));
        let judged = prometheus
            .value("model_version:nv_trt_llm_objective_requests:rate5m{objective=\"e2e\",model=\"llama\"}", None);
        ensure(judged.is_some_and(|rate| rate > 0.0), || format!("{judged:?}"))
    });
    let queries = quantiles_of_the_dashboard();
    assert!(queries.len() >= 9);
    for query in queries {
        until(|| {
            let value = prometheus.value(&query, None);
            ensure(value.is_some_and(f64::is_finite), || format!("{query} is {value:?}"))
        });
    }
    // The configuration decides which kinds of histograms are stored.
    let names = prometheus.names();
    assert_eq!((names.contains(CLASSIC), names.contains(NATIVE)), (classic, native));
}

#[test]
fn rules_and_panels_work_with_classic_histograms() {
    rules_and_panels_work(&[], "", true, false);
}

#[test]
fn rules_and_panels_work_with_native_histograms_only() {
    rules_and_panels_work(&["--enable-feature=native-histograms"], "", false, true);
}

#[test]
fn rules_and_panels_work_with_both_kinds_of_histograms() {
    let keep = "  always_scrape_classic_histograms: true\n";
    rules_and_panels_work(&["--enable-feature=native-histograms"], keep, true, true);
}
