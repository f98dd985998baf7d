//! Tests the tracker with made-up reports, without NVML.

use std::time::Duration;

use super::super::event::PollReadings;
use super::*;
use trtllm_records::gpu::{GpuPoll, GpuReadings};

const A: &str = "GPU-a";
const B: &str = "GPU-b";

const POLL: GpuPoll = GpuPoll { at_us: 7, monotonic: Duration::ZERO, took: Duration::from_millis(2) };

fn tracker(gpus: u32) -> GpuTracker {
    tracker_selecting(gpus, &[])
}

/// A tracker in the state after a successful initialisation.
fn tracker_selecting(gpus: u32, uuids: &[&str]) -> GpuTracker {
    let uuids: Vec<String> = uuids.iter().map(|uuid| (*uuid).to_owned()).collect();
    let mut tracker = GpuTracker::new(uuids.clone());
    tracker.inventory.nvml = NvmlState::Up;
    tracker.enumerated = gpus;
    tracker.inventory.expected = if uuids.is_empty() { gpus } else { 0 };
    tracker
}

fn report(tracker: &mut GpuTracker, index: u32, outcome: WorkerOutcome, failures: &[(&'static str, &'static str)]) {
    let failures = failures.iter().map(|&(call, error)| CallFailure { call, error }).collect();
    tracker.absorb(WorkerReport { session: 1, index, outcome, failures });
}

fn identified(index: u32, uuid: &str) -> WorkerOutcome {
    WorkerOutcome::Identified(GpuIdentity { uuid: uuid.to_owned(), index, ..GpuIdentity::default() })
}

fn outcome(state: GpuState, readings: GpuReadings, slow_failures: Option<Vec<CallFailure>>) -> WorkerOutcome {
    WorkerOutcome::Polled(state, Box::new(PollReadings { readings, poll: POLL, slow_failures }))
}

fn polled(power: f64, joules: f64) -> WorkerOutcome {
    let readings =
        GpuReadings { power_usage_watts: Some(power), energy_joules: Some(joules), ..GpuReadings::default() };
    outcome(GpuState::Ok, readings, None)
}

fn lost() -> WorkerOutcome {
    outcome(GpuState::Lost, GpuReadings::default(), None)
}

fn slow_poll(failures: &[CallFailure]) -> WorkerOutcome {
    outcome(GpuState::Ok, GpuReadings::default(), Some(failures.to_vec()))
}

fn gpu(tracker: &GpuTracker, uuid: &str) -> Gpu {
    tracker.inventory().gpus.into_iter().find(|gpu| gpu.identity.uuid == uuid).unwrap()
}

#[test]
fn a_failed_call_of_a_slow_poll_does_not_succeed_again_with_a_fast_poll() {
    let mut tracker = tracker(1);
    report(&mut tracker, 0, identified(0, A), &[]);
    let failed = CallFailure { call: "field_values", error: "unknown" };
    for outcome in [slow_poll(&[failed]), polled(70.0, 0.0), slow_poll(&[failed]), polled(70.0, 0.0)] {
        report(&mut tracker, 0, outcome, &[]);
        assert_eq!(tracker.gpus[A].failing_slow, [failed].into());
    }
    assert_eq!(tracker.inventory().read_errors, [ReadError { call: "field_values", error: "unknown", count: 2 }]);
    report(&mut tracker, 0, slow_poll(&[]), &[]);
    assert_eq!(tracker.gpus[A].failing_slow, [].into());
}

