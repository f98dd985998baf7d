//! Tests the tracker with made-up reports, without NVML.

use std::time::Duration;

use super::super::event::{HealthReadings, PollReadings};
use super::*;
use trtllm_records::gpu::{GpuHealth, GpuPoll, GpuReadings};

const A: &str = "GPU-a";
const B: &str = "GPU-b";

const POLL: GpuPoll = GpuPoll { at_us: 7, monotonic: Duration::ZERO, took: Duration::from_millis(2) };

fn tracker(gpus: u32) -> GpuTracker {
    tracker_selecting(gpus, &[])
}

/// A tracker in the state after a successful initialisation.
fn tracker_selecting(gpus: u32, uuids: &[&str]) -> GpuTracker {
    let uuids: Vec<String> = uuids.iter().map(|uuid| (*uuid).to_owned()).collect();
    let mut tracker = GpuTracker::new(Arc::new(GpuFilter::new(&uuids, |_| None)));
    tracker.inventory.nvml = NvmlState::Up;
    tracker.enumerated = gpus;
    tracker
}

fn report(tracker: &mut GpuTracker, index: u32, outcome: WorkerOutcome, failures: &[(&'static str, &'static str)]) {
    let failures = failures.iter().map(|&(call, error)| CallFailure { call, error }).collect();
    tracker.absorb(WorkerReport { session: 1, index, outcome, failures });
}

fn identified(index: u32, uuid: &str) -> WorkerOutcome {
    WorkerOutcome::Identified(GpuIdentity { uuid: uuid.to_owned(), index, ..GpuIdentity::default() })
}

fn polled(power: f64, energy_mj: u64) -> WorkerOutcome {
    let readings =
        GpuReadings { power_usage_watts: Some(power), energy_counter_mj: Some(energy_mj), ..GpuReadings::default() };
    WorkerOutcome::Polled(GpuState::Ok, Box::new(PollReadings { readings, health: None, poll: POLL }))
}

fn lost() -> WorkerOutcome {
    let poll = PollReadings { readings: GpuReadings::default(), health: None, poll: POLL };
    WorkerOutcome::Polled(GpuState::Lost, Box::new(poll))
}

/// A slow poll with this number of PCIe replays, or with a failed call that reads them.
fn slow_poll(replays: Option<u64>) -> WorkerOutcome {
    let health = GpuHealth { pcie_replays: replays, ..GpuHealth::default() };
    let failed = CallFailure { call: "field_values", error: "unknown" };
    let failures = if replays.is_none() { vec![failed] } else { Vec::new() };
    let health = Some(HealthReadings { health, failures });
    WorkerOutcome::Polled(GpuState::Ok, Box::new(PollReadings { readings: GpuReadings::default(), health, poll: POLL }))
}

fn gpu(tracker: &GpuTracker, uuid: &str) -> Gpu {
    tracker.inventory().gpus.into_iter().find(|gpu| gpu.identity.uuid == uuid).unwrap()
}

#[test]
fn energy_starts_at_zero_and_adds_later_use() {
    let mut tracker = tracker(1);
    report(&mut tracker, 0, identified(0, A), &[]);
    report(&mut tracker, 0, polled(70.0, 5_000_000), &[]);
    assert_eq!(gpu(&tracker, A).readings.energy_joules, Some(0.0));
    report(&mut tracker, 0, polled(70.0, 5_001_500), &[]);
    assert_eq!(gpu(&tracker, A).readings.energy_joules, Some(1.5));
}

#[test]
fn a_smaller_energy_reading_never_lowers_the_total() {
    let mut tracker = tracker(1);
    report(&mut tracker, 0, identified(0, A), &[]);
    for (reading, joules) in [(9_000, 0.0), (10_000, 1.0), (400, 1.0), (1_400, 2.0)] {
        report(&mut tracker, 0, polled(70.0, reading), &[]);
        assert_eq!(gpu(&tracker, A).readings.energy_joules, Some(joules), "after {reading} mJ");
    }
}

