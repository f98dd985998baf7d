//! The ledger by its reports: no NVML.

use std::time::Duration;

use super::*;

const A: &str = "GPU-a";
const B: &str = "GPU-b";

const POLL: LastPoll = LastPoll { at_us: 7, took: Duration::from_millis(2) };

fn ledger(gpus: u32) -> Ledger {
    ledger_wanting(gpus, &[])
}

/// As after a successful initialisation, which a test without NVML cannot have.
fn ledger_wanting(gpus: u32, wanted: &[&str]) -> Ledger {
    let wanted: Vec<String> = wanted.iter().map(|uuid| (*uuid).to_owned()).collect();
    let mut ledger = Ledger::new(Arc::new(Visible::from_flag(&wanted)));
    ledger.nvml = NvmlState::Up;
    ledger.enumerated = gpus;
    ledger
}

fn report(ledger: &mut Ledger, index: u32, outcome: Outcome, failures: &[(&'static str, &'static str)]) {
    ledger.absorb(Report { session: 1, index, outcome, failures: failures.to_vec() });
}

fn identified(index: u32, uuid: &str) -> Outcome {
    Outcome::Identified(GpuIdentity { uuid: uuid.to_owned(), index, ..GpuIdentity::default() })
}

fn polled(power: f64, energy_mj: u64) -> Outcome {
    let gauges = GpuReadings { power_usage_watts: Some(power), ..GpuReadings::default() };
    Outcome::Polled(GpuState::Ok, Box::new(Reading { gauges, energy_mj: Some(energy_mj) }), POLL)
}

fn lost() -> Outcome {
    Outcome::Polled(GpuState::Lost, Box::default(), POLL)
}

fn gpu(ledger: &Ledger, uuid: &str) -> GpuSnapshot {
    ledger.inventory().gpus.into_iter().find(|gpu| gpu.identity.uuid == uuid).unwrap()
}

#[test]
fn energy_starts_at_zero_and_adds_what_was_used_since() {
    let mut ledger = ledger(1);
    report(&mut ledger, 0, identified(0, A), &[]);
    report(&mut ledger, 0, polled(70.0, 5_000_000), &[]);
    assert_eq!(gpu(&ledger, A).readings.energy_joules, Some(0.0));
    report(&mut ledger, 0, polled(70.0, 5_001_500), &[]);
    assert_eq!(gpu(&ledger, A).readings.energy_joules, Some(1.5));
}

#[test]
fn a_smaller_energy_reading_rebases_and_never_lowers_the_total() {
    let mut ledger = ledger(1);
    report(&mut ledger, 0, identified(0, A), &[]);
    for (reading, joules) in [(9_000, 0.0), (10_000, 1.0), (400, 1.0), (1_400, 2.0)] {
        report(&mut ledger, 0, polled(70.0, reading), &[]);
        assert_eq!(gpu(&ledger, A).readings.energy_joules, Some(joules), "after {reading} mJ");
    }
}

#[test]
fn a_gpu_is_not_shown_before_its_first_word() {
    let mut ledger = ledger(1);
    report(&mut ledger, 0, identified(0, A), &[]);
    assert!(ledger.inventory().gpus.is_empty());
}

#[test]
fn a_stalled_gpu_keeps_its_energy_and_loses_its_gauges_until_it_answers() {
    let mut ledger = ledger(2);
    report(&mut ledger, 0, identified(0, A), &[]);
    report(&mut ledger, 1, identified(1, B), &[]);
    report(&mut ledger, 0, polled(70.0, 1_000), &[]);
    report(&mut ledger, 0, polled(70.0, 2_000), &[]);
    report(&mut ledger, 1, polled(80.0, 0), &[]);
    ledger.stalled(0, "power_usage");
    let stalled = gpu(&ledger, A);
    assert_eq!(stalled.state, GpuState::Stalled);
    assert_eq!(stalled.readings, GpuReadings { energy_joules: Some(1.0), ..GpuReadings::default() });
    assert_eq!(gpu(&ledger, B).readings.power_usage_watts, Some(80.0));
    report(&mut ledger, 0, polled(71.0, 2_500), &[]);
    assert_eq!(gpu(&ledger, A).state, GpuState::Ok);
    assert_eq!(gpu(&ledger, A).readings.energy_joules, Some(1.5));
}

#[test]
fn failures_are_counted_by_call_and_word_in_a_stable_order() {
    let mut ledger = ledger(1);
    report(&mut ledger, 0, identified(0, A), &[]);
    report(&mut ledger, 0, polled(70.0, 0), &[("temperature", "unknown"), ("memory_info", "unknown")]);
    report(&mut ledger, 0, polled(70.0, 0), &[("temperature", "unknown")]);
    let counted = ledger.inventory().read_errors;
    assert_eq!(
        counted,
        [
            ReadError { call: "memory_info", error: "unknown", count: 1 },
            ReadError { call: "temperature", error: "unknown", count: 2 },
        ]
    );
}

