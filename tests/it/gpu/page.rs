//! The GPU page of the real binary with the stand-in for NVML, compared byte for byte. It has an idle GPU, a busy GPU,
//! a GPU with MIG instances and a lost GPU.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::support;
use crate::support::daemon::{Daemon, Launch, prints};
use crate::support::ensure;
use crate::support::golden::same_as_golden;
use crate::support::standin::Standin;

/// GPU 0 is idle, GPU 1 has a different number for every reading, GPU 2 has MIG instances, GPU 3 will be lost.
fn state() -> String {
    let busy = include_str!("../../fixtures/busy_gpu.state");
    format!(
        "gpus=4\n{busy}gpu.2.mig=on\n\
         gpu.2.mig.0=MIG-aaaa,1,0,3g.71gb,75161927680,1073741824,40\n\
         gpu.2.mig.1=MIG-bbbb,5,0,1g.18gb,18874368000,2147483648,70\n"
    )
}

/// A daemon that has published all these GPUs.
fn daemon(standin: &Standin) -> Daemon {
    let arguments = ["--source=replay:tests/fixtures/session.ndjson", "--gpu.processes", "--metrics.compat=dcgm"];
    let daemon = Launch::new().gpus(standin).start(&arguments);
    let complete = |page: &support::page::Page| {
        let gpu = page.find("nv_gpu_sm_active_ratio", &["gpu_uuid=GPU-b"]).is_some();
        let mig = page.find("nv_gpu_mig_sm_active_ratio", &["mig_uuid=MIG-bbbb"]).is_some();
        let xids = page.find("DCGM_FI_DEV_XID_ERRORS", &["UUID=GPU-b"]).is_some();
        ensure(gpu && mig && xids, || "no activity or no Xid registration".to_owned())
    };
    daemon.until(complete);
    standin.set(&format!("{}gpu.1.xids=79\ngpu.3.lost=1\n", state()));
    daemon.until_is("nv_gpu_up", &["gpu_uuid=GPU-00000000-0000-4000-8000-000000000003"], 0.0);
    daemon.until_is("nv_gpu_last_xid", &["gpu_uuid=GPU-b"], 79.0);
    daemon
}

const TIMES: [&str; 3] =
    ["nv_gpu_last_xid_timestamp_seconds{", "nv_gpu_last_poll_timestamp_seconds{", "nv_gpu_poll_duration_seconds{"];

/// The page, with placeholders for values that differ between runs.
fn stable(page: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let mut stable = String::new();
    for line in page.lines() {
        match line.split_once("} ") {
            Some((series, _)) if TIMES.iter().any(|name| line.starts_with(name)) => {
                stable += &format!("{series}}} TIME")
            }
            _ => stable += &line.replace(&format!("ostname=\"{}\"", host.trim()), "ostname=\"HOST\""),
        }
        stable.push('\n');
    }
    stable
}

#[test]
fn gpu_pages_equal_the_golden_pages() {
    let standin = Standin::new(&state());
    let daemon = daemon(&standin);
    same_as_golden("tests/golden/gpu.txt", &stable(&daemon.text("/metrics?collect[]=gpu")));
    same_as_golden("tests/golden/dcgm.txt", &stable(&daemon.text("/metrics?collect[]=compat")));
}

#[test]
fn a_gpu_that_supports_everything_has_every_gpu_family_of_the_catalog() {
    let standin = Standin::new(&state());
    let daemon = daemon(&standin);
    let page = daemon.page();
    let shown: BTreeSet<&str> = page.families.iter().map(|(name, _)| name.as_str()).collect();
    let catalog: serde_json::Value = serde_json::from_str(&prints(&["catalog", "--format", "json"])).unwrap();
    let is_full =
        |metric: &&serde_json::Value| metric["profiles"].as_array().unwrap().iter().any(|name| name == "full");
    let names = catalog.as_array().unwrap().iter().filter(is_full).map(|metric| metric["name"].as_str().unwrap());
    let gpus: BTreeSet<&str> =
        names.filter(|name| name.starts_with("nv_gpu_") || name.starts_with("DCGM_FI_")).collect();
    // The MIG instances of the stand-in have only SM activity. Without a kubelet there are no pods. The utilisation of
    // a process is known only after the second slow poll, fifteen seconds after the first.
    let absent: Vec<&str> = gpus.difference(&shown).copied().filter(|name| !name.starts_with("nv_gpu_mig_")).collect();
    assert_eq!(absent, ["nv_gpu_pod_info", "nv_gpu_process_sm_utilization_ratio"]);
}

#[test]
fn signals_release_the_driver_and_resume_monitoring() {
    assert!((0..5).any(|_| release_resume_and_shut_down()), "NVML was never shut down in time");
}

/// Returns false if the daemon abandoned NVML because its shutdown took longer than one second. This may happen on an
/// overloaded machine.
fn release_resume_and_shut_down() -> bool {
    let standin = Standin::new(&state());
    let mut daemon = daemon(&standin);
    daemon.signal("USR1");
    let released = daemon.until_is("trtllm_exporter_nvml_state", &["state=released"], 1.0);
    assert_eq!(standin.log(), ["init", "shutdown"]);
    assert_eq!(released.find("nv_gpu_power_usage", &["gpu_uuid=GPU-b"]), None);
    assert!(released.find("nv_energy_consumption", &["gpu_uuid=GPU-b"]).is_some());
    daemon.signal("USR2");
    daemon.until_shown("nv_gpu_power_usage", &["gpu_uuid=GPU-b"], true);
    let begun = Instant::now();
    assert!(daemon.terminate().success());
    let (log, expected) = (standin.log(), ["init", "shutdown", "init", "shutdown"]);
    if log == expected {
        return true;
    }
    assert_eq!(log, expected[..3]);
    assert!(begun.elapsed() >= Duration::from_secs(1), "the daemon did not wait for NVML: {}", daemon.stderr());
    false
}
