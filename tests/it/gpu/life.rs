//! Changes while GPUs are monitored: Xid errors, MIG reconfiguration, closing NVML for a driver update (release) and
//! opening it again (resume). The tests load the stand-in for NVML with a real dlopen.

use std::time::{SystemTime, UNIX_EPOCH};

use trtllm_records::gpu::{GpuInventory, GpuMemory, GpuReadings, GpuState, MigInstance, NvmlState};

use super::monitor::{all_ok, gpu, hang_config, is, monitor, monitor_hanging, readings, ready, ready_with};
use crate::support::standin::Standin;

fn xids(inventory: &GpuInventory, index: u32) -> Vec<(u64, u64)> {
    gpu(inventory, index).map(|gpu| gpu.xids_by_code.clone()).unwrap_or_default()
}

#[test]
fn new_xid_errors_are_counted_by_code_and_gpu() {
    // The error 13 is from before the start, so it does not count.
    let standin = Standin::new("gpus=2\ngpu.0.xids=13");
    let mut monitor = monitor(&standin);
    let registered = |inventory: &GpuInventory| inventory.gpus.iter().all(|gpu| gpu.reports_xids);
    monitor.until("two GPUs with registered Xid errors", |inventory| all_ok(inventory, 2) && registered(inventory));
    standin.set("gpus=2\ngpu.0.xids=13,48,63,48\ngpu.1.xids=79");
    let inventory = monitor
        .until("four errors", |inventory| xids(inventory, 0) == [(48, 2), (63, 1)] && xids(inventory, 1) == [(79, 1)]);
    let last = gpu(&inventory, 0).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
    assert_eq!((last.xids, last.last_xid), (Some(3), Some(48)));
    let at = last.last_xid_us.unwrap();
    assert!((0..120_000_000).contains(&(now - at)), "{at} at {now}");
    // A GPU that fell off the bus keeps its Xid errors.
    standin.set("gpus=2\ngpu.0.xids=13,48,63,48\ngpu.1.xids=79\ngpu.1.lost=1");
    let lost = monitor.until("GPU 1 is lost", |inventory| is(inventory, 1, GpuState::Lost));
    assert_eq!(xids(&lost, 1), [(79, 1)]);
    monitor.stop();
    assert_eq!(standin.log(), ["init", "shutdown"]);
}

#[test]
fn an_xid_error_of_a_hung_gpu_is_counted() {
    let standin = Standin::new("gpus=2");
    let monitor = monitor_hanging(&standin);
    monitor.until("two GPUs", |inventory| inventory.gpus.iter().filter(|gpu| gpu.reports_xids).count() == 2);
    standin.set("gpus=2\ngpu.0.hang_ms=600000\ngpu.0.xids=119");
    monitor.until("GPU 0 stalls and has an Xid error", |inventory| {
        is(inventory, 0, GpuState::Stalled) && xids(inventory, 0) == [(119, 1)]
    });
    standin.set("gpus=2\ngpu.0.xids=119");
    monitor.until("both have returned", |inventory| all_ok(inventory, 2));
}

#[test]
fn xid_errors_are_counted_again_after_a_driver_reload() {
    let standin = Standin::new("");
    let monitor = monitor(&standin);
    let registered = |inventory: &GpuInventory| all_ok(inventory, 1) && inventory.gpus[0].reports_xids;
    monitor.until("a GPU", registered);
    standin.set("gpu.0.xids=31");
    monitor.until("one error", |inventory| xids(inventory, 0) == [(31, 1)]);
    standin.set("gpu.0.xids=31\ninit=9\nsession=9");
    monitor.until("the driver is unloaded", |inventory| inventory.nvml == NvmlState::DriverNotLoaded);
    standin.set("gpu.0.xids=31");
    monitor.until("the driver is loaded again", registered);
    standin.set("gpu.0.xids=31,43");
    monitor.until("another error", |inventory| xids(inventory, 0) == [(31, 1), (43, 1)]);
}

#[test]
fn a_gpu_without_events_does_not_report_xid_errors() {
    let standin = Standin::new("gpu.0.not_supported=events");
    let (_monitor, inventory) = ready(&standin, 1);
    assert!(!inventory.gpus[0].reports_xids);
}

#[test]
fn a_poll_that_hung_does_not_publish_what_it_read_before_the_hang() {
    let standin = Standin::new("gpu.0.memory_used_bytes=1000");
    let (monitor, _) = ready_with(hang_config(&standin), 1);
    // A poll reads memory before power, and the power call hangs.
    standin.set("gpu.0.memory_used_bytes=1000\ngpu.0.hang_ms=600000");
    monitor.until("it stalls", |inventory| is(inventory, 0, GpuState::Stalled));
    let before = monitor.published();
    standin.set("gpu.0.memory_used_bytes=2000");
    let used = |inventory: &GpuInventory| readings(inventory, 0).memory.used_bytes;
    monitor.until("the new memory", |inventory| used(inventory) == Some(2000));
    let after = monitor.all().split_off(before);
    assert!(after.iter().all(|(_, inventory)| used(inventory) != Some(1000)), "{after:#?}");
}

