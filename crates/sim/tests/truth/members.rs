//! Members of PyTorch records that upstream copies, forces or never sets. README.md names upstream's functions.

use std::collections::HashSet;

use serde_json::Value;
use trtllm_sim::config::{CacheManager, Era, Policy, Ranks, Release, Role, Speculation};
use trtllm_sim::load::Arrivals;
use trtllm_sim::options::{Host, Options};
use trtllm_sim::{Config, End, Engine, write};

fn pytorch(era: Era, cache: CacheManager) -> Config {
    Config { release: Release::PyTorch { era, cache }, ..Config::default() }
}

/// The written records of `seconds`.
fn written(config: &Config, seconds: f64) -> (Vec<Value>, Engine) {
    let mut engine = Engine::new(config.clone(), 4);
    let mut records = Vec::new();
    engine.run(seconds, |step| {
        records.extend(step.records.iter().map(|record| write::record(record, config.release, 0)));
    });
    (records, engine)
}

fn drafts(config: &mut Config) {
    config.speculation = Some(Speculation { draft_len: 3, acceptance: 0.7, seconds_per_position: 0.001 });
}

fn pauses(config: &mut Config) {
    config.limits.policy = Policy::MaxUtilization;
    config.cache.blocks = 150;
    config.load.arrivals = Arrivals::Poisson { rate: 6.0 };
}

#[test]
fn copied_rows_have_only_their_own_batch() {
    for (era, is_copy) in [(Era::Ranks, true), (Era::Frames, true), (Era::Frames, false)] {
        let mut config = pytorch(era, CacheManager::V1);
        config.statistics.all_ranks = !is_copy;
        config.ranks = Ranks { attention_dp: 4, pipeline: 1, imbalance: 0.5 };
        config.load.arrivals = Arrivals::Poisson { rate: 16.0 };
        drafts(&mut config);
        let (records, _) = written(&config, 20.0);
        let mut own_batches = 0;
        for frame in records.chunks(4) {
            for copy in &frame[1..] {
                own_batches += u32::from(copy["inflightBatchingStats"] != frame[0]["inflightBatchingStats"]);
                for member in ["specDecodingStats", "kvCacheStats", "numActiveRequests"] {
                    assert!(!is_copy || copy[member] == frame[0][member], "{member}");
                }
                assert_eq!(copy["numQueuedRequests"], 0);
                assert_eq!(copy.get("rank").is_none(), is_copy);
            }
        }
        assert!(own_batches > 100);
        let differ = records.chunks(4).any(|frame| frame[1]["specDecodingStats"] != frame[0]["specDecodingStats"]);
        assert_eq!(differ, !is_copy);
    }
}

#[test]
fn micro_batches_of_a_pipeline_have_their_numbers_since_1_3() {
    for (era, expected) in [(Era::One, 1), (Era::Ranks, 4), (Era::Frames, 4)] {
        let mut config = pytorch(era, CacheManager::V1);
        config.ranks.pipeline = 4;
        config.costs.overlap = false;
        let (records, _) = written(&config, 20.0);
        let ids: HashSet<_> = records.iter().map(|record| &record["inflightBatchingStats"]["microBatchId"]).collect();
        assert_eq!(ids.len(), expected, "{era:?}");
        let is_serial = |record: &Value| record.get("schedulerMode").is_some_and(|mode| mode != "overlap");
        assert!(!records.iter().any(is_serial), "{era:?}");
    }
}

/// If a generation server has no other request, the pass that takes one has no batch, because its KV cache comes later.
#[test]
fn only_new_releases_count_the_new_requests_of_a_pass_without_a_batch() {
    for (era, is_complete) in [(Era::One, false), (Era::Ranks, false), (Era::Frames, true)] {
        let mut config = pytorch(era, CacheManager::V1);
        config.role = Role::GenerationOnly;
        config.load.arrivals = Arrivals::Poisson { rate: 1.0 };
        let (records, engine) = written(&config, 60.0);
        let told: u64 = records.iter().filter_map(|record| record["numNewActiveRequests"].as_u64()).sum();
        let started = engine.truth().started;
        assert!(started > 30);
        assert!(if is_complete { told + 1 >= started } else { told + 10 < started }, "{era:?}: {told} of {started}");
        let waited = records.last().unwrap()["newActiveRequestsQueueLatencyMS"].as_f64().unwrap();
        assert!((waited - engine.truth().queue_seconds).abs() < 1e-6, "{era:?}");
    }
}

/// They have no rows, so that nothing else bounds them.
#[test]
fn more_than_256_requests_wait_in_a_scenario_with_rows() {
    let host = Host { rows: true, ..Host::default() };
    let config = Options::parse("sim:?scenario=batch-limit").unwrap().config(&host);
    let mut engine = Engine::new(config, 4);
    engine.run(120.0, |_| ());
    assert!(engine.waiting_for_seat() > 400, "{}", engine.waiting_for_seat());
}

