//! Tests the table of docs/sources.md that states the source of each latency in each release. For each row of the
//! table, a look-alike answers like the release with the options in the row. The page must show what the row states.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::daemon::Daemon;
use crate::support::ingest::Ingest;
use crate::support::orchestrator::DisaggServer;
use crate::support::page::{Page, name_of};
use crate::support::server::serve;
use crate::support::{ensure, until, write_line};

const DOCUMENT: &str = include_str!("../../docs/sources.md");
/// Each latency that the table in docs/sources.md names, and the families that it covers.
const COLUMNS: [(&str, &[&str]); 10] = [
    ("iterations", &["iteration_latency_seconds"]),
    (FEW_TIMES, &["time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds"]),
    (PARTS, &["request_prefill_time_seconds", "request_decode_time_seconds", "request_inference_time_seconds"]),
    ("time per output token", &["time_per_output_token_seconds"]),
    ("inter-token latency", &["inter_token_latency_seconds"]),
    ("inter-step latency", &["inter_step_latency_seconds"]),
    ("GPU time", &["request_gpu_forward_time_seconds", "request_gpu_sample_time_seconds"]),
    ("first token at the server", &["server_time_to_first_token_seconds"]),
    ("KV cache transfer", &["kv_cache_transfer_seconds"]),
    (
        "orchestrator",
        &[
            "disagg_queue_time_seconds",
            "disagg_worker_time_to_first_byte_seconds",
            "disagg_worker_request_time_seconds",
        ],
    ),
];
/// The table says `request times` for both.
const FEW_TIMES: &str = "first three request times";
const PARTS: &str = "last three request times";
/// The value in seconds of every time on the server's page. It differs from all times in entries of `/perf_metrics` and
/// in request rows.
const OF_PAGE: f64 = 0.375;
/// The values that are only in request rows, in seconds: the time per output token, and the KV cache transfer.
const OF_ROWS: [f64; 2] = [1.0, 0.02];

struct Row {
    cells: Vec<String>,
    has_endpoint: bool,
    options: BTreeSet<String>,
    source: String,
}

/// Parses the rows of the table. The last cells of a row are the sources of `COLUMNS`.
fn rows() -> Vec<Row> {
    let lines = DOCUMENT.lines().skip_while(|line| !line.starts_with("| release |"));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2).map(|line| {
        let mut cells: Vec<_> = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
        let latencies = cells.pop().expect("a row has cells");
        assert_eq!(cells.len(), 3, "{line}");
        cells.extend(sources_in(&latencies));
        Row {
            has_endpoint: match cells[0].as_str() {
                "up to 1.2" => true,
                release if release.starts_with("after 1.2") => false,
                other => panic!("unknown release {other}"),
            },
            options: cells[1].split('`').skip(1).step_by(2).map(str::to_owned).collect(),
            source: cells[2].trim_matches('`').to_owned(),
            cells,
        }
    });
    rows.collect()
}

/// The source of each of `COLUMNS` in a cell such as `records: iterations; page: request times, time per output token`. A
/// latency that the cell does not name is absent.
fn sources_in(cell: &str) -> [String; 10] {
    let cell = cell.replace(": request times", &format!(": {FEW_TIMES}, {PARTS}"));
    let groups = cell.split("; ").filter_map(|group| group.split_once(": "));
    let named = groups.flat_map(|(source, names)| names.split(", ").map(move |name| (name, source)));
    let named: BTreeMap<&str, &str> = named.collect();
    assert!(named.keys().all(|name| COLUMNS.iter().any(|(known, _)| known == name)), "{cell}");
    COLUMNS.map(|(name, _)| named.get(name).copied().unwrap_or("–").to_owned())
}

/// The server of one row of the table. It has served no request while `ended` is false, and one request afterwards.
#[derive(Default)]
struct Server {
    has_endpoint: bool,
    options: BTreeSet<String>,
    ended: bool,
    /// Entries of `/perf_metrics` that the exporter has not read yet.
    entries: Vec<Value>,
    iter: u64,
    /// Number of the request's rows that were sent.
    rows: u64,
    page_reads: u64,
}

impl Server {
    fn has(&self, option: &str) -> bool {
        self.options.contains(option)
    }