#[test]
fn an_impossible_counter_is_absent_and_counted_once_per_reading() {
    let mut tracker = tracker(1);
    report(&mut tracker, 0, identified(0, A), &[]);
    report(&mut tracker, 0, polled(70.0, 9_000), &[]);
    report(&mut tracker, 0, polled(70.0, u64::MAX), &[]);
    assert_eq!(gpu(&tracker, A).readings.energy_counter_mj, None);
    assert_eq!(gpu(&tracker, A).readings.energy_joules, Some(0.0));
    report(&mut tracker, 0, slow_poll(Some(5)), &[]);
    report(&mut tracker, 0, slow_poll(Some(4_000_000_000)), &[]);
    // The fast polls in between do not read this counter.
    report(&mut tracker, 0, polled(70.0, 9_000), &[]);
    assert_eq!(gpu(&tracker, A).readings.health.pcie_replays, None);
    report(&mut tracker, 0, slow_poll(Some(6)), &[]);
    report(&mut tracker, 0, polled(70.0, 9_000), &[]);
    assert_eq!(gpu(&tracker, A).readings.health.pcie_replays, Some(6));
    let impossible = |call| ReadError { call, error: "impossible", count: 1 };
    let expected = [impossible("field_pcie_replay"), impossible("total_energy_consumption")];
    assert_eq!(tracker.inventory().read_errors, expected);
}

#[test]
fn a_failed_call_of_a_slow_poll_does_not_succeed_again_with_a_fast_poll() {
    let mut tracker = tracker(1);
    report(&mut tracker, 0, identified(0, A), &[]);
    for outcome in [slow_poll(None), polled(70.0, 0), slow_poll(None), polled(70.0, 0)] {
        report(&mut tracker, 0, outcome, &[]);
        let failing = &tracker.gpus[A].failing_health;
        assert_eq!(failing, &[CallFailure { call: "field_values", error: "unknown" }]);
    }
    assert_eq!(tracker.inventory().read_errors, [ReadError { call: "field_values", error: "unknown", count: 2 }]);
    report(&mut tracker, 0, slow_poll(Some(0)), &[]);
    assert_eq!(tracker.gpus[A].failing_health, []);
}

#[test]
fn of_two_gpus_with_the_same_uuid_only_the_first_is_shown_whichever_is_identified_first() {
    for order in [[0, 1], [1, 0]] {
        let mut tracker = tracker(2);
        for index in order {
            report(&mut tracker, index, identified(index, A), &[]);
            report(&mut tracker, index, polled(100.0 + f64::from(index), 1_000), &[]);
        }
        for (index, energy) in [(0, 1_500), (1, 900_000), (0, 1_500), (1, 900_000)] {
            report(&mut tracker, index, polled(100.0 + f64::from(index), energy), &[]);
            report(&mut tracker, index, WorkerOutcome::Xid { code: u64::from(index), at_us: 1 }, &[]);
        }
        tracker.stalled(1, "power_usage");
        let inventory = tracker.inventory();
        assert_eq!((inventory.gpus.len(), inventory.expected, inventory.excluded), (1, 2, 1), "{order:?}");
        let shown = &inventory.gpus[0];
        assert_eq!((shown.identity.index, shown.state), (0, GpuState::Ok));
        assert_eq!(shown.readings.power_usage_watts, Some(100.0));
        assert_eq!(shown.readings.energy_joules, Some(0.5));
        assert_eq!(shown.xids_by_code, [(0, 2)]);
        assert_eq!(inventory.read_errors, []);
    }
}

