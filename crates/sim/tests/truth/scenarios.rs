//! Tests that each scenario states its true cause: the cure improves what users notice, and another remedy does not.

use std::collections::BTreeSet;

use trtllm_sim::scenario::{Scenario, all};

const CAUSES: [&str; 26] = [
    "none",
    "batch_limit",
    "token_limit",
    "static_batching",
    "kv_capacity",
    "kv_reservation",
    "kv_thrash",
    "context_work",
    "context_blocking",
    "generation_work",
    "speculation",
    "host",
    "spikes",
    "ranks",
    "transfer",
    "frontend",
    "adapters",
    "tuner",
    "clocks",
    "gpu",
    "slowdown",
    "memory",
    "load",
    "errors",
    "statistics",
    "unavailable",
];

/// The costs without a remedy, with the cure, and with the other remedy. Each is the median of three seeds.
fn costs(scenario: &Scenario) -> [f64; 3] {
    [None, scenario.cure, scenario.other].map(|remedy| {
        let mut costs = [1, 2, 3].map(|seed| scenario.felt.cost(&scenario.felt_with(remedy, seed, 20.0, 140.0)));
        costs.sort_by(f64::total_cmp);
        costs[1]
    })
}

#[test]
fn the_cure_helps_and_the_other_remedy_does_not() {
    let mut failures = Vec::new();
    for scenario in all().iter().filter(|scenario| scenario.cure.is_some()) {
        let [now, cured, other] = costs(scenario);
        // The cure must lower the cost by at least 25 %, and the other remedy by at most 8 %.
        if cured > 0.75 * now || other < 0.92 * now {
            failures
                .push(format!("{}: {:?} {now:.4}, cured {cured:.4}, other {other:.4}", scenario.name, scenario.felt));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn healthy_engines_serve_their_users_well() {
    let mut failures = Vec::new();
    for scenario in all().iter().filter(|scenario| scenario.cure.is_none()) {
        let felt = scenario.felt_with(None, 1, 20.0, 140.0);
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
    assert_eq!(causes, BTreeSet::from(CAUSES));
    let healthy = scenarios.iter().filter(|scenario| scenario.cause == "none").count();
    assert!(healthy >= 24 && scenarios.len() - healthy >= 60, "{healthy} of {}", scenarios.len());
}
