//! Reads the records with the exporter's own code: after parsing and folding, the totals equal the truth of the
//! simulation.

use std::time::{Duration, Instant};

use trtllm_analysis::ObservedEngine;
use trtllm_records::Objectives;
use trtllm_sim::config::{CacheManager, Era, Fault, Policy, Ranks, Release, Speculation};
use trtllm_sim::load::{Arrivals, Length, Prefixes};
use trtllm_sim::{Config, End, Engine, write};

use crate::folded::{self, EPOCH_US};

/// Runs an engine for some time and folds all that it reports.
fn fold(config: &Config, seconds: f64) -> (Engine, ObservedEngine) {
    folded::fold(config, 7, Objectives::default(), seconds, |_, _, _| ())
}

/// A load that ends, so that the records of all requests are written before the comparison.
fn finite() -> Config {
    let mut config = Config::default();
    config.load.arrivals = Arrivals::Offline { requests: 160 };
    config
}

fn assert_totals(config: &Config) -> (Engine, ObservedEngine) {
    let (engine, observed) = fold(config, 600.0);
    let (truth, totals) = (engine.truth(), &observed.fold.totals);
    assert_eq!(totals.iterations, truth.iterations, "{:?}", config.release);
    assert_eq!(totals.requests_completed, truth.completed, "{:?}", config.release);
    assert_eq!(totals.batch.tokens.context, truth.context_tokens, "{:?}", config.release);
    assert_eq!(totals.losses.lost, 0, "{:?}", config.release);
    assert!(truth.completed > 100);
    (engine, observed)
}

fn pytorch(era: Era, cache: CacheManager) -> Release {
    Release::PyTorch { era, cache }
}

#[test]
fn totals_are_the_truth_for_each_backend_and_release() {
    let eras = [Era::Early, Era::One, Era::Ranks, Era::Frames];
    let mut releases: Vec<_> = eras.iter().map(|era| pytorch(*era, CacheManager::V1)).collect();
    releases.extend([Era::Ranks, Era::Frames].map(|era| pytorch(era, CacheManager::V2)));
    releases.extend([(0, 16), (0, 19), (1, 0), (1, 2)].map(|(major, minor)| Release::Cpp { major, minor }));
    for release in releases {
        let config = Config { release, ..finite() };
        let (engine, observed) = assert_totals(&config);
        assert_eq!(observed.fold.totals.requests_started, engine.truth().started, "{release:?}");
        let truth = engine.truth();
        assert_eq!(truth.discarded_tokens, 0);
        assert_eq!(observed.fold.totals.batch.tokens.generation, truth.decoded_tokens, "{release:?}");
    }
}

#[test]
fn tokens_after_a_stop_word_are_in_the_records_and_do_not_count() {
    for era in [Era::Early, Era::One, Era::Ranks, Era::Frames] {
        let mut config = Config { release: pytorch(era, CacheManager::V1), ..finite() };
        config.load.max_new_tokens = Some(500);
        let (engine, observed) = assert_totals(&config);
        let truth = engine.truth();
        assert!(truth.discarded_tokens > 100);
        let counted = observed.fold.totals.batch.tokens.generation;
        // Early records do not tell that the loop overlaps.
        let discarded = if era == Era::Early { truth.discarded_tokens } else { 0 };
        assert_eq!(counted, truth.decoded_tokens + discarded, "{era:?}");
        let answers: u64 = truth.requests.iter().map(|request| u64::from(request.generated)).sum();
        assert_eq!(truth.decoded_tokens + truth.first_tokens, answers, "{era:?}");
    }
}

#[test]
fn the_flush_record_of_an_engine_that_is_often_idle_counts_nothing_twice() {
    let mut config = Config { release: Release::Cpp { major: 1, minor: 1 }, ..finite() };
    config.load.arrivals = Arrivals::Ramp { from: 0.5, to: 0.5, seconds: 1.0 };
    let (engine, observed) = fold(&config, 400.0);
    assert_eq!(observed.fold.totals.requests_started, engine.truth().started);
    assert_eq!(observed.fold.totals.requests_completed, engine.truth().completed);
    assert_eq!(observed.fold.totals.iterations, engine.truth().iterations);
    assert!(engine.truth().completed > 100);
}

#[test]
fn older_releases_of_the_cpp_executor_are_read() {
    for minor in [9, 11, 13, 15] {
        let config = Config { release: Release::Cpp { major: 0, minor }, ..finite() };
        let (engine, observed) = fold(&config, 600.0);
        assert_eq!(observed.fold.totals.iterations, engine.truth().iterations, "0.{minor}");
        assert_eq!(observed.fold.totals.batch.tokens.context, engine.truth().context_tokens, "0.{minor}");
    }
}

#[test]
fn pauses_and_reused_blocks_are_counted() {
    for cache in [CacheManager::V1, CacheManager::V2] {
        let mut config = Config { release: pytorch(Era::Frames, cache), ..finite() };
        config.limits.policy = Policy::MaxUtilization;
        config.cache.blocks = 300;
        config.load.prefixes = Some(Prefixes { families: 3, tokens: 200 });
        let (engine, observed) = assert_totals(&config);
        assert!(engine.truth().pauses > 10);
        assert!(observed.fold.totals.kv.reused_blocks > Some(100));
    }
}