    fn answer(&mut self, path: &str) -> (u16, String) {
        match path {
            "/metrics" => (200, self.records().to_string()),
            "/prometheus/metrics" if self.has("return_perf_metrics") => {
                self.page_reads += 1;
                (200, self.page())
            }
            "/perf_metrics" if self.has_endpoint => (200, Value::from(std::mem::take(&mut self.entries)).to_string()),
            _ => (404, String::new()),
        }
    }

    /// Returns the record of the next iteration. Iterations are one second apart.
    fn records(&mut self) -> Value {
        if self.has("enable_iter_perf_stats: false") {
            return json!([]);
        }
        self.iter += 1;
        let (iter, second) = (self.iter, self.iter % 3600);
        let rows = if self.has("enable_iter_req_stats") { self.rows() } else { Default::default() };
        let scheduler = (!self.has("backend: tensorrt")).then_some("overlap");
        json!([{"iter": iter, "timestamp": format!("2026-11-01T10:{:02}:{:02}.000000Z", second / 60, second % 60),
            "iterLatencyMS": 1000.0, "numActiveRequests": 1, "schedulerMode": scheduler, "requestStats": rows}])
    }

    /// The next row (`requestStats`) of a request that is queued for a second, is in its context phase for another
    /// second, and then gets three tokens in three seconds.
    fn rows(&mut self) -> Vec<Value> {
        self.rows += u64::from(self.ended);
        let (stage, scheduled, tokens) = match self.rows {
            1 => ("CONTEXT_IN_PROGRESS", false, 0),
            2 => ("CONTEXT_IN_PROGRESS", true, 0),
            3 => ("GENERATION_IN_PROGRESS", true, 1),
            4 => ("GENERATION_IN_PROGRESS", true, 2),
            // The C++ executor reports the end of a request with the next batch, in which the request is not scheduled.
            5 => ("GENERATION_COMPLETE", !self.has("backend: tensorrt"), 3),
            _ => return Vec::new(),
        };
        vec![
            json!({"id": 7, "stage": stage, "contextPrefillPosition": 96, "numGeneratedTokens": tokens, "scheduled": scheduled,
            "paused": false, "disServingStats": {"kvCacheTransferMS": 20.0, "kvCacheSize": 100_000}}),
        ]
    }

    fn page(&self) -> String {
        let prefix = if self.has_endpoint { "" } else { "trtllm_" };
        let requests = u64::from(self.ended);
        let engine = "engine_type=\"undefined\"";
        let mut page = format!("{prefix}request_success_total{{{engine},finished_reason=\"stop\"}} {requests}.0\n");
        let of_old_page = [
            "time_to_first_token_seconds",
            "time_per_output_token_seconds",
            "e2e_request_latency_seconds",
            "request_queue_time_seconds",
        ];
        for (_, families) in &COLUMNS[1..4] {
            for family in families.iter().filter(|family| !self.has_endpoint || of_old_page.contains(family)) {
                for bound in ["0.5", "+Inf"] {
                    page += &format!("{prefix}{family}_bucket{{{engine},le=\"{bound}\"}} {requests}.0\n");
                }
                page += &format!("{prefix}{family}_sum{{{engine}}} {}\n", requests as f64 * OF_PAGE);
            }
        }
        page
    }
}

/// The entry of one finished request, as `/perf_metrics` and the files contain it.
fn entry(with_steps: bool, with_drafts: bool) -> Value {
    let mut entry = json!({"request_id": 7, "perf_metrics": {"timing_metrics": {"server_arrival_time": 9.9375,
        "arrival_time": 10.0, "first_scheduled_time": 10.125, "first_token_time": 10.25, "last_token_time": 12.25,
        "server_first_token_time": 10.5, "kv_cache_transfer_start": 10.03125, "kv_cache_transfer_end": 10.09375, "kv_cache_size": 4096}}});
    if with_drafts {
        let drafts = json!({"acceptance_rate": 0.5, "total_accepted_draft_tokens": 2, "total_draft_tokens": 4});
        entry["perf_metrics"]["speculative_decoding"] = drafts;
    }
    if with_steps {
        let step = |time: f64| json!({"token_time": time, "gpu_forward_time": 8.0, "gpu_sample_time": 0.5});
        entry["time_breakdown_metrics"] =
            json!({"ctx_chunk_metrics": [step(10.25)], "step_metrics": [step(10.75), step(11.25)]});
    }
    entry
}

