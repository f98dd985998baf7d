//! The page of GPUs, byte for byte, from the real binary over the stand-in NVML: one that is busy, one with MIG, one that is
//! lost. `UPDATE_GOLDEN=1 cargo test --test gpu_page` writes the files anew; read the difference before it is committed.
// A test stops at its first surprise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod e2e;

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use e2e::daemon::Daemon;
use e2e::missing;
use e2e::standin::Standin;

/// GPU 0 is idle, 1 has a number of its own for everything, 2 is split, 3 will be lost.
fn state() -> String {
    let busy = include_str!("fixtures/busy_gpu.state");
    format!(
        "gpus=4\n{busy}gpu.2.mig=on\n\
         gpu.2.mig.0=MIG-aaaa,1,0,3g.71gb,75161927680,1073741824,40\n\
         gpu.2.mig.1=MIG-bbbb,5,0,1g.18gb,18874368000,2147483648,70\n"
    )
}

/// A daemon that has seen all of it.
fn daemon(standin: &Standin) -> Daemon {
    let library = standin.library();
    let daemon = Daemon::start(&[
        "--source=replay:tests/fixtures/session.ndjson",
        "--gpu.interval=100ms",
        "--gpu.processes",
        "--metrics.compat=dcgm",
        "--gpu.library",
        library.to_str().unwrap(),
    ]);
    let active = |page: &e2e::page::Page| {
        let whole = page.find("nv_gpu_sm_active_ratio", &["gpu_uuid=GPU-b"]).is_some();
        let split = page.find("nv_gpu_mig_sm_active_ratio", &["mig_uuid=MIG-bbbb"]).is_some();
        let heard = page.find("DCGM_FI_DEV_XID_ERRORS", &["UUID=GPU-b"]).is_some();
        missing(whole && split && heard, || "no activity or no ear for errors".to_owned())
    };
    daemon.until(active);
    standin.set(&format!("{}gpu.1.xids=79\ngpu.3.lost=1\n", state()));
    daemon.until(|page| {
        let lost = page.find("nv_gpu_up", &["gpu_uuid=GPU-00000000-0000-4000-8000-000000000003"]) == Some(0.0);
        let xid = page.find("nv_gpu_last_xid", &["gpu_uuid=GPU-b"]) == Some(79.0);
        missing(lost && xid, || "no lost GPU or no Xid".to_owned())
    });
    daemon
}

fn same_as_golden(name: &str, page: &str) {
    let path = format!("tests/golden/{name}");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, page).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    let differing = page.lines().zip(golden.lines()).find(|(page, golden)| page != golden);
    assert!(page == golden, "{name} has changed, first here (page, golden): {differing:?}; see the head of this test");
}

const TIMES: [&str; 3] =
    ["nv_gpu_last_xid_timestamp_seconds{", "nv_gpu_last_poll_timestamp_seconds{", "nv_gpu_poll_duration_seconds{"];

/// The page with what differs from run to run written over.
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
fn gpus_give_their_golden_pages() {
    let standin = Standin::new(&state());
    let daemon = daemon(&standin);
    same_as_golden("gpu.txt", &stable(&daemon.text("/metrics?collect[]=gpu")));
    same_as_golden("dcgm.txt", &stable(&daemon.text("/metrics?collect[]=compat")));
}

#[test]
fn a_gpu_that_answers_everything_has_every_family_of_the_catalog() {
    let standin = Standin::new(&state());
    let daemon = daemon(&standin);
    let page = daemon.page();
    let shown: BTreeSet<&str> = page.families.iter().map(|(name, _)| name.as_str()).collect();
    let mut catalog = Command::new(env!("CARGO_BIN_EXE_trtllm-exporter"));
    let catalog = catalog.args(["catalog", "--format", "json"]).output().unwrap();
    let catalog: serde_json::Value = serde_json::from_slice(&catalog.stdout).unwrap();
    let names = catalog.as_array().unwrap().iter().map(|metric| metric["name"].as_str().unwrap());
    let gpus: BTreeSet<&str> =
        names.filter(|name| name.starts_with("nv_gpu_") || name.starts_with("DCGM_FI_")).collect();
    // The stand-in's MIG instances have no more than SM activity, there is no kubelet, and a process has a share only since
    // the slow poll before, fifteen seconds later.
    let absent: Vec<&str> = gpus.difference(&shown).copied().filter(|name| !name.starts_with("nv_gpu_mig_")).collect();
    assert_eq!(absent, ["nv_gpu_pod_info", "nv_gpu_process_sm_utilization_ratio"]);
}

#[test]
fn signals_let_the_driver_go_and_take_it_again() {
    assert!(
        (0..5).any(|_| the_driver_is_let_go_taken_again_and_let_go_at_the_end()),
        "NVML was never shut down in time"
    );
}

/// False if the end took the second that it has, after which NVML is left behind: on a machine that stood still this may be
/// so once.
fn the_driver_is_let_go_taken_again_and_let_go_at_the_end() -> bool {
    let standin = Standin::new(&state());
    let mut daemon = daemon(&standin);
    daemon.signal("USR1");
    let released = daemon.until(|page| {
        let state = page.find("trtllm_exporter_nvml_state", &["state=released"]);
        missing(state == Some(1.0), || "not released".to_owned())
    });
    assert_eq!(standin.log(), ["init", "shutdown"]);
    assert_eq!(released.find("nv_gpu_power_usage", &["gpu_uuid=GPU-b"]), None);
    assert!(released.find("nv_energy_consumption", &["gpu_uuid=GPU-b"]).is_some());
    daemon.signal("USR2");
    daemon.until(|page| {
        missing(page.find("nv_gpu_power_usage", &["gpu_uuid=GPU-b"]).is_some(), || "no power".to_owned())
    });
    let begun = Instant::now();
    assert!(daemon.terminate().success());
    let (log, whole) = (standin.log(), ["init", "shutdown", "init", "shutdown"]);
    if log == whole {
        return true;
    }
    assert_eq!(log, whole[..3]);
    assert!(begun.elapsed() >= Duration::from_secs(1), "it did not wait for NVML: {}", daemon.stderr());
    false
}
