//! What records say about requests without a seat, and how many truly wait. README.md names upstream's functions.

use trtllm_sim::config::{CacheManager, Era, Fault, Release, Role};
use trtllm_sim::load::{Arrivals, Length};
use trtllm_sim::record::Record;
use trtllm_sim::{Config, End, Engine, Stage};

fn full(release: Release) -> Config {
    let mut config = Config { release, ..Config::default() };
    config.limits.max_batch_size = 8;
    config.load.arrivals = Arrivals::Offline { requests: 1000 };
    (config.load.prompt, config.load.output) = (Length::Fixed(100), Length::Fixed(20));
    config.frontend.seconds_per_request = 0.0001;
    config
}

fn pytorch(era: Era) -> Release {
    Release::PyTorch { era, cache: CacheManager::V1 }
}

/// The records until `until`, each with the number of requests that truly waited when it was written.
fn records(engine: &mut Engine, until: f64) -> Vec<(Record, usize)> {
    let (mut records, mut now) = (Vec::new(), Some(0.0));
    while let Some(at) = now.filter(|at| *at <= until) {
        let step = engine.step(at);
        records.extend(step.records.into_iter().map(|record| (record, engine.waiting_for_seat())));
        now = step.next;
    }
    records
}

#[test]
fn a_pytorch_record_does_not_count_the_requests_in_the_waiting_queue() {
    for era in [Era::One, Era::Ranks, Era::Frames] {
        for overlap in [true, false] {
            let mut config = full(pytorch(era));
            config.costs.overlap = overlap;
            let records = records(&mut Engine::new(config, 1), 1.0);
            let late: Vec<_> = records.iter().filter(|(record, _)| record.at > 0.2).collect();
            assert!(late.len() > 30);
            assert!(late.iter().all(|(_, waiting)| *waiting > 700), "{era:?}");
            assert!(late.iter().all(|(record, _)| (record.queued, record.queued_tokens) == (0, 0)), "{era:?}");
            assert!(late.iter().all(|(record, _)| record.active == 8));
            let rows = late.iter().flat_map(|(record, _)| record.rows.iter().flatten());
            assert!(rows.filter(|row| row.stage == Stage::Queued).count() == 0);
        }
    }
}

#[test]
fn the_cpp_executor_and_early_pytorch_count_their_whole_queue() {
    for release in [pytorch(Era::Early), Release::Cpp { major: 1, minor: 1 }] {
        let records = records(&mut Engine::new(full(release), 1), 1.0);
        let late: Vec<_> = records.iter().filter(|(record, _)| record.at > 0.2).collect();
        assert!(late.len() > 30);
        assert!(late.iter().all(|(record, waiting)| record.queued as usize == *waiting && *waiting > 700));
    }
}

#[test]
fn a_queue_holds_what_arrived_during_one_pass() {
    let mut config = full(pytorch(Era::Frames));
    config.load.arrivals = Arrivals::Poisson { rate: 100.0 };
    let mut engine = Engine::new(config, 1);
    let records = records(&mut engine, 10.0);
    let late: Vec<_> = records.iter().filter(|(record, _)| record.at > 5.0).collect();
    let mean = late.iter().map(|(record, _)| f64::from(record.queued)).sum::<f64>() / late.len() as f64;
    let pass = late.iter().map(|(record, _)| record.host_seconds).sum::<f64>() / late.len() as f64;
    assert!((mean - 100.0 * pass).abs() < 0.2 * mean && mean > 0.5, "{mean} {pass}");
    for (record, _) in late {
        let rows = record.rows.iter().flatten().filter(|row| row.stage == Stage::Queued);
        assert_eq!((rows.count(), record.queued_tokens), (record.queued as usize, 100 * u64::from(record.queued)));
    }
    assert!(engine.waiting_for_seat() > 100);
}

#[test]
fn a_loop_that_was_blocked_takes_one_request_first() {
    let mut config = full(pytorch(Era::Frames));
    config.load.arrivals = Arrivals::Bursty { rate: 5.0, burst: 5 };
    // All workers prepare a request of the burst at the same time.
    config.frontend.workers = 5;
    for (overlap, after) in [(false, 4), (true, 0)] {
        config.costs.overlap = overlap;
        let records = records(&mut Engine::new(config.clone(), 1), 20.0);
        let (first, _) = &records[0];
        // Under overlap, the next pass has taken the others when the record is written.
        assert_eq!((first.new_active, first.active, first.queued), (1, 1, after));
        assert_eq!(records[1].0.new_active, 4);
    }
}

#[test]
fn the_latency_of_new_requests_contains_their_whole_wait() {
    for release in [pytorch(Era::Early), pytorch(Era::Frames), Release::Cpp { major: 1, minor: 1 }] {
        let mut engine = Engine::new(full(release), 1);
        let records = records(&mut engine, 600.0);
        let truth = engine.truth();
        let waits: f64 = truth.requests.iter().map(|request| request.scheduled.unwrap() - request.queued).sum();
        let told: f64 = match release {
            Release::Cpp { .. } => records.iter().map(|(record, _)| record.queue_latency).sum(),
            Release::PyTorch { .. } => records.last().unwrap().0.queue_latency,
        };
        assert_eq!((truth.completed, engine.waiting_for_seat()), (1000, 0));
        for seconds in [told, truth.queue_seconds, truth.waiting_seconds] {
            assert!((seconds - waits).abs() < 1e-6 * waits, "{release:?} {seconds} {waits}");
        }
    }
}

#[test]
fn waiting_requests_are_cancelled_refused_and_lost_in_a_restart() {
    let mut config = full(pytorch(Era::Frames));
    config.load.timeout = Some(1.0);
    let mut engine = Engine::new(config.clone(), 1);
    engine.run(10.0, |_| ());
    let ended = |engine: &Engine, end| engine.truth().requests.iter().filter(|r| r.end == end).count();
    assert!(ended(&engine, End::TimedOut) > 700);
    assert_eq!((engine.waiting_for_seat(), engine.is_idle()), (0, true));
    // Requests that timed out in the waiting queue are in no record.
    assert!(engine.truth().completed < 300);

    config.load.timeout = None;
    config.limits.max_queue = 100;
    config.load.arrivals = Arrivals::Poisson { rate: 100.0 };
    let mut engine = Engine::new(config.clone(), 1);
    engine.run(10.0, |_| ());
    assert!(engine.waiting_for_seat() >= 90 && ended(&engine, End::Error) > 300);

    config.faults = vec![Fault::Restart { at: 5.0, seconds: 1.0 }];
    let mut engine = Engine::new(config, 1);
    engine.run(5.5, |_| ());
    assert_eq!((engine.waiting_for_seat(), engine.is_idle()), (0, true));
}

#[test]
fn a_generation_server_queues_generation_requests() {
    let mut config = full(pytorch(Era::Frames));
    config.role = Role::GenerationOnly;
    config.load.arrivals = Arrivals::Poisson { rate: 100.0 };
    let release = config.release;
    let records = records(&mut Engine::new(config, 1), 2.0);
    let written = records.iter().map(|(record, _)| trtllm_sim::write::record(record, release, 0));
    let queued: Vec<_> = written.filter(|record| record["numQueuedRequests"] != 0).collect();
    assert!(queued.len() > 20);
    for record in queued {
        let inflight = &record["inflightBatchingStats"];
        assert_eq!(inflight["numQueuedGenRequests"], record["numQueuedRequests"]);
        assert_eq!(inflight["numQueuedContextRequests"], 0);
    }
}
