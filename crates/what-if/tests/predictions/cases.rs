//! Engines, and for each the changes whose effects are predicted.

use trtllm_sim::Config;
use trtllm_sim::config::{CacheManager, Policy, Ranks, Release, Speculation};
use trtllm_sim::cost::{Costs, Experts};
use trtllm_sim::load::{Arrivals, Length, Prefixes};
use trtllm_what_if::measured_engine::{self, Request};
use trtllm_what_if::{Change, MeasuredEngine};

pub(crate) struct Case {
    pub(crate) engine: &'static str,
    pub(crate) config: Config,
    pub(crate) changes: Vec<&'static str>,
    /// The changes about which a question must be refused.
    pub(crate) refused: &'static [&'static str],
    /// The changes of a batch size that never varied, so that other sizes have unknown costs: the interval must hold the truth,
    /// but the throughput may be off by more than 5 %.
    pub(crate) uncertain: &'static [&'static str],
}

fn base() -> Config {
    let mut config = Config::default();
    config.statistics.rows = false;
    // By default, requests share no prompts, so nothing can be reused.
    config.cache.reuse = false;
    config
}

fn case(
    engine: &'static str,
    changes: &[&'static str],
    refused: &'static [&'static str],
    set: fn(&mut Config),
) -> Case {
    let mut config = base();
    set(&mut config);
    Case { engine, config, changes: changes.to_vec(), refused, uncertain: &[] }
}

fn rate(config: &mut Config, rate: f64) {
    config.load.arrivals = Arrivals::Poisson { rate };
}

const V1: Release = Release::PyTorch { era: trtllm_sim::config::Era::One, cache: CacheManager::V1 };

pub(crate) fn all() -> Vec<Case> {
    vec![
        case(
            "default, 8/s",
            &["max_batch_size=32", "max_num_tokens=2048", "rate=1.5x", "rate=0.5x", "rate=4x"],
            &["rate=4x"],
            |_| {},
        ),
        case(
            "batch limit 8, 12/s: overloaded",
            &["max_batch_size=16", "max_batch_size=32", "rate=0.3x", "rate=0.6x", "max_batch_size=24"],
            &[],
            |c| {
                c.limits.max_batch_size = 8;
                rate(c, 12.0);
            },
        ),
        case("batch limit 16, 8/s", &["max_batch_size=8", "max_batch_size=64", "rate=1.3x", "replicas=2"], &[], |c| {
            c.limits.max_batch_size = 16;
        }),
        case("graph steps, 10/s", &["max_batch_size=24", "max_batch_size=16", "rate=1.5x", "rate=0.4x"], &[], |c| {
            c.costs.per_generation_token = 250e-6;
            c.costs.graphs = vec![1, 8, 32, 64];
            rate(c, 10.0);
        }),
        case(
            "quadratic attention, long prompts",
            &["max_num_tokens=2048", "max_num_tokens=1024", "rate=0.5x", "rate=1.3x"],
            &[],
            |c| {
                c.costs.per_attention_pair = 8e-9;
                c.load.prompt = Length::Mixed { short: 500, long: 6000, share: 0.2 };
                rate(c, 2.5);
            },
        ),
        case("steps and quadratic, C++", &["max_batch_size=16", "rate=1.3x", "max_num_tokens=2048"], &[], |c| {
            c.release = Release::Cpp { major: 1, minor: 1 };
            c.costs.per_attention_pair = 5e-9;
            c.costs.per_generation_token = 150e-6;
            c.costs.graphs = vec![1, 4, 16, 64];
            c.load.prompt = Length::Lognormal { median: 1000.0, sigma: 0.7, max: 8000 };
            rate(c, 5.0);
        }),
        case("experts, 10/s", &["rate=1.5x", "max_batch_size=24", "replicas=2"], &[], |c| {
            c.costs.experts = Some(Experts { count: 64, per_token: 4, seconds: 50e-6 });
            rate(c, 10.0);
        }),
        case(
            "token limit 256, 6/s",
            &["max_num_tokens=512", "max_num_tokens=2048", "rate=1.4x", "rate=0.6x"],
            &[],
            |c| {
                c.limits.max_num_tokens = 256;
                rate(c, 6.0);
            },
        ),
        case("full KV cache, V1", &["max_tokens=6400", "rate=0.7x", "rate=1.3x"], &[], |c| {
            c.release = V1;
            c.cache.blocks = 130;
            rate(c, 5.0);
        }),
        case(
            "MAX_UTILIZATION, C++",
            &["max_tokens=9600", "capacity_scheduler_policy=GUARANTEED_NO_EVICT", "rate=0.7x"],
            &["capacity_scheduler_policy=GUARANTEED_NO_EVICT"],
            |c| {
                c.release = Release::Cpp { major: 1, minor: 1 };
                c.limits.policy = Policy::MaxUtilization;
                c.cache.blocks = 200;
                rate(c, 7.0);
            },
        ),
        case("bursts of 10, 6/s", &["rate=1.5x", "max_batch_size=24", "rate=0.6x"], &[], |c| {
            c.load.arrivals = Arrivals::Bursty { rate: 6.0, burst: 10 };
        }),
        Case {
            uncertain: &["max_batch_size=32", "max_batch_size=8"],
            ..case("closed loop, 32 clients", &["max_batch_size=32", "max_batch_size=8", "rate=2x"], &[], |c| {
                c.limits.max_batch_size = 16;
                c.load.arrivals = Arrivals::Closed { concurrency: 32 };
                c.load.think = 0.0;
            })
        },
        case("drafts of 3", &["rate=1.5x", "max_batch_size=16", "max_draft_len=1"], &["max_draft_len=1"], |c| {
            c.speculation = Some(Speculation { draft_len: 3, acceptance: 0.6, seconds_per_position: 0.0004 });
        }),
        case(
            "shared prefixes",
            &["rate=1.5x", "max_num_tokens=2048", "max_tokens=64000"],
            &["max_tokens=64000"],
            |c| {
                c.cache.reuse = true;
                c.load.prefixes = Some(Prefixes { families: 4, tokens: 1500 });
                c.cache.blocks = 8000;
            },
        ),
        case("batch limit 4: overloaded", &["max_batch_size=64"], &[], |c| {
            c.limits.max_batch_size = 4;
            rate(c, 6.0);
        }),
        case("four ranks", &["max_batch_size=32"], &["max_batch_size=32"], |c| {
            c.ranks = Ranks { attention_dp: 4, ..c.ranks.clone() };
            rate(c, 20.0);
        }),
        case("overlap, host 6 ms", &["disable_overlap_scheduler=true", "rate=1.5x"], &[], |c| {
            c.costs.host = 0.006;
            rate(c, 3.0);
        }),
        case("serial loop, host 4 ms", &["disable_overlap_scheduler=false", "rate=1.5x", "rate=0.5x"], &[], |c| {
            (c.costs.overlap, c.costs.host) = (false, 0.004);
            rate(c, 4.0);
        }),
        case("sampled", &["rate=1.5x"], &["rate=1.5x"], |c| c.statistics.interval = 10),
        case("spikes", &["rate=1.5x"], &["rate=1.5x"], |c| {
            c.faults = vec![trtllm_sim::config::Fault::Spike { every: 2.0, seconds: 1.0 }];
        }),
        case("linear, jitter", &["max_batch_size=12", "rate=1.6x", "rate=2x"], &[], |c| {
            c.costs = Costs { graphs: Vec::new(), jitter: 0.1, per_attention_pair: 0.0, ..Costs::default() };
        }),
    ]
}

