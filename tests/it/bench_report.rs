//! Reports of trtllm-bench, given by `--bench-report` and `replay:`. The page shows the numbers of the benchmark in
//! base units, beside the numbers of a live engine.

use std::path::Path;

use serde_json::Value;
use trtllm_sources::bench_report::{parse, read};

use crate::support::daemon::{Daemon, refused};
use crate::support::ensure;
use crate::support::sessions::SESSION;

const REPORT: &str = "tests/fixtures/trtllm_bench_report.json";

const OF_1_3: &str = "tests/fixtures/trtllm_bench_report_1.3.json";

/// Regression: only the format of the original specification was recognised, and no release writes it.
#[test]
fn the_report_of_a_current_release_is_read_as_a_source_and_beside_an_engine() {
    let report = format!("replay:{OF_1_3}");
    let replayed = Daemon::start(&["--source", &report, "--model", "a"]);
    let beside = Daemon::start(&["--source", SESSION, "--model", "a", "--bench-report", OF_1_3]);
    let shown = |daemon: &Daemon| {
        let page = daemon.until_shown("nv_trt_llm_bench_duration_seconds", &[], true);
        let text = daemon.text("/metrics");
        let lines = text.lines().filter(|line| line.starts_with("nv_trt_llm_bench_"));
        (page, lines.map(str::to_owned).collect::<Vec<_>>())
    };
    let (page, lines) = shown(&replayed);
    assert_eq!(shown(&beside).1, lines);
    let bench = |name: &str, label: &str| page.get(&format!("nv_trt_llm_bench_{name}"), &["model=a", label]);
    for (name, value) in [
        ("output_tokens_per_second", 28390.5),
        ("total_tokens_per_second", 141_926.5),
        ("requests_per_second", 221.75),
        ("duration_seconds", 13.5255),
        ("requests", 3000.0),
        ("concurrent_requests", 241.5),
        ("gpu_output_tokens_per_second", 14195.25),
        ("user_output_tokens_per_second", 117.75),
        ("energy_joules", 16500.5),
        ("output_tokens_per_joule", 23.25),
        ("power_watts", 1220.0),
    ] {
        assert_eq!(bench(name, "version=1"), value, "{name}");
    }
    for (name, label, value) in [
        ("time_to_first_token_seconds", "statistic=p90", 0.2985),
        ("time_to_first_token_seconds", "statistic=avg", 0.1875),
        ("time_per_output_token_seconds", "statistic=p99", 0.0125),
        ("e2e_request_latency_seconds", "statistic=min", 0.25),
        ("input_tokens", "statistic=max", 520.0),
        ("output_tokens", "statistic=p95", 132.0),
        // This is the number of generated tokens, not the number that the data set requests.
        ("output_tokens", "statistic=avg", 128.5),
        ("sequence_tokens", "statistic=max", 670.0),
        ("user_generation_tokens_per_second", "statistic=p90", 140.0),
        ("user_generation_tokens_per_second", "statistic=avg", 124.5),
        ("spec_decode_draft_tokens", "statistic=avg", 182.0),
        ("spec_decode_accepted_tokens", "statistic=p50", 72.0),
        ("spec_decode_acceptance_ratio", "statistic=max", 0.75),
        ("spec_decode_acceptance_length", "statistic=p50", 2.25),
        ("config", "setting=num_gpus", 2.0),
        ("config", "setting=kv_memory_ratio", 0.9),
    ] {
        assert_eq!(bench(name, label), value, "{name} {label}");
    }
    let info = [
        "backend=Pytorch",
        "dtype=bfloat16",
        "decoding_mode=Eagle",
        "engine_version=1.3.0rc12",
        "gpu_name=NVIDIA H100 80GB HBM3",
        "quantization=FP8",
    ];
    assert_eq!(page.get("nv_trt_llm_bench_info", &info), 1.0);
    // The value is null in the report.
    assert_eq!(page.find("nv_trt_llm_bench_config", &["setting=ep_size"]), None);
}

#[test]
fn a_file_that_is_no_valid_report_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (text, words) in [
        ("{\"performance\": {\"total_latency_ms\": \"fast\"}, \"world_info\": {}}", "total_latency_ms is \"fast\""),
        ("{\"performance\": {}, \"world_info\"", "invalid"),
    ] {
        let file = folder.path().join("x.json");
        std::fs::write(&file, text).unwrap();
        let file = file.display().to_string();
        let config = folder.path().join("engines.yaml");
        std::fs::write(&config, format!("engines:\n- source: socket:a\n  bench_report: {file}\n")).unwrap();
        let source = format!("replay:{file}");
        for (flag, arguments) in [
            ("--source replay", ["--source", &source]),
            ("--bench-report", ["--bench-report", &file]),
            ("engines[0]", ["--config.file", config.to_str().unwrap()]),
        ] {
            refused(2, &arguments, &[flag, words, "x.json", "; name "]);
        }
    }
}

