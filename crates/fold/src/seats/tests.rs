//! A loop with upstream's two queues (`_fetch_and_enqueue_requests`, `_pop_from_waiting_queue`, `_update_iter_stats`), and what its
//! records tell about the requests that wait.

use std::time::{Duration, Instant};

use trtllm_records::IterationStats;
use trtllm_records::RecordTime;
use trtllm_records::iteration::{InflightBatchingStats, KvCacheStats, SchedulerMode};

use crate::Elsewhere;
use crate::clock::ClockSpan;
use crate::observer::Observer;
use crate::ranks::Iteration;
use crate::{EngineFold, Latest};

const PASS: f64 = 0.03;
/// Part of a pass after the record is written.
const REST: f64 = 0.05;

struct Loop {
    overlap: bool,
    seats: usize,
    now: f64,
    iter: i64,
    /// Arrival times.
    request_queue: Vec<f64>,
    waiting_queue: Vec<f64>,
    /// Tokens left of each active request.
    active: Vec<u32>,
    waited: f64,
    tokens: u32,
    arrivals: Vec<f64>,
    /// The record of the batch that runs.
    open: Option<IterationStats>,
    ended: usize,
}

impl Loop {
    fn new(overlap: bool, seats: usize, tokens: u32, mut arrivals: Vec<f64>) -> Self {
        arrivals.sort_by(|a, b| b.total_cmp(a));
        let (request_queue, waiting_queue, active) = (Vec::new(), Vec::new(), Vec::new());
        let (now, iter, waited, open, ended) = (0.0, 0, 0.0, None, 0);
        Self { overlap, seats, now, iter, request_queue, waiting_queue, active, waited, tokens, arrivals, open, ended }
    }

    fn arrive(&mut self, until: f64) {
        while let Some(at) = self.arrivals.pop_if(|at| *at <= until) {
            self.request_queue.push(at);
        }
        self.now = until;
    }

    fn waiting(&self) -> f64 {
        (self.request_queue.len() + self.waiting_queue.len()) as f64
    }

    /// One pass: the record that it writes.
    fn pass(&mut self) -> Option<IterationStats> {
        let is_idle = self.active.is_empty() && self.waiting_queue.is_empty() && self.request_queue.is_empty();
        if let Some(at) = self.arrivals.last().copied().filter(|_| is_idle && self.open.is_none()) {
            // The wait for work takes one request.
            self.now = self.now.max(at);
            self.request_queue.extend(self.arrivals.pop());
        }
        self.waiting_queue.append(&mut self.request_queue);
        let new = self.waiting_queue.len().min(self.seats - self.active.len());
        self.waited += self.waiting_queue.drain(..new).map(|at| self.now - at).sum::<f64>();
        self.active.extend(std::iter::repeat_n(self.tokens, new));
        // An answer that ends by its length is not in the batch after its last token.
        let batch = self.active.iter().filter(|left| **left > 0).count();
        let begun = self.now;
        let record = IterationStats {
            timestamp: Some(RecordTime { micros: (self.now * 1e6) as i64 + 1_760_000_000_000_000, zoned: true }),
            iter: Some(self.iter as u64),
            scheduler_mode: Some(if self.overlap { SchedulerMode::Overlap } else { SchedulerMode::NonOverlap }),
            num_active_requests: Some(self.active.len() as i64),
            max_num_active_requests: Some(self.seats as i64),
            num_new_active_requests: Some(new as i64),
            new_active_requests_queue_latency_ms: Some(self.waited),
            host_step_time_ms: Some(PASS * 1e3),
            kv_cache_stats: Some(KvCacheStats {
                max_num_blocks: Some(100),
                used_num_blocks: Some(10),
                ..KvCacheStats::default()
            }),
            inflight_batching_stats: Some(InflightBatchingStats {
                num_scheduled_requests: Some(batch as i64),
                num_gen_requests: Some(batch as i64),
                ..InflightBatchingStats::default()
            }),
            ..IterationStats::default()
        };
        self.iter += 1;
        let runs = self.overlap.then(|| self.open.take()).flatten();
        // Without a batch that runs, the pass only forms one.
        let seconds = if self.overlap && runs.is_none() { 0.1 * PASS } else { PASS };
        self.arrive(begun + seconds * (1.0 - REST));
        // Overlap: the requests whose last token was in the batch before are handled, and the batch of this pass runs.
        let before = self.active.len();
        let is_last = |left: &u32| if self.overlap { *left == 0 } else { *left == 1 };
        self.active.retain(|left| !is_last(left));
        self.ended = before - self.active.len();
        self.active.iter_mut().for_each(|left| *left -= 1);
        // A pass without a batch writes no record.
        let record = (batch > 0).then_some(record);
        let handled = if self.overlap { runs } else { record.clone() };
        let written = handled.map(|mut handled| {
            let stamped = handled.timestamp.unwrap().micros - 1_760_000_000_000_000;
            let begun = stamped as f64 / 1e6;
            handled.iter_latency_ms = Some((self.now - begun) * 1e3);
            handled.num_queued_requests = Some(self.request_queue.len() as i64);
            handled.num_completed_requests = Some(self.ended as i64);
            handled
        });
        self.open = record.filter(|_| self.overlap);
        self.arrive(begun + seconds);
        written
    }
}

