//! docs/METRICS.md is the output of `catalog` and matches a real page.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trtllm_analysis::ObservedEngine;
use trtllm_analysis::iteration_sums::IterationSums;
use trtllm_page::metrics::catalog::feeds::statistics_of;
use trtllm_page::metrics::catalog::{CATALOG, Group, Metric, Profile};
use trtllm_page::metrics::compat::CompatSets;
use trtllm_page::metrics::page;
use trtllm_page::metrics::page_builder::Selection;
use trtllm_records::Objectives;
use trtllm_records::schema::When;
use trtllm_records::{IterationStats, PerfMetricsEntry, RequestStats};
use trtllm_sources::prometheus_text::parse_server_metrics;

use crate::support::daemon::{Daemon, prints};
use crate::support::golden::same_as_golden;
use crate::support::page::name_of;
use crate::support::sessions::session;
use crate::support::{self, fold_page, payload};

#[test]
fn the_reference_page_is_the_golden_output_of_the_catalog_command() {
    let mut printed = prints(&["catalog"]);
    // The numbers of series stand in the template of the page. They need the payloads of the tests.
    let template_path = support::root().join("src/tools/metrics.md");
    let mut template = std::fs::read_to_string(&template_path).unwrap();
    let numbers = numbers_of_series();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        for page in [&mut printed, &mut template] {
            let before = page.lines().find(|line| line.starts_with("One engine has ")).unwrap().to_owned();
            *page = page.replace(&before, &numbers);
        }
        std::fs::write(&template_path, &template).unwrap();
    }
    assert!(
        template.contains(&numbers),
        "to accept the new numbers of series: UPDATE_GOLDEN=1 cargo test --test it golden"
    );
    same_as_golden("docs/METRICS.md", &printed);
    for metric in CATALOG.iter() {
        assert!(printed.contains(&format!("| `{}` |", metric.name)), "{} is not in it", metric.name);
    }
    let readme = std::fs::read_to_string(support::root().join("README.md")).unwrap();
    assert!(readme.contains("(docs/METRICS.md)"), "README.md does not link docs/METRICS.md");
}

/// Two iterations in which every field is set: records of both backends, request rows and RequestPerfMetrics.
fn all_fields() -> Vec<Value> {
    let mut record = payload("metrics_record_SHAPE_2026H2.json")[0].clone();
    let executor = payload("metrics_trt_v1.0.0rc4.json")[0].clone();
    for key in executor.as_object().unwrap().keys().filter(|key| key.starts_with("max")) {
        record[key] = executor[key].clone();
    }
    record["maxNumTokensTunerRecommended"] = json!(4096);
    // The PyTorch engine always writes false, which says nothing.
    record["requestStats"][0]["paused"] = json!(true);
    record["crossKvCacheStats"] = record["kvCacheStats"].clone();
    record["inflightBatchingStats"]["numGenRequests"] = json!(2);
    record["inflightBatchingStats"]["avgNumDecodedTokensPerIter"] = json!(1.25);
    record["staticBatchingStats"] = json!({"numScheduledRequests": 4, "numContextRequests": 1, "numCtxTokens": 40,
        "numGenTokens": 3, "emptyGenSlots": 1});
    record["specDecodingStats"] = json!({"numDraftTokens": 20, "numAcceptedTokens": 12, "numRequestsWithDraftTokens": 3,
        "acceptanceLength": 2.5, "iterLatencyMS": 1.5, "draftOverhead": 0.25});
    for (key, value) in [("iterSuspendedRequests", 1), ("iterResumedRequests", 1), ("iterDiskPrefetchBlocks", 4)] {
        record[key] = json!(value);
    }
    for row in record["kvCacheIterationStats"].as_object_mut().unwrap().values_mut() {
        row["slotSize"] = json!([65536, 32768]);
    }
    record["iterCachedTokensByLevel"] = json!([12, 8, 1, 1]);
    record["kvCacheIterationStatsByLifecycle"] = json!({
        "0": {"iterFullReusedBlocksByLevel": [4, 3, 2, 1], "iterPartialReusedBlocksByLevel": [1, 1, 1, 1],
            "iterReusedBlocks": 14, "iterMissedBlocks": 2, "iterFullReusedBlocks": 10, "iterPartialReusedBlocks": 4},
        "1": {"kind": "ssm", "snapshotStats": {"iterSnapshotLookups": 9, "iterSnapshotMisses": 2, "iterReusedTokens": 70,
            "iterUnreusedTokens": 30, "iterAlignedSnapshotHits": 4, "iterUnalignedSnapshotHits": 3}}});
    let mut next = record.clone();
    for (key, value) in [("iter", 43), ("statsSequence", 42)] {
        next[key] = json!(value);
    }
    for count in ["allocTotalBlocks", "allocNewBlocks", "reusedBlocks", "missedBlocks"] {
        next["kvCacheStats"][count] = json!(next["kvCacheStats"][count].as_i64().unwrap() + 10);
    }
    let mut entry = payload("perf_metrics_SHAPE.json")[1].clone();
    entry["finish_reason"] = json!("cancelled");
    for (key, tokens) in [("prompt_tokens", 40), ("output_tokens", 11), ("cached_tokens", 8)] {
        entry[key] = json!(tokens);
    }
    entry["perf_metrics"]["timing_metrics"]["server_arrival_time"] = json!(1000.29);
    entry["perf_metrics"]["timing_metrics"]["server_first_token_time"] = json!(1000.41);
    let mut plain = payload("perf_metrics_SHAPE.json")[0].clone();
    let step = |time| json!({"token_time": time, "gpu_forward_time": 8.0, "gpu_sample_time": 0.5});
    for entry in [&mut entry, &mut plain] {
        entry["time_breakdown_metrics"] = json!({"ctx_chunk_metrics": [step(7.0)], "step_metrics": [step(7.5)]});
    }
    vec![record, next, entry, plain]
}

