//! Comparisons of two simulated engines whose costs and loads are known. No other test uses these seeds.

use trtllm_records::Objectives;
use trtllm_sim::Config;
use trtllm_sim::config::{CacheManager, Era, Fault, Release, Slow};
use trtllm_sim::cost::{Costs, Experts};
use trtllm_sim::load::{Arrivals, Length};
use trtllm_what_if::compare;

use crate::long;
use crate::observed::{observe, watch};

const SEED: u64 = 7_100_000;
const SECONDS: f64 = 240.0;

type Set = fn(&mut Config);

/// Both backends, with plain costs, wide graph steps, quadratic attention and experts.
const ENGINES: [(&str, Set); 5] = [
    ("PyTorch", |_| ()),
    ("C++, batches of 24", |config| {
        config.release = Release::Cpp { major: 1, minor: 1 };
        config.limits.max_batch_size = 24;
    }),
    ("PyTorch 1.0, graph steps", |config| {
        config.release = Release::PyTorch { era: Era::One, cache: CacheManager::V1 };
        config.costs.per_generation_token = 250e-6;
        config.costs.graphs = vec![1, 8, 32, 64];
    }),
    ("C++, graph steps", |config| {
        config.release = Release::Cpp { major: 1, minor: 1 };
        config.costs.per_generation_token = 250e-6;
        config.costs.graphs = vec![1, 8, 32, 64];
    }),
    ("experts, jitter", |config| {
        config.costs.experts = Some(Experts { count: 64, per_token: 4, seconds: 1e-4 });
        config.costs.jitter = 0.03;
    }),
];

/// Loads of the second engine, and how many times as long equal work takes in it. The first engine gets 8 requests a second.
const CHANGES: [(&str, f64, Set); 5] = [
    ("the same load", 1.2, |_| ()),
    ("half the requests", 1.0, |config| config.load.arrivals = Arrivals::Poisson { rate: 4.0 }),
    ("1.4 times the requests", 1.0, |config| config.load.arrivals = Arrivals::Poisson { rate: 11.2 }),
    ("twice the prompts", 1.0, |config| {
        config.load.prompt = Length::Lognormal { median: 600.0, sigma: 0.6, max: 4000 }
    }),
    ("longer answers", 1.2, |config| config.load.output = Length::Lognormal { median: 150.0, sigma: 0.5, max: 1000 }),
];

/// Multiplies all costs of an iteration by `factor`.
fn slowed(costs: &Costs, factor: f64) -> Costs {
    Costs {
        host: costs.host * factor,
        host_per_request: costs.host_per_request * factor,
        base: costs.base * factor,
        per_context_token: costs.per_context_token * factor,
        per_attention_pair: costs.per_attention_pair * factor,
        per_generation_token: costs.per_generation_token * factor,
        per_kv_token: costs.per_kv_token * factor,
        experts: costs.experts.as_ref().map(|experts| Experts { seconds: experts.seconds * factor, ..*experts }),
        ..costs.clone()
    }
}

#[test]
fn a_slower_engine_is_distinguished_from_a_changed_load() {
    let (mut wrong, mut held, mut all) = (Vec::new(), 0, 0);
    let mut seed = SEED;
    for (row, (name, engine)) in ENGINES.into_iter().enumerate() {
        let mut first = Config::default();
        first.statistics.rows = false;
        first.cache.reuse = false;
        engine(&mut first);
        let before = observe(&first, seed, Objectives::default(), SECONDS);
        for (column, (load, factor, set)) in CHANGES.into_iter().enumerate() {
            seed += 1;
            if !long() && (row + column) % 3 != 0 {
                continue;
            }
            let mut second = first.clone();
            set(&mut second);
            second.costs = slowed(&first.costs, factor);
            let comparison = compare(&before, &observe(&second, seed, Objectives::default(), SECONDS));
            let Some(engine) = comparison.engine else {
                wrong.push(format!("{name}, {load}, {factor}: {}", comparison.says));
                continue;
            };
            let (slowdown, error) = (engine.slowdown, engine.slowdown.value / factor - 1.0);
            println!("{name}, {load}, {factor}: {:.3} [{:.3} {:.3}]", slowdown.value, slowdown.low, slowdown.high);
            all += 1;
            held += usize::from(slowdown.holds(factor));
            if error.abs() > if factor > 1.0 { 0.05 } else { 0.03 } {
                wrong.push(format!("{name}, {load}, {factor}: {:.3}", slowdown.value));
            }
        }
    }
    println!("{held} of {all} intervals hold the truth");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(held * 100 >= all * 85, "{held} of {all} intervals hold the truth");
}

/// The exporter keeps running, so the costs that it knows are from before the slowdown.
#[test]
fn an_engine_that_becomes_slower_is_compared_with_its_own_past() {
    for (place, (name, engine)) in ENGINES.iter().enumerate() {
        let mut config = Config::default();
        config.statistics.rows = false;
        config.cache.reuse = false;
        engine(&mut config);
        config.load.arrivals = Arrivals::Poisson { rate: 6.0 };
        config.faults = vec![Fault::Slow { at: 205.0, factor: 1.2, why: Slow::Regression }];
        let mut seen = Vec::new();
        let seed = SEED + 500 + place as u64;
        watch(&config, seed, Objectives::default(), &[200.0, 280.0], |_, present, _| seen.push(present));
        let slowdown = compare(&seen[0], &seen[1]).engine.unwrap().slowdown;
        println!("{name}: {slowdown:.3?}");
        assert!((slowdown.value / 1.2 - 1.0).abs() <= 0.05, "{name}: {slowdown:?}");
        let same = compare(&seen[0], &seen[0]);
        assert_eq!(same.engine.unwrap().slowdown.value, 1.0, "{}", same.says);
    }
}
