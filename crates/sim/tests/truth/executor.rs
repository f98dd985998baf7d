//! Records of the C++ Executor in a pipeline and in static batches. README.md names upstream's functions.

use trtllm_sim::config::{Policy, Ranks, Release, Speculation};
use trtllm_sim::load::{Arrivals, Length};
use trtllm_sim::record::{Record, Row};
use trtllm_sim::{Config, Engine, Stage};

struct Run {
    records: Vec<Record>,
    rows: Vec<Vec<Row>>,
    engine: Engine,
}

fn cpp(minor: u32) -> Config {
    let release = if minor < 10 { (1, minor) } else { (0, minor) };
    Config { release: Release::Cpp { major: release.0, minor: release.1 }, ..Config::default() }
}

fn run(config: Config, seconds: f64) -> Run {
    let mut engine = Engine::new(config, 6);
    let (mut records, mut rows) = (Vec::new(), Vec::new());
    engine.run(seconds, |step| {
        records.extend(step.records);
        rows.extend(step.rows.into_iter().map(|(_, rows)| rows));
    });
    Run { records, rows, engine }
}

fn pipeline() -> Config {
    let mut config = cpp(1);
    config.ranks = Ranks { attention_dp: 1, pipeline: 4, imbalance: 0.0 };
    config.load.arrivals = Arrivals::Offline { requests: 4 };
    (config.load.prompt, config.load.output) = (Length::Fixed(100), Length::Fixed(5));
    config
}

#[test]
fn a_record_of_a_pipeline_schedules_one_micro_batch_of_the_active_requests() {
    let mut config = pipeline();
    config.load.arrivals = Arrivals::Poisson { rate: 20.0 };
    config.load.output = Length::Fixed(100);
    let run = run(config, 60.0);
    let late: Vec<_> = run.records.iter().filter(|record| record.at > 10.0).collect();
    let mean = |of: fn(&Record) -> u32| late.iter().map(|r| f64::from(of(r))).sum::<f64>() / late.len() as f64;
    let share = mean(|record| record.work.scheduled) / mean(|record| record.active);
    assert!((share - 0.25).abs() < 0.03, "{share}");
    assert!(mean(|record| record.queued) < 0.1);
    // Flush records repeat a number.
    for pair in late.windows(2).filter(|pair| pair[1].iter > pair[0].iter) {
        assert_eq!((pair[1].iter, pair[1].micro_batch), (pair[0].iter + 1, (pair[0].micro_batch + 1) % 4));
    }
}

#[test]
fn rows_of_a_pipeline_have_the_tokens_of_their_own_record() {
    let run = run(pipeline(), 10.0);
    let id = run.engine.truth().requests[0].id;
    let of = |rows: &Vec<Row>| rows.iter().find(|row| row.id == id).cloned();
    let seen: Vec<_> = run.rows.iter().filter_map(of).collect();
    let scheduled = seen.iter().position(|row| row.scheduled).unwrap();
    // Until then it is active in a micro batch that has no turn.
    assert!(seen[..scheduled].iter().all(|row| row.generated == 0));
    assert_eq!((seen[scheduled].generated, seen[scheduled].prefill_position), (1, 100));
    // Four passes for each of the next tokens, and four until its last row.
    let generated: Vec<_> = seen[scheduled..].iter().map(|row| row.generated).collect();
    let expected: Vec<_> = (1..=5).flat_map(|tokens| [tokens; 4]).chain([5]).collect();
    assert_eq!(generated, expected);
    assert_eq!(seen.iter().filter(|row| row.stage == Stage::Complete).count(), 1);
}

#[test]
fn an_ended_request_stays_active_for_the_depth_of_the_pipeline() {
    let mut config = pipeline();
    config.load.arrivals = Arrivals::Offline { requests: 1 };
    let run = run(config, 10.0);
    let scheduled: Vec<_> = run.records.iter().map(|record| record.work.scheduled).collect();
    let last = scheduled.iter().rposition(|scheduled| *scheduled > 0).unwrap();
    let active: Vec<_> = run.records[last..].iter().map(|record| record.active).collect();
    // The flush follows.
    assert_eq!(active, [1, 1, 1, 1, 0]);
    assert_eq!(run.records.iter().map(|record| record.completed).sum::<u32>(), 1);
    assert_eq!(run.records.last().unwrap().completed, 1);
}

#[test]
fn an_empty_micro_batch_has_a_record_and_takes_no_time() {
    let mut config = pipeline();
    config.load.arrivals = Arrivals::Offline { requests: 1 };
    config.load.output = Length::Fixed(50);
    let run = run(config, 10.0);
    let empty = run.records.iter().filter(|record| record.work.scheduled == 0).count();
    assert!((148..=154).contains(&empty), "{empty}");
    let mut latencies: Vec<_> = run.records.iter().map(|record| record.latency).collect();
    latencies.sort_by(f64::total_cmp);
    assert!(latencies[latencies.len() / 2] < 1e-9);
    let truth = run.engine.truth();
    assert_eq!(truth.iterations + truth.flushes, run.records.len() as u64);
    assert_eq!(truth.started, u64::from(run.records[0].new_active));
}

