//! GPU monitoring, tested through a real dlopen of the stand-in for NVML. Each test has its own copy of the stand-in.

use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use trtllm_gpu::{self as gpu, GpuConfig, GpuMode};
use trtllm_records::gpu::{GpuInventory, GpuMemory, GpuReadings, GpuState, NvmlState, ReadError};

use super::monitor::{
    INTERVAL, Monitor, PATIENCE, UUID_0, UUID_1, all_ok, config, hang_config, is, monitor, monitor_hanging, readings,
    ready, ready_with,
};
use crate::support::standin::Standin;

#[test]
fn the_first_inventory_is_starting_and_mode_off_never_loads_nvml() {
    let standin = Standin::new("");
    let mut running = monitor(&standin);
    assert_eq!(running.all()[0].1, GpuInventory { nvml: NvmlState::Starting, ..GpuInventory::default() });
    running.stop();
    let standin = Standin::new("");
    let mut off = Monitor::start(GpuConfig { mode: GpuMode::Off, ..config(&standin) });
    off.stop();
    assert_eq!(off.all().len(), 1);
    assert_eq!(off.all()[0].1, GpuInventory::default());
    assert_eq!(standin.log(), [""; 0]);
}

#[test]
fn a_lost_gpu_does_not_affect_the_other_and_can_return() {
    let standin = Standin::new("gpus=2");
    let (monitor, _) = ready(&standin, 2);
    standin.set("gpus=2\ngpu.0.power_mw=111000\ngpu.1.lost=1");
    let lost = monitor.until("GPU 1 is lost, GPU 0 is still polled", |inventory| {
        is(inventory, 1, GpuState::Lost) && readings(inventory, 0).power_usage_watts == Some(111.0)
    });
    assert!(is(&lost, 0, GpuState::Ok));
    assert_eq!(readings(&lost, 1), GpuReadings { energy_joules: Some(0.0), ..GpuReadings::default() });
    assert_eq!((lost.gpus.len(), lost.expected, lost.nvml), (2, 2, NvmlState::Up));
    assert!(lost.read_errors.iter().all(|failure| failure.error == "gpu_is_lost"), "{:?}", lost.read_errors);
    standin.set("gpus=2");
    monitor.until("GPU 1 has returned", |inventory| all_ok(inventory, 2));
    assert_eq!(standin.log(), ["init"], "the session was kept for the other GPU");
}

#[test]
fn when_every_gpu_needs_a_reset_nvml_is_closed_and_initialised_again() {
    let standin = Standin::new("");
    let (mut monitor, _) = ready(&standin, 1);
    standin.set("gpu.0.reset_required=1");
    monitor.until("it needs a reset", |inventory| is(inventory, 0, GpuState::ResetRequired));
    standin.set("");
    monitor.until("it has returned", |inventory| all_ok(inventory, 1));
    monitor.stop();
    let log = standin.log();
    assert!(log.iter().take(3).eq(["init", "shutdown", "init"]), "{log:?}");
}

#[test]
fn a_hung_power_call_stalls_only_that_gpu() {
    let standin = Standin::new("gpus=2\ngpu.0.energy_mj=1000");
    let (monitor, _) = ready_with(hang_config(&standin), 2);
    standin.set("gpus=2\ngpu.0.energy_mj=3000");
    monitor.until("2 J", |inventory| readings(inventory, 0).energy_joules == Some(2.0));
    let hung = "gpus=2\ngpu.0.energy_mj=3000\ngpu.0.hang_ms=600000";
    standin.set(hung);
    let stalled = monitor.until("GPU 0 stalls", |inventory| is(inventory, 0, GpuState::Stalled));
    assert_eq!(readings(&stalled, 0), GpuReadings { energy_joules: Some(2.0), ..GpuReadings::default() });
    for power in [101, 102, 103] {
        standin.set(&format!("{hung}\ngpu.1.power_mw={power}000"));
        let inventory = monitor.until("GPU 1 is still polled", |inventory| {
            readings(inventory, 1).power_usage_watts == Some(f64::from(power))
        });
        assert!(is(&inventory, 0, GpuState::Stalled));
    }
    standin.set("gpus=2\ngpu.0.energy_mj=4000");
    let back = monitor.until("GPU 0 answers again", |inventory| all_ok(inventory, 2));
    assert_eq!(readings(&back, 0).energy_joules, Some(3.0));
}

