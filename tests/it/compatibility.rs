//! Tests the table of docs/METRICS.md that says what is known of each release. For each release and each row, a server like that release
//! runs with the options of the row, and the page must have what the cell says, and nothing else.

use std::collections::BTreeMap;
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
    /// What is known, by release.
    cells: BTreeMap<String, String>,
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
        let known = head[2..].iter().zip(&row[2..]);
        let by_release =
            known.flat_map(|(releases, known)| releases.split(", ").map(|release| (release.to_owned(), known.clone())));
        Row { options: quoted(&row[0]), source: quoted(&row[1]).concat(), cells: by_release.collect() }
    });
    rows.collect()
}

fn known(page: &Page) -> String {
    let is_known = |family: &str| page.series.iter().any(|(series, value)| name_of(series) == family && *value > 0.0);
    NUMBERS.iter().filter(|(_, family)| is_known(family)).map(|(letter, _)| letter).collect()
}

fn check(row: &Row, release: &str, expected: &str) {
    let has = |option: &str| row.options.iter().any(|given| given == option);
    let folder = tempfile::tempdir().unwrap();
    let lines = folder.path().to_str().unwrap();
    let mut arguments = vec!["--release", release];
    let mut engine = "sim:?rate=5&iter_base_ms=20&output_mean=20".to_owned();
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
    let log = folder.path().join("serve.log");
    let log = log.to_str().unwrap();
    if has("print_iter_log") {
        arguments.extend(["--iteration-log", log]);
    }
    if has("enable_iter_req_stats") {
        engine += "&request_stats=1";
    }
    // The release lacks an option.
    if expected == "–" {
        let output =
            std::process::Command::new(program()).args([engine.as_str(), "--port", "0"]).args(arguments).output();
        let output = output.unwrap();
        assert!(!output.status.success(), "{release} starts with {:?}", row.options);
        return;
    }
    let server = Lookalike::start(&engine, &arguments);
    let (url, spans) = (format!("http://127.0.0.1:{}", server.port()), free_port());
    let values = [("URL", &*url), ("DIR", lines), ("FILE", log), ("HOST:PORT", &format!("127.0.0.1:{spans}"))];
    let source = values.iter().fold(row.source.clone(), |source, (name, value)| source.replace(name, value));
    let daemon = Daemon::start(&["--source", &source, "--model", "m", "--gpu", "off"]);
    let name = format!("{release} with {:?}", row.options);
    if has("otlp_traces_endpoint") {
        send_spans(spans, "grpc", "none");
    }
    // The sources of request times are chosen 15 s after the first finished request.
    let decided = Instant::now() + Duration::from_secs(18);
    let as_expected =
        |page: &Page| ensure(known(page) == expected, || format!("{name}: {}, not {expected}", known(page)));
    daemon.until(|page| ensure(Instant::now() >= decided, || format!("{name}: {}", known(page))));
    let page = daemon.until(as_expected);
    assert_eq!(page.find("nv_trt_llm_iterations_lost_total", &[]).unwrap_or_default(), 0.0, "{name}");
}

#[test]
fn each_release_tells_what_the_document_says() {
    let rows = rows();
    assert!(rows.len() >= 6, "only {} rows", rows.len());
    thread::scope(|scope| {
        for row in &rows {
            let releases: Vec<&str> = row.cells.keys().map(String::as_str).collect();
            assert_eq!(releases, ["1.2.1", "1.3.0rc20", "1.3.0rc25", "1.3.0rc29", "1.3.0rc30", "1.4.0rc2", "1.4.0rc4"]);
            for (release, expected) in &row.cells {
                scope.spawn(|| check(row, release, expected));
            }
        }
    });
}