#[test]
fn every_name_in_the_table_of_equivalents_is_on_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.ndjson");
    let lines: Vec<String> = all_fields().iter().map(Value::to_string).collect();
    std::fs::write(&file, lines.join("\n")).unwrap();
    let source = format!("replay:{}?speed=max", file.display());
    let daemon = Daemon::start(&[
        "--source",
        &source,
        "--metrics.compat",
        "trtllm,vllm,triton-core,spec",
        "--stale-after",
        "1h",
    ]);
    let page = daemon.until_state(&[], "idle");
    let names: BTreeSet<&str> = page.series.iter().map(|(series, _)| name_of(series)).collect();
    let reference = prints(&["catalog"]);
    let (_, table) = reference.split_once("\n## Names in other engines\n").unwrap();
    let rows = table.lines().take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with("| ")).skip(2);
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split('|').map(str::trim).collect()).collect();
    assert!(rows.len() > 20);
    for cells in rows {
        let &[_, concept, vllm, _, serve, triton, _, ours, _] = &cells[..] else { panic!("{cells:?}") };
        let names_in = |cell: &str| -> Vec<String> { cell.split(", `").map(|name| name.replace('`', "")).collect() };
        let shows = |family: &str| ["", "_bucket"].iter().any(|end| names.contains(format!("{family}{end}").as_str()));
        for name in names_in(ours) {
            let (family, label) = name.split_once('{').unwrap_or((&name, ""));
            assert!(shows(family), "{concept}: {family} is not on the page");
            if !label.is_empty() {
                page.get(family, &[label.trim_end_matches('}')]);
            }
        }
        // A name in the table must also be in the compatibility set of that program.
        for name in [vllm, serve, triton].into_iter().flat_map(names_in) {
            let family = name.split('{').next().unwrap();
            // This family comes only from trtllm-serve's own page; server_page.rs tests it.
            let is_ours = CATALOG.iter().any(|metric| metric.name == family);
            assert!(!is_ours || family == "trtllm_request_error_total" || shows(family), "{concept}: {family}");
        }
    }
}

fn engine() -> (ObservedEngine, Instant) {
    let start = Instant::now();
    (ObservedEngine::new(Duration::from_secs(15)), start)
}

