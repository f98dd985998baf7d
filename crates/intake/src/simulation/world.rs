//! The simulated engine, the faults between the engine and the exporter, and the numbers that a correct exporter shows.

use std::collections::VecDeque;
use std::time::Duration;

use trtllm_sim::config::{CacheManager, Config, Era, Release};
use trtllm_sim::load::{Arrivals, Length, Prefixes};
use trtllm_sim::random::Random;
use trtllm_sim::record::Record;
use trtllm_sim::{Engine, write};
use trtllm_sources::trtllm_json::parse_records;
use trtllm_sources::{Batch, Presence, SourceError, TestPoll};

/// Records that a busy engine writes from one poll to the next.
pub(super) const FEW: u64 = 8;
/// The wall-clock time of the records. The exporter's own time is virtual.
const EPOCH_US: i64 = 1_760_000_000_000_000;
/// A process loads its libraries and the model before its first iteration.
const STARTING: Duration = Duration::from_secs(20);

/// The numbers that a correct exporter shows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Truth {
    iterations: u64,
    lost: u64,
    restarts: u64,
    context_tokens: u64,
    generation_tokens: u64,
    reused: u64,
    pub(super) rejected: u64,
}

impl Truth {
    /// Numbers of records read, lost and rejected, and of engine restarts.
    pub(super) fn events(&self) -> [u64; 4] {
        [self.iterations, self.lost, self.rejected, self.restarts]
    }

    pub(super) fn totals(&self) -> [u64; 6] {
        [self.iterations, self.lost, self.restarts, self.context_tokens, self.generation_tokens, self.reused]
    }
}

/// How a poll fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outage {
    Refused,
    Hangs,
}

#[derive(Debug)]
pub(super) struct World {
    random: Random,
    engine: Engine,
    /// When the engine's process began, and when its next step is due, in seconds since then.
    began: Duration,
    next: Option<f64>,
    /// Number of the process, and the last iteration that it has recorded.
    process: u64,
    iter: u64,
    /// The most records from one poll to the next. The engine keeps twelve times as many.
    most: u64,
    pub(super) polls: u64,
    pub(super) truth: Truth,
    /// When the last two successful polls ended or will end.
    answered: [Option<Duration>; 2],
    /// When the exporter folds the last answer.
    folded: Duration,
    ring: VecDeque<Record>,
    /// A record that is written after the next one.
    late: Option<Record>,
    outage: Option<(Outage, u64)>,
    calm: bool,
    /// What the exporter has read: the last process and its highest iteration, and its cumulative count of reused
    /// blocks.
    seen: Option<(u64, u64)>,
    seen_reused: u64,
    /// Active requests in the last record that was read.
    last_active: Option<u32>,
}

/// An engine that is busy for a while and idle for a while, with this many records from one poll to the next.
fn config(random: &mut Random, most: u64) -> Config {
    let mut config = Config::default();
    let cache = CacheManager::V1;
    config.release = [
        Release::Cpp { major: 1, minor: 2 },
        Release::PyTorch { era: Era::One, cache },
        Release::PyTorch { era: Era::Frames, cache },
    ][random.below(3) as usize];
    config.statistics.rows = false;
    config.keeps_requests = false;
    config.costs.base = 0.09 / most as f64;
    config.costs.host = config.costs.base / 8.0;
    config.load.arrivals = Arrivals::Bursty { rate: 2.0, burst: 4 };
    config.load.prefixes = Some(Prefixes { families: 10, tokens: 100 });
    config.load.output = Length::Lognormal { median: 6.0 * most as f64, sigma: 1.0, max: 4_000 };
    config
}

impl World {
    pub(super) fn new(seed: u64, most: u64) -> Self {
        let mut random = Random::new(seed);
        let config = config(&mut random, most);
        Self {
            engine: Engine::new(config, seed),
            random,
            began: Duration::ZERO,
            next: Some(0.0),
            process: 1,
            iter: 0,
            most,
            polls: 0,
            truth: Truth::default(),
            answered: [None; 2],
            folded: Duration::ZERO,
            ring: VecDeque::new(),
            late: None,
            outage: None,
            calm: false,
            seen: None,
            seen_reused: 0,
            last_active: None,
        }
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.random.below(n) == 0
    }

