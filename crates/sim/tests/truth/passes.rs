//! The numbers and times of the PyTorch engine's records, compared with the truth about its batches. README.md says from
//! which pass of the loop each member is.

use std::iter::zip;

use trtllm_sim::config::{CacheManager, Era, Fault, Policy, Release, Role};
use trtllm_sim::load::{Arrival, Arrivals, Length};
use trtllm_sim::record::{Entry, Record};
use trtllm_sim::truth::{BatchTruth, Truth};
use trtllm_sim::{Config, Engine};

const ERAS: [Era; 4] = [Era::Early, Era::One, Era::Ranks, Era::Frames];

fn pytorch(era: Era, overlap: bool) -> Config {
    let release = Release::PyTorch { era, cache: CacheManager::V1 };
    let mut config = Config { release, ..Config::default() };
    config.costs.overlap = overlap;
    config
}

struct Run {
    records: Vec<Record>,
    /// When each record was written.
    written: Vec<f64>,
    entries: Vec<Entry>,
    truth: Truth,
}

fn run(config: Config, seconds: f64) -> Run {
    let mut engine = Engine::new(config, 5);
    let (mut records, mut written, mut entries) = (Vec::new(), Vec::new(), Vec::new());
    let mut now = Some(0.0);
    while let Some(at) = now.filter(|at| *at < seconds) {
        let step = engine.step(at);
        written.resize(written.len() + step.records.len(), at);
        records.extend(step.records);
        entries.extend(step.entries);
        now = step.next;
    }
    Run { records, written, entries, truth: engine.truth().clone() }
}

fn near(value: f64, truth: f64, error: f64) -> bool {
    (value - truth).abs() <= error * truth
}

/// The records and the truth of four consecutive passes that all formed a batch. Only the first may have waited for work.
fn in_a_row(run: &Run) -> impl Iterator<Item = (&[Record], &[BatchTruth])> {
    assert_eq!(run.records.len(), run.truth.batches.len());
    assert!(zip(&run.records, &run.truth.batches).all(|(record, batch)| record.iter == batch.iter));
    zip(run.records.windows(4), run.truth.batches.windows(4))
        .filter(|(records, _)| records[0].iter + 3 == records[3].iter)
        .map(|(records, batches)| (&records[1..], &batches[1..]))
}

#[test]
fn under_overlap_the_host_step_is_the_time_of_the_batch_before() {
    for era in ERAS {
        let mut config = pytorch(era, true);
        config.costs.jitter = 0.1;
        config.load.arrivals = Arrivals::Poisson { rate: 3.0 };
        let run = run(config, 60.0);
        let mut seen = 0;
        for (records, batches) in in_a_row(&run) {
            seen += 1;
            let took = batches[1].seconds;
            let host = records[2].host_seconds;
            assert!(near(host, took, 0.01), "{era:?} {host} {batches:?}");
            assert_eq!(records[2].previous_device_seconds, records[1].host_seconds);
            // Lacks what the pass does after it has handled the tokens.
            let own = records[1].latency - records[1].host_seconds;
            assert!(own < took && near(own, took, 0.06), "{era:?} {own} {took}");
            // Releases before 1.3 have only the time stamps.
            let before = batches[0].seconds;
            assert!(near(records[2].at - records[1].at, before, 0.01), "{era:?} {before}");
            assert!(near(records[1].latency, before + took, 0.03), "{era:?} {before} {took}");
        }
        assert!(seen > 2000, "{era:?} {seen}");
        for (record, batch) in zip(&run.records, &run.truth.batches) {
            assert!(near(record.gpu_seconds, 0.95 * batch.gpu_seconds, 1e-9));
        }
    }
}

#[test]
fn under_overlap_and_load_latencies_add_up_to_twice_the_time() {
    let mut config = pytorch(Era::Frames, true);
    config.load.arrivals = Arrivals::Poisson { rate: 14.0 };
    let run = run(config, 60.0);
    let sum: f64 = run.records.iter().map(|record| record.latency).sum();
    assert!(near(sum, 120.0, 0.02), "{sum}");
    // Only the batch, without the wait for the first request.
    let batches: f64 = run.truth.batches.iter().map(|batch| batch.seconds).sum();
    assert!(batches < 60.0 && near(batches, 60.0, 0.02), "{batches}");
}

#[test]
fn where_the_host_is_the_limit_the_host_step_is_its_own_work() {
    let mut config = pytorch(Era::Frames, true);
    (config.costs.host, config.costs.host_per_request) = (0.1, 0.0);
    let run = run(config, 60.0);
    let mut seen = 0;
    for (records, batches) in in_a_row(&run).filter(|(_, batches)| batches.iter().all(|batch| batch.gpu_seconds < 0.1))
    {
        seen += 1;
        assert!(near(records[2].host_seconds, 0.1, 0.01), "{} {batches:?}", records[2].host_seconds);
    }
    assert!(seen > 100, "{seen}");
}