/// The names and labels of the series on the page, in the groups `Triton` and `Engine`.
fn series(profile: Profile, engine: &ObservedEngine, now: Instant) -> BTreeSet<String> {
    let state = fold_page::state(Objectives::default(), fold_page::polled(engine, now));
    state.judge(0.0, 0.0);
    // Adds intervals whose iterations can be compared with earlier iterations.
    for slot in 1..5 {
        let (iterations, seconds) = (60.0 * f64::from(slot), f64::from(slot));
        let (compared_seconds, expected_seconds) = (seconds, seconds);
        let sums =
            IterationSums { iterations, seconds, compared_seconds, expected_seconds, ..IterationSums::default() };
        state.slots()[0].lock().observed.analysis.iterations.sums = sums;
        state.judge(5.0 * seconds, 0.0);
    }
    let selection = Selection::of(&[Group::Triton, Group::Engine]);
    let page = fold_page::page_in(profile, &state, CompatSets::default(), selection);
    assert!(page.samples().iter().any(|sample| matches!(sample.value, page::Value::Histogram(_))));
    fold_page::parsed(&page).series.into_iter().map(|(series, _)| series).collect()
}

fn absorb(engine: &mut ObservedEngine, message: &Value, now: Instant) {
    if message.get("perf_metrics").is_some() {
        engine.absorb_perf_metrics(&serde_json::from_value::<PerfMetricsEntry>(message.clone()).unwrap(), now).unwrap();
    } else {
        let record: IterationStats = serde_json::from_value(message.clone()).unwrap();
        engine.absorb(&record, now, 1_753_462_475_000_000).unwrap();
    }
}

/// The sentence of the reference.
fn numbers_of_series() -> String {
    let (mut most, now) = engine();
    for message in all_fields() {
        absorb(&mut most, &message, now);
    }
    let (mut serve, now) = engine();
    let mut record = payload("metrics_record_SHAPE_2026H2.json")[0].clone();
    record["requestStats"] = Value::Null;
    absorb(&mut serve, &record, now);
    absorb(&mut serve, &payload("perf_metrics_SHAPE.json")[0], now);
    let page = include_str!("../fixtures/prometheus_trtllm_serve_SHAPE_2026H2.txt");
    let another_request = page.replace("model_name=\"llama-3-8b\"} 9.0", "model_name=\"llama-3-8b\"} 10.0");
    for page in [page, &another_request] {
        serve.absorb_server_metrics(&parse_server_metrics(page.as_bytes()).unwrap(), now);
    }
    let (mut executor, now) = engine();
    let mut record = payload("metrics_trt_v1.0.0rc4.json")[0].clone();
    record["requestStats"] = payload("metrics_record_SHAPE_2026H2.json")[0]["requestStats"].clone();
    // The C++ executor never reports a complete request as scheduled.
    record["requestStats"][0]["scheduled"] = json!(false);
    absorb(&mut executor, &record, now);
    let later = now + Duration::from_secs(60);
    [&mut executor, &mut serve, &mut most].into_iter().for_each(|engine| engine.settle(false, later));
    let engines = [&executor, &serve, &most];
    let numbers = |profile| engines.map(|engine| series(profile, engine, now).len());
    let [default @ .., most_of_default] = numbers(Profile::Default);
    // Objectives add 16 series. The engine's capacity is two more, which these few records do not tell.
    assert!(default.iter().all(|series| series + 16 + 2 <= 160) && most_of_default <= 160, "{default:?}");
    let [[executor, serve, most], [executor_full, serve_full, most_full]] = Profile::ALL.map(numbers);
    format!(
        "One engine has {executor} series if it is a C++ Executor with request statistics, {serve} if it is trtllm-serve \
        (PyTorch) with `/perf_metrics` and `/prometheus/metrics`, and {most} if it sends every field; with \
        `--metrics.profile full`, {executor_full}, {serve_full} and {most_full} (groups `triton` and `engine`)."
    )
}

