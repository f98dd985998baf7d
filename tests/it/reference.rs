//! Compares the page of the real daemon, value by value, with a second implementation of the counting, in Python
//! (tests/judges): lost, late and absurd records, restarts, idle times, rows of several ranks, sampled statistics, both
//! KV cache managers, request rows and RequestPerfMetrics. `TRTLLM_TEST_LONG=1 cargo test --test it reference::`
//! compares a million records.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::orchestrator;
use crate::server_page::{self, Server};
use crate::support::daemon::Daemon;
use crate::support::orchestrator::DisaggServer;
use crate::support::page::{Page, name_of};
use crate::support::{self, ensure};

fn records() -> u64 {
    if support::long() { 1_000_000 } else { 8000 }
}

/// Many of the generated requests meet each objective, and many miss it.
const OBJECTIVES: &str = "ttft=25ms,tpot=12ms,e2e=80ms";

fn python(script: &str) -> Command {
    let mut command = Command::new(support::program("python3"));
    command.arg(support::root().join("tests/judges").join(script)).stdin(Stdio::null());
    command
}

/// Series without model and version, in the format of the reference implementation.
fn expected(file: &Path) -> BTreeMap<String, f64> {
    // fold.py takes the objectives in milliseconds.
    let objectives = OBJECTIVES.replace("ms", "");
    let output = python("fold.py").arg(file).arg(objectives).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "fold.py ended with {}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn shown(page: &Page) -> BTreeMap<String, f64> {
    let spelled = |series: &str| {
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let ours = ["model=\"tensorrt_llm\"", "version=\"1\""];
        let labels: Vec<&str> = labels
            .trim_end_matches('}')
            .split(',')
            .filter(|label| !label.is_empty() && !ours.contains(label))
            .collect();
        if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", labels.join(",")) }
    };
    page.series.iter().map(|(series, value)| (spelled(series), *value)).collect()
}