#[test]
fn a_gpu_that_hangs_during_a_driver_reload_gets_no_second_worker_and_returns() {
    let standin = Standin::new("gpus=2");
    let (mut monitor, _) = ready_with(hang_config(&standin), 2);
    let hang = "gpus=2\ngpu.0.hang_ms=600000";
    standin.set(hang);
    monitor.until("GPU 0 stalls", |inventory| is(inventory, 0, GpuState::Stalled));
    standin.set(&format!("{hang}\ninit=9\nsession=9"));
    monitor.until("the driver is unloaded", |inventory| inventory.nvml == NvmlState::DriverNotLoaded);
    standin.set(hang);
    monitor.until("GPU 1 has returned, GPU 0 is stalled", |inventory| {
        is(inventory, 1, GpuState::Ok) && is(inventory, 0, GpuState::Stalled)
    });
    standin.set("gpus=2");
    monitor.until("both have returned", |inventory| all_ok(inventory, 2));
    monitor.stop();
    assert_eq!(standin.log(), ["init", "hang 0 power_usage", "init", "shutdown", "shutdown"]);
}

#[test]
fn stopping_does_not_wait_for_a_hung_call() {
    let standin = Standin::new("gpus=2");
    let (mut monitor, _) = ready_with(hang_config(&standin), 2);
    standin.set("gpus=2\ngpu.0.hang_ms=600000");
    monitor.until("GPU 0 stalls", |inventory| is(inventory, 0, GpuState::Stalled));
    let began = Instant::now();
    monitor.stop();
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    standin.set("");

    // Stopping waits for a call that is within its deadline, but not longer than the time that `stop` gets.
    let standin = Standin::new("gpu.0.hang_ms=600000");
    let mut monitor = monitor_hanging(&standin);
    monitor.until("NVML is up", |inventory| inventory.nvml == NvmlState::Up);
    let began = Instant::now();
    monitor.handle.take().unwrap().stop(Duration::from_millis(50));
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    standin.set("");
}

#[test]
fn in_auto_a_missing_library_sets_the_state_and_is_found_once_it_is_installed() {
    let standin = Standin::not_installed("");
    let monitor = monitor(&standin);
    monitor.until("the library is missing twice", |inventory| {
        inventory.nvml == NvmlState::LibraryNotFound && inventory.init_errors >= 2
    });
    standin.install();
    monitor.until("a GPU", |inventory| all_ok(inventory, 1));
}

#[test]
fn in_required_a_missing_library_driver_or_gpu_is_an_error_that_names_the_flag() {
    let missing = Standin::not_installed("");
    let broken = Standin::not_installed("");
    fs::write(broken.library(), "not a library").unwrap();
    let cases = [
        (missing, "--gpu.library"),
        (broken, "--gpu.library"),
        (Standin::new("init=9"), "driver is not loaded"),
        (Standin::new("init=18"), "version differs"),
        (Standin::new("init=4"), "/dev/nvidiactl"),
        (Standin::new("init=999"), "nvidia-smi"),
        (Standin::new("gpus=0"), "no GPU found"),
        (Standin::new("init_hang_ms=600000"), "did not finish within"),
    ];
    for (standin, hint) in cases {
        let config = GpuConfig { mode: GpuMode::Required, ..hang_config(&standin) };
        let message = gpu::start(config, |_| ()).unwrap_err().to_string();
        assert!(message.contains("--gpu required"), "{message}");
        assert!(message.contains("--gpu auto"), "{message}");
        assert!(message.contains(hint), "{message}");
        assert!(message.contains("libnvidia-ml.so.1") || hint.contains("finish"), "{message}");
        standin.set("");
    }
}

#[test]
fn in_auto_an_error_of_nvml_init_sets_the_state() {
    let cases = [
        ("init=9", NvmlState::DriverNotLoaded),
        ("init=18", NvmlState::VersionMismatch),
        ("init=4", NvmlState::NoPermission),
        ("init=999", NvmlState::Failed),
        ("init=28", NvmlState::Failed),
        ("init_hang_ms=600000", NvmlState::Failed),
    ];
    for (state, expected) in cases {
        let standin = Standin::new(state);
        let monitor = monitor_hanging(&standin);
        monitor.until(state, |inventory| inventory.nvml == expected && inventory.init_errors > 0);
        standin.set("");
        monitor.until("a GPU", |inventory| inventory.nvml == NvmlState::Up && all_ok(inventory, 1));
    }
}