const MIG: &str = "gpu.0.mig=on\n\
    gpu.0.mig.0=MIG-a,1,0,3g.71gb,75161927680,1073741824,40\n\
    gpu.0.mig.2=MIG-b,5,0,1c.2g.35gb,37580963840,2147483648,70\n\
    gpu.0.mig.3=MIG-c,5,1,1c.2g.35gb,37580963840,2147483648,70\n";

fn instance(inventory: &GpuInventory, uuid: &str) -> Option<MigInstance> {
    readings(inventory, 0).mig.into_iter().find(|instance| instance.uuid == uuid)
}

fn sm(inventory: &GpuInventory, uuid: &str) -> Option<f64> {
    instance(inventory, uuid)?.activity.sm
}

#[test]
fn mig_instances_are_listed_with_their_memory_and_activity() {
    let standin = Standin::new(MIG);
    let mut monitor = monitor(&standin);
    let inventory = monitor.until("the activity of an instance", |inventory| sm(inventory, "MIG-a").is_some());
    let now = readings(&inventory, 0);
    assert_eq!((now.mig_enabled, now.utilization_ratio, now.power_usage_watts), (Some(true), None, Some(75.0)));
    assert_eq!(now.mig.iter().map(|instance| instance.uuid.as_str()).collect::<Vec<_>>(), ["MIG-a", "MIG-b", "MIG-c"]);
    let first = instance(&inventory, "MIG-a").unwrap();
    assert_eq!((first.gpu_instance_id, first.compute_instance_id), (Some(1), Some(0)));
    assert_eq!(first.profile.as_deref(), Some("3g.71gb"));
    let memory = GpuMemory {
        total_bytes: Some(75_161_927_680),
        used_bytes: Some(1_073_741_824),
        free_bytes: Some(74_088_185_856),
        reserved_bytes: Some(0),
    };
    assert_eq!((first.memory, sm(&inventory, "MIG-a")), (memory, Some(0.4)));
    // These two compute instances share one GPU instance, so they have the same SM activity.
    assert_eq!((sm(&inventory, "MIG-b"), sm(&inventory, "MIG-c")), (Some(0.7), Some(0.7)));
    assert_eq!(inventory.read_errors, [], "an empty slot is not an error");
    monitor.stop();
    assert_eq!(standin.log(), ["init", "shutdown"], "every sample was freed");
}

#[test]
fn mig_reconfiguration_is_followed_while_running() {
    let standin = Standin::new("gpu.0.utilization_percent=44");
    let mut monitor = monitor(&standin);
    monitor.until("MIG off", |inventory| readings(inventory, 0).activity.sm.is_some());
    standin.set(&format!("gpu.0.utilization_percent=44\n{MIG}"));
    let with_mig = monitor.until("MIG on", |inventory| readings(inventory, 0).mig.len() == 3);
    assert_eq!(readings(&with_mig, 0).utilization_ratio, None);
    assert_eq!(readings(&with_mig, 0).activity.sm, None);
    // A new instance gets the slot, the handle and the GPU instance number of the old one.
    standin.set(&MIG.replace("MIG-a,1,0,3g.71gb", "MIG-z,1,0,3g.71gb").replace(",40\n", ",90\n"));
    let other = monitor.until("another instance", |inventory| instance(inventory, "MIG-z").is_some());
    assert_eq!(instance(&other, "MIG-a"), None);
    monitor.until("its activity", |inventory| sm(inventory, "MIG-z") == Some(0.9));
    standin.set("gpu.0.utilization_percent=45");
    let without_mig = monitor.until("MIG off again", |inventory| {
        let now = readings(inventory, 0);
        now.mig_enabled == Some(false) && now.utilization_ratio == Some(0.45) && now.activity.sm.is_some()
    });
    assert_eq!(readings(&without_mig, 0).mig, []);
    monitor.stop();
    assert_eq!(standin.log(), ["init", "shutdown"], "every sample was freed");
}

#[test]
fn the_last_mig_mode_holds_while_the_mig_mode_call_fails() {
    let standin = Standin::new(&format!("{MIG}gpu.0.utilization_percent=44"));
    let monitor = monitor(&standin);
    monitor.until("MIG on", |inventory| sm(inventory, "MIG-a").is_some());
    standin
        .set(&format!("{}gpu.0.utilization_percent=44\ngpu.0.fail=mig_mode:999", MIG.replace("mig=on", "mig=lenient")));
    let failing = monitor.until("the call fails", |inventory| {
        inventory.read_errors.iter().any(|failure| failure.call == "mig_mode" && failure.count > 2)
    });
    assert_eq!((readings(&failing, 0).utilization_ratio, readings(&failing, 0).mig.len()), (None, 3));
}