/// Equal except for the last digits, because the order of addition changes a sum of floats.
fn same(a: f64, b: f64) -> bool {
    a == b || (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

/// Asserts that the page of a replayed file equals the reference. Returns the page.
fn compare(seed: u64, arguments: &[&str]) -> Page {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.ndjson");
    let mut generate = python("generate.py");
    generate.args(["--records", &records().to_string(), "--seed", &seed.to_string()]).args(arguments);
    let status = generate.stdout(std::fs::File::create(&file).unwrap()).status().unwrap();
    assert!(status.success(), "generate.py ended with {status}");
    let source = format!("replay:{}?speed=max", file.display());
    let more = ["--stale-after", "24h", "--poll.interval", "1ms", "--objectives", OBJECTIVES];
    let daemon = Daemon::start(&[&["--source", &source], &more[..]].concat());
    let expected = expected(&file);
    // The page shows requests without exact times after a few seconds. A large file takes longer.
    let whole = |page: &Page| {
        let counted = ["nv_trt_llm_iterations_total", "nv_trt_llm_request_kv_cache_blocks_count"].map(|name| {
            let (now, then) = (page.find(name, &[]).unwrap_or(0.0), expected[name]);
            ensure(now >= then, || format!("{name} is {now} of {then}"))
        });
        counted.into_iter().collect::<Result<(), String>>()
    };
    let mut progress = (-1.0, std::time::Instant::now());
    while let Err(missing) = whole(&daemon.page()) {
        let iterations = daemon.page().find("nv_trt_llm_iterations_total", &[]).unwrap_or(0.0);
        if iterations > progress.0 {
            progress = (iterations, std::time::Instant::now());
        }
        assert!(progress.1.elapsed() < support::TIMEOUT, "{missing}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let page = daemon.until_state(&[], "idle");
    let shown = shown(&page);
    let wrong: Vec<String> = expected
        .iter()
        .filter(|(series, value)| !shown.get(*series).is_some_and(|shown| same(*shown, **value)))
        .map(|(series, value)| format!("{series}: {:?}, the reference says {value}", shown.get(series)))
        .collect();
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), expected.len(), wrong.join("\n"));
    // The page has no series that the reference lacks, except the parts of request times, which crates/sim/tests
    // compares with the simulation.
    const PARTS: [&str; 3] = ["request_time_seconds", "missed_request_time_seconds", "requests_unattributed"];
    let is_part = |series: &str| {
        let name = name_of(series).trim_start_matches("nv_trt_llm_").trim_end_matches("_total");
        PARTS.contains(&name)
    };
    let counted = |series: &str| {
        let name = name_of(series);
        name.ends_with("_total") || ["_bucket", "_sum", "_count"].iter().any(|end| name.ends_with(end))
    };
    let more: Vec<&String> = shown
        .keys()
        .filter(|series| {
            series.starts_with("nv_") && counted(series) && !is_part(series) && !expected.contains_key(*series)
        })
        .collect();
    assert!(more.is_empty(), "not in the reference: {more:?}");
    let count = |name: &str| page.count(name, &[]);
    eprintln!(
        "{} series agree after {} iterations ({} lost, {} restarts) and {} requests",
        expected.len(),
        count("nv_trt_llm_iterations_total"),
        count("nv_trt_llm_iterations_lost_total"),
        count("nv_trt_llm_engine_restarts_total"),
        count("nv_trt_llm_requests_completed_total"),
    );
    for outcome in ["met", "missed"] {
        for objective in ["ttft", "tpot", "e2e", "all"] {
            let labels = [&*format!("objective={objective}"), &format!("outcome={outcome}")];
            let judged = page.find("nv_trt_llm_objective_requests_total", &labels);
            eprintln!("{objective} {outcome} {judged:?}");
            assert!(judged != Some(0.0), "no request has {outcome} {objective}");
        }
    }
    for name in ["nv_trt_llm_iterations_lost_total", "nv_trt_llm_engine_restarts_total"] {
        assert!(count(name) > 0, "the file is too easy: no {name}");
    }
    page
}

#[test]
fn request_rows_and_all_counts_equal_the_reference() {
    let page = compare(1, &[]);
    assert!(page.count("nv_trt_llm_e2e_request_latency_seconds_count", &[]) > 100);
    assert!(page.count("nv_trt_llm_spec_decode_draft_tokens_total", &[]) > 0, "no attention-DP rows in the file");
    assert!(page.count("nv_trt_llm_rank_imbalance_ratio_count", &[]) > 1000);
    assert!(page.count("nv_trt_llm_rank_generation_tokens_total", &["rank=3"]) > 1000);
}

#[test]
fn requests_with_exact_times_equal_the_reference_and_count_once() {
    let page = compare(2, &["--entries"]);
    for name in ["inter_token_latency", "inter_step_latency", "server_time_to_first_token"] {
        assert!(page.count(&format!("nv_trt_llm_{name}_seconds_count"), &[]) > 50, "{name}");
    }
    let entries = page.count("nv_trt_llm_request_iterations_count", &[]);
    assert_eq!(page.count("nv_trt_llm_time_to_first_token_seconds_count", &[]), entries);
}

#[test]
fn an_engine_with_kv_cache_manager_v2_equals_the_reference() {
    let page = compare(12, &["--last", "cold_tiers"]);
    assert!(page.get("nv_trt_llm_kv_cache_secondary_pool_blocks", &["state=max"]) > 0.0);
    assert_eq!(
        page.find("nv_trt_llm_kv_cache_available_tokens", &[]),
        None,
        "blocks of two pool groups differ in size"
    );
}

#[test]
fn sampled_statistics_equal_the_reference_and_have_no_token_counters() {
    let page = compare(4, &["--last", "sampled"]);
    assert_eq!(page.get("nv_trt_llm_statistics_interval_iterations", &[]), 10.0);
    assert_eq!(page.find("nv_trt_llm_generation_tokens_total", &[]), None);
}

/// A sequence of pages of a server, and the values that the exporter's page must have afterwards.
#[derive(serde::Deserialize)]
struct Pages {
    pages: Vec<String>,
    /// Index of the first page after a restart of the server.
    restart: usize,
    /// Name, labels and value of each expected series.
    expected: Vec<(String, Vec<String>, f64)>,
}

impl Pages {
    fn of(arguments: &[&str]) -> Self {
        let output = python("server_pages.py").args(arguments).stderr(Stdio::inherit()).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn until_counted(&self, daemon: &Daemon) -> Page {
        let wrong = |page: &Page| {
            let differs = |(name, labels, value): &(String, Vec<String>, f64)| {
                let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
                // The exporter keeps sums in nanoseconds, so the last digits may differ.
                let shown = page.find(name, &labels).filter(|shown| (shown - value).abs() <= 1e-6 * value.max(1.0));
                shown.is_none().then(|| format!("{name} {labels:?}: {:?}, not {value}", page.find(name, &labels)))
            };
            self.expected.iter().filter_map(differs).collect::<Vec<_>>()
        };
        assert!(self.expected.len() > 150);
        daemon.until(|page| ensure(wrong(page).is_empty(), || wrong(page).join("\n")))
    }
}

#[test]
fn pages_of_a_server_equal_the_reference() {
    let pages = Pages::of(&["1"]);
    let server = Server::start(&pages.pages[0]);
    let daemon = server_page::start(&server);
    for (index, page) in pages.pages.iter().enumerate().skip(1) {
        if index == pages.restart {
            server.restart(page.clone());
        }
        server.show(&daemon, page.clone());
    }
    let page = pages.until_counted(&daemon);
    assert!(page.count("nv_trt_llm_request_cached_tokens_count", &[]) > 100);
}

#[test]
fn pages_of_an_orchestrator_equal_the_reference() {
    let pages = Pages::of(&["1", "--orchestrator"]);
    let server = DisaggServer::start();
    server.change(|counted| counted.page = Some(pages.pages[0].clone()));
    let daemon = orchestrator::start(&server);
    for page in &pages.pages[1..] {
        server.change(|counted| counted.page = Some(page.clone()));
        // The next poll may have begun before the change, but the second one has not.
        daemon.poll(&[], 2);
    }
    let page = pages.until_counted(&daemon);
    // Our page has five series that do not come from the orchestrator's page: its readiness, and the present and
    // required workers of two sides.
    let families = page.series.iter().filter(|(series, _)| series.starts_with("nv_trt_llm_disagg_"));
    assert_eq!(families.count(), pages.expected.len() + 5, "series that the reference lacks");
}

#[test]
fn the_reference_detects_a_missing_record() {
    // If one record is missing, the pages must differ.
    let folder = tempfile::tempdir().unwrap();
    let [whole, less] = ["whole", "less"].map(|name| folder.path().join(name));
    let output = python("generate.py").args(["--records", "2000"]).stderr(Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    std::fs::write(&whole, &text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.len() - 100; // this line is a record of the C++ engine; a row of a rank could be empty
    std::fs::write(&less, [&lines[..at], &lines[at + 1..]].concat().join("\n")).unwrap();
    let (whole, less) = (expected(&whole), expected(&less));
    let differ = whole.iter().filter(|(series, value)| less.get(*series) != Some(value)).count();
    assert!(differ > 3, "{differ} series differ");
}