#[test]
fn only_the_selected_uuids_are_shown() {
    let standin = Standin::new("gpus=3");
    let (monitor, _) = ready_with(GpuConfig { uuids: vec![UUID_1.to_owned()], ..config(&standin) }, 1);
    standin.set("gpus=3\ngpu.1.power_mw=90000");
    let later = monitor.until("90 W", |inventory| readings(inventory, 1).power_usage_watts == Some(90.0));
    assert_eq!(later.gpus.iter().map(|gpu| gpu.identity.uuid.as_str()).collect::<Vec<_>>(), [UUID_1]);
    assert_eq!(later.expected, 1);
}

#[test]
fn a_failed_reading_is_absent_and_counted_and_can_return() {
    let standin = Standin::new("gpu.0.fail=temperature:999,memory_info:27");
    let (monitor, inventory) = ready(&standin, 1);
    let now = readings(&inventory, 0);
    assert_eq!((now.temperature_celsius.gpu, now.memory), (None, GpuMemory::default()));
    assert_eq!(now.power_usage_watts, Some(75.0));
    let errors: Vec<_> = inventory.read_errors.iter().map(|ReadError { call, error, .. }| (*call, *error)).collect();
    assert_eq!(errors, [("memory_info", "not_ready"), ("temperature", "unknown")]);
    standin.set("");
    monitor.until("temperature", |inventory| readings(inventory, 0).temperature_celsius.gpu == Some(30.0));
}

#[test]
fn a_gpu_that_denies_access_does_not_affect_the_others() {
    let standin = Standin::new("gpus=2");
    let (monitor, _) = ready(&standin, 2);
    standin.set("gpus=2\ngpu.0.fail=all:4");
    let inventory = monitor.until("GPU 0 is denied", |inventory| is(inventory, 0, GpuState::NoPermission));
    assert!(is(&inventory, 1, GpuState::Ok));
    standin.set("gpus=2");
    monitor.until("both have returned", |inventory| all_ok(inventory, 2));
}

#[test]
fn a_gpu_without_a_uuid_is_expected_but_not_shown() {
    let standin = Standin::new("gpus=2\ngpu.0.permission_denied=1");
    let (monitor, inventory) = ready(&standin, 1);
    assert_eq!(inventory.expected, 2);
    standin.set("gpus=2");
    let both = monitor.until("both", |inventory| all_ok(inventory, 2));
    assert_eq!(both.gpus[0].identity.uuid, UUID_0);
}

#[test]
fn inventories_are_published_at_most_twice_per_interval() {
    // Each poll counts a failing call, so each poll has a change to publish. The GPUs answer one after another.
    let slow = |index| format!("gpu.{index}.fail=temperature:999\ngpu.{index}.hang_ms={}", 2 * index);
    let standin = Standin::new(&format!("gpus=8\n{}", (0..8).map(slow).collect::<Vec<_>>().join("\n")));
    let mut monitor = monitor(&standin);
    monitor.until("four hundred failures", |inventory| inventory.read_errors.first().is_some_and(|e| e.count >= 400));
    monitor.stop();
    let all = monitor.all();
    let spent = all.last().unwrap().0 - all[1].0;
    let most = 2.0 * spent.as_secs_f64() / INTERVAL.as_secs_f64();
    assert!((all.len() - 2) as f64 <= most.ceil(), "{} inventories in {spent:?}", all.len());
}

#[test]
fn a_library_without_nvml_shutdown_sets_the_state_and_does_not_abort() {
    let broken = Standin::not_installed("");
    let source = broken.library().with_file_name("no_shutdown.rs");
    fs::write(&source, "#[unsafe(no_mangle)] pub extern \"C\" fn nvmlInit_v2() -> u32 { 0 }").unwrap();
    let mut rustc = Command::new("rustc");
    rustc.args(["--edition=2024", "--crate-type=cdylib", "-o"]).arg(broken.library()).arg(source);
    assert!(rustc.status().unwrap().success());
    let monitor = monitor(&broken);
    monitor
        .until("it is rejected twice", |inventory| inventory.nvml == NvmlState::Failed && inventory.init_errors >= 2);
}

#[test]
fn dropping_the_handle_stops_monitoring() {
    let standin = Standin::new("");
    let (mut monitor, _) = ready(&standin, 1);
    drop(monitor.handle.take());
    let deadline = Instant::now() + PATIENCE;
    while standin.log().last().map(String::as_str) != Some("shutdown") {
        assert!(Instant::now() < deadline, "NVML was not shut down");
        thread::sleep(Duration::from_millis(5));
    }
}