/// Plays until `seconds`, reading the records that `reads` accepts. Calls `check` with the time, the estimate and the truth.
fn play(
    mut engine: Loop,
    seconds: f64,
    reads: impl Fn(&IterationStats) -> bool,
    mut check: impl FnMut(f64, Option<f64>, f64),
) -> (EngineFold, Waits) {
    let (mut fold, mut waits) = (EngineFold::new(Duration::from_secs(15)), Waits::default());
    let now = Instant::now();
    while engine.now < seconds {
        if let Some(record) = engine.pass()
            && reads(&record)
        {
            fold.absorb(&record, now, 1_760_000_000_000_000 + (engine.now * 1e6) as i64, &mut waits).unwrap();
            check(engine.now, fold.latest().unwrap().waiting_for_seat, engine.waiting());
        }
    }
    (fold, waits)
}

/// Counts iterations with a batch, those in which requests wait, and those of the latter whose seats are all taken.
#[derive(Default)]
struct Waits {
    iterations: u64,
    scheduled: i64,
    waits: u64,
    waits_while_full: u64,
}

impl Observer for Waits {
    fn iteration(&mut self, _: &Iteration, latest: &Latest, _: Option<ClockSpan>) {
        let scheduled = latest.scheduled().unwrap_or(0);
        let waits = scheduled > 0 && latest.all_waiting().unwrap_or(0.0) >= 0.5;
        self.iterations += u64::from(scheduled > 0);
        self.scheduled += scheduled;
        self.waits += u64::from(waits);
        self.waits_while_full += u64::from(waits && latest.is_full_of_running());
    }
}

/// Arrivals at random with this many a second, from `begin` to `end`.
fn poisson(per_second: f64, begin: f64, end: f64) -> Vec<f64> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut at = begin;
    let mut arrivals = Vec::new();
    while at < end {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        at -= ((state >> 11) as f64 / (1_u64 << 53) as f64).max(1e-12).ln() / per_second;
        arrivals.push(at);
    }
    arrivals
}

fn is_near(estimate: Option<f64>, truth: f64, share: f64, requests: f64) -> bool {
    estimate.is_some_and(|estimate| (estimate - truth).abs() <= (share * truth).max(requests))
}

#[test]
fn the_requests_that_wait_for_a_seat_are_known_within_a_fifth_though_no_record_counts_them() {
    // 32 seats × 100 tokens of 30 ms serve about 10 requests a second.
    let burst = |count| vec![5.0; count];
    let cases: [(&str, Vec<f64>); 4] = [
        ("twice the capacity", poisson(20.0, 0.0, 200.0)),
        ("a burst of 1000 in a second", poisson(1000.0, 5.0, 6.0)),
        ("a burst within a fast load", [poisson(9.0, 0.0, 200.0), burst(500)].concat()),
        ("twice the capacity for a minute", [poisson(20.0, 0.0, 60.0), poisson(5.0, 60.0, 200.0)].concat()),
    ];
    for (name, arrivals) in cases {
        for overlap in [true, false] {
            play(
                Loop::new(overlap, 32, 100, arrivals.clone()),
                180.0,
                |_| true,
                |at, estimate, truth| {
                    assert!(
                        at < 10.0 || is_near(estimate, truth, 0.1, 40.0),
                        "{name}, overlap {overlap}: {estimate:?} of {truth} at {at}"
                    );
                },
            );
        }
    }
}