#[test]
fn the_mean_of_decoded_tokens_is_over_the_life_of_the_requests() {
    let mut config = cpp(1);
    config.speculation = Some(Speculation { draft_len: 3, acceptance: 0.8, seconds_per_position: 0.0003 });
    config.load.arrivals = Arrivals::Offline { requests: 1 };
    config.load.output = Length::Fixed(60);
    let run = run(config, 10.0);
    let means: Vec<_> = run.records.iter().map(|record| record.tokens_per_step).collect();
    // The context phase made the first token in one step.
    assert_eq!(means[..2], [0.0, 1.0]);
    let mut tokens = 1;
    for (step, record) in (1..).zip(&run.records[1..]).filter(|(_, record)| record.work.generation_requests > 0) {
        assert!((record.tokens_per_step - tokens as f64 / f64::from(step)).abs() < 1e-9);
        tokens += record.decoded;
    }
    assert_eq!(tokens, 60);
}

#[test]
fn a_pause_makes_the_answer_a_part_of_the_prompt() {
    let mut config = cpp(1);
    config.limits.policy = Policy::MaxUtilization;
    config.cache.blocks = 40;
    config.load.arrivals = Arrivals::Offline { requests: 4 };
    (config.load.prompt, config.load.output) = (Length::Fixed(100), Length::Fixed(300));
    let run = run(config, 60.0);
    assert!(run.engine.truth().pauses > 0);
    let rows = run.rows.iter().flatten().filter(|row| row.stage == Stage::Generation && !row.paused);
    let (longest, mean) = (rows.map(|row| row.prefill_position).max(), |record: &Record| record.tokens_per_step);
    assert!(longest > Some(150));
    // The steps before the pause still count.
    let low = run.records.iter().filter(|record| record.work.generation_requests > 0).map(mean);
    assert!(low.fold(1.0, f64::min) < 0.5);
}

#[test]
fn a_late_release_runs_static_batches_in_the_inflight_scheduler() {
    let mut config = cpp(1);
    config.limits.policy = Policy::Static;
    config.limits.max_batch_size = 8;
    config.load.output = Length::Mixed { short: 20, long: 200, share: 0.2 };
    config.load.arrivals = Arrivals::Offline { requests: 60 };
    let release = config.release;
    let run = run(config, 60.0);
    assert!(run.records.len() > 200);
    assert!(run.records.iter().any(|record| record.active == 8 && record.work.scheduled < 8));
    for record in &run.records {
        assert!(record.work.context_requests == 0 || record.work.generation_requests == 0);
        let written = trtllm_sim::write::record(record, release, 0);
        assert!(written["staticBatchingStats"].is_null() && written["inflightBatchingStats"].is_object());
    }
}

#[test]
fn an_old_release_runs_a_static_batch_in_one_pass_and_flushes_after_each() {
    let mut config = cpp(16);
    config.limits.policy = Policy::Static;
    config.limits.max_batch_size = 8;
    config.load.arrivals = Arrivals::Offline { requests: 20 };
    (config.load.prompt, config.load.output) = (Length::Fixed(100), Length::Mixed { short: 20, long: 50, share: 0.3 });
    config.load.max_new_tokens = Some(512);
    let release = config.release;
    let run = run(config, 60.0);
    let truth = run.engine.truth();
    assert_eq!((truth.completed, truth.iterations, truth.flushes), (20, 3, 3));
    let answers: u64 = truth.requests.iter().map(|request| u64::from(request.generated)).sum();
    assert_eq!(truth.decoded_tokens + truth.first_tokens, answers);
    let mut previous = 0.0;
    for (number, pair) in (1..).zip(run.records.chunks(2)) {
        let [batch, flush] = pair else { panic!() };
        assert_eq!((batch.iter, flush.iter), (number, number));
        assert_eq!((batch.active, flush.active), (batch.work.scheduled, 0));
        assert_eq!((batch.at, flush.completed), (flush.at, batch.work.scheduled));
        // The time of the batch before. The first batch follows an idle time.
        let seconds = batch.at - previous;
        assert!(number == 1 || run.records.get(2 * number as usize).is_none_or(|next| near(next.latency, seconds)));
        assert_eq!(flush.latency, 0.0);
        previous = batch.at;
        let written = trtllm_sim::write::record(batch, release, 0);
        let stats = &written["staticBatchingStats"];
        assert_eq!(stats["numGenTokens"], 512 * batch.work.scheduled);
        assert_eq!(
            (&stats["emptyGenSlots"], &stats["numCtxTokens"]),
            (&0.into(), &(100 * batch.work.scheduled).into())
        );
        assert!(written["inflightBatchingStats"].is_null());
    }
    // All tokens come at the end of the batch.
    assert!(truth.requests.iter().all(|request| request.first_token == Some(request.last_token)));
}

fn near(value: f64, truth: f64) -> bool {
    (value - truth).abs() < 1e-9
}
