//! What happens to a GPU and its driver while it is watched: Xid errors, MIG reconfigured, the driver let go and taken
//! again. Through a real dlopen of the stand-in NVML.
#![allow(clippy::unwrap_used)] // a test may stop at the first surprise, its helpers too

#[path = "nvml-standin/harness.rs"]
mod standin;
#[path = "nvml-standin/watch.rs"]
mod watch;

use std::time::{SystemTime, UNIX_EPOCH};

use standin::Standin;
use trtllm_exporter::model::gpu::{GpuInventory, GpuMemory, GpuReadings, GpuState, MigInstance, NvmlState};
use watch::{all_ok, gpu, is, readings, watch, watch_hang};

fn xids(inventory: &GpuInventory, index: u32) -> Vec<(u64, u64)> {
    gpu(inventory, index).map(|gpu| gpu.xids.clone()).unwrap_or_default()
}

#[test]
fn xids_are_counted_by_code_and_gpu_from_now_on() {
    // One that was there before does not count.
    let standin = Standin::new("gpus=2\ngpu.0.xids=13");
    let mut watch = watch(&standin);
    let heard = |inventory: &GpuInventory| inventory.gpus.iter().all(|gpu| gpu.reports_xids);
    watch.until("two GPUs that are listened to", |inventory| all_ok(inventory, 2) && heard(inventory));
    standin.set("gpus=2\ngpu.0.xids=13,48,63,48\ngpu.1.xids=79");
    let inventory = watch
        .until("four errors", |inventory| xids(inventory, 0) == [(48, 2), (63, 1)] && xids(inventory, 1) == [(79, 1)]);
    let last = gpu(&inventory, 0).unwrap().last_xid.unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
    assert_eq!(last.code, 48);
    assert!((0..120_000_000).contains(&(now - last.at_us)), "{last:?} at {now}");
    // The GPU that fell off the bus keeps what it said last.
    standin.set("gpus=2\ngpu.0.xids=13,48,63,48\ngpu.1.xids=79\ngpu.1.lost=1");
    let lost = watch.until("GPU 1 is lost", |inventory| is(inventory, 1, GpuState::Lost));
    assert_eq!(xids(&lost, 1), [(79, 1)]);
    watch.stop();
    assert_eq!(standin.log(), ["init", "shutdown"]);
}

#[test]
fn an_xid_of_a_gpu_that_hangs_is_heard() {
    let standin = Standin::new("gpus=2");
    let mut watch = watch_hang(&standin);
    watch.until("two GPUs", |inventory| inventory.gpus.iter().filter(|gpu| gpu.reports_xids).count() == 2);
    standin.set("gpus=2\ngpu.0.hang_ms=600000\ngpu.0.xids=119");
    watch.until("GPU 0 stalls and says why", |inventory| {
        is(inventory, 0, GpuState::Stalled) && xids(inventory, 0) == [(119, 1)]
    });
    standin.set("gpus=2\ngpu.0.xids=119");
    watch.until("both again", |inventory| all_ok(inventory, 2));
    watch.stop();
}

#[test]
fn xids_are_heard_again_after_a_driver_reload() {
    let standin = Standin::new("");
    let mut watch = watch(&standin);
    let heard = |inventory: &GpuInventory| all_ok(inventory, 1) && inventory.gpus[0].reports_xids;
    watch.until("a GPU", heard);
    standin.set("gpu.0.xids=31");
    watch.until("one error", |inventory| xids(inventory, 0) == [(31, 1)]);
    standin.set("gpu.0.xids=31\ninit=9\nsession=9");
    watch.until("the driver is gone", |inventory| inventory.nvml == NvmlState::DriverNotLoaded);
    standin.set("gpu.0.xids=31");
    watch.until("it is back", heard);
    standin.set("gpu.0.xids=31,43");
    watch.until("another error", |inventory| xids(inventory, 0) == [(31, 1), (43, 1)]);
    watch.stop();
}

#[test]
fn a_gpu_without_events_has_none_and_no_zero() {
    let standin = Standin::new("gpu.0.not_supported=events");
    let mut watch = watch(&standin);
    let inventory = watch.until("a GPU", |inventory| all_ok(inventory, 1));
    assert!(!inventory.gpus[0].reports_xids);
    watch.stop();
}

