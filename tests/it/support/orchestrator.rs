//! A server that imitates the orchestrator of disaggregated serving: `/cluster_info`, `/health`, `/version`, and its
//! Prometheus page. Like the Python client in multiprocess mode, it appends `_total` to counters. It keeps a list of
//! the requests that it has received.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use super::server::serve;

const SHORT: &str =
    "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0 160.0 640.0 2560.0";
const LONG: &str =
    "0.1 0.3 0.5 0.8 1.0 1.5 2.0 2.5 5.0 10.0 15.0 20.0 30.0 40.0 50.0 60.0 120.0 240.0 480.0 960.0 1920.0";

/// The orchestrator's counts since its start, and its workers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counted {
    pub(crate) streamed: u64,
    pub(crate) whole: u64,
    pub(crate) invalid: u64,
    pub(crate) http_errors: u64,
    pub(crate) context: CountedSide,
    pub(crate) generation: CountedSide,
    /// `None` means that the path is missing. An empty body has status 500.
    pub(crate) cluster_info: Option<Vec<u8>>,
    pub(crate) health: u16,
    pub(crate) page_status: u16,
    /// HTTP status of `/v1/models`, which the orchestrator forwards to a worker.
    pub(crate) models: u16,
    /// If set, the server sends this page instead of the counts.
    pub(crate) page: Option<String>,
    /// Number of streamed requests that a second process has counted. The second process answers every second request
    /// for the page, as if each request used a new connection.
    pub(crate) second_process: Option<u64>,
    pages: u64,
}

/// Counts of requests to the workers of one side. Each request that did not fail took 0.4 s.
#[derive(Debug, Clone, Default)]
pub(crate) struct CountedSide {
    pub(crate) sent: u64,
    pub(crate) failed: u64,
    pub(crate) retried: u64,
    /// Number of requests whose first bytes arrived after 0.2 s.
    pub(crate) first_bytes: u64,
    /// Number of reads of response data, each 0.015 s after the previous read.
    pub(crate) reads: u64,
}

/// The body of `/cluster_info` with this many workers. Each side requires one.
pub(crate) fn cluster_info(context: usize, generation: usize) -> Option<Vec<u8>> {
    let workers = |side: &str, number: usize| -> Vec<serde_json::Value> {
        (0..number).map(|worker| serde_json::json!({"host": format!("{side}-{worker}.secret"), "port": 8001})).collect()
    };
    let body = serde_json::json!({
        "current_workers": {"context_servers": workers("ctx", context), "generation_servers": workers("gen", generation)},
        "minimal_instances": {"context_servers": 1, "generation_servers": 1},
    });
    Some(body.to_string().into_bytes())
}

impl Counted {
    fn page(&self) -> String {
        if let Some(page) = &self.page {
            return page.clone();
        }
        let mut page = String::new();
        let requests = self.streamed + self.whole;
        for (name, value) in [
            ("total_requests", requests),
            ("stream_requests", self.streamed),
            ("nonstream_requests", self.whole),
            ("validation_exceptions", self.invalid),
            ("http_exceptions", self.http_errors),
            ("internal_errors", 0),
            ("total_responses", requests - self.http_errors.min(requests)),
        ] {
            counter(&mut page, name, value);
        }
        histogram(&mut page, "queue_latency_seconds", SHORT, requests, 0.004);
        for (prefix, side) in [("ctx", &self.context), ("gen", &self.generation)] {
            for (name, value) in [
                ("total_requests", side.sent),
                ("error_requests", side.failed),
                ("retry_requests", side.retried),
                ("completed_requests", side.sent),
            ] {
                counter(&mut page, &format!("{prefix}_{name}"), value);
            }
            let served = side.sent - side.failed;
            histogram(&mut page, &format!("{prefix}_first_token_latency_seconds"), SHORT, side.first_bytes, 0.2);
            histogram(&mut page, &format!("{prefix}_complete_latency_seconds"), LONG, served, 0.4);
            histogram(&mut page, &format!("{prefix}_per_token_latency_seconds"), SHORT, side.reads, 0.015);
        }
        page
    }
}

fn counter(page: &mut String, name: &str, value: u64) {
    writeln!(page, "# HELP {name}_total Multiprocess metric\n# TYPE {name}_total counter\n{name}_total {value}.0")
        .unwrap();
}

fn histogram(page: &mut String, name: &str, bounds: &str, observed: u64, seconds: f64) {
    writeln!(page, "# HELP {name} Multiprocess metric\n# TYPE {name} histogram").unwrap();
    writeln!(page, "{name}_sum {:?}", observed as f64 * seconds).unwrap();
    for bound in bounds.split(' ') {
        let through = if seconds <= bound.parse().unwrap() { observed } else { 0 };
        writeln!(page, "{name}_bucket{{le=\"{bound}\"}} {through}.0").unwrap();
    }
    writeln!(page, "{name}_bucket{{le=\"+Inf\"}} {observed}.0\n{name}_count {observed}.0").unwrap();
}

#[derive(Debug, Clone)]
pub(crate) struct DisaggServer {
    counted: Arc<Mutex<Counted>>,
    asked: Arc<Mutex<BTreeSet<String>>>,
    pub(crate) port: u16,
}

impl DisaggServer {
    /// Starts with 2 context workers and 1 generation worker. The server has already counted 100 requests.
    pub(crate) fn start() -> Self {
        let counted = Counted {
            streamed: 90,
            whole: 10,
            context: CountedSide { sent: 100, retried: 4, ..CountedSide::default() },
            generation: CountedSide { sent: 100, failed: 1, first_bytes: 90, reads: 9000, retried: 0 },
            cluster_info: cluster_info(2, 1),
            health: 200,
            page_status: 200,
            models: 200,
            ..Counted::default()
        };
        let (counted, asked) = (Arc::new(Mutex::new(counted)), Arc::<Mutex<BTreeSet<String>>>::default());
        let (now, paths) = (Arc::clone(&counted), Arc::clone(&asked));
        let port = serve(move |request| {
            paths.lock().unwrap().insert(format!("{} {}", request.method(), request.path()));
            let mut now = now.lock().unwrap();
            now.pages += u64::from(request.path() == "/prometheus/metrics");
            Some(match request.path() {
                "/prometheus/metrics" => match now.second_process.filter(|_| now.pages % 2 == 0) {
                    None => (now.page_status, now.page().into_bytes()),
                    Some(streamed) => (now.page_status, Counted { streamed, ..now.clone() }.page().into_bytes()),
                },
                "/cluster_info" => match &now.cluster_info {
                    Some(body) => (if body.is_empty() { 500 } else { 200 }, body.clone()),
                    None => (404, Vec::new()),
                },
                "/health" => (now.health, Vec::new()),
                "/version" => (200, br#"{"version":"1.3.0rc24"}"#.to_vec()),
                // The orchestrator forwards this request, so the answer is that of a worker.
                "/v1/models" => (
                    now.models,
                    br#"{"object":"list","data":[{"id":"llama","object":"model","owned_by":"tensorrt_llm"}]}"#.to_vec(),
                ),
                _ => (404, br#"{"detail":"Not Found"}"#.to_vec()),
            })
        });
        Self { counted, asked, port }
    }

    pub(crate) fn source(&self) -> String {
        format!("trtllm-disagg:http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Counted)) {
        change(&mut self.counted.lock().unwrap());
    }

    /// Methods and paths of all requests, without duplicates.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().cloned().collect()
    }
}