#[test]
fn in_the_serial_loop_a_latency_is_that_of_its_own_batch() {
    for era in ERAS {
        let mut config = pytorch(era, false);
        config.costs.jitter = 0.1;
        config.load.arrivals = Arrivals::Poisson { rate: 3.0 };
        let run = run(config, 60.0);
        let mut waited = 0;
        for (records, batches) in in_a_row(&run) {
            let wait = records[2].at - batches[1].handled_at;
            waited += u64::from(wait > 0.0);
            assert!((records[2].latency - wait - batches[2].seconds).abs() < 1e-9);
            assert_eq!(records[2].host_seconds, records[1].latency);
            assert_eq!(records[2].previous_device_seconds, records[0].latency);
        }
        assert!(waited > 10 && run.records.len() > 2000, "{era:?} {waited}");
    }
}

/// Requests of 100 tokens, each with its time, the length of its answer and its `max_tokens`.
fn requests(requests: &[(f64, u32, u32)]) -> Arrivals {
    let arrival = |(number, request): (u64, &(f64, u32, u32))| {
        let (at, output, max_new_tokens) = *request;
        Arrival { at, prompt: 100, output, max_new_tokens, conversation: number, ..Arrival::default() }
    };
    Arrivals::Recorded(zip(1.., requests).map(arrival).collect())
}

fn iters(run: &Run) -> Vec<u64> {
    run.records.iter().map(|record| record.iter).collect()
}

#[test]
fn an_answer_that_ends_by_its_length_leaves_a_number_without_a_record() {
    for (era, overlap, expected) in [
        (Era::Frames, true, [0, 1, 2, 4, 5, 6]),
        // Numbered by the pass that handles the batch.
        (Era::One, true, [1, 2, 3, 5, 6, 7]),
        (Era::Frames, false, [0, 1, 2, 3, 4, 5]),
        (Era::One, false, [0, 1, 2, 3, 4, 5]),
    ] {
        let mut config = pytorch(era, overlap);
        config.load.arrivals = requests(&[(1.0, 3, 3), (2.0, 3, 3)]);
        let run = run(config, 10.0);
        assert_eq!(iters(&run), expected, "{era:?} {overlap}");
        assert_eq!(run.truth.discarded_tokens, 0);
        let last: Vec<_> = run.entries.iter().map(|entry| (entry.first_iter, entry.last_iter)).collect();
        // The pass that handled the tokens.
        assert_eq!(last, if overlap { [(1, 3), (5, 7)] } else { [(0, 2), (3, 5)] });
        // Active requests are counted before the request of the batch before leaves.
        assert!(run.records.iter().all(|record| record.active == 1));
        let completed: Vec<_> = run.records.iter().map(|record| record.completed).collect();
        assert_eq!(completed, [0, 0, 1, 0, 0, 1]);
    }
}

#[test]
fn the_wait_for_work_is_in_the_pass_that_ends_it() {
    let mut config = pytorch(Era::Frames, true);
    config.load.arrivals = requests(&[(1.0, 3, 3), (2.0, 3, 3)]);
    let run = run(config, 10.0);
    let waits = |time: fn(&Record) -> f64| run.records.iter().map(|r| time(r) > 0.9).collect::<Vec<_>>();
    assert_eq!(waits(|record| record.latency), [true, false, false, true, false, false]);
    assert_eq!(waits(|record| record.host_seconds), [true, false, false, true, false, false]);
    assert_eq!(waits(|record| record.previous_device_seconds), [false, true, false, false, true, false]);
    assert!(run.truth.batches.iter().all(|batch| batch.seconds < 0.02));
}

#[test]
fn an_answer_that_ends_by_a_stop_word_is_in_one_more_batch() {
    let mut config = pytorch(Era::Frames, true);
    config.load.arrivals = requests(&[(1.0, 3, 10), (2.0, 3, 10)]);
    let run = run(config, 10.0);
    // The last batch waits for the next request, which does not come.
    assert_eq!(iters(&run), [0, 1, 2, 3, 4, 5, 6]);
    let completed: Vec<_> = run.records.iter().map(|record| record.completed).collect();
    assert_eq!(completed, [0, 0, 1, 0, 0, 0, 1]);
    assert_eq!((run.truth.decoded_tokens, run.truth.discarded_tokens), (4, 1));
    let dead = &run.records[3];
    assert_eq!((dead.work.generation_requests, dead.active), (1, 1));
    // It is handled after the next request has come.
    assert!(run.written[2] < 1.1 && run.written[3] > 2.0 && run.written[4] > run.written[3]);
    assert!(dead.latency > 0.9 && dead.host_seconds < 0.1 && run.records[4].host_seconds > 0.9);
    assert!(run.entries.iter().all(|entry| entry.output_tokens == 3));

    let mut config = pytorch(Era::Frames, false);
    config.load.arrivals = requests(&[(1.0, 3, 10), (2.0, 3, 10)]);
    let run = self::run(config, 10.0);
    assert_eq!((iters(&run), run.truth.discarded_tokens), (vec![0, 1, 2, 3, 4, 5], 0));
}