#[test]
fn of_two_gpus_with_the_same_uuid_only_the_first_is_shown_whichever_is_identified_first() {
    for order in [[0, 1], [1, 0]] {
        let mut tracker = tracker(2);
        for index in order {
            report(&mut tracker, index, identified(index, A), &[]);
            report(&mut tracker, index, polled(100.0 + f64::from(index), 0.0), &[]);
        }
        for (index, energy) in [(0, 0.5), (1, 899.0), (0, 0.5), (1, 899.0)] {
            report(&mut tracker, index, polled(100.0 + f64::from(index), energy), &[]);
            report(&mut tracker, index, WorkerOutcome::Xid { code: u64::from(index), at_us: 1 }, &[]);
        }
        tracker.stalled(1, "power_usage");
        let inventory = tracker.inventory();
        assert_eq!((inventory.gpus.len(), inventory.expected, inventory.excluded), (1, 1, 1), "{order:?}");
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
    report(&mut tracker, 0, polled(70.0, 0.0), &[]);
    let inventory = tracker.inventory();
    assert_eq!((inventory.gpus.len(), inventory.expected, inventory.excluded), (1, 1, 1));
    assert_eq!(inventory.read_errors, [ReadError { call: "uuid", error: "impossible", count: 2 }]);
    report(&mut tracker, 1, identified(1, B), &[]);
    report(&mut tracker, 1, polled(80.0, 0.0), &[]);
    assert_eq!((gpu(&tracker, B).state, tracker.inventory().excluded), (GpuState::Ok, 0));
    assert_eq!(tracker.inventory().expected, 2);
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
fn a_gpu_is_missing_if_the_driver_does_not_list_it_and_not_if_it_is_listed_as_lost_or_denied() {
    let mut tracker = tracker(3);
    for (index, uuid) in [(0, A), (1, B)] {
        report(&mut tracker, index, identified(index, uuid), &[]);
        report(&mut tracker, index, polled(70.0, 0.0), &[]);
    }
    report(
        &mut tracker,
        2,
        WorkerOutcome::Unidentified(GpuState::NoPermission),
        &[("device_by_index", "no_permission")],
    );
    report(&mut tracker, 1, lost(), &[("power_usage", "gpu_is_lost")]);
    assert_eq!((tracker.inventory().expected, tracker.inventory().missing), (3, 0));
    // Without an identity, nothing else shows a lost GPU.
    report(&mut tracker, 2, WorkerOutcome::Unidentified(GpuState::Lost), &[("device_by_index", "gpu_is_lost")]);
    assert_eq!(tracker.inventory().missing, 1);
    // NVML was initialised again and has one GPU.
    tracker.states.clear();
    tracker.enumerated = 1;
    assert_eq!((tracker.inventory().gpus.len(), tracker.inventory().missing), (2, 2));
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
fn a_selector_is_a_uuid_or_its_beginning_and_is_logged_if_it_matches_no_gpu() {
    for (selectors, shown) in [
        (vec![], [true, true, true]),
        (vec!["GPU-aa"], [true, false, false]),
        (vec!["GPU-b"], [false, true, true]),
        (vec!["GPU-aa", "GPU-bc", "GPU-z"], [true, false, true]),
        (vec!["GPU-aaa", "PU-b"], [false, false, false]),
    ] {
        let uuids: Vec<String> = selectors.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(["GPU-aa", "GPU-bb", "GPU-bc"].map(|uuid| is_selected(&uuids, uuid)), shown, "{selectors:?}");
    }
    let mut tracker = tracker_selecting(2, &["GPU", "GPU-z"]);
    report(&mut tracker, 0, identified(0, A), &[]);
    report(&mut tracker, 0, polled(70.0, 0.0), &[]);
    assert!(tracker.logged_unmatched.is_empty(), "GPU 1 has not reported yet");
    report(&mut tracker, 1, WorkerOutcome::Excluded, &[]);
    assert_eq!(tracker.logged_unmatched, BTreeSet::from(["GPU-z".to_owned()]));
}

#[test]
fn a_worker_that_died_is_replaced_unless_its_gpu_is_not_shown() {
    let mut tracker = tracker_selecting(2, &[A]);
    report(&mut tracker, 0, identified(0, A), &[]);
    report(&mut tracker, 1, WorkerOutcome::Excluded, &[]);
    assert_eq!([0, 1].map(|index| tracker.worker_missing(index)), [true, false]);
    assert_eq!(gpu(&tracker, A).state, GpuState::Lost);
}

#[test]
fn a_gpu_that_returns_at_another_index_is_the_same_gpu() {
    let mut tracker = tracker(2);
    report(&mut tracker, 0, identified(0, A), &[]);
    report(&mut tracker, 1, identified(1, B), &[]);
    report(&mut tracker, 0, polled(70.0, 0.0), &[]);
    report(&mut tracker, 1, polled(70.0, 0.0), &[]);
    report(&mut tracker, 1, polled(70.0, 3.0), &[]);
    // The driver was reloaded without A, so B has index 0.
    tracker.identified.clear();
    report(&mut tracker, 0, identified(0, B), &[]);
    report(&mut tracker, 0, polled(75.0, 4.0), &[]);
    assert_eq!(gpu(&tracker, A).state, GpuState::Lost);
    assert_eq!(gpu(&tracker, B).identity.index, 0);
    assert_eq!(gpu(&tracker, B).readings.energy_joules, Some(4.0));
    assert_eq!(tracker.inventory().expected, 2);
}

#[test]
fn gpus_that_change_places_are_no_duplicates() {
    for order in [[0, 1], [1, 0]] {
        let mut tracker = tracker(2);
        for (index, uuid) in [(0, A), (1, B)] {
            report(&mut tracker, index, identified(index, uuid), &[]);
            report(&mut tracker, index, polled(70.0, 0.0), &[]);
        }
        // The driver was reloaded.
        tracker.identified.clear();
        for index in order {
            report(&mut tracker, index, identified(index, [B, A][index as usize]), &[]);
        }
        for index in order {
            report(&mut tracker, index, polled(75.0, 1.0), &[]);
        }
        let shown = tracker.inventory().gpus.into_iter().map(|gpu| (gpu.identity.uuid, gpu.state));
        assert_eq!(shown.collect::<Vec<_>>(), [(B.to_owned(), GpuState::Ok), (A.to_owned(), GpuState::Ok)]);
        assert_eq!(tracker.inventory().excluded, 0);
    }
}
