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
