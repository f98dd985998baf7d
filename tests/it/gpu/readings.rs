//! Readings of a GPU that fail, are impossible, or do not exist. The golden pages have every reading of a GPU that works.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use trtllm_gpu::usage::knows_processes;
use trtllm_gpu::{GpuConfig, GpuTiming};
use trtllm_records::gpu::{
    ClockReasons, EccErrors, GpuActivity, GpuInventory, GpuReadings, PowerLimits, RemappedRows, TemperatureLimits,
    Temperatures, ThrottleTimes,
};
use trtllm_records::named_numbers::NamedNumbers as _;

use super::monitor::{Monitor, all_ok, config, gpu, readings, ready, ready_with};
use crate::support::standin::Standin;

#[test]
fn processes_are_listed_with_their_names_only_if_enabled() {
    let own = std::process::id();
    let standin = Standin::new(&format!("gpu.0.processes={own}:4096"));
    let (mut monitor, inventory) = ready(&standin, 1);
    let health = readings(&inventory, 0).health;
    assert_eq!((health.processes, health.process_list), (Some(1), vec![]));
    monitor.stop();
    let (_monitor, inventory) = ready_with(GpuConfig { per_process: true, ..config(&standin) }, 1);
    let process = readings(&inventory, 0).health.process_list.remove(0);
    assert_eq!((process.pid, process.bytes), (own, Some(4096)));
    // The kernel truncates a command's name to 15 bytes. In a container, a PID of NVML may be that of another program.
    let program = std::env::current_exe().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let expected = knows_processes(Path::new("/proc")).then(|| &program[..program.len().min(15)]);
    assert_eq!(process.name.as_deref(), expected);
}

#[test]
fn the_sm_ratio_of_a_process_covers_the_time_since_the_last_slow_poll() {
    const TWO: &str = "gpu.0.processes=4000000001:1,4000000002:1";
    let standin = Standin::new(&format!("{TWO}\ngpu.0.process_utilization=4000000001:100:5000000"));
    let monitor = Monitor::start(GpuConfig { per_process: true, ..config(&standin) });
    let shares = |inventory: &GpuInventory| -> Vec<Option<f64>> {
        let Some(gpu) = gpu(inventory, 0) else { return Vec::new() };
        gpu.readings.health.process_list.iter().map(|process| process.sm_ratio).collect()
    };
    let inventory = monitor.until("the processes", |inventory| shares(inventory).len() == 2);
    assert_eq!(shares(&inventory), [None, None], "the first samples cover an unknown time");
    let already = monitor.published();
    let samples = "4000000001:100:5000000,4000000001:20:6000000,4000000001:30:7000000,4000000009:50:6000000";
    standin.set(&format!("{TWO}\ngpu.0.process_utilization={samples}"));
    monitor.until_since(already, "a share", |inventory| shares(inventory) == [Some(0.25), None]);
    // No process has run a kernel since the last poll. That is not an error.
    let inventory = monitor.until("no share", |inventory| shares(inventory) == [None, None]);
    assert_eq!(inventory.read_errors, []);
}

#[test]
fn an_unsupported_reading_is_absent_is_not_an_error_and_is_read_once() {
    const TEMPERATURE_ONLY: &str = "trace=1\ngpu.0.not_supported=all\ngpu.0.fail=temperature:0\n";
    let standin = Standin::new(TEMPERATURE_ONLY);
    let (mut monitor, inventory) = ready(&standin, 1);
    assert_eq!(inventory.read_errors, []);
    let mut expected = GpuReadings::default();
    expected.temperature_celsius.gpu = Some(30.0);
    assert_eq!(readings(&inventory, 0), expected);
    for celsius in 31..35 {
        standin.set(&format!("{TEMPERATURE_ONLY}gpu.0.temperature_celsius={celsius}"));
        let hot = |inventory: &_| readings(inventory, 0).temperature_celsius.gpu == Some(f64::from(celsius));
        monitor.until("another poll", hot);
    }
    monitor.stop();
    let mut calls: BTreeMap<String, u32> = BTreeMap::new();
    for line in standin.log().into_iter().filter(|line| line.starts_with("call 0 ")) {
        *calls.entry(line).or_default() += 1;
    }
    for call in ["power_usage", "memory_info", "total_energy_consumption", "field_values", "gpm"] {
        assert_eq!(calls.get(&format!("call 0 {call}")), Some(&1), "{call}: {calls:?}");
    }
    assert_eq!(calls.get("call 0 nvlink_state"), Some(&36), "one for each link: {calls:?}");
    assert!(calls["call 0 temperature"] >= 5, "{calls:?}");
}

#[test]
fn a_link_that_is_not_supported_hides_no_other_link_and_a_later_failure_of_one_is_seen() {
    let standin = Standin::new("gpu.0.nvlink_unused=0,5");
    let (monitor, inventory) = ready(&standin, 1);
    let up = |inventory: &_| readings(inventory, 0).health.nvlinks.iter().filter(|link| link.up).count();
    assert_eq!(up(&inventory), 16);
    standin.set("gpu.0.nvlink_unused=0,5\ngpu.0.nvlink_down=9\ngpu.0.power_mw=90000");
    monitor.until("a link is down", |inventory| up(inventory) == 15);
}

#[test]
fn a_gpu_without_memory_of_its_own_has_no_memory_controller_that_is_idle() {
    let without = "gpu.0.not_supported=memory_info,memory_info_v1\ngpu.0.memory_utilization_percent=";
    for (state, shown) in
        [(format!("{without}0"), None), (format!("{without}7"), Some(0.07)), (String::new(), Some(0.0))]
    {
        let standin = Standin::new(&state);
        let (_monitor, inventory) = ready(&standin, 1);
        assert_eq!(readings(&inventory, 0).memory_controller_utilization_ratio, shown, "{state}");
    }
}