/// Applies the change to the simulated engine, and sets its load to the rate and the lengths that were measured.
pub(crate) fn apply(config: &Config, text: &str, engine: &MeasuredEngine) -> Config {
    let mut config = config.clone();
    let (requests, measured_rate) = (&engine.requests, arrivals_per_second(engine));
    let prefix = config.load.prefixes.as_ref().map_or(0, |prefixes| prefixes.tokens);
    config.load.prompt = Length::Sample(requests.iter().map(|request| request.prompt - prefix).collect());
    config.load.output = Length::Sample(requests.iter().map(|request| request.output).collect());
    if let Arrivals::Poisson { rate } | Arrivals::Bursty { rate, .. } = &mut config.load.arrivals {
        *rate = measured_rate;
    }
    let (name, value) = text.split_once('=').unwrap();
    match name {
        "rate" => scale(&mut config.load.arrivals, value.trim_end_matches('x').parse().unwrap()),
        "replicas" => {
            let replicas: u32 = value.parse().unwrap();
            scale(&mut config.load.arrivals, 1.0 / f64::from(replicas));
            // The replicas share each burst, too.
            if let Arrivals::Bursty { burst, .. } = &mut config.load.arrivals {
                *burst /= replicas;
            }
        }
        "max_batch_size" => config.limits.max_batch_size = value.parse().unwrap(),
        "max_num_tokens" => config.limits.max_num_tokens = value.parse().unwrap(),
        "max_tokens" => config.cache.blocks = value.parse::<u32>().unwrap() / config.cache.tokens_per_block,
        "capacity_scheduler_policy" => config.limits.policy = Policy::GuaranteedNoEvict,
        "disable_overlap_scheduler" => config.costs.overlap = value == "false",
        "max_draft_len" => {}
        _ => panic!("{text}"),
    }
    config
}

/// Requests that arrived per second.
fn arrivals_per_second(engine: &MeasuredEngine) -> f64 {
    let arrived = |request: Option<&Request>| request.map_or(0.0, |request| request.arrived);
    let seconds = arrived(engine.requests.last()) - arrived(engine.requests.first());
    engine.requests.len().saturating_sub(1) as f64 / seconds.max(1e-9)
}

fn scale(arrivals: &mut Arrivals, factor: f64) {
    match arrivals {
        Arrivals::Poisson { rate } | Arrivals::Bursty { rate, .. } => *rate *= factor,
        Arrivals::Closed { concurrency } => *concurrency = (f64::from(*concurrency) * factor) as u32,
        other => panic!("{other:?}"),
    }
}

/// The question about a change. It names the present values of settings that no engine reports.
pub(crate) fn change(text: &str, config: &Config) -> Change {
    let mut change = Change { chunked_context: Some(config.limits.chunked_context), ..Change::default() };
    if config.limits.policy == Policy::MaxUtilization {
        change.policy = Some(measured_engine::Policy::MaxUtilization);
    }
    match text.strip_prefix("rate=") {
        Some(rate) => change.set_rate(rate).unwrap(),
        None => change.set(text).unwrap(),
    }
    change
}