#[test]
fn tokens_that_are_computed_again_after_a_pause_are_counted() {
    let releases = [
        pytorch(Era::One, CacheManager::V1),
        pytorch(Era::Frames, CacheManager::V1),
        Release::Cpp { major: 0, minor: 16 },
        Release::Cpp { major: 1, minor: 1 },
    ];
    for (release, reuse, chunks) in releases
        .into_iter()
        .flat_map(|release| [(release, false, true), (release, false, false), (release, true, true)])
    {
        let mut config = Config { release, ..finite() };
        config.limits.policy = Policy::MaxUtilization;
        (config.limits.chunked_context, config.limits.max_num_tokens) = (chunks, if chunks { 256 } else { 8192 });
        (config.cache.blocks, config.cache.reuse) = (150, reuse);
        let (engine, observed) = fold(&config, 600.0);
        let (truth, found) = (engine.truth(), observed.fold.totals.recomputed_tokens.unwrap());
        let name = format!("{release:?} {reuse} {chunks}: {found} of {}", truth.recomputed_tokens);
        println!("{name} in {} pauses", truth.pauses);
        assert!(truth.pauses > 10 && truth.recomputed_tokens > 1000, "{name}");
        // A block that is found in part counts as a whole. A row of the C++ Executor does not show the first chunk of a request that is
        // paused before the row is written.
        let parts = if reuse { truth.pauses * u64::from(config.cache.tokens_per_block) } else { 0 };
        let within = parts + if release.is_cpp() && chunks { truth.recomputed_tokens / 40 } else { 0 };
        assert!(found <= truth.recomputed_tokens && found + within >= truth.recomputed_tokens, "{name}");
    }
}

#[test]
fn tokens_computed_again_are_0_without_a_pause_and_unknown_without_the_blocks_of_requests() {
    let found = |release| {
        let (engine, observed) = fold(&Config { release, ..finite() }, 600.0);
        assert_eq!(engine.truth().recomputed_tokens, 0);
        observed.fold.totals.recomputed_tokens
    };
    assert_eq!(found(pytorch(Era::Frames, CacheManager::V1)), Some(0));
    assert_eq!(found(Release::Cpp { major: 1, minor: 1 }), Some(0));
    assert_eq!(found(Release::Cpp { major: 0, minor: 13 }), None);
}

#[test]
fn speculation_is_counted() {
    let mut config = finite();
    config.speculation = Some(Speculation { draft_len: 3, acceptance: 0.7, seconds_per_position: 0.001 });
    let (engine, observed) = assert_totals(&config);
    assert_eq!(observed.fold.totals.batch.spec_decode_draft_tokens, engine.truth().drafted);
    assert_eq!(observed.fold.totals.batch.tokens.generation, engine.truth().decoded_tokens);
    // Draft tokens after the end of an answer do not count as accepted.
    assert_eq!(observed.fold.totals.batch.spec_decode_accepted_tokens, engine.truth().accepted);
}

#[test]
fn a_sampled_engine_counts_its_requests_exactly() {
    let mut config = finite();
    config.statistics.interval = 10;
    let (engine, observed) = fold(&config, 600.0);
    assert_eq!(observed.fold.totals.requests_completed, engine.truth().completed);
    assert_eq!(observed.fold.totals.statistics_interval, Some(10));
    assert_eq!(observed.fold.totals.losses.lost, 0);
}

#[test]
fn ranks_with_rows_of_their_own_are_summed() {
    let mut config = finite();
    config.ranks = Ranks { attention_dp: 4, pipeline: 1, imbalance: 0.0 };
    config.statistics.all_ranks = true;
    let (engine, observed) = fold(&config, 600.0);
    assert_eq!(observed.fold.totals.iterations, engine.truth().iterations);
    assert_eq!(observed.fold.totals.batch.tokens.context, engine.truth().context_tokens);
    assert_eq!(observed.fold.totals.requests_completed, engine.truth().completed);
}

#[test]
fn equal_seeds_give_equal_runs() {
    let text = |seed| {
        let mut text = String::new();
        let config = Config::default();
        let release = config.release;
        Engine::new(config, seed).run(20.0, |step| {
            step.records.iter().for_each(|record| text += &write::record(record, release, EPOCH_US).to_string());
        });
        text
    };
    assert_eq!(text(3), text(3));
    assert_ne!(text(3), text(4));
}