/// The line that an orchestrator writes for one request. In the first releases, it lacks the times of the server and of
/// the KV cache transfer.
fn whole_line(first_releases: bool) -> Value {
    let mut part = entry(false, false);
    if first_releases {
        let times = part["perf_metrics"]["timing_metrics"].as_object_mut().unwrap();
        times.retain(|name, _| !name.starts_with("server_") && !name.starts_with("kv_cache_"));
    }
    json!({"ctx_server": "a:1", "gen_server": "b:1", "status": "complete", "disagg_server_arrival_time": 9.875,
        "disagg_server_first_token_time": 10.5, "disagg_request_id": 5, "ctx_perf_metrics": part, "gen_perf_metrics": part})
}

/// The source of the families of a column. All of them must have the same source.
fn source_of(page: &Page, model: &str, families: &[&str], of_entry: &str) -> String {
    let label = format!("model=\"{model}\"");
    let sum = |name: String| -> f64 {
        let has = |series: &str| name_of(series) == name && series.contains(&label);
        page.series.iter().filter(|(series, _)| has(series)).map(|(_, value)| value).sum()
    };
    let found: BTreeSet<&str> = families
        .iter()
        .map(|family| {
            let [count, seconds] = ["count", "sum"].map(|end| sum(format!("nv_trt_llm_{family}_{end}")));
            match *family {
                _ if count == 0.0 => "–",
                "iteration_latency_seconds" => "records",
                _ if seconds / count == OF_PAGE || family.starts_with("disagg_") => "page",
                _ if OF_ROWS.contains(&(seconds / count)) => "rows",
                _ => of_entry,
            }
        })
        .collect();
    assert_eq!(found.len(), 1, "{families:?} come from {found:?}");
    found.into_iter().collect()
}

/// A row of the table, and what runs for it.
struct Case {
    row: Row,
    /// The label `model` of its engine.
    model: String,
    folder: tempfile::TempDir,
    server: Arc<Mutex<Server>>,
    orchestrator: DisaggServer,
    socket: Ingest,
    publisher: Option<UnixStream>,
}

impl Case {
    fn start(model: String, row: Row) -> (Self, String) {
        let folder = tempfile::tempdir().unwrap();
        let server = Server { has_endpoint: row.has_endpoint, options: row.options.clone(), ..Server::default() };
        let server = Arc::new(Mutex::new(server));
        let serving = Arc::clone(&server);
        let port = serve(move |request| {
            let (status, body) = serving.lock().unwrap().answer(request.path());
            Some((status, body.into_bytes()))
        });
        let (orchestrator, socket) = (DisaggServer::start(), Ingest::new());
        let case = Self { row, model, folder, server, orchestrator, socket, publisher: None };
        let at = if case.is("trtllm-disagg:") { case.orchestrator.port } else { port };
        let given = case
            .row
            .source
            .replace("URL", &format!("http://127.0.0.1:{at}"))
            .replace("DIR", &case.folder.path().display().to_string())
            .replace("PATH", &case.socket.path().display().to_string());
        (case, given)
    }

    fn is(&self, scheme: &str) -> bool {
        self.row.source.starts_with(scheme)
    }

    fn has(&self, option: &str) -> bool {
        self.row.options.contains(option)
    }

    /// True if the exporter reads the server's page.
    fn is_page_read(&self) -> bool {
        let is_read = self.is("trtllm-serve:") && !self.row.source.contains("prometheus_metrics=false");
        is_read && self.has("return_perf_metrics")
    }

    fn record(&self) -> String {
        self.server.lock().unwrap().records()[0].to_string()
    }

    fn publish(&mut self) {
        if self.is("socket:") {
            let mut publisher = self.socket.connect();
            writeln!(publisher, "{}", self.record()).unwrap();
            self.publisher = Some(publisher);
        }
    }

    /// One request ends.
    fn end(&mut self) {
        let is_deployment = self.is("perf-metrics:");
        {
            let mut server = self.server.lock().unwrap();
            server.ended = true;
            if self.has("perf_metrics_max_requests") {
                server.entries = vec![entry(false, false)];
            }
        }
        if self.has("perf_metrics_output_dir") {
            let with_steps = self.has("return_perf_metrics") && !self.has("num_postprocess_workers");
            let (kind, line) = match is_deployment {
                false => ("server", entry(with_steps, self.has("speculative_config"))),
                true => ("disagg", whole_line(self.row.cells[0].contains("#18990"))),
            };
            write_line(self.folder.path(), kind, &line);
        }
        let records = [self.record_if_published(), self.record_if_published()];
        if let Some(publisher) = &mut self.publisher {
            let mut ended = entry(false, false);
            ended["output_tokens"] = json!(8);
            // The LLM API does not report the times of a server, because it has none.
            let times = ended["perf_metrics"]["timing_metrics"].as_object_mut().unwrap();
            times.retain(|name, _| !name.starts_with("server_"));
            writeln!(publisher, "{}\n{ended}\n{}", records[0], records[1]).unwrap();
        }
        self.orchestrator.change(|counted| {
            counted.whole += 1;
            counted.generation.sent += 1;
            counted.generation.first_bytes += 1;
        });
    }