#[test]
fn many_requests_create_no_series() {
    let (mut engine, now) = engine();
    for message in all_fields() {
        absorb(&mut engine, &message, now);
    }
    engine.settle(false, now + Duration::from_secs(15));
    let before = series(Profile::Full, &engine, now);
    let rows = |id: u64, stage: &str| json!([{"id": id, "stage": stage, "numGeneratedTokens": 3, "scheduled": true}]);
    let mut record: IterationStats = serde_json::from_value(all_fields()[1].clone()).unwrap();
    let mut entry: PerfMetricsEntry = serde_json::from_value(all_fields()[2].clone()).unwrap();
    let mut begun = serde_json::from_value::<Vec<RequestStats>>(rows(0, "CONTEXT_IN_PROGRESS")).unwrap();
    begun.extend(serde_json::from_value::<Vec<_>>(rows(0, "GENERATION_COMPLETE")).unwrap());
    let requests = if support::long() { 1_000_000_u64 } else { 50_000 };
    for request in 0..requests {
        // On a busy machine, the loop takes so long that an engine without news would count as idle.
        let now = Instant::now();
        record.iter = Some(44 + request);
        record.stats_sequence = Some(43 + request);
        begun[0].id = Some(request + 1);
        begun[1].id = Some(request);
        record.request_stats = Some(std::mem::take(&mut begun));
        engine.absorb(&record, now, 1_753_462_475_000_000).unwrap();
        begun = record.request_stats.take().unwrap();
        entry.prompt_tokens = Some(request % 100_000);
        engine.absorb_perf_metrics(&entry, now).unwrap();
    }
    assert_eq!(engine.fold.requests.totals.times.e2e_latency.count(), requests + 2);
    let differ: Vec<String> = series(Profile::Full, &engine, now).symmetric_difference(&before).cloned().collect();
    // Only the interval of the statistics is new: it is known from the third record on.
    assert_eq!(differ, ["nv_trt_llm_statistics_interval_iterations{model=\"m\",version=\"1\"}"]);
}

#[test]
fn every_compatibility_set_names_its_readers_and_is_off_by_default() {
    let reference = prints(&["catalog"]);
    for set in ["trtllm", "vllm", "triton-core", "dcgm", "spec"] {
        assert!(reference.contains(&format!("\n| `{set}` | ")), "{set} is not described");
    }
    let daemon = session(&[]);
    assert!(daemon.text("/metrics?collect[]=compat").is_empty());
    // All sets together have no duplicate series.
    let page = session(&["--metrics.compat", "trtllm,vllm,triton-core,dcgm,spec"]).page();
    let distinct: BTreeSet<&String> = page.series.iter().map(|(series, _)| series).collect();
    assert_eq!(distinct.len(), page.series.len());
}

#[test]
fn every_family_of_an_engine_says_what_it_needs() {
    let of_engines = |metric: &&Metric| match metric.group {
        Group::Triton | Group::Engine => true,
        Group::Compat => !metric.name.starts_with("DCGM_"),
        Group::Gpu | Group::Exporter => false,
    };
    for metric in CATALOG.iter().filter(of_engines) {
        assert!(!statistics_of(metric).is_empty(), "{}: say what feeds it with `feeds` or `when`", metric.name);
    }
    let needs = |name: &str| statistics_of(CATALOG.iter().find(|metric| metric.name == name).unwrap());
    assert_eq!(needs("nv_trt_llm_iteration_latency_seconds"), [When::Iterations]);
    assert_eq!(needs("nv_trt_llm_host_step_seconds"), [When::PyTorch]);
    assert_eq!(needs("nv_llm_output_token_len"), [When::Rows, When::Entries]);
    assert_eq!(needs("nv_trt_llm_ssm_snapshot_lookups_total"), [When::V2]);
    assert_eq!(needs("trtllm_time_to_first_token_seconds"), [When::Rows, When::Entries]);
    assert_eq!(needs("nv_trt_llm_server_time_to_first_token_seconds"), [When::Entries]);
    // Each kind of statistics must have a row in the table of the reference.
    let reference = prints(&["catalog"]);
    for statistics in CATALOG.iter().flat_map(statistics_of) {
        assert!(reference.contains(&format!("\n| `{}` | ", statistics.name())), "{statistics:?} is not explained");
    }
}