#[test]
fn a_gpu_with_a_blank_uuid_is_not_shown_until_it_has_one() {
    let mut tracker = tracker(2);
    report(&mut tracker, 0, identified(0, A), &[]);
    for _ in 0..2 {
        report(&mut tracker, 1, WorkerOutcome::Unidentified(GpuState::Ok), &[("uuid", "impossible")]);
    }
    report(&mut tracker, 0, polled(70.0, 0), &[]);
    let inventory = tracker.inventory();
    assert_eq!((inventory.gpus.len(), inventory.excluded), (1, 1));
    assert_eq!(inventory.read_errors, [ReadError { call: "uuid", error: "impossible", count: 2 }]);
    // The GPU is not lost, so NVML is not opened again.
    report(&mut tracker, 0, lost(), &[]);
    assert!(tracker.session_is_useful());
    report(&mut tracker, 1, identified(1, B), &[]);
    report(&mut tracker, 1, polled(80.0, 0), &[]);
    assert_eq!((gpu(&tracker, B).state, tracker.inventory().excluded), (GpuState::Ok, 0));
}

#[test]
fn a_gpu_is_not_listed_before_its_first_poll() {
    let mut tracker = tracker(1);
    report(&mut tracker, 0, identified(0, A), &[]);
    assert!(tracker.inventory().gpus.is_empty());
}

#[test]
fn a_stalled_gpu_keeps_its_energy_and_loses_its_readings_until_it_answers() {
    let mut tracker = tracker(2);
    report(&mut tracker, 0, identified(0, A), &[]);
    report(&mut tracker, 1, identified(1, B), &[]);
    report(&mut tracker, 0, polled(70.0, 1_000), &[]);
    report(&mut tracker, 0, polled(70.0, 2_000), &[]);
    report(&mut tracker, 1, polled(80.0, 0), &[]);
    tracker.stalled(0, "power_usage");
    let stalled = gpu(&tracker, A);
    assert_eq!(stalled.state, GpuState::Stalled);
    assert_eq!(stalled.readings, GpuReadings { energy_joules: Some(1.0), ..GpuReadings::default() });
    assert_eq!(gpu(&tracker, B).readings.power_usage_watts, Some(80.0));
    report(&mut tracker, 0, polled(71.0, 2_500), &[]);
    assert_eq!(gpu(&tracker, A).state, GpuState::Ok);
    assert_eq!(gpu(&tracker, A).readings.energy_joules, Some(1.5));
}

#[test]
fn failures_are_counted_by_call_and_error_in_a_stable_order() {
    let mut tracker = tracker(1);
    report(&mut tracker, 0, identified(0, A), &[]);
    report(&mut tracker, 0, polled(70.0, 0), &[("temperature", "unknown"), ("memory_info", "unknown")]);
    report(&mut tracker, 0, polled(70.0, 0), &[("temperature", "unknown")]);
    let counted = tracker.inventory().read_errors;
    assert_eq!(
        counted,
        [
            ReadError { call: "memory_info", error: "unknown", count: 1 },
            ReadError { call: "temperature", error: "unknown", count: 2 },
        ]
    );
}

#[test]
fn a_session_is_useful_while_one_gpu_may_recover() {
    let mut tracker = tracker(2);
    report(&mut tracker, 0, identified(0, A), &[]);
    report(&mut tracker, 0, lost(), &[("power_usage", "gpu_is_lost")]);
    assert!(tracker.session_is_useful(), "GPU 1 has not reported yet");
    report(&mut tracker, 1, WorkerOutcome::Unidentified(GpuState::Lost), &[("device_by_index", "gpu_is_lost")]);
    assert!(!tracker.session_is_useful());
    tracker.stalled(1, "device_by_index");
    assert!(tracker.session_is_useful(), "a stalled GPU may recover");
}

#[test]
fn excluded_gpus_do_not_keep_a_session_open() {
    let mut tracker = tracker_selecting(2, &[A]);
    report(&mut tracker, 1, WorkerOutcome::Excluded, &[]);
    report(&mut tracker, 0, identified(0, A), &[]);
    report(&mut tracker, 0, lost(), &[]);
    assert!(!tracker.session_is_useful());
    assert_eq!(tracker.inventory().gpus.len(), 1);
    assert_eq!(tracker.inventory().expected, 1);
}

