//! Tests that each scenario states its true cause: the cure improves what users notice, and another remedy does not.

use std::collections::BTreeSet;

use trtllm_sim::Config;
use trtllm_sim::config::{Adapters, Policy};
use trtllm_sim::load::Arrivals;
use trtllm_sim::scenario::{Scenario, all};

use crate::users::{Felt, Measure, is_one_of};

const CAUSES: &str = "none batch_limit token_limit static_batching kv_capacity kv_reservation kv_thrash context_work \
                      context_blocking generation_work speculation host spikes ranks transfer frontend adapters tuner \
                      clocks gpu slowdown memory load errors statistics unavailable";

type Change = fn(&mut Config);

const MORE_CACHE: Change = |c| c.cache.blocks *= 2;
const MORE_SLOTS: Change = |c| c.limits.max_batch_size = 256;
const MORE_TOKENS: Change = |c| c.limits.max_num_tokens *= 2;

fn rate(config: &mut Config, rate: f64) {
    config.load.arrivals = Arrivals::Poisson { rate };
}

fn no_fault(config: &mut Config) {
    config.faults.clear();
}

/// Situations, what their `cure` changes, and another remedy that does not help.
const REMEDIES: &[(&str, Change, Change)] = &[
    ("batch-limit batch-limit-closed-loop batch-limit-bursts", |c| c.limits.max_batch_size = 64, MORE_CACHE),
    ("token-limit", |c| c.limits.max_num_tokens = 8192, MORE_SLOTS),
    ("token-limit-long-prompts", |c| c.limits.max_num_tokens = 2048, MORE_CACHE),
    ("static-batching static-batching-offline", |c| c.limits.policy = Policy::GuaranteedNoEvict, MORE_CACHE),
    ("kv-capacity kv-capacity-prompts kv-pauses", |c| c.cache.blocks = 2000, MORE_SLOTS),
    ("kv-reservation", |c| c.limits.policy = Policy::MaxUtilization, MORE_SLOTS),
    ("kv-reservation-by-clients", |c| c.load.max_new_tokens = Some(500), MORE_TOKENS),
    ("kv-thrash", |c| c.cache.blocks = 4000, MORE_SLOTS),
    ("kv-thrash-conversations", |c| c.cache.host_blocks = 8000, MORE_SLOTS),
    ("kv-thrash-host", |c| c.cache.host_blocks = 6000, MORE_SLOTS),
    ("context-work", |c| rate(c, 4.25), MORE_CACHE),
    ("context-work-without-reuse", |c| c.cache.reuse = true, MORE_SLOTS),
    ("context-blocking", |c| c.limits.max_num_tokens = 512, MORE_CACHE),
    (
        "context-blocking-unchunked",
        |c| {
            c.limits.chunked_context = true;
            c.limits.max_num_tokens = 1024;
        },
        MORE_SLOTS,
    ),
    ("generation-work", |c| rate(c, 2.0), MORE_TOKENS),
    ("generation-work-long-context", |c| rate(c, 1.25), MORE_TOKENS),
    ("speculation speculation-big-batch", |c| c.speculation = None, MORE_CACHE),
    ("host", |c| c.costs.host = 0.002, MORE_CACHE),
    ("host-no-overlap", |c| c.costs.overlap = true, MORE_CACHE),
    ("host-per-request", |c| c.costs.host_per_request = 10e-6, MORE_CACHE),
    ("ranks ranks-pipeline", |c| c.ranks.imbalance = 0.0, MORE_CACHE),
    ("transfer", |c| c.transfer.bytes_per_second = 20e9, MORE_SLOTS),
    ("transfer-latency", |c| c.transfer.seconds = 0.001, MORE_SLOTS),
    ("frontend frontend-streaming", |c| c.frontend.workers = 16, MORE_SLOTS),
    ("adapters", |c| c.adapters = Some(Adapters { count: 40, slots: 40, load_seconds: 0.1 }), MORE_CACHE),
    ("load", |c| rate(c, 18.0), MORE_CACHE),
    ("load-ramp", |c| c.load.arrivals = Arrivals::Ramp { from: 5.0, to: 15.0, seconds: 100.0 }, MORE_TOKENS),
    ("spikes spikes-rare clocks-power memory errors statistics-lost wedge restarts", no_fault, MORE_SLOTS),
    ("tuner clocks-thermal gpu-slow slowdown statistics-second-reader hang", no_fault, MORE_CACHE),
    ("errors-timeouts", |c| c.load.timeout = Some(60.0), MORE_CACHE),
    ("errors-too-long", |c| c.limits.chunked_context = true, MORE_SLOTS),
    ("statistics-off", |c| c.statistics.enabled = true, MORE_SLOTS),
    ("loading", |c| c.startup = vec![("model_loader", "total_model_loading_seconds", 15.0)], MORE_SLOTS),
];

/// The costs without a remedy, with the cure, and with the other remedy.
fn costs(scenario: &Scenario) -> [f64; 3] {
    let row = REMEDIES.iter().find(|(situations, ..)| is_one_of(situations, scenario));
    let (_, cure, other) = row.unwrap_or_else(|| panic!("what cures {}?", scenario.name));
    let none: Change = |_| ();
    [&none, cure, other].map(|change| {
        let mut config = scenario.config.clone();
        change(&mut config);
        Measure::of(scenario).median_cost(&config, [1, 2, 3])
    })
}

#[test]
fn the_cure_helps_and_the_other_remedy_does_not() {
    let mut failures = Vec::new();
    for scenario in all().iter().filter(|scenario| scenario.cure.is_some()) {
        let [now, cured, other] = costs(scenario);
        // The cure must lower the cost by at least 25 %, and the other remedy by at most 8 %.
        if cured > 0.75 * now || other < 0.92 * now {
            let measure = Measure::of(scenario);
            failures.push(format!("{}: {measure:?} {now:.4}, cured {cured:.4}, other {other:.4}", scenario.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn healthy_engines_serve_their_users_well() {
    let mut failures = Vec::new();
    for scenario in all().iter().filter(|scenario| scenario.cure.is_none()) {
        let felt = Felt::of(&scenario.config, 1);
        if felt.ttft_p95 > 1.0 || felt.tpot_p95 > 0.05 || felt.error_share > 0.0 {
            failures.push(format!("{}: {felt:?}", scenario.name));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_cause_has_a_scenario_and_every_name_is_unique() {
    let scenarios = all();
    let names: BTreeSet<_> = scenarios.iter().map(|scenario| &scenario.name).collect();
    assert_eq!(names.len(), scenarios.len());
    let causes: BTreeSet<_> = scenarios.iter().map(|scenario| scenario.cause).collect();
    assert_eq!(causes, CAUSES.split(' ').collect());
    let healthy = scenarios.iter().filter(|scenario| scenario.cause == "none").count();
    assert!(healthy >= 24 && scenarios.len() - healthy >= 60, "{healthy} of {}", scenarios.len());
}