#[test]
fn each_engine_of_a_file_has_a_report_of_its_own_and_a_reload_changes_it() {
    let folder = tempfile::tempdir().unwrap();
    let engines = |report: &str| {
        format!("- source: {SESSION}\n  model: a\n  bench_report: {report}\n- source: {SESSION}\n  model: b\n")
    };
    let daemon = Daemon::configured(&engines(REPORT), &[]);
    let until = |expected: f64| {
        daemon.until(|page| {
            let found = ["model=a", "model=b"].map(|model| page.find("nv_trt_llm_bench_requests_per_second", &[model]));
            ensure(found == [Some(expected), None], || format!("{found:?}"))
        })
    };
    until(221.8002);
    daemon.reload(&engines(OF_1_3));
    until(221.75);
    // The path stays the same, but the content of the report changes.
    let report = folder.path().join("report.json");
    std::fs::copy(REPORT, &report).unwrap();
    daemon.reload(&engines(report.to_str().unwrap()));
    until(221.8002);
    std::fs::copy(OF_1_3, &report).unwrap();
    daemon.signal("HUP");
    until(221.75);
    assert_eq!(daemon.page().get("trtllm_exporter_config_last_reload_successful", &[]), 1.0);
    // A report that becomes invalid does not change the page.
    std::fs::write(&report, "{").unwrap();
    daemon.signal("HUP");
    daemon.until_is("trtllm_exporter_config_last_reload_successful", &[], 0.0);
    until(221.75);
}

/// Six real runs on an H100. trtllm-bench printed each report, rounded to four digits, and wrote it as JSON.
#[test]
fn the_text_of_a_real_run_says_the_same_as_its_json() {
    let close = |a: &Value, b: &Value| match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-4 * b.abs().max(1.0),
        _ => a == b,
    };
    for (run, output_tokens, share, length) in [
        ("W0a_kv090", 27784.9728, 0.9, 128.0),
        ("W0b_cg2048", 25503.0732, 0.95, 128.0),
        ("W1_osl256", 33290.6776, 0.9, 256.0),
        ("W2_isl12", 46155.5334, 0.9, 256.0),
        ("W3_kv080", 46224.1507, 0.8, 256.0),
        ("W4_conc128", 22912.4242, 0.8, 256.0),
    ] {
        let report = |kind: &str| read(Path::new(&format!("tests/fixtures/bench/{run}.{kind}"))).unwrap();
        let (text, json) = (report("console.txt"), report("report.json"));
        assert!((json.performance.token_throughput_per_sec.unwrap() - output_tokens).abs() < 1e-3, "{run}: {json:?}");
        assert_eq!(json.configuration.kv_memory_percentage, Some(share), "{run}");
        assert_eq!(json.input_output_stats.output_tokens.avg, Some(length), "{run}");
        let (text, json) = (serde_json::to_value(text).unwrap(), serde_json::to_value(json).unwrap());
        let mut same = 0;
        for section in ["performance", "configuration", "requests", "metadata"] {
            for (name, printed) in text[section].as_object().unwrap().iter().filter(|(_, printed)| !printed.is_null()) {
                let value = &json[section][name];
                assert!(close(printed, value), "{run}: {section} {name}: {printed}, not {value}");
                same += 1;
            }
        }
        assert!(same >= 15, "{run}: only {same} numbers");
    }
}

/// The document begins with the third section of the text.
#[test]
fn the_text_of_nvidias_performance_overview_is_read() {
    let text = std::fs::read_to_string("tests/fixtures/bench/nvidia-perf-overview-v1.0-console.txt").unwrap();
    assert!(parse(&text).is_err(), "its backend is unknown");
    let report = parse(&format!("= PYTORCH BACKEND\n{text}")).unwrap();
    let (performance, latencies) = (report.performance, report.latency_stats);
    assert_eq!(performance.token_throughput_per_sec, Some(5530.7382));
    assert_eq!(performance.total_latency_ms, Some(115716.9214));
    assert_eq!((latencies.ttft_ms.avg, latencies.ttft_ms.max), (Some(52667.0339), Some(107501.2487)));
    assert_eq!((latencies.tbt_ms.avg, latencies.tbt_ms.p99), (Some(182.9639), Some(206.5821)));
}

/// Replays trtllm-bench's iteration log, whose lines are printed Python dictionaries.
#[test]
fn an_iteration_log_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("iterations.log");
    let line = |iter: u32| {
        format!(
            "{{'iter': {iter}, 'timestamp': '11-25-2026 10:00:0{iter}.000000', 'iterLatencyMS': 12.5, 'numActiveRequests': 3, \
             'maxBatchSizeStatic': None, 'isOk': True, 'kvCacheStats': {{'maxNumBlocks': 100, 'usedNumBlocks': 40, \
             'freeNumBlocks': 60, 'cacheHitRate': nan}}, 'inflightBatchingStats': {{'numScheduledRequests': 3, 'numContextRequests': \
             0, 'numGenRequests': 3, 'numCtxTokens': 0, 'avgNumDecodedTokensPerIter': 1.0}}}}\n"
        )
    };
    // The last line is incomplete, because trtllm-bench was killed while it wrote the line.
    let text: String = (1..=5).map(line).chain([line(6)[..40].to_owned()]).collect();
    std::fs::write(&file, text).unwrap();
    let source = format!("replay:{}?speed=max", file.display());
    let daemon = Daemon::start(&["--source", &source]);
    let page = daemon.until_is("nv_trt_llm_iterations_total", &[], 5.0);
    assert_eq!(page.get("nv_trt_llm_generation_tokens_total", &[]), 15.0);
    assert_eq!(page.get("nv_trt_llm_kv_cache_block_metrics", &["kv_cache_block_type=used"]), 40.0);
    assert_eq!(page.get("trtllm_exporter_records_rejected_total", &["reason=not_json"]), 1.0);
    let arguments = ["--source", "auto", "--bench-report", file.to_str().unwrap()];
    refused(2, &arguments, &["not a report of trtllm-bench; name the file"]);
}