#[test]
fn only_the_serial_loop_tells_the_time_of_drafts() {
    for overlap in [true, false] {
        let mut config = pytorch(Era::Frames, CacheManager::V1);
        config.costs.overlap = overlap;
        drafts(&mut config);
        let (records, _) = written(&config, 20.0);
        assert!(records.iter().all(|record| record["specDecodingStats"].is_object()));
        let drafts = |record: &&Value| record["specDecodingStats"]["numRequestsWithDraftTokens"].as_u64() > Some(0);
        let told: Vec<_> = records.iter().filter(drafts).collect();
        assert!(told.len() > 100 && told.len() < records.len(), "some batches have no drafts");
        for record in told {
            let stats = &record["specDecodingStats"];
            let seconds = if overlap { 0.0 } else { 3.0 };
            assert_eq!(stats["iterLatencyMS"], seconds);
            let overhead = seconds / record["iterLatencyMS"].as_f64().unwrap();
            assert!((stats["draftOverhead"].as_f64().unwrap() - overhead).abs() < 1e-9);
            assert_eq!(record["inflightBatchingStats"]["avgNumDecodedTokensPerIter"], 0.0);
        }
    }
}

#[test]
fn a_row_of_pytorch_never_says_that_its_request_is_paused() {
    let mut config = pytorch(Era::One, CacheManager::V1);
    pauses(&mut config);
    let (records, engine) = written(&config, 60.0);
    assert!(engine.truth().pauses > 10);
    let rows = records.iter().flat_map(|record| record["requestStats"].as_array().unwrap());
    assert!(rows.into_iter().all(|row| row["paused"] == false));
    config.release = Release::Cpp { major: 1, minor: 1 };
    let mut paused = 0;
    Engine::new(config, 4).run(60.0, |step| {
        paused += step.rows.iter().flat_map(|(_, rows)| rows).filter(|row| row.paused).count();
    });
    assert!(paused > 10);
}

#[test]
fn the_second_cache_manager_evicts_under_every_policy_and_counts_evictions_twice() {
    for policy in [Policy::GuaranteedNoEvict, Policy::MaxUtilization] {
        let mut config = pytorch(Era::Frames, CacheManager::V2);
        pauses(&mut config);
        config.limits.policy = policy;
        // A scheduler that reserves blocks for 2000 tokens would let two requests run.
        config.load.max_new_tokens = Some(2000);
        let (records, engine) = written(&config, 60.0);
        let sum = |member: fn(&Value) -> &Value| records.iter().map(|r| member(r).as_u64().unwrap()).sum::<u64>();
        let paused = sum(|record| &record["inflightBatchingStats"]["numPausedRequests"]);
        assert!(paused > 10 && paused == engine.truth().pauses, "{policy:?} {paused}");
        assert_eq!(sum(|record| &record["iterSuspendedRequests"]), paused);
        assert!(
            records.iter().any(|record| record["inflightBatchingStats"]["numScheduledRequests"].as_u64() > Some(4))
        );
    }
    let mut config = pytorch(Era::Frames, CacheManager::V1);
    pauses(&mut config);
    config.limits.policy = Policy::GuaranteedNoEvict;
    assert_eq!(written(&config, 60.0).1.truth().pauses, 0);
}

#[test]
fn a_context_server_counts_no_request_that_is_being_sent() {
    for (era, cache, reuse, counts) in [
        (Era::Early, CacheManager::V1, true, false),
        (Era::One, CacheManager::V1, true, true),
        (Era::One, CacheManager::V1, false, false),
        (Era::Frames, CacheManager::V1, true, true),
        (Era::Frames, CacheManager::V2, true, false),
    ] {
        let mut config = pytorch(era, cache);
        config.role = Role::ContextOnly;
        config.cache.reuse = reuse;
        config.transfer.seconds = 0.5;
        config.load.arrivals = Arrivals::Poisson { rate: 1.0 };
        config.load.requests = Some(30);
        let (records, engine) = written(&config, 200.0);
        let completed: u64 = records.iter().map(|record| record["numCompletedRequests"].as_u64().unwrap()).sum();
        let rows = records.iter().flat_map(|record| record["requestStats"].as_array().unwrap());
        let complete = rows.filter(|row| row["stage"] == "GENERATION_COMPLETE").count() as u64;
        let expected = if counts { 30 } else { 0 };
        assert_eq!((completed, complete, engine.truth().completed), (expected, expected, 30), "{era:?} {cache:?}");
        // A transfer lasts many passes, but the seat is free after the only batch.
        assert!(records.iter().all(|record| record["numActiveRequests"].as_u64() <= Some(2)));
        assert!(engine.is_idle());
    }
}

#[test]
fn cancelled_requests_count_as_completed() {
    let mut config = pytorch(Era::Frames, CacheManager::V2);
    config.load.cancelled_share = 0.5;
    config.load.requests = Some(100);
    let (records, engine) = written(&config, 200.0);
    let completed: u64 = records.iter().map(|record| record["numCompletedRequests"].as_u64().unwrap()).sum();
    let ended = |end| engine.truth().requests.iter().filter(|request| request.end == end).count() as u64;
    assert!(ended(End::Cancelled) > 20);
    assert_eq!(completed, engine.truth().completed);
    assert!(completed > ended(End::Length) + 20);
}