#[test]
fn a_session_is_useful_while_one_gpu_is_left() {
    let mut ledger = ledger(2);
    report(&mut ledger, 0, identified(0, A), &[]);
    report(&mut ledger, 0, lost(), &[("power_usage", "gpu_is_lost")]);
    assert!(ledger.session_is_useful(), "GPU 1 has not been heard of");
    report(&mut ledger, 1, Outcome::Unidentified(GpuState::Lost), &[("device_by_index", "gpu_is_lost")]);
    assert!(!ledger.session_is_useful());
    ledger.stalled(1, "device_by_index");
    assert!(ledger.session_is_useful(), "a stalled GPU may come back");
}

#[test]
fn gpus_that_are_not_wanted_do_not_keep_a_session_alive() {
    let mut ledger = ledger_wanting(2, &[A]);
    report(&mut ledger, 1, Outcome::NotWanted, &[]);
    report(&mut ledger, 0, identified(0, A), &[]);
    report(&mut ledger, 0, lost(), &[]);
    assert!(!ledger.session_is_useful());
    assert_eq!(ledger.inventory().gpus.len(), 1);
    assert_eq!(ledger.inventory().expected, 1);
}

#[test]
fn when_the_driver_goes_every_gpu_is_lost_but_listed() {
    let mut ledger = ledger(2);
    report(&mut ledger, 0, identified(0, A), &[]);
    report(&mut ledger, 1, identified(1, B), &[]);
    report(&mut ledger, 0, polled(70.0, 1_000), &[]);
    report(&mut ledger, 1, polled(70.0, 1_000), &[]);
    let over = Outcome::SessionOver(NvmlState::DriverNotLoaded);
    report(&mut ledger, 0, over, &[("power_usage", "driver_not_loaded")]);
    let inventory = ledger.inventory();
    assert_eq!(inventory.nvml, NvmlState::DriverNotLoaded);
    assert_eq!(inventory.expected, 2);
    assert!(inventory.gpus.iter().all(|gpu| gpu.state == GpuState::Lost && gpu.readings.power_usage_watts.is_none()));
    assert!(inventory.gpus.iter().all(|gpu| gpu.readings.energy_joules == Some(0.0)));
}

#[test]
fn a_gpu_that_comes_back_under_another_index_is_the_same_gpu() {
    let mut ledger = ledger(2);
    report(&mut ledger, 0, identified(0, A), &[]);
    report(&mut ledger, 1, identified(1, B), &[]);
    report(&mut ledger, 0, polled(70.0, 0), &[]);
    report(&mut ledger, 1, polled(70.0, 0), &[]);
    report(&mut ledger, 1, polled(70.0, 3_000), &[]);
    // After a reload without A, B has index 0.
    report(&mut ledger, 0, identified(0, B), &[]);
    report(&mut ledger, 0, polled(75.0, 4_000), &[]);
    assert_eq!(gpu(&ledger, A).state, GpuState::Lost);
    assert_eq!(gpu(&ledger, B).identity.index, 0);
    assert_eq!(gpu(&ledger, B).readings.energy_joules, Some(4.0));
    assert_eq!(ledger.inventory().expected, 2);
}

#[test]
fn a_failed_initialisation_is_counted_and_is_a_state() {
    let mut ledger = Ledger::new(Arc::default());
    let absent = || NvmlUnavailable::DriverNotLoaded { library: "libnvidia-ml.so.1".to_owned() };
    ledger.unavailable(&absent());
    ledger.unavailable(&absent());
    assert_eq!(ledger.inventory().nvml, NvmlState::DriverNotLoaded);
    assert_eq!(ledger.inventory().init_errors, 2);
}

#[test]
fn xids_are_counted_by_code_and_outlast_the_gpu() {
    let mut ledger = ledger(1);
    report(&mut ledger, 0, identified(0, A), &[]);
    report(&mut ledger, 0, polled(70.0, 0), &[]);
    for (code, at_us) in [(48, 1), (79, 2), (48, 3)] {
        ledger.xid(0, code, at_us);
    }
    ledger.xid(7, 13, 4);
    report(&mut ledger, 0, lost(), &[]);
    assert_eq!(gpu(&ledger, A).xids, [(48, 2), (79, 1)]);
    assert_eq!(gpu(&ledger, A).last_xid, Some(LastXid { code: 48, at_us: 3 }));
}

#[test]
fn a_released_driver_is_a_state_and_the_energy_stays() {
    let mut ledger = ledger(1);
    report(&mut ledger, 0, identified(0, A), &[]);
    report(&mut ledger, 0, polled(70.0, 1_000), &[]);
    report(&mut ledger, 0, polled(70.0, 2_000), &[]);
    ledger.released();
    assert_eq!(ledger.inventory().nvml, NvmlState::Released);
    assert_eq!(gpu(&ledger, A).state, GpuState::Lost);
    assert_eq!(gpu(&ledger, A).readings, GpuReadings { energy_joules: Some(1.0), ..GpuReadings::default() });
    assert!(!ledger.session_is_useful());
}