#[test]
fn times_of_requests_are_the_truth() {
    let cpp = Release::Cpp { major: 1, minor: 2 };
    for (release, chunked) in [(pytorch(Era::Frames, CacheManager::V2), false), (cpp, false), (cpp, true)] {
        let mut config = Config { release, ..finite() };
        if chunked {
            config.load.prompt = Length::Fixed(3000);
            (config.limits.chunked_context, config.limits.max_num_tokens) = (true, 1024);
        }
        let (engine, mut observed) = fold(&config, 600.0);
        observed.settle_all(Instant::now());
        let answered: Vec<_> = engine.truth().requests.iter().filter(|request| request.generated > 0).collect();
        let sum = |time: fn(&trtllm_sim::truth::RequestTruth) -> f64| answered.iter().map(|r| time(r)).sum::<f64>();
        let times = &observed.fold.requests.totals.times;
        assert_eq!(times.time_to_first_token.count(), answered.len() as u64);
        let first = sum(|request| request.first_token.unwrap() - request.queued);
        assert!((times.time_to_first_token.sum() - first).abs() < 1e-3, "{} {first}", times.time_to_first_token.sum());
        let whole = sum(|request| request.last_token - request.queued);
        assert!((times.e2e_latency.sum() - whole).abs() < 1e-3, "{} {whole}", times.e2e_latency.sum());
    }
}

#[test]
fn a_cancelled_request_has_tokens_only_with_pytorch() {
    for release in [pytorch(Era::Frames, CacheManager::V2), Release::Cpp { major: 1, minor: 2 }] {
        let mut config = Config { release, ..finite() };
        config.load.cancelled_share = 1.0;
        config.load.cancelled_after = 2.0;
        let mut ended = Vec::new();
        let mut engine = Engine::new(config, 1);
        engine.run(600.0, |step| {
            let in_records = step.records.into_iter().filter_map(|record| record.rows).flatten();
            let rows = in_records.chain(step.rows.into_iter().flat_map(|(_, rows)| rows));
            ended.extend(rows.filter(|row| row.stage == trtllm_sim::Stage::Complete));
        });
        assert_eq!(ended.len() as u64, engine.truth().completed, "each has one final row");
        let cancelled =
            |id| engine.truth().requests.iter().any(|r| r.id == id && r.end == End::Cancelled && r.generated > 0);
        let rows: Vec<_> = ended.iter().filter(|row| cancelled(row.id)).collect();
        assert!(rows.len() > 10);
        assert!(rows.iter().all(|row| (row.generated == 0) == release.is_cpp()));
    }
}

/// A request that a stop string ends looks like one that its client cancels: the engine completes it, and it has no entry.
#[test]
fn a_request_that_the_server_cancels_has_neither_met_nor_missed_its_objectives() {
    let mut config = finite();
    config.load.cancelled_share = 0.45;
    config.load.cancelled_after = 0.5;
    config.statistics.entries = true;
    let objectives = Objectives { e2e: Some(Duration::from_secs(3600)), ..Objectives::default() };
    let (engine, mut observed) = folded::fold(&config, 7, objectives, 600.0, |_, _, _| ());
    observed.settle_all(Instant::now());
    let truth = engine.truth();
    let answered =
        truth.requests.iter().filter(|request| matches!(request.end, End::Stop | End::Length)).count() as u64;
    let counted = observed.analysis.objectives.unwrap().all;
    assert!(answered > 50 && truth.completed > answered + 20, "{answered} of {}", truth.completed);
    assert_eq!([counted.met, counted.missed, counted.unknown], [answered, 0, truth.completed - answered]);
}

#[test]
fn a_context_server_ends_after_the_transfer_and_a_generation_server_waits_for_it() {
    for role in [trtllm_sim::config::Role::ContextOnly, trtllm_sim::config::Role::GenerationOnly] {
        let config = Config { role, ..finite() };
        let mut entries = Vec::new();
        Engine::new(config.clone(), 1).run(600.0, |step| entries.extend(step.entries));
        assert!(entries.len() > 100);
        for entry in entries {
            let (start, end, bytes) = entry.transfer.unwrap();
            assert!(start < end);
            assert_eq!(bytes, u64::from(entry.prompt_tokens) * config.cache.bytes_per_token);
            match role {
                trtllm_sim::config::Role::ContextOnly => assert!(start >= entry.first_token),
                _ => assert!(end <= entry.first_token),
            }
        }
    }
}

#[test]
fn gpu_readings_follow_the_work() {
    use trtllm_sim::config::Slow;
    let read = |faults: Vec<Fault>, busy: bool| {
        let mut config = Config { faults, ..Config::default() };
        if !busy {
            config.load.arrivals = Arrivals::Submitted;
        }
        let mut engine = Engine::new(config, 1);
        engine.run(60.0, |_| ());
        engine.gpus(60.0).swap_remove(0)
    };
    let slow = |why| vec![Fault::Slow { at: 0.0, factor: 2.0, why }];
    let (idle, busy) = (read(vec![], false), read(vec![], true));
    assert!(idle.utilization < 0.01 && busy.utilization > 0.5);
    assert!(busy.power_watts > idle.power_watts && busy.temperature_celsius > idle.temperature_celsius);
    let (capped, silent) = (read(slow(Slow::PowerCap), true), read(slow(Slow::Silent), true));
    assert_eq!((capped.throttle_reason, silent.throttle_reason), (Some("sw_power_cap"), None));
    assert!((59.0..=60.0).contains(&capped.throttled_by_power) && silent.throttled_by_power == 0.0);
    assert!(capped.power_limit_watts < capped.default_power_limit_watts);
    assert!(capped.sm_clock_mhz < busy.sm_clock_mhz && silent.power_watts < busy.power_watts);
}
