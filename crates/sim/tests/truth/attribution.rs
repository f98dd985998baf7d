//! Compares where the time of requests went, according to the exporter, with the truth of the simulated engine. No
//! other test uses these seeds.

use std::time::Duration;

use trtllm_analysis::attribution::{PARTS, RequestParts, Seconds};
use trtllm_records::Objectives;
use trtllm_sim::config::{CacheManager, Era, Fault, Policy, Release, Role, Speculation};
use trtllm_sim::load::{Arrivals, Length};
use trtllm_sim::truth::RequestTruth;
use trtllm_sim::{Config, End};

use crate::folded;

const CPP: Release = Release::Cpp { major: 1, minor: 1 };
const V1: Release = Release::PyTorch { era: Era::One, cache: CacheManager::V1 };
const V2: Release = Release::PyTorch { era: Era::Frames, cache: CacheManager::V2 };
const SECONDS: f64 = 150.0;
/// Earlier requests are not compared: the first requests began before the exporter knew the costs of iterations.
const FROM: f64 = 40.0;
const TTFT: f64 = 0.2;

fn true_parts(request: &RequestTruth) -> (Seconds, Seconds) {
    let (scheduled, first_token) = (request.scheduled.unwrap(), request.first_token.unwrap());
    let parts = &request.parts;
    // Every transfer here ends before the request is scheduled.
    let queue = scheduled - request.queued - parts.transfer;
    let (prefill, decode) = (first_token - scheduled, request.last_token - first_token);
    let own = prefill - parts.blocked[0] - parts.unexplained[0];
    let before = [queue, own, parts.blocked[0], 0.0, 0.0, parts.transfer, parts.unexplained[0]];
    let own = decode - parts.blocked[1] - parts.unexplained[1] - parts.pause;
    (before, [0.0, 0.0, parts.blocked[1], own, parts.pause, 0.0, parts.unexplained[1]])
}

struct Case {
    name: &'static str,
    config: Config,
    /// Largest allowed error of a part, as a share of the time of all requests.
    bound: f64,
    /// Largest allowed share of requests whose time cannot be attributed.
    unattributed: f64,
}

fn case(name: &'static str, release: Release, set: fn(&mut Config)) -> Case {
    let mut config = Config { release, ..Config::default() };
    set(&mut config);
    Case { name, config, bound: 0.01, unattributed: 0.0 }
}

fn rate(config: &mut Config, rate: f64) {
    config.load.arrivals = Arrivals::Poisson { rate };
}

fn long_prompts(config: &mut Config) {
    config.costs.per_attention_pair = 8e-9;
    config.load.prompt = Length::Mixed { short: 500, long: 6000, share: 0.2 };
    config.limits.max_num_tokens = 2048;
    rate(config, 2.5);
}

fn spikes(config: &mut Config) {
    config.faults = vec![Fault::Spike { every: 5.0, seconds: 0.7 }];
}

fn full_batches(config: &mut Config) {
    config.limits.max_batch_size = 8;
    rate(config, 3.5);
}

fn pauses(config: &mut Config) {
    config.limits.policy = Policy::MaxUtilization;
    config.cache.blocks = 200;
    config.load.output = Length::Fixed(400);
    rate(config, 2.0);
}

fn drafts(config: &mut Config) {
    config.speculation = Some(Speculation { draft_len: 3, acceptance: 0.7, seconds_per_position: 0.001 });
}

fn transfers(config: &mut Config) {
    config.role = Role::GenerationOnly;
    config.transfer.bytes_per_second = 1e9;
}

/// Times from rows are too long by up to an iteration.
fn rows_only(name: &'static str, release: Release) -> Case {
    Case { bound: 0.03, ..case(name, release, |config| config.statistics.entries = false) }
}

