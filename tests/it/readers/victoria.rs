//! VictoriaMetrics (Debian has release 1.79) scrapes the page. vmagent uses the same code.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::publisher::{Load, Publisher};
use crate::support::daemon::Daemon;
use crate::support::ingest::Ingest;
use crate::support::lookalike::reserved_port;
use crate::support::page::Page;
use crate::support::process::Process;
use crate::support::sessions::{DETERMINISTIC, two_engines_and_two_gpus};
use crate::support::{ensure, http, program, until};

/// A running VictoriaMetrics server with its own database.
struct VictoriaMetrics {
    _process: Process,
    address: String,
    _folder: tempfile::TempDir,
    _port: tokio::net::TcpSocket,
}

impl VictoriaMetrics {
    fn scraping(daemon: &Daemon) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("scrape.yml");
        let text = format!(
            "global: {{scrape_interval: 500ms, scrape_timeout: 400ms}}\nscrape_configs:\n- job_name: engines\n  \
             static_configs: [{{targets: ['{}']}}]\n",
            daemon.address
        );
        std::fs::write(&config, text).unwrap();
        let (holder, port) = reserved_port();
        let address = format!("127.0.0.1:{port}");
        let installed = std::env::var_os("TRTLLM_TEST_VICTORIAMETRICS").map(PathBuf::from);
        let mut command = Command::new(installed.unwrap_or_else(|| program("victoria-metrics")));
        command.arg(format!("-promscrape.config={}", config.display()));
        command.arg(format!("-storageDataPath={}", folder.path().join("data").display()));
        // Without this latencyOffset, queries leave out the last 30 seconds.
        command.args(["-search.latencyOffset=1ms", "-search.disableCache", "-loggerLevel=ERROR"]);
        command.arg(format!("-httpListenAddr={address}"));
        let process = Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()));
        let server = Self { _process: process, address, _folder: folder, _port: holder };
        until(|| {
            let answer = http::request("GET", &server.address, "/health", &[], b"").map_err(|e| e.to_string())?;
            ensure(answer.status == 200, || answer.text().to_owned())
        });
        server
    }

    /// The series of an instant query with their values.
    fn query(&self, query: &str) -> Vec<(Value, f64)> {
        let parameters = form_urlencoded::Serializer::new(String::new()).append_pair("query", query).finish();
        let answer = http::get(&self.address, &format!("/api/v1/query?{parameters}")).json();
        let series = answer["data"]["result"].as_array().unwrap_or_else(|| panic!("{query}: {answer}"));
        let value = |series: &Value| series["value"][1].as_str().unwrap().parse().unwrap();
        series.iter().map(|series| (series["metric"].clone(), value(series))).collect()
    }

    fn until_value(&self, query: &str, wanted: Option<f64>) {
        until(|| {
            let found = self.query(query);
            assert!(found.len() <= 1, "{query} is more than one series: {found:?}");
            let value = found.first().map(|(_, value)| *value);
            ensure(value == wanted, || format!("{query} is {value:?}, not {wanted:?}"))
        });
    }
}

/// The series as `name{labels}` in the form of the page, without the labels that the server adds.
fn spelled(metric: &Value) -> String {
    let labels = metric.as_object().unwrap().iter();
    let labels: BTreeMap<&str, &str> = labels.map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect();
    let escape = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let mut shown: Vec<String> = labels
        .iter()
        .filter(|(name, _)| !["__name__", "job", "instance"].contains(name))
        .map(|(name, value)| format!("{name}=\"{}\"", escape(value)))
        .collect();
    // On the page, `le` is the last label.
    shown.sort_by_key(|label| label.starts_with("le="));
    if shown.is_empty() {
        labels["__name__"].to_owned()
    } else {
        format!("{}{{{}}}", labels["__name__"], shown.join(","))
    }
}

#[test]
fn victoria_metrics_stores_every_series_of_the_page_with_its_value() {
    let (daemon, _gpus) = two_engines_and_two_gpus(&["--metrics.compat", "trtllm,vllm,triton-core,dcgm,spec"]);
    let server = VictoriaMetrics::scraping(&daemon);
    let page: BTreeMap<String, f64> = Page::parse(&daemon.text(DETERMINISTIC)).series.into_iter().collect();
    assert!(page.len() > 500);
    until(|| {
        let stored: BTreeMap<String, f64> =
            server.query(r#"{job="engines"}"#).iter().map(|(metric, value)| (spelled(metric), *value)).collect();
        // VictoriaMetrics stores about 12 digits.
        let close = |stored: f64, shown: f64| (stored - shown).abs() <= 1e-9 * shown.abs();
        let same = |series: &String, value: f64| stored.get(series).is_some_and(|stored| close(*stored, value));
        let wrong: Vec<_> = page.iter().filter(|(series, value)| !same(series, **value)).take(3).collect();
        let shown: Vec<String> = daemon.page().series.into_iter().map(|(series, _)| series).collect();
        let missing: Vec<_> = shown.iter().filter(|series| !stored.contains_key(*series)).take(3).collect();
        ensure(wrong.is_empty() && missing.is_empty(), || format!("{wrong:?} differ, {missing:?} are missing"))
    });
}

#[test]
fn victoria_metrics_sees_an_engine_that_is_busy_idle_stale_and_gone() {
    let socket = Ingest::new();
    let daemon = socket.serve(&["--model=llama", "--stale-after=2s"]);
    let engine = Publisher::connect(&socket);
    engine.finish(4);
    let server = VictoriaMetrics::scraping(&daemon);
    let seen = |waiting: Option<f64>, queued: Option<f64>, state: &str| {
        server.until_value(r#"nv_trt_llm_request_metrics{request_type="waiting"}"#, waiting);
        server.until_value("nv_trt_llm_queued_requests", queued);
        server.until_value(&format!("nv_trt_llm_engine_state{{state=\"{state}\"}}"), Some(1.0));
        // Counters and request times stay on the page in every state of the engine.
        server.until_value("nv_trt_llm_requests_completed_total", Some(4.0));
        server.until_value(
            "sum(nv_trt_llm_e2e_request_latency_seconds_sum) / sum(nv_trt_llm_e2e_request_latency_seconds_count)",
            Some(2.25),
        );
    };
    seen(Some(2.0), Some(3.0), "busy");
    engine.load(Load::Idle);
    seen(Some(0.0), Some(0.0), "idle");
    engine.load(Load::Busy);
    seen(Some(2.0), Some(3.0), "busy");
    engine.load(Load::Hanging);
    seen(None, None, "stalled");
    engine.leave();
    seen(None, None, "unreachable");
}