#[test]
fn a_poll_that_hung_midway_does_not_tell_what_it_read_before() {
    let standin = Standin::new("gpu.0.memory_used_bytes=1000");
    let mut watch = watch_hang(&standin);
    watch.until("a GPU", |inventory| all_ok(inventory, 1));
    // Memory is asked before power, which hangs.
    standin.set("gpu.0.memory_used_bytes=1000\ngpu.0.hang_ms=600000");
    watch.until("it stalls", |inventory| is(inventory, 0, GpuState::Stalled));
    let before = watch.published();
    standin.set("gpu.0.memory_used_bytes=2000");
    let used = |inventory: &GpuInventory| readings(inventory, 0).memory.used_bytes;
    watch.until("the memory of now", |inventory| used(inventory) == Some(2000));
    let after = watch.all().split_off(before);
    assert!(after.iter().all(|(_, inventory)| used(inventory) != Some(1000)), "{after:#?}");
    watch.stop();
}

const MIG: &str = "gpu.0.mig=on\n\
    gpu.0.mig.0=MIG-a,1,0,3g.71gb,75161927680,1073741824,40\n\
    gpu.0.mig.2=MIG-b,5,0,1c.2g.35gb,37580963840,2147483648,70\n\
    gpu.0.mig.3=MIG-c,5,1,1c.2g.35gb,37580963840,2147483648,70\n";

fn instance(inventory: &GpuInventory, uuid: &str) -> Option<MigInstance> {
    readings(inventory, 0).mig.into_iter().find(|instance| instance.uuid == uuid)
}

fn sm(inventory: &GpuInventory, uuid: &str) -> Option<f64> {
    instance(inventory, uuid)?.activity.ratio[1]
}

#[test]
fn mig_instances_are_told_with_their_memory_and_load() {
    let standin = Standin::new(MIG);
    let mut watch = watch(&standin);
    let inventory = watch.until("the load of an instance", |inventory| sm(inventory, "MIG-a").is_some());
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
    // Two compute instances of one GPU instance.
    assert_eq!((sm(&inventory, "MIG-b"), sm(&inventory, "MIG-c")), (Some(0.7), Some(0.7)));
    assert_eq!(inventory.read_errors, [], "an empty slot is no error");
    watch.stop();
    assert_eq!(standin.log(), ["init", "shutdown"], "every sample was freed");
}

#[test]
fn mig_reconfigured_under_way_is_followed() {
    let standin = Standin::new("gpu.0.utilization_percent=44");
    let mut watch = watch(&standin);
    watch.until("whole", |inventory| readings(inventory, 0).activity.ratio[1].is_some());
    standin.set(&format!("gpu.0.utilization_percent=44\n{MIG}"));
    let split = watch.until("split", |inventory| readings(inventory, 0).mig.len() == 3);
    assert_eq!(readings(&split, 0).utilization_ratio, None);
    assert_eq!(readings(&split, 0).activity.ratio[1], None);
    // Another instance takes over slot, handle and GPU instance number.
    standin.set(&MIG.replace("MIG-a,1,0,3g.71gb", "MIG-z,1,0,3g.71gb").replace(",40\n", ",90\n"));
    let other = watch.until("another instance", |inventory| instance(inventory, "MIG-z").is_some());
    assert_eq!(instance(&other, "MIG-a"), None);
    watch.until("its load", |inventory| sm(inventory, "MIG-z") == Some(0.9));
    standin.set("gpu.0.utilization_percent=45");
    let whole = watch.until("whole again", |inventory| {
        let now = readings(inventory, 0);
        now.mig_enabled == Some(false) && now.utilization_ratio == Some(0.45) && now.activity.ratio[1].is_some()
    });
    assert_eq!(readings(&whole, 0).mig, []);
    watch.stop();
    assert_eq!(standin.log(), ["init", "shutdown"], "every sample was freed");
}

#[test]
fn a_gpu_that_fails_to_say_whether_it_is_split_is_as_it_was() {
    let standin = Standin::new(&format!("{MIG}gpu.0.utilization_percent=44"));
    let mut watch = watch(&standin);
    watch.until("split", |inventory| sm(inventory, "MIG-a").is_some());
    standin
        .set(&format!("{}gpu.0.utilization_percent=44\ngpu.0.fail=mig_mode:999", MIG.replace("mig=on", "mig=lenient")));
    let failing = watch.until("it fails to say it", |inventory| {
        inventory.read_errors.iter().any(|failure| failure.call == "mig_mode" && failure.count > 2)
    });
    assert_eq!((readings(&failing, 0).utilization_ratio, readings(&failing, 0).mig.len()), (None, 3));
    watch.stop();
}