    /// From now on, nothing fails.
    pub(super) fn calm(&mut self) {
        (self.calm, self.outage) = (true, None);
    }

    /// Whether the last record that the exporter had read at `now` shows an engine without requests.
    pub(super) fn shown_idle(&self, now: Duration) -> bool {
        self.last_active == Some(0) && self.folded <= now
    }

    /// When the last successful poll up to `now` ended.
    pub(super) fn answered(&self, now: Duration) -> Option<Duration> {
        self.answered.into_iter().flatten().filter(|at| *at <= now).max()
    }

    pub(super) fn poll(&mut self, batch: &mut Batch, now: Duration) -> TestPoll {
        self.polls += 1;
        self.work(now);
        let failed = |cause: &str| SourceError::Connect { target: "sim".to_owned(), cause: cause.to_owned() };
        if self.outage.is_none() && !self.calm && self.one_in(200) {
            let kind = if self.one_in(4) { Outage::Hangs } else { Outage::Refused };
            // Refused for up to twenty seconds, or hanging for up to three deadlines.
            let polls = 1 + self.random.below(if kind == Outage::Refused { 200 } else { 3 });
            self.outage = Some((kind, polls));
        }
        if let Some((kind, polls)) = &mut self.outage {
            *polls -= 1;
            let kind = *kind;
            self.outage.take_if(|(_, polls)| *polls == 0);
            return match kind {
                Outage::Refused => (Duration::ZERO, Err(failed("refused"))),
                Outage::Hangs => (Duration::from_secs(60), Ok(Presence::Present)),
            };
        }
        let delay = if self.one_in(50) { self.random.below(2_000) } else { self.random.below(20) };
        // The answer counts from the moment when it is complete.
        let delay = Duration::from_millis(if self.calm { 0 } else { delay });
        self.folded = now + delay;
        let truncated = !self.calm && self.one_in(100) && !self.ring.is_empty();
        let has_records = self.answer(batch, truncated);
        if truncated {
            // The records before the end are an answer.
            if has_records {
                self.answered = [self.answered[1], Some(now + delay)];
            }
            return (delay, Err(SourceError::Truncated { target: "sim".to_owned() }));
        }
        if !self.calm && self.one_in(500) {
            // A bug in a source: the poll panics, but what it has read counts. This call prints nothing, unlike
            // `panic!`.
            if has_records {
                self.answered = [self.answered[1], Some(now)];
            }
            std::panic::resume_unwind(Box::new("simulated"));
        }
        self.answered = [self.answered[1], Some(now + delay)];
        (delay, Ok(Presence::Present))
    }

    /// Runs the engine until `now`, and sometimes restarts it.
    fn work(&mut self, now: Duration) {
        // Restarts only after many iterations: otherwise the first iteration numbers of a new process could look like
        // late records of the old process, even after an outage of 200 polls.
        if !self.calm && self.iter > 1_000 + 250 * self.most && self.one_in(100) {
            self.process += 1;
            (self.began, self.next, self.iter) = (now + STARTING, Some(0.0), 0);
            self.engine = Engine::new(self.engine.config().clone(), self.random.below(u64::MAX));
            self.ring.clear();
            self.late = None;
        }
        let until = now.saturating_sub(self.began).as_secs_f64();
        while let Some(time) = self.next.filter(|time| *time < until) {
            let step = self.engine.step(time);
            self.next = step.next;
            step.records.into_iter().for_each(|record| self.recorded(record));
        }
    }

    /// Whether this is the extra record that the C++ Executor writes when its last request ends. No iteration belongs to it.
    fn is_flush(&self, record: &Record) -> bool {
        self.engine.config().release.is_cpp() && record.work.scheduled == 0
    }