#[test]
fn an_unsupported_call_is_tried_again_after_the_configured_time() {
    let standin = Standin::new("gpu.0.not_supported=power_usage");
    let timing = GpuTiming { unsupported_retry: Duration::from_millis(100), ..config(&standin).timing };
    let (monitor, inventory) = ready_with(GpuConfig { timing, ..config(&standin) }, 1);
    assert_eq!(readings(&inventory, 0).power_usage_watts, None);
    standin.set("");
    monitor.until("power", |inventory| readings(inventory, 0).power_usage_watts == Some(75.0));
}

#[test]
fn a_failed_field_affects_no_other_field_and_is_counted_by_name() {
    let standin = Standin::new("gpu.0.field.82=!999\ngpu.0.field.138/all=77\ngpu.0.field.186=!2");
    let (_monitor, inventory) = ready(&standin, 1);
    let now = readings(&inventory, 0);
    let temperatures = Temperatures { gpu: Some(30.0), memory: None };
    assert_eq!((now.temperature_celsius, now.nvlink_bytes.transmit), (temperatures, Some(77 * 1024)));
    let errors: Vec<_> = inventory.read_errors.iter().map(|failure| (failure.call, failure.error)).collect();
    assert_eq!(errors, [("field_memory_temp", "unknown")], "an id that is unknown to the driver is not an error");
}

/// The stand-in returns for every reading what broken drivers return: all bits set, or numbers that no GPU can have.
#[test]
fn an_impossible_reading_is_absent_and_counted_and_the_others_are_shown() {
    const IMPOSSIBLE: &str = include_str!("../../fixtures/impossible_gpu.state");
    let standin = Standin::new(IMPOSSIBLE);
    let monitor = Monitor::start(GpuConfig { per_process: true, ..config(&standin) });
    let inventory = monitor.until("two samples", |inventory| {
        all_ok(inventory, 1) && inventory.read_errors.iter().any(|error| error.call == "gpm_metrics")
    });
    let mut now = readings(&inventory, 0);
    assert_eq!(std::mem::take(&mut now.temperature_celsius).memory, Some(34.0));
    assert_eq!(std::mem::take(&mut now.clock_hertz).memory, Some(3_201_000_000));
    let health = std::mem::take(&mut now.health);
    assert_eq!(health.clock_max_hertz.memory, Some(3_201_000_000));
    // A GPU can have no free memory.
    assert_eq!((now.memory.total_bytes.take(), now.memory.free_bytes.take()), (Some(150_754_820_096), Some(0)));
    now.activity.fp16 = None;
    let mut zeros = ThrottleTimes::default();
    zeros.add_each(ThrottleTimes::default(), |time, _| *time = Some(0));
    let expected = GpuReadings {
        clocks_event_reasons: Some(ClockReasons(1)),
        performance_state: Some(0),
        mig_enabled: Some(false),
        throttle_ns: ThrottleTimes { power: None, ..zeros },
        ..GpuReadings::default()
    };
    assert_eq!(now, expected);
    assert_eq!((health.bar1_total_bytes, health.bar1_used_bytes), (None, None));
    assert_eq!(health.power_limits_watts, PowerLimits::default());
    assert_eq!(health.temperature_limits_celsius, TemperatureLimits::default());
    assert_eq!((health.pcie_link_generation, health.pcie_link_generation_max), (None, None));
    assert_eq!((health.pcie_link_width, health.pcie_link_width_max), (None, None));
    assert_eq!((health.pcie_replays, health.recovery_action, health.fan_speed_ratio), (None, None, vec![None]));
    let [uncorrected_volatile, corrected_aggregate, uncorrected_aggregate] = [Some(0); 3];
    let ecc = EccErrors { corrected_volatile: None, uncorrected_volatile, corrected_aggregate, uncorrected_aggregate };
    assert_eq!(health.ecc_errors, ecc);
    assert_eq!((health.ecc_sram_threshold_exceeded, health.remapped_rows_failure), (None, None));
    assert_eq!(health.remapped_rows, RemappedRows { correctable: None, uncorrectable: Some(0) });
    assert_eq!((health.process_list[0].bytes, health.nvlinks[0].errors.replay), (None, None));
    assert!(inventory.read_errors.iter().all(|error| error.error == "impossible"), "{:?}", inventory.read_errors);
}

#[test]
fn memory_is_read_with_drivers_that_lack_the_second_version_of_the_call() {
    let standin = Standin::new("driver=470.256.02\ngpu.0.fail=memory_info:13\ngpu.0.memory_used_bytes=1000");
    let (_monitor, inventory) = ready(&standin, 1);
    assert_eq!(inventory.read_errors, []);
    let memory = readings(&inventory, 0).memory;
    assert_eq!((memory.total_bytes, memory.reserved_bytes), (Some(150_754_820_096), None));
    // The first version of the call counts reserved memory as used.
    assert_eq!(memory.used_bytes, Some(1000 + 658_505_728));
}

#[test]
fn a_gpu_before_hopper_has_no_activity_and_no_errors() {
    let standin = Standin::new("gpu.0.gpm_supported=0\ngpu.0.architecture=7");
    let (_monitor, inventory) = ready(&standin, 1);
    assert_eq!(readings(&inventory, 0).activity, GpuActivity::default());
    assert_eq!(inventory.read_errors, []);
}