#[test]
fn an_instance_that_may_not_be_read_leaves_the_others() {
    let standin = Standin::new(&format!("{MIG}gpu.0.fail=mig_memory_info:4,memory_info:4"));
    let mut watch = watch(&standin);
    let inventory = watch.until("the load of an instance", |inventory| sm(inventory, "MIG-a").is_some());
    let now = readings(&inventory, 0);
    assert_eq!((now.memory, now.mig.len(), now.mig[0].memory), (GpuMemory::default(), 3, GpuMemory::default()));
    let words: Vec<_> = inventory.read_errors.iter().map(|failure| (failure.call, failure.error)).collect();
    assert_eq!(words, [("memory_info", "no_permission"), ("mig_memory_info", "no_permission")]);
    watch.stop();
}

#[test]
fn a_released_driver_is_not_held_and_is_taken_again() {
    let standin = Standin::new("gpus=2\ngpu.0.energy_mj=1000");
    let mut watch = watch(&standin);
    watch.until("two GPUs", |inventory| all_ok(inventory, 2));
    standin.set("gpus=2\ngpu.0.energy_mj=3000");
    watch.until("2 J", |inventory| readings(inventory, 0).energy_joules == Some(2.0));
    let handle = watch.handle.as_ref().unwrap();
    handle.resume(); // Nothing was released: nothing happens.
    handle.release();
    let released = watch.until("released", |inventory| inventory.nvml == NvmlState::Released);
    assert_eq!(standin.log(), ["init", "shutdown"], "what says released has let go");
    assert!(is(&released, 0, GpuState::Lost) && is(&released, 1, GpuState::Lost));
    assert_eq!(readings(&released, 0), GpuReadings { energy_joules: Some(2.0), ..GpuReadings::default() });
    assert_eq!(released.init_errors, 0);
    // The driver is updated meanwhile, which restarts its counters; asked twice is asked once.
    standin.set("driver=590.1\ngpus=2\ngpu.0.energy_mj=500");
    handle.release();
    handle.resume();
    let back = watch.until("taken again", |inventory| all_ok(inventory, 2));
    assert_eq!((back.nvml, back.driver_version.as_deref()), (NvmlState::Up, Some("590.1")));
    assert_eq!(readings(&back, 0).energy_joules, Some(2.0));
    standin.set("driver=590.1\ngpus=2\ngpu.0.energy_mj=1500");
    watch.until("3 J", |inventory| readings(inventory, 0).energy_joules == Some(3.0));
    watch.stop();
    assert_eq!(standin.log(), ["init", "shutdown", "init", "shutdown"]);
}

#[test]
fn a_driver_that_is_absent_can_be_released_too_and_is_not_looked_for_until_it_is_taken() {
    let standin = Standin::new("init=9");
    let mut watch = watch(&standin);
    watch.until("no driver", |inventory| inventory.nvml == NvmlState::DriverNotLoaded);
    let handle = watch.handle.as_ref().unwrap();
    handle.release();
    watch.until("released", |inventory| inventory.nvml == NvmlState::Released);
    standin.set("");
    handle.resume();
    watch.until("a GPU", |inventory| all_ok(inventory, 1));
    watch.stop();
    assert_eq!(standin.log(), ["init", "shutdown"]);
}

#[test]
fn a_stopped_watch_ends_while_released() {
    let standin = Standin::new("");
    let mut watch = watch(&standin);
    watch.until("a GPU", |inventory| all_ok(inventory, 1));
    watch.handle.as_ref().unwrap().release();
    watch.until("released", |inventory| inventory.nvml == NvmlState::Released);
    watch.stop();
    assert_eq!(standin.log(), ["init", "shutdown"]);
}

#[test]
fn a_driver_that_a_hung_call_holds_is_not_called_released() {
    let standin = Standin::new("gpus=2");
    let mut watch = watch_hang(&standin);
    watch.until("two GPUs", |inventory| all_ok(inventory, 2));
    standin.set("gpus=2\ngpu.0.hang_ms=600000");
    watch.until("GPU 0 stalls", |inventory| is(inventory, 0, GpuState::Stalled));
    watch.handle.as_ref().unwrap().release();
    let held = watch.until("it cannot be released", |inventory| inventory.nvml == NvmlState::Failed);
    assert!(is(&held, 1, GpuState::Lost), "the others are read no more");
    standin.set("gpus=2");
    watch.until("released when the call returns", |inventory| inventory.nvml == NvmlState::Released);
    assert_eq!(standin.log(), ["init", "hang 0 power_usage", "shutdown"]);
    watch.handle.as_ref().unwrap().resume();
    watch.until("both again", |inventory| all_ok(inventory, 2));
    watch.stop();
}