    fn recorded(&mut self, record: Record) {
        self.iter = record.iter;
        // The first record that is read of a process is never overtaken, because that would look like a restart.
        let is_known = self.seen.is_some_and(|(process, _)| process == self.process);
        if self.late.is_none() && !self.calm && self.one_in(200) && is_known && !self.is_flush(&record) {
            self.late = Some(record);
            return;
        }
        // This extra record is written after all records before it, so it overtakes nothing.
        if self.is_flush(&record) {
            self.ring.extend(self.late.take());
        }
        self.ring.push_back(record);
        self.ring.extend(self.late.take());
        while self.ring.len() as u64 > 12 * self.most {
            self.ring.pop_front();
        }
    }

    /// Answers with all records of the ring. A truncated answer ends inside a record; the exporter keeps the complete ones.
    fn answer(&mut self, batch: &mut Batch, truncated: bool) -> bool {
        let release = self.engine.config().release;
        let (mut text, mut ends) = ("[".to_owned(), Vec::new());
        let records: Vec<Record> = self.ring.drain(..).collect();
        for (index, record) in records.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            let mut written = write::record(record, release, EPOCH_US + self.began.as_micros() as i64);
            // An iteration number that no engine reports, so the record is rejected.
            let is_absurd = !self.calm && self.one_in(1_000);
            if is_absurd {
                written["iter"] = (1_u64 << 41).into();
            } else if !self.calm && self.one_in(500) {
                // Only this value is left out.
                written["gpuMemUsage"] = (-7).into();
            }
            text.push_str(&written.to_string());
            ends.push((text.len(), is_absurd));
        }
        text.push(']');
        if truncated {
            // The text ends between the first bracket and the last one.
            text.truncate(1 + self.random.below(text.len() as u64 - 1) as usize);
        }
        let parsed = parse_records(text.as_bytes(), batch);
        assert_eq!(parsed.is_err(), truncated, "{text}");
        let mut has_records = false;
        for (record, (end, is_absurd)) in records.iter().zip(ends) {
            if end <= text.len() {
                self.delivered(record, is_absurd);
                has_records |= !is_absurd;
            }
        }
        has_records
    }

    /// Counts a record that the exporter has read.
    fn delivered(&mut self, record: &Record, is_absurd: bool) {
        if is_absurd {
            self.truth.rejected += 1;
            return;
        }
        let is_flush = self.is_flush(record);
        let iter = match self.engine.config().release {
            // A pass of the PyTorch loop without a batch has a number and no record, so only frame numbers have no gaps.
            Release::PyTorch { era: Era::Frames, .. } => record.sequence,
            // The extra record has the number of the iteration that follows it.
            _ => record.iter - u64::from(is_flush),
        };
        let (process, through) = match self.seen {
            Some(seen) => seen,
            // The exporter has read no record yet.
            None => (self.process, 0),
        };
        if self.process != process {
            self.truth.restarts += 1;
            self.seen_reused = 0;
        } else if iter > through && self.seen.is_some() {
            let missing = iter - through - 1 + u64::from(is_flush);
            // Without frame numbers, a gap of the PyTorch engine is not certain to be a loss.
            if !matches!(self.engine.config().release, Release::PyTorch { era: Era::One, .. }) {
                self.truth.lost += missing;
            }
        }
        let late = self.process == process && self.seen.is_some() && !is_flush && iter <= through;
        if !late {
            let reused = record.cache.total.reused();
            // The first count of an engine that was already running is only a baseline.
            if self.seen.is_none() {
                self.seen_reused = reused;
            }
            self.seen = Some((self.process, iter));
            self.truth.reused += reused.saturating_sub(self.seen_reused);
            self.seen_reused = self.seen_reused.max(reused);
            self.last_active = Some(record.active);
        }
        self.truth.iterations += u64::from(!is_flush);
        self.truth.context_tokens += record.work.context_tokens;
        self.truth.generation_tokens += record.decoded;
    }
}
