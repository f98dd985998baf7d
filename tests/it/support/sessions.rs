//! Daemons that have replayed recorded sessions. Their pages no longer change, so a test can compare several readers.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use super::daemon::Daemon;
use super::http;
use super::lookalike::{Lookalike, steady};
use super::standin::Standin;
use super::{ensure, until};

/// The groups whose bytes do not change after a replay. The exporter's own metrics change with each scrape.
pub(crate) const DETERMINISTIC: &str = "/metrics?collect[]=triton&collect[]=engine";

/// A recorded session of a few iterations.
pub(crate) const SESSION: &str = "replay:tests/fixtures/session.ndjson?speed=max";

/// A daemon that has read the session to its end. Its engine stays idle.
pub(crate) fn session(arguments: &[&str]) -> Daemon {
    let daemon = Daemon::start(&[&["--source", SESSION, "--stale-after", "1h"], arguments].concat());
    daemon.until_state(&[], "idle");
    daemon
}

/// Records that the look-alike does not send. The first contains a request whose context phase ran in another instance.
const FURTHER: &str = r#"{"iter":999999,"requestStats":[{"id":1,"stage":"GENERATION_COMPLETE","contextPrefillPosition":120,"numGeneratedTokens":40,"scheduled":true,"paused":false,"disServingStats":{"kvCacheTransferMS":12.25,"kvCacheSize":1048576}}]}
{"perf_metrics":{"timing_metrics":{"arrival_time":10.0,"first_scheduled_time":10.25,"first_token_time":10.5,"last_token_time":12.0,"kv_cache_size":1048576,"kv_cache_transfer_start":10.0,"kv_cache_transfer_end":10.125},"kv_cache_metrics":{"num_reused_blocks":1,"num_missed_blocks":3}}}
"#;

/// Two NDJSON files, for the C++ executor and for PyTorch, each with 1000 records that the look-alike served.
pub(crate) fn recordings() -> &'static (tempfile::TempDir, PathBuf, PathBuf) {
    static MADE: OnceLock<(tempfile::TempDir, PathBuf, PathBuf)> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let (cpp, pytorch) = (folder.path().join("cpp.ndjson"), folder.path().join("pytorch.ndjson"));
        for (file, backend) in [(&cpp, "tensorrt"), (&pytorch, "pytorch")] {
            std::fs::write(file, record(backend) + FURTHER).unwrap();
        }
        (folder, cpp, pytorch)
    })
}

fn record(backend: &str) -> String {
    let engine = Lookalike::start(&steady(1000), &["--ring", "100000", "--backend", backend]);
    until(|| {
        let count = engine.truth().count("records");
        ensure(count >= 1000, || format!("{count} records"))
    });
    let mut lines = String::new();
    for path in ["/metrics", "/perf_metrics"] {
        for record in http::get(&engine.address(), path).json().as_array().unwrap() {
            writeln!(lines, "{record}").unwrap();
        }
    }
    lines
}

/// Waits until all engines have been replayed to the end.
pub(crate) fn replayed(daemon: Daemon) -> Daemon {
    let done = r#"state="idle""#;
    daemon.until(|page| {
        let states: Vec<&(String, f64)> =
            page.series.iter().filter(|(series, _)| series.starts_with("nv_trt_llm_engine_state{")).collect();
        let idle = states.iter().all(|(series, value)| *value == 0.0 || series.contains(done));
        ensure(!states.is_empty() && idle, || "the replay is still running".to_owned())
    });
    daemon
}

/// Two engines after their replay. The second has names that need escaping and an extra label that sorts after `le`.
pub(crate) fn two_engines(more: &[&str]) -> Daemon {
    let (_, cpp, pytorch) = recordings();
    let engines = format!(
        "- source: 'replay:{}?speed=max'\n- source: 'replay:{}?speed=max'\n  model: 'odd \"name\" \\ é {{a=1}}, # b'\n  \
         version: '2,\"3\"'\n  labels: {{zone: 'eu \"1\"'}}\n",
        cpp.display(),
        pytorch.display()
    );
    replayed(Daemon::configured(&engines, more))
}

/// Like [`two_engines`], but with two simulated GPUs.
pub(crate) fn two_engines_and_two_gpus(more: &[&str]) -> (Daemon, Standin) {
    let gpus = Standin::new("gpus=2\ngpu.0.utilization_percent=57\ngpu.1.energy_mj=123456789");
    let library = gpus.library();
    // Poll each GPU only once: otherwise, its counters change between two pages.
    let of_gpus = ["--gpu", "required", "--gpu.library", library.to_str().unwrap(), "--gpu.interval", "1h"];
    let daemon = two_engines(&[&of_gpus, more].concat());
    let dcgm = more.iter().any(|argument| argument.contains("dcgm"));
    daemon.until(|page| {
        let up = page.series.iter().filter(|(series, value)| series.starts_with("nv_gpu_up") && *value == 1.0).count();
        // The Xid series appears a moment after the GPU is up, when the exporter has subscribed to its events.
        let xid_series = page.series.iter().filter(|(series, _)| series.starts_with("DCGM_FI_DEV_XID_ERRORS{")).count();
        ensure(up == 2 && (xid_series == 2 || !dcgm), || format!("{up} GPUs are up, {xid_series} have an Xid series"))
    });
    (daemon, gpus)
}

/// Runs a tool with the page on stdin. Returns its exit code, stdout and stderr.
pub(crate) fn run_on_page(command: &mut Command, page: &[u8]) -> (Option<i32>, String, String) {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let page = page.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(&page));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}
