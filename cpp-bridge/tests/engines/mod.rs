//! Creates simulated engines in a defined state.

// Each test program uses only a part of this module. Clippy allows unwrap and panic in #[test] functions only.
#![allow(dead_code, unused_imports, clippy::unwrap_used)]

mod rows;

pub(crate) use rows::{COMPLETE, IterationRow, PerfRow, QUEUED, RequestRow};
use std::time::{Duration, Instant};
use trtllm_bridge::{BridgeError, Executor, ExecutorOptions, IterationStats, RequestStatsPerIteration, Truth};

/// Rings that are large enough for all records of a test.
pub(crate) const KEEP_ALL: ExecutorOptions =
    ExecutorOptions { iter_stats_max_iterations: 1_000_000, request_stats_max_iterations: 0 };
pub(crate) const KEEP_ALL_REQUESTS: ExecutorOptions =
    ExecutorOptions { iter_stats_max_iterations: 1_000_000, request_stats_max_iterations: 1_000_000 };

const DEADLINE: Duration = Duration::from_secs(60);

/// An engine that has finished `requests` requests at full speed and is idle.
pub(crate) fn finished(requests: u64, more: &str, options: &ExecutorOptions) -> Executor {
    let engine = Executor::open(&format!("sim:?speed=max&requests={requests}&{more}"), options).unwrap();
    wait_until(&engine, |truth| truth.idle && truth.requests_completed == requests);
    engine
}

pub(crate) fn wait_until(engine: &Executor, reached: impl Fn(&Truth) -> bool) -> Truth {
    poll_until(|| engine.truth().unwrap(), reached)
}

/// Calls `look` until `reached` returns true for the result, and returns the result.
pub(crate) fn poll_until<Seen: std::fmt::Debug>(look: impl Fn() -> Seen, reached: impl Fn(&Seen) -> bool) -> Seen {
    let start = Instant::now();
    loop {
        let seen = look();
        if reached(&seen) {
            return seen;
        }
        assert!(start.elapsed() < DEADLINE, "the engine stopped making progress at {seen:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn all_iterations(engine: &mut Executor) -> Vec<IterationRow> {
    all(engine, Executor::drain_iterations, IterationRow::of)
}

/// The rows of two runs differ only in this.
pub(crate) fn without_time(rows: Vec<IterationRow>) -> Vec<IterationRow> {
    rows.into_iter().map(|row| IterationRow { timestamp: [0; 26], ..row }).collect()
}

pub(crate) fn all_requests(engine: &mut Executor) -> Vec<RequestRow> {
    std::iter::from_fn(|| next_requests(engine)).flatten().collect()
}

pub(crate) fn all_finished(engine: &mut Executor) -> Vec<PerfRow> {
    all(engine, Executor::drain_finished, PerfRow::of)
}

/// The requests of one iteration. None at the end of the drain.
pub(crate) fn next_requests(engine: &mut Executor) -> Option<Vec<RequestRow>> {
    let mut record = RequestStatsPerIteration::default();
    let found = engine.next_requests(&mut record).unwrap();
    let rows = record.request_stats.iter().map(|row| RequestRow { iteration: record.iter, ..RequestRow::of(row) });
    found.then(|| rows.collect())
}

/// How many records a call of [`drain_some`] returns at most.
pub(crate) const PART: usize = 64;

/// Drains once, and returns the number of records.
pub(crate) fn drain_some(engine: &mut Executor) -> Result<usize, BridgeError> {
    engine.drain_iterations(&mut [IterationStats::default(); PART])
}

type Drain<Row> = fn(&mut Executor, &mut [Row]) -> Result<usize, BridgeError>;

fn all<Row: Default + Clone, T>(engine: &mut Executor, drain: Drain<Row>, read: fn(&Row) -> T) -> Vec<T> {
    let (mut rows, mut all) = (vec![Row::default(); PART], Vec::new());
    loop {
        let count = drain(engine, &mut rows).unwrap();
        all.extend(rows[..count].iter().map(read));
        if count < PART {
            return all;
        }
    }
}

/// Writes a trace file for the simulator. An arrival is (seconds, prompt tokens, output tokens).
pub(crate) fn trace(name: &str, arrivals: &[(f64, u32, u32)]) -> String {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let lines: Vec<String> = arrivals.iter().map(|(at, prompt, output)| format!("{at} {prompt} {output}")).collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    path.display().to_string()
}