#[test]
fn a_denied_memory_call_affects_no_other_reading() {
    let standin = Standin::new(&format!("{MIG}gpu.0.fail=mig_memory_info:4,memory_info:4"));
    let monitor = monitor(&standin);
    let inventory = monitor.until("the activity of an instance", |inventory| sm(inventory, "MIG-a").is_some());
    let now = readings(&inventory, 0);
    assert_eq!((now.memory, now.mig.len(), now.mig[0].memory), (GpuMemory::default(), 3, GpuMemory::default()));
    let errors: Vec<_> = inventory.read_errors.iter().map(|failure| (failure.call, failure.error)).collect();
    assert_eq!(errors, [("memory_info", "no_permission"), ("mig_memory_info", "no_permission")]);
}

#[test]
fn release_closes_nvml_and_resume_opens_it_again() {
    let standin = Standin::new("gpus=2\ngpu.0.energy_mj=1000");
    let (mut monitor, _) = ready(&standin, 2);
    standin.set("gpus=2\ngpu.0.energy_mj=3000");
    monitor.until("2 J", |inventory| readings(inventory, 0).energy_joules == Some(2.0));
    let handle = monitor.handle.as_ref().unwrap();
    handle.resume(); // No effect, because nothing was released.
    handle.release();
    let released = monitor.until("released", |inventory| inventory.nvml == NvmlState::Released);
    assert_eq!(standin.log(), ["init", "shutdown"], "the state is released only after the shutdown");
    assert!(is(&released, 0, GpuState::Lost) && is(&released, 1, GpuState::Lost));
    assert_eq!(readings(&released, 0), GpuReadings { energy_joules: Some(2.0), ..GpuReadings::default() });
    assert_eq!(released.init_errors, 0);
    // An update of the driver restarts its counters. A second release has no effect.
    standin.set("driver=590.1\ngpus=2\ngpu.0.energy_mj=500");
    handle.release();
    handle.resume();
    let back = monitor.until("resumed", |inventory| all_ok(inventory, 2));
    assert_eq!((back.nvml, back.driver_version.as_deref()), (NvmlState::Up, Some("590.1")));
    assert_eq!(readings(&back, 0).energy_joules, Some(2.0));
    standin.set("driver=590.1\ngpus=2\ngpu.0.energy_mj=1500");
    monitor.until("3 J", |inventory| readings(inventory, 0).energy_joules == Some(3.0));
    monitor.stop();
    assert_eq!(standin.log(), ["init", "shutdown", "init", "shutdown"]);
}

#[test]
fn without_a_driver_release_stops_the_retries_until_resume() {
    let standin = Standin::new("init=9");
    let mut monitor = monitor(&standin);
    monitor.until("no driver", |inventory| inventory.nvml == NvmlState::DriverNotLoaded);
    let handle = monitor.handle.as_ref().unwrap();
    handle.release();
    monitor.until("released", |inventory| inventory.nvml == NvmlState::Released);
    standin.set("");
    handle.resume();
    monitor.until("a GPU", |inventory| all_ok(inventory, 1));
    monitor.stop();
    assert_eq!(standin.log(), ["init", "shutdown"]);
}

#[test]
fn monitoring_can_be_stopped_while_released() {
    let standin = Standin::new("");
    let (mut monitor, _) = ready(&standin, 1);
    monitor.handle.as_ref().unwrap().release();
    monitor.until("released", |inventory| inventory.nvml == NvmlState::Released);
    monitor.stop();
    assert_eq!(standin.log(), ["init", "shutdown"]);
}

#[test]
fn the_state_is_not_released_while_a_hung_call_holds_the_driver() {
    let standin = Standin::new("gpus=2");
    let (monitor, _) = ready_with(hang_config(&standin), 2);
    standin.set("gpus=2\ngpu.0.hang_ms=600000");
    monitor.until("GPU 0 stalls", |inventory| is(inventory, 0, GpuState::Stalled));
    monitor.handle.as_ref().unwrap().release();
    let held = monitor.until("it cannot be released", |inventory| inventory.nvml == NvmlState::Failed);
    assert!(is(&held, 1, GpuState::Lost), "the other GPU is no longer read");
    standin.set("gpus=2");
    monitor.until("released once the call returns", |inventory| inventory.nvml == NvmlState::Released);
    assert_eq!(standin.log(), ["init", "hang 0 power_usage", "shutdown"]);
    monitor.handle.as_ref().unwrap().resume();
    monitor.until("both have returned", |inventory| all_ok(inventory, 2));
}
