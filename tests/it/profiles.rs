//! `--metrics.profile`: the default page has what the files of deploy/ and examples/ read, and little else.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use trtllm_page::metrics::catalog::{CATALOG, Group, Metric, Profile};

use crate::support;
use crate::support::daemon::Launch;
use crate::support::page::{Page, name_of};
use crate::support::sessions::SESSION;
use crate::support::standin::Standin;

/// Rows of dashboards with these words need the full profile, and say so.
const NEEDS_FULL: &str = "--metrics.profile full";

/// Families of the default page that no file reads: the health of the exporter, the driver's version, and what a flag
/// switches on. Triton's families and those of each process are there because their names are known.
const NOT_READ: [&str; 16] = [
    "nv_gpu_driver_info",
    "nv_gpu_process_memory_bytes",
    "nv_gpu_process_sm_utilization_ratio",
    "nv_trt_llm_gpu_cost_total",
    "trtllm_exporter_http_refused_total",
    "trtllm_exporter_ingest_connections",
    "trtllm_exporter_last_success_timestamp_seconds",
    "trtllm_exporter_nvml_gpus",
    "trtllm_exporter_nvml_gpus_expected",
    "trtllm_exporter_nvml_init_errors_total",
    "trtllm_exporter_nvml_read_errors_total",
    "trtllm_exporter_nvml_up",
    "trtllm_exporter_recorder_size_bytes",
    "trtllm_exporter_scrapes_total",
    "trtllm_exporter_source_records_missing",
    "trtllm_exporter_source_unread_keys",
];

/// The texts of a file in which a family's name means that it is read: not comments, and not the panels of a
/// dashboard's rows that need the full profile.
fn read_by(path: &Path) -> String {
    let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    if let Ok(mut dashboard) = serde_json::from_str::<Value>(&text)
        && let Some(panels) = dashboard["panels"].as_array_mut()
    {
        panels.retain(|panel| !panel["title"].as_str().is_some_and(|title| title.contains(NEEDS_FULL)));
        return dashboard.to_string();
    }
    text.lines().filter(|line| !line.trim_start().starts_with('#')).fold(String::new(), |text, line| text + line + "\n")
}

/// The files below `folder`, without tests, and without the sources of the dashboards.
pub(crate) fn files(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !["generate", "target", "__pycache__"].contains(&&*name) {
            files(&path, found);
        } else if path.is_file() && !name.ends_with("_test.yml") {
            found.push(path);
        }
    }
}

/// The families that the files of deploy/ and examples/ read.
fn read_families() -> BTreeSet<&'static str> {
    let mut paths = Vec::new();
    for folder in ["deploy", "examples"] {
        files(&support::root().join(folder), &mut paths);
    }
    let texts: Vec<String> = paths.iter().map(|path| read_by(path)).collect();
    let words = texts.iter().flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric() && !"_:".contains(c)));
    let words: BTreeSet<&str> = words.collect();
    let is_read = |metric: &&Metric| {
        ["", "_bucket", "_sum", "_count"].iter().any(|end| words.contains(&*format!("{}{end}", metric.name)))
    };
    CATALOG.iter().filter(is_read).map(|metric| metric.name).collect()
}

#[test]
fn the_default_page_has_what_the_files_of_deploy_and_examples_read_and_little_else() {
    let read = read_families();
    assert!(read.len() > 60, "{read:?}");
    for metric in CATALOG.iter().filter(|metric| metric.group != Group::Compat) {
        let (is_read, in_default) = (read.contains(metric.name), metric.is_in(Profile::Default));
        assert!(in_default || !is_read || metric.name == "nv_gpu_nvlink_up", "{} is read", metric.name);
        let is_known =
            metric.group == Group::Triton || metric.name.starts_with("process_") || metric.name == "nv_gpu_power_limit";
        let is_wanted = is_read || is_known || NOT_READ.contains(&metric.name);
        assert!(!in_default || is_wanted, "no file reads {}, so it needs the full profile only", metric.name);
    }
}

#[test]
fn the_default_page_of_an_engine_and_a_gpu_is_a_part_of_the_full_one() {
    let gpus = Standin::new("gpu.0.nvlinks=18");
    let page = |profile| {
        let arguments = ["--source", SESSION, "--metrics.profile", profile, "--stale-after", "1h"];
        let daemon = Launch::new().gpus(&gpus).start(&arguments);
        daemon.until_state(&[], "idle");
        // The activity of the GPU is known after two polls.
        daemon.until_shown("nv_gpu_tensor_active_ratio", &[], true)
    };
    let [default, full] = ["default", "full"].map(page);
    let names = |page: &Page| page.series.iter().map(|(series, _)| series.clone()).collect::<BTreeSet<_>>();
    let (of_default, of_full) = (names(&default), names(&full));
    let more: Vec<&String> = of_default.difference(&of_full).collect();
    assert!(more.is_empty(), "{more:?}");
    assert_eq!(default.get("nv_gpu_nvlinks_up", &[]), 18.0);
    // Of this state set, the default page has only the series that is 1.
    let states = |page: &Page| page.series.iter().filter(|(series, _)| name_of(series) == "nv_gpu_state").count();
    assert!(states(&default) == 1 && states(&full) > 4);
    assert_eq!(default.get("nv_gpu_state", &["state=ok"]), 1.0);
    let of_gpu = |page: &Page| page.series.iter().filter(|(series, _)| series.contains("gpu_uuid")).count();
    // An Xid error adds three, and a pod one.
    assert!(of_gpu(&default) + 4 <= 40 && of_gpu(&full) > 150, "{} and {}", of_gpu(&default), of_gpu(&full));
}
