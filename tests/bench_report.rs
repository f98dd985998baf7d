//! `replay:` of a trtllm-bench report: the numbers of the benchmark are on the page in base units, beside a live engine's.
// A test fails by a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod e2e;

use e2e::daemon::{self, Daemon};
use e2e::ensure;

const REPORT: &str = "tests/fixtures/trtllm_bench_report.json";

#[test]
fn the_numbers_of_a_report_are_on_the_page_beside_a_live_engine() {
    let report = format!("replay:{REPORT}");
    let live = "replay:tests/fixtures/session.ndjson?speed=max";
    let daemon = Daemon::start(&["--source", live, "--source", &report, "--model", "live", "--model", "bench"]);
    let page = daemon
        .until(|page| ensure(page.find("nv_trt_llm_bench_duration_seconds", &[]).is_some(), || "no report".to_owned()));
    let bench = |name: &str, label: &str| page.get(&format!("nv_trt_llm_bench_{name}"), &["model=bench", label]);
    let one = |name: &str| bench(name, "version=1");
    assert_eq!(one("output_tokens_per_second"), 28390.4265);
    assert_eq!(one("requests_per_second"), 221.8002);
    assert_eq!(one("duration_seconds"), 13.5256862);
    assert_eq!(bench("time_to_first_token_seconds", "statistic=p99"), 0.51234);
    assert_eq!(bench("time_per_output_token_seconds", "statistic=p90"), 0.01525);
    assert_eq!(bench("e2e_request_latency_seconds", "statistic=avg"), 2.6105);
    assert_eq!((bench("input_tokens", "statistic=max"), bench("output_tokens", "statistic=min")), (2048.0, 64.0));
    assert_eq!((bench("config", "setting=tp_size"), bench("config", "setting=kv_memory_ratio")), (2.0, 0.9));
    let info = ["bench_model=llama-2-70b", "gpu_name=NVIDIA H100", "scheduler_policy=GUARANTEED_NO_EVICT"];
    assert_eq!(page.get("nv_trt_llm_bench_info", &info), 1.0);
    // A value that the report lacks is absent.
    assert_eq!(page.find("nv_trt_llm_bench_e2e_request_latency_seconds", &["statistic=p99"]), None);
    assert_eq!(page.find("nv_trt_llm_bench_duration_seconds", &["model=live"]), None);
}

#[test]
fn a_report_with_an_invalid_number_ends_the_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let text = std::fs::read_to_string(REPORT).unwrap().replace("28390.4265", "\"fast\"");
    std::fs::write(&file, text).unwrap();
    let source = format!("replay:{}", file.display());
    let output = daemon::run(&["--source", &source, "--gpu", "off", "--web.listen-address", "127.0.0.1:0"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("--source replay") && stderr.contains("report.json") && stderr.contains("fast"),
        "{stderr}"
    );
}