/// Numbers of the records with context work.
fn contexts(config: Config) -> Vec<u64> {
    let run = run(config, 10.0);
    run.records.iter().filter(|record| record.work.context_requests > 0).map(|record| record.iter).collect()
}

#[test]
fn a_slot_and_blocks_are_free_two_batches_later() {
    for (output, limit, overlap, expected) in
        [(3, 3, true, [0, 4]), (3, 10, true, [0, 4]), (3, 3, false, [0, 3]), (3, 10, false, [0, 3])]
    {
        let mut config = pytorch(Era::Frames, overlap);
        config.load.arrivals = requests(&[(1.0, output, limit), (1.0, output, limit)]);
        config.limits.max_batch_size = 1;
        assert_eq!(contexts(config.clone()), expected, "slot, {overlap}");
        config.limits.max_batch_size = 2;
        config.cache.blocks = 5;
        assert_eq!(contexts(config), expected, "blocks, {overlap}");
    }
}

#[test]
fn a_prompt_waits_for_one_batch_more_than_in_the_serial_loop() {
    for (overlap, expected) in [(true, 3), (false, 2)] {
        let mut config = pytorch(Era::Frames, overlap);
        config.load.arrivals = requests(&[(1.0, 200, 200), (2.003, 5, 5)]);
        let run = run(config, 10.0);
        let late = run.truth.requests.iter().find(|request| request.arrival > 2.0).unwrap();
        let until = late.queued..=late.first_token.unwrap();
        let handled = run.truth.batches.iter().filter(|batch| until.contains(&batch.handled_at)).count();
        assert_eq!(handled, expected, "{overlap}");
    }
}

#[test]
fn passes_are_numbered_while_nothing_can_be_scheduled() {
    let mut config = pytorch(Era::Frames, true);
    config.role = Role::GenerationOnly;
    (config.transfer.seconds, config.transfer.bytes_per_second) = (0.5, 1e12);
    config.load.arrivals = requests(&[(1.0, 3, 3)]);
    let run = run(config, 10.0);
    // One pass a millisecond during the transfer.
    assert!(run.records[0].iter.abs_diff(500) < 5, "{}", run.records[0].iter);
    assert!(near(run.records[0].previous_device_seconds, 0.001, 0.01));
    // The context server has computed the first of the three tokens.
    assert_eq!(run.truth.iterations, 2);
}

#[test]
fn a_generation_server_schedules_after_the_transfer_and_sends_the_first_token_then() {
    let mut config = pytorch(Era::Frames, true);
    config.role = Role::GenerationOnly;
    (config.transfer.seconds, config.transfer.bytes_per_second) = (0.5, 1e12);
    config.load.arrivals = requests(&[(1.0, 3, 3), (1.1, 1, 1)]);
    let run = run(config, 10.0);
    let request = &run.truth.requests[0];
    let scheduled = request.scheduled.unwrap();
    assert!(near(scheduled - request.queued, 0.5, 0.01), "{request:?}");
    assert_eq!((request.first_seen, request.generated), (Some(scheduled), 3));
    assert!(request.first_token > request.first_seen, "its own first token is the second of the answer");
    assert_eq!(run.truth.requests[1].generated, 2, "a context server answers one token alone");
}

#[test]
fn no_part_of_a_request_is_longer_than_its_time() {
    let spikes = |config: &mut Config| config.faults = vec![Fault::Spike { every: 5.0, seconds: 0.7 }];
    let pauses = |config: &mut Config| {
        config.limits.policy = Policy::MaxUtilization;
        config.cache.blocks = 200;
        config.load.output = Length::Fixed(400);
        config.load.arrivals = Arrivals::Poisson { rate: 2.0 };
    };
    let transfers = |config: &mut Config| {
        config.role = Role::GenerationOnly;
        config.transfer.bytes_per_second = 1e9;
    };
    let changes: [&dyn Fn(&mut Config); 4] = [&|_| (), &spikes, &pauses, &transfers];
    for (change, overlap) in changes.iter().flat_map(|change| [(change, true), (change, false)]) {
        let mut config = pytorch(Era::Frames, overlap);
        change(&mut config);
        let truth = run(config, 100.0).truth;
        assert!(truth.requests.len() > 100);
        for request in &truth.requests {
            let (Some(scheduled), Some(first)) = (request.scheduled, request.first_token) else { continue };
            let parts = &request.parts;
            let others =
                [parts.blocked[0] + parts.unexplained[0], parts.blocked[1] + parts.unexplained[1] + parts.pause];
            assert!(parts.transfer <= scheduled - request.queued + 1e-9, "{overlap} {request:?}");
            assert!(others[0] <= first - scheduled + 1e-9, "{overlap} {request:?}");
            assert!(others[1] <= request.last_token - first + 1e-9, "{overlap} {request:?}");
        }
    }
}
