//! Compares capacity and headroom on ramps with what the simulated engine can truly serve. No other test uses these seeds.

use trtllm_records::Objectives;
use trtllm_sim::Config;
use trtllm_sim::config::{CacheManager, Era, Policy, Release};
use trtllm_sim::load::{Arrivals, Length};
use trtllm_what_if::{Headroom, capacity};

use crate::observed::watch;
use crate::truth;

/// Seconds of a ramp from a fifth of the capacity to 1.3 times the capacity.
const RAMP: f64 = 300.0;
const FROM: f64 = 0.2;
const TO: f64 = 1.3;
/// The headroom is compared at these values of arrivals ÷ capacity.
const ASKED: [f64; 5] = [0.5, 0.65, 0.8, 0.95, 1.25];
const SEED: u64 = 650_000;

fn engines() -> Vec<(&'static str, Config)> {
    let with = |set: fn(&mut Config)| {
        let mut config = Config::default();
        config.statistics.rows = false;
        config.cache.reuse = false;
        set(&mut config);
        config
    };
    vec![
        ("PyTorch", with(|_| ())),
        (
            "C++, batches of 16",
            with(|config| {
                config.release = Release::Cpp { major: 1, minor: 1 };
                config.limits.max_batch_size = 16;
            }),
        ),
        (
            "PyTorch 1.0, graph steps",
            with(|config| {
                config.release = Release::PyTorch { era: Era::One, cache: CacheManager::V1 };
                config.costs.per_generation_token = 250e-6;
                config.costs.graphs = vec![1, 8, 32, 64];
            }),
        ),
        (
            "quadratic attention, long prompts",
            with(|config| {
                config.costs.per_attention_pair = 8e-9;
                config.load.prompt = Length::Mixed { short: 500, long: 6000, share: 0.2 };
            }),
        ),
        (
            "full cache, pauses",
            with(|config| {
                config.cache.blocks = 800;
                config.limits.policy = Policy::MaxUtilization;
            }),
        ),
    ]
}

#[test]
fn headroom_shrinks_to_0_on_a_ramp_as_it_truly_does() {
    let (mut wrong, mut told, mut told_when_busy) = (Vec::new(), 0, 0);
    let engines = engines();
    for (place, (name, config)) in engines.iter().enumerate() {
        let seed = SEED + place as u64 * 10;
        let true_capacity = truth::capacity(config, seed + 1);
        let mut ramp = config.clone();
        ramp.load.arrivals = Arrivals::Ramp { from: FROM * true_capacity, to: TO * true_capacity, seconds: RAMP };
        let at = ASKED.map(|asked| RAMP * (asked - FROM) / (TO - FROM));
        println!("{name}: truly {true_capacity:.2} requests/s");
        watch(&ramp, seed, Objectives::default(), &at, |time, engine, window| {
            // The mean rate of the last minute is the rate of 30 s ago.
            let utilization = FROM + (TO - FROM) * (time - 30.0) / RAMP;
            let by_costs = capacity(&engine).map(|capacity| capacity.value);
            let minute = window.span(60.0).unwrap();
            let Some(headroom) = Headroom::of(&minute, window.waiting(60.0), by_costs) else {
                println!("  at {utilization:.2} of it: cannot tell");
                return;
            };
            let free = (1.0 - utilization).max(0.0);
            println!(
                "  at {utilization:.2} of it: {:.2} requests/s, {:+.1} %; headroom {:.2}, truly {free:.2}",
                headroom.capacity,
                100.0 * (headroom.capacity / true_capacity - 1.0),
                headroom.free,
            );
            told += 1;
            told_when_busy += usize::from(utilization > 0.6);
            if (headroom.capacity / true_capacity - 1.0).abs() > 0.15 || (headroom.free - free).abs() > 0.1 {
                wrong.push(format!("{name} at {utilization:.2}: {headroom:?}, truly {true_capacity} and {free}"));
            }
        });
    }
    println!("{told} of {} told", engines.len() * ASKED.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(told_when_busy >= engines.len() * 2, "only {told_when_busy} told above 0.6 of the capacity");
}
