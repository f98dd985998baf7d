//! Tests the table of docs/METRICS.md that says what is known of each release. For each release and each row, a server like that release
//! runs with the options of the row, and the page must have what the cell says, and nothing else.

use std::thread;
use std::time::{Duration, Instant};

use crate::otlp::{free_port, send_spans};
use crate::support::daemon::Daemon;
use crate::support::ensure;
use crate::support::lookalike::{Lookalike, program};
use crate::support::page::{Page, name_of};

const DOCUMENT: &str = include_str!("../../docs/METRICS.md");
/// The letters of the table, and a family that is above 0 where the number is known.
const NUMBERS: [(char, &str); 10] = [
    ('I', "nv_trt_llm_iterations_total"),
    ('K', "nv_trt_llm_kv_cache_block_metrics"),
    ('H', "nv_trt_llm_host_step_seconds_count"),
    ('C', "nv_trt_llm_cached_tokens_total"),
    ('T', "nv_trt_llm_e2e_request_latency_seconds_count"),
    ('P', "nv_trt_llm_request_decode_time_seconds_count"),
    ('O', "nv_trt_llm_time_per_output_token_seconds_count"),
    ('L', "nv_llm_output_token_len_count"),
    ('R', "nv_trt_llm_requests_finished_total"),
    ('B', "nv_trt_llm_request_kv_cache_blocks_count"),
];

struct Row {
    options: Vec<String>,
    source: String,
    /// The releases of each column, and what is known of them.
    cells: Vec<(Vec<String>, String)>,
}

fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn rows() -> Vec<Row> {
    let mut lines = DOCUMENT.lines().skip_while(|line| !line.starts_with("| options | source |"));
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let head = cells(lines.next().expect("the table is in the document"));
    let rows = lines.skip(1).take_while(|line| line.starts_with('|')).map(|line| {
        let row = cells(line);
        assert_eq!(row.len(), head.len(), "{line}");
        let releases = head[2..].iter().map(|cell| cell.split(", ").map(str::to_owned).collect());
        Row {
            options: quoted(&row[0]),
            source: quoted(&row[1]).concat(),
            cells: releases.zip(row[2..].iter().cloned()).collect(),
        }
    });
    rows.collect()
}

fn known(page: &Page, model: &str) -> String {
    let label = format!("model=\"{model}\"");
    let has = |series: &str, family: &str| name_of(series) == family && series.contains(&label);
    let is_known = |family: &str| page.series.iter().any(|(series, value)| has(series, family) && *value > 0.0);
    NUMBERS.iter().filter(|(_, family)| is_known(family)).map(|(letter, _)| letter).collect()
}

/// A server like a release, with the options of a row.
struct Server {
    name: String,
    expected: String,
    source: String,
    /// The port on which the exporter receives spans, if the server sends some.
    spans: Option<u16>,
    _folder: tempfile::TempDir,
    _process: Lookalike,
}

/// Starts a server. `None` if its release lacks an option of the row; then the server must not start.
fn start(row: &Row, release: &str, expected: &str) -> Option<Server> {
    let has = |option: &str| row.options.iter().any(|given| given == option);
    let folder = tempfile::tempdir().unwrap();
    let lines = folder.path().to_str().unwrap();
    let mut arguments = vec!["--release", release];
    let mut engine = "sim:?rate=5&iter_base_ms=60&output_mean=20".to_owned();
    if has("backend: tensorrt") {
        arguments.extend(["--backend", "tensorrt"]);
    }
    if has("return_perf_metrics") {
        arguments.push("--prometheus");
    } else if !has("perf_metrics_output_dir") {
        arguments.push("--no-perf-metrics");
    }
    if has("perf_metrics_output_dir") {
        arguments.extend(["--perf-metrics-dir", lines]);
    }
    let log = format!("{lines}/serve.log");
    if has("print_iter_log") {
        arguments.extend(["--iteration-log", &log]);
    }
    if has("enable_iter_req_stats") {
        engine += "&request_stats=1";
    }
    let name = format!("{release} with {:?}", row.options);
    if expected == "–" {
        let output =
            std::process::Command::new(program()).args([engine.as_str(), "--port", "0"]).args(arguments).output();
        assert!(!output.unwrap().status.success(), "{name} starts");
        return None;
    }
    let process = Lookalike::start(&engine, &arguments);
    let (url, port) = (format!("http://127.0.0.1:{}", process.port()), free_port());
    let values = [("URL", &*url), ("DIR", lines), ("FILE", &log), ("HOST:PORT", &format!("127.0.0.1:{port}"))];
    let source = values.iter().fold(row.source.clone(), |source, (name, value)| source.replace(name, value));
    let spans = has("otlp_traces_endpoint").then_some(port);
    Some(Server { name, expected: expected.to_owned(), source, spans, _folder: folder, _process: process })
}

#[test]
fn each_release_tells_what_the_document_says() {
    let rows = rows();
    assert!(rows.len() >= 6, "only {} rows", rows.len());
    let mut starting = Vec::new();
    for row in &rows {
        let releases: Vec<&str> = row.cells.iter().flat_map(|(releases, _)| releases).map(String::as_str).collect();
        assert_eq!(releases, ["1.2.1", "1.3.0rc20", "1.3.0rc25", "1.3.0rc29", "1.3.0rc30", "1.4.0rc2", "1.4.0rc4"]);
        for (releases, expected) in &row.cells {
            starting.extend(releases.iter().map(|release| (row, release, expected)));
        }
    }
    let servers: Vec<Server> = thread::scope(|scope| {
        let started: Vec<_> = starting
            .into_iter()
            .map(|(row, release, expected)| scope.spawn(move || start(row, release, expected)))
            .collect();
        started.into_iter().filter_map(|server| server.join().unwrap()).collect()
    });
    let engines = (0..).zip(&servers).flat_map(|(number, server)| {
        ["--source".to_owned(), server.source.clone(), "--model".to_owned(), format!("m{number}")]
    });
    let arguments: Vec<String> = engines.collect();
    let daemon = Daemon::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    for port in servers.iter().filter_map(|server| server.spans) {
        send_spans(port, "grpc", "none");
    }
    // The sources of request times are chosen 15 s after the first finished request.
    let decided = Instant::now() + Duration::from_secs(18);
    let page = daemon.until(|page| {
        let differ = (0..).zip(&servers).find_map(|(number, Server { name, expected, .. })| {
            let known = known(page, &format!("m{number}"));
            (known != *expected).then(|| format!("{name}: {known}, not {expected}"))
        });
        ensure(Instant::now() >= decided && differ.is_none(), || differ.unwrap_or_else(|| "wait".to_owned()))
    });
    for (number, server) in servers.iter().enumerate() {
        let lost = page.find("nv_trt_llm_iterations_lost_total", &[&format!("model=m{number}")]);
        assert_eq!(lost.unwrap_or_default(), 0.0, "{}", server.name);
    }
}