#[test]
fn an_unloaded_driver_makes_every_gpu_lost_but_listed() {
    let mut tracker = tracker(2);
    report(&mut tracker, 0, identified(0, A), &[]);
    report(&mut tracker, 1, identified(1, B), &[]);
    report(&mut tracker, 0, polled(70.0, 1_000), &[]);
    report(&mut tracker, 1, polled(70.0, 1_000), &[]);
    let lost = WorkerOutcome::SessionLost(NvmlState::DriverNotLoaded);
    report(&mut tracker, 0, lost, &[("power_usage", "driver_not_loaded")]);
    let inventory = tracker.inventory();
    assert_eq!(inventory.nvml, NvmlState::DriverNotLoaded);
    assert_eq!(inventory.expected, 2);
    assert!(inventory.gpus.iter().all(|gpu| gpu.state == GpuState::Lost && gpu.readings.power_usage_watts.is_none()));
    assert!(inventory.gpus.iter().all(|gpu| gpu.readings.energy_joules == Some(0.0)));
}

#[test]
fn a_gpu_that_returns_at_another_index_is_the_same_gpu() {
    let mut tracker = tracker(2);
    report(&mut tracker, 0, identified(0, A), &[]);
    report(&mut tracker, 1, identified(1, B), &[]);
    report(&mut tracker, 0, polled(70.0, 0), &[]);
    report(&mut tracker, 1, polled(70.0, 0), &[]);
    report(&mut tracker, 1, polled(70.0, 3_000), &[]);
    // The driver was reloaded without A, so B has index 0.
    tracker.identified.clear();
    report(&mut tracker, 0, identified(0, B), &[]);
    report(&mut tracker, 0, polled(75.0, 4_000), &[]);
    assert_eq!(gpu(&tracker, A).state, GpuState::Lost);
    assert_eq!(gpu(&tracker, B).identity.index, 0);
    assert_eq!(gpu(&tracker, B).readings.energy_joules, Some(4.0));
    assert_eq!(tracker.inventory().expected, 2);
}

#[test]
fn a_failed_initialisation_is_counted_and_sets_the_state() {
    let mut tracker = GpuTracker::new(Arc::default());
    let absent = || NvmlUnavailable::DriverNotLoaded { library: "libnvidia-ml.so.1".to_owned() };
    tracker.unavailable(&absent());
    tracker.unavailable(&absent());
    assert_eq!(tracker.inventory().nvml, NvmlState::DriverNotLoaded);
    assert_eq!(tracker.inventory().init_errors, 2);
}

#[test]
fn xids_are_counted_by_code_and_kept_when_the_gpu_is_lost() {
    let mut tracker = tracker(1);
    report(&mut tracker, 0, identified(0, A), &[]);
    report(&mut tracker, 0, polled(70.0, 0), &[]);
    for (code, at_us) in [(48, 1), (79, 2), (48, 3)] {
        report(&mut tracker, 0, WorkerOutcome::Xid { code, at_us }, &[]);
    }
    report(&mut tracker, 7, WorkerOutcome::Xid { code: 13, at_us: 4 }, &[]);
    report(&mut tracker, 0, lost(), &[]);
    let gpu = gpu(&tracker, A);
    assert_eq!((gpu.xids, gpu.xids_by_code), (Some(3), vec![(48, 2), (79, 1)]));
    assert_eq!((gpu.last_xid, gpu.last_xid_us), (Some(48), Some(3)));
}

#[test]
fn releasing_the_driver_sets_the_state_and_keeps_the_energy() {
    let mut tracker = tracker(1);
    report(&mut tracker, 0, identified(0, A), &[]);
    report(&mut tracker, 0, polled(70.0, 1_000), &[]);
    report(&mut tracker, 0, polled(70.0, 2_000), &[]);
    tracker.released();
    assert_eq!(tracker.inventory().nvml, NvmlState::Released);
    assert_eq!(gpu(&tracker, A).state, GpuState::Lost);
    assert_eq!(gpu(&tracker, A).readings, GpuReadings { energy_joules: Some(1.0), ..GpuReadings::default() });
    assert!(!tracker.session_is_useful());
}