#[test]
fn of_a_burst_that_no_record_saw_about_as_many_wait_as_took_seats_during_the_last_wait() {
    // All arrive in the first pass after idle, which writes no record before the next pass has taken them.
    let mut checked = 0;
    play(
        Loop::new(true, 32, 100, vec![5.0; 1000]),
        100.0,
        |_| true,
        |at, estimate, truth| {
            if at > 15.0 && truth > 40.0 {
                checked += 1;
                let served = 1000.0 - truth;
                assert!(is_near(estimate, served, 0.4, 60.0), "{estimate:?} of {truth} at {at}");
            }
        },
    );
    assert!(checked > 1000);
}

#[test]
fn lost_records_and_a_late_beginning_are_corrected_by_the_waits() {
    let arrivals = || poisson(12.0, 0.0, 300.0);
    // The first iteration that is read, and how many of a thousand are.
    for (name, first, part) in [("late", 2000, 1000), ("two of five lost", 0, 600), ("all", 0, 1000)] {
        let reads = |record: &IterationStats| record.iter.is_some_and(|iter| iter >= first && iter % 1000 < part);
        play(Loop::new(true, 32, 100, arrivals()), 290.0, reads, |at, estimate, truth| {
            assert!(at < 120.0 || is_near(estimate, truth, 0.2, 20.0), "{name}: {estimate:?} of {truth} at {at}");
        });
    }
}

#[test]
fn nobody_waits_while_a_seat_is_free_and_seats_of_ended_requests_are_not_held() {
    // Answers of 8 tokens: 32 seats serve about 118 requests a second.
    for per_second in [60.0, 110.0] {
        let (fold, waits) = play(
            Loop::new(true, 64, 8, poisson(per_second, 0.0, 60.0)),
            60.0,
            |_| true,
            |at, estimate, _| {
                assert!(at < 1.0 || estimate == Some(0.0), "{estimate:?} at {at}");
            },
        );
        assert!(50 * waits.waits <= waits.iterations, "{} of {}", waits.waits, waits.iterations);
        assert_eq!(fold.latest().unwrap().held(), Some(0));
    }
}

#[test]
fn a_batch_of_short_answers_is_full_when_its_seats_are_taken() {
    let (_, seen) = play(Loop::new(true, 32, 8, poisson(200.0, 0.0, 60.0)), 60.0, |_| true, |_, _, _| {});
    assert!((seen.scheduled as f64) < 0.9 * 32.0 * seen.iterations as f64, "some seats wait to be handled");
    assert!(20 * seen.waits >= 19 * seen.iterations);
    assert!(20 * seen.waits_while_full >= 19 * seen.waits, "{} of {}", seen.waits_while_full, seen.waits);
}

#[test]
fn a_micro_batch_without_a_record_since_its_last_turn_runs_no_more() {
    let record = |iter, id, scheduled| IterationStats {
        iter: Some(iter),
        inflight_batching_stats: Some(InflightBatchingStats {
            micro_batch_id: Some(id),
            num_scheduled_requests: Some(scheduled),
            ..InflightBatchingStats::default()
        }),
        ..IterationStats::default()
    };
    let mut elsewhere = Elsewhere::default();
    let of = |(iter, id, scheduled): (u64, i64, i64)| elsewhere.count(&record(iter, id, scheduled), false);
    // The second micro-batch has no record after its first one.
    assert_eq!([(1, 0, 8), (2, 1, 5), (3, 0, 8), (5, 0, 8)].map(of), [0, 8, 5, 0]);
}