    fn record_if_published(&self) -> String {
        self.publisher.as_ref().map_or_else(String::new, |_| self.record())
    }

    /// Compares the page with the row.
    fn judge(&self, page: &Page) -> Result<(), String> {
        let of_entry = match () {
            () if self.is("socket:") => "lines",
            () if self.has("enable_iter_req_stats") && !self.has("perf_metrics_output_dir") => "rows",
            () if self.row.has_endpoint => "endpoint",
            () => "files",
        };
        let seen = COLUMNS.map(|(_, families)| source_of(page, &self.model, families, of_entry));
        let (name, expected) = (self.row.cells[..3].join(" | "), &self.row.cells[3..]);
        ensure(seen[..] == *expected, || format!("{name}: {seen:?}, not {expected:?}"))
    }
}

/// Waits until the exporter has polled each source `polls` times more. An orchestrator is polled every two seconds.
fn poll(daemon: &Daemon, cases: &[Case], polls: u64) -> Page {
    let of = |page: &Page, case: &Case| {
        page.find("trtllm_exporter_polls_total", &[&format!("model={}", case.model)]).unwrap_or(0.0) as u64
    };
    let page = daemon.page();
    let before: Vec<u64> = cases.iter().map(|case| of(&page, case)).collect();
    daemon.until(|page| {
        let behind = cases.iter().zip(&before).find(|(case, before)| {
            let polls = if case.is("trtllm-disagg:") { 2 } else { polls };
            of(page, case) < **before + polls
        });
        ensure(behind.is_none(), || "no polls".to_owned())
    })
}

#[test]
fn latencies_come_from_where_the_document_says() {
    let rows = rows();
    assert!(rows.len() >= 20, "only {} rows", rows.len());
    let sources: BTreeSet<&str> = rows.iter().flat_map(|row| row.cells[3..].iter().map(String::as_str)).collect();
    assert_eq!(
        sources,
        BTreeSet::from(["endpoint", "files", "lines", "page", "records", "rows", "–"]),
        "each source is tried"
    );
    let started = rows.into_iter().enumerate().map(|(number, row)| Case::start(format!("m{number}"), row));
    let (mut cases, sources): (Vec<Case>, Vec<String>) = started.unzip();
    let named = cases.iter().zip(&sources);
    let daemon = Daemon::start(
        &named.flat_map(|(case, source)| ["--source", source, "--model", &case.model]).collect::<Vec<_>>(),
    );
    cases.iter_mut().for_each(Case::publish);
    // Wait until the exporter has listed the files and read the first page.
    poll(&daemon, &cases, 30);
    daemon.until(|page| {
        let finished = |case: &Case| {
            page.find("nv_trt_llm_requests_finished_total", &["reason=stop", &format!("model={}", case.model)])
        };
        let missing = cases.iter().find(|case| case.is_page_read() && finished(case).is_none());
        ensure(missing.is_none(), || "a page was not taken".to_owned())
    });
    cases.iter_mut().for_each(Case::end);
    let judged = |page: &Page| cases.iter().try_for_each(|case| case.judge(page));
    daemon.until(judged);
    // Further reads of the servers' pages must not change the result.
    let reads = |case: &Case| case.server.lock().unwrap().page_reads;
    let before: Vec<u64> = cases.iter().map(reads).collect();
    until(|| {
        let behind = cases.iter().zip(&before).find(|(case, before)| case.is_page_read() && reads(case) < *before + 2);
        ensure(behind.is_none(), || "a page was not read".to_owned())
    });
    judged(&poll(&daemon, &cases, 30)).unwrap();
    assert!(cases.iter().all(|case| case.is_page_read() || reads(case) == 0), "a page was read that is turned off");
}