fn cases() -> Vec<Case> {
    let lossy = |config: &mut Config| config.faults = vec![Fault::LoseRecords { share: 0.0005 }];
    vec![
        case("PyTorch", V2, |_| ()),
        case("long prompts, C++", CPP, long_prompts),
        case("long prompts, PyTorch", V2, long_prompts),
        case("spikes, C++", CPP, spikes),
        case("spikes, PyTorch 1.0", V1, spikes),
        case("full batches, C++", CPP, full_batches),
        case("full batches, PyTorch", V2, full_batches),
        case("pauses, C++", CPP, pauses),
        // The rows of the PyTorch engine do not tell which requests were paused.
        Case {
            unattributed: 0.5,
            ..case("pauses, disaggregated PyTorch 1.0", V1, |config| {
                pauses(config);
                config.role = Role::GenerationOnly;
            })
        },
        Case { unattributed: 0.5, ..case("pauses, PyTorch 1.0", V1, pauses) },
        case("drafts, PyTorch", V2, drafts),
        case("KV transfers, PyTorch", V2, transfers),
        rows_only("rows alone, C++", CPP),
        rows_only("rows alone, PyTorch", V2),
        case("a batch of 2, so that rows have the numbers of entries", V2, |config| {
            config.limits.max_batch_size = 2;
            rate(config, 0.9);
        }),
        Case { unattributed: 0.1, ..case("lost records, PyTorch", V2, lossy) },
        // The lengths of prompts are known only from their blocks.
        case("entries alone, PyTorch", V2, |config| config.statistics.rows = false),
    ]
}

/// What the exporter adds up after `FROM`, the truth of the same requests (all, and those that missed the objective),
/// and the number of requests.
fn compare(case: &Case, seed: u64) -> (RequestParts, [Seconds; 2], f64) {
    let objectives = Objectives { ttft: Some(Duration::from_secs_f64(TTFT)), ..Objectives::default() };
    let mut early = RequestParts::default();
    let (engine, observed) = folded::fold(&case.config, seed, objectives, SECONDS, |time, _, observed| {
        if time < FROM {
            early = observed.analysis.attribution.totals.unwrap_or_default();
        }
    });
    let mut parts = observed.analysis.attribution.totals.unwrap();
    for place in 0..PARTS.len() {
        parts.all[place] -= early.all[place];
        parts.missed[0][place] -= early.missed[0][place];
    }
    parts.unattributed -= early.unattributed;
    // Without entries, the exporter counts a request late, because it waits for its entry first.
    let delay = if case.config.statistics.entries { 0.0 } else { 5.0 };
    let ended = |request: &&RequestTruth| {
        let is_answered = matches!(request.end, End::Stop | End::Length);
        is_answered && (FROM - delay..SECONDS - delay).contains(&request.last_token)
    };
    let mut truth = [[0.0; PARTS.len()]; 2];
    let mut requests = 0.0;
    for request in engine.truth().requests.iter().filter(ended) {
        let (before, after) = true_parts(request);
        let missed = request.first_token.unwrap() - request.queued > TTFT;
        for place in 0..PARTS.len() {
            truth[0][place] += before[place] + after[place];
            truth[1][place] += if missed { before[place] } else { 0.0 };
        }
        requests += 1.0;
    }
    (parts, truth, requests)
}

#[test]
fn the_parts_of_requests_are_the_truth() {
    let mut wrong = Vec::new();
    for (place, case) in cases().iter().enumerate() {
        let (parts, [truth, missed], requests) = compare(case, 43_000 + place as u64);
        let unattributed = parts.unattributed as f64 / requests;
        print!("{}: {requests} requests, {} unattributed", case.name, parts.unattributed);
        if unattributed > case.unattributed {
            wrong.push(format!("{}: {unattributed} unattributed", case.name));
        }
        // The sums lack the requests that cannot be attributed.
        let (known, all) = (1.0 - unattributed, truth.iter().sum::<f64>());
        for (what, ours, truth) in [("", parts.all, truth), ("missed TTFT: ", parts.missed[0], missed)] {
            for ((part, ours), truth) in
                PARTS.iter().zip(ours).zip(truth).filter(|((_, ours), truth)| ours + truth > 0.5)
            {
                let error = (ours - truth * known) / all;
                print!(" | {what}{part} {ours:.2} s, truly {truth:.2} s");
                if error.abs() > case.bound.max(2.0 * unattributed * (1.0 - unattributed)) {
                    wrong.push(format!("{}: {what}{part} {ours:.2} s, truly {truth:.2} s", case.name));
                }
            }
            let (ours, truth) = (ours.iter().sum::<f64>(), truth.iter().sum::<f64>());
            if unattributed == 0.0 && (ours - truth).abs() > case.bound * all {
                wrong.push(format!("{}: {what}{ours:.2} s in all, truly {truth:.2} s", case.name));
            }
        }
        println!();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
