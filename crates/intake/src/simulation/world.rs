//! Records and everything that can go wrong between an engine and the exporter, with the truth about both. The records are as simple as
//! can be: what an engine does is tested with `trtllm-sim`.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use trtllm_sources::trtllm_json::parse_records;
use trtllm_sources::{Batch, Presence, SourceError, TestPoll};

/// Records that the engine writes from one poll to the next, at most.
pub(super) const FEW: u64 = 8;

/// SplitMix64.
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What a correct exporter shows.
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
    /// Records read, and what has happened to others: lost, rejected and engine restarts.
    pub(super) fn events(&self) -> [u64; 4] {
        [self.iterations, self.lost, self.rejected, self.restarts]
    }

    pub(super) fn totals(&self) -> [u64; 6] {
        [self.iterations, self.lost, self.restarts, self.context_tokens, self.generation_tokens, self.reused]
    }
}

/// A record of the simulated engine.
#[derive(Debug, Clone, Copy)]
struct Record {
    process: u64,
    iter: u64,
    active: u64,
    context_tokens: u64,
    generating: u64,
    reused: u64,
    /// A value that no engine has: the record is rejected.
    absurd: bool,
}

/// The engine, by what it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Executor,
    PyTorch,
    /// Each record has the number of its frame.
    PyTorchWithFrames,
}

/// What happens to one poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outage {
    Refused,
    Hangs,
}

#[derive(Debug)]
pub(super) struct World {
    random: Random,
    kind: Kind,
    /// Records from one poll to the next, at most. The engine keeps twelve times as many.
    most: u64,
    pub(super) polls: u64,
    pub(super) truth: Truth,
    /// When the last two successful polls ended or will end.
    answered: [Option<Duration>; 2],
    /// When the last answer is folded.
    folded: Duration,
    process: u64,
    iter: u64,
    reused: u64,
    active: u64,
    ring: VecDeque<Record>,
    /// A record that its successor overtakes.
    late: Option<Record>,
    outage: Option<(Outage, u64)>,
    calm: bool,
    /// Of the exporter: the process that it last read, its highest number and its cumulative count.
    seen: Option<(u64, u64)>,
    seen_reused: u64,
    /// The last record that was read shows no request.
    last_active: Option<u64>,
}

impl World {
    pub(super) fn new(seed: u64, most: u64) -> Self {
        let mut random = Random(seed);
        Self {
            kind: [Kind::Executor, Kind::PyTorch, Kind::PyTorchWithFrames][random.below(3) as usize],
            random,
            most,
            polls: 0,
            truth: Truth::default(),
            answered: [None; 2],
            folded: Duration::ZERO,
            process: 1,
            iter: 0,
            reused: 0,
            active: 1,
            ring: VecDeque::new(),
            late: None,
            outage: None,
            calm: false,
            seen: None,
            seen_reused: 0,
            last_active: None,
        }
    }

    /// From now on nothing goes wrong.
    pub(super) fn calm(&mut self) {
        (self.calm, self.outage) = (true, None);
    }

    /// Whether the last record that the exporter had read at `now` shows an engine without requests.
    pub(super) fn shown_idle(&self, now: Duration) -> bool {
        self.last_active == Some(0) && self.folded <= now
    }

    /// When the last successful poll ended.
    pub(super) fn answered(&self, now: Duration) -> Option<Duration> {
        self.answered.into_iter().flatten().filter(|at| *at <= now).max()
    }

    pub(super) fn poll(&mut self, batch: &mut Batch, now: Duration) -> TestPoll {
        self.polls += 1;
        self.work();
        let failed = |cause: &str| SourceError::Connect { target: "sim".to_owned(), cause: cause.to_owned() };
        if self.outage.is_none() && !self.calm && self.random.one_in(200) {
            let kind = if self.random.one_in(4) { Outage::Hangs } else { Outage::Refused };
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
        let delay = if self.random.one_in(50) { self.random.below(2_000) } else { self.random.below(20) };
        // The answer counts from the moment at which it is complete.
        let delay = Duration::from_millis(if self.calm { 0 } else { delay });
        self.folded = now + delay;
        let truncated = !self.calm && self.random.one_in(100) && !self.ring.is_empty();
        self.answer(batch, truncated);
        if truncated {
            return (delay, Err(SourceError::Truncated { target: "sim".to_owned() }));
        }
        if !self.calm && self.random.one_in(500) {
            // A bug in a source: the poll fails, and what it had read counts. Without the hook's output.
            std::panic::resume_unwind(Box::new("simulated"));
        }
        self.answered = [self.answered[1], Some(now + delay)];
        (delay, Ok(Presence::Present))
    }

    /// The engine has continued since the last poll.
    fn work(&mut self) {
        // Only after a while: the first numbers of a new process, also after an outage of 200 polls, must not look like late ones
        // of the old process.
        if !self.calm && self.iter > 1_000 + 250 * self.most && self.random.one_in(100) {
            self.process += 1;
            (self.iter, self.reused, self.active) = (0, 0, 1);
            self.ring.clear();
            self.late = None;
        }
        // Idle for a while now and then.
        if self.active == 0 && !self.random.one_in(20) {
            return;
        }
        for _ in 0..self.random.below(self.most + 1) {
            self.iter += 1;
            self.active = if self.random.one_in(5 * self.most) { 0 } else { 1 + self.random.below(4) };
            self.reused += self.random.below(3);
            let record = Record {
                process: self.process,
                iter: self.iter,
                active: self.active,
                context_tokens: self.random.below(100),
                generating: self.active,
                reused: self.reused,
                absurd: !self.calm && self.random.one_in(1_000),
            };
            // If the first record of a process that is read is overtaken, nobody can tell it from a restart.
            let is_known = self.seen.is_some_and(|(process, _)| process == self.process);
            if self.late.is_none() && !self.calm && !record.absurd && self.random.one_in(200) && is_known {
                self.late = Some(record);
                continue;
            }
            self.ring.push_back(record);
            if let Some(late) = self.late.take() {
                self.ring.push_back(late);
            }
            while self.ring.len() as u64 > 12 * self.most {
                self.ring.pop_front();
            }
            if self.active == 0 {
                return;
            }
        }
    }

    /// Hands out the ring. A truncated answer ends inside of a record; the exporter keeps the complete ones.
    fn answer(&mut self, batch: &mut Batch, truncated: bool) {
        let (mut text, mut ends) = ("[".to_owned(), Vec::new());
        let records: Vec<Record> = self.ring.drain(..).collect();
        for (index, record) in records.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            self.write(record, &mut text);
            ends.push(text.len());
        }
        text.push(']');
        if truncated {
            // After the first bracket, before the last one.
            text.truncate(1 + self.random.below(text.len() as u64 - 1) as usize);
        }
        let parsed = parse_records(text.as_bytes(), batch);
        assert_eq!(parsed.is_err(), truncated, "{text}");
        for (record, end) in records.iter().zip(ends) {
            if end <= text.len() {
                self.delivered(record);
            }
        }
    }

    fn write(&self, record: &Record, text: &mut String) {
        let Record { iter, active, context_tokens, generating, reused, absurd, .. } = *record;
        let marks = match self.kind {
            Kind::Executor => r#""timestamp":"11-22-2026 10:00:00.000000","#.to_owned(),
            Kind::PyTorch => String::new(),
            Kind::PyTorchWithFrames => format!(r#""statsSequence":{iter},"#),
        };
        let active = if absurd { -7 } else { active as i64 };
        let written = write!(
            text,
            r#"{{"iter":{iter},{marks}"iterLatencyMS":2.5,"numActiveRequests":{active},"numQueuedRequests":0,"maxNumActiveRequests":8,"kvCacheStats":{{"maxNumBlocks":100,"usedNumBlocks":10,"freeNumBlocks":90,"tokensPerBlock":32,"reusedBlocks":{reused},"missedBlocks":1,"allocTotalBlocks":1,"allocNewBlocks":1}},"inflightBatchingStats":{{"numScheduledRequests":{generating},"numContextRequests":0,"numGenRequests":{generating},"numPausedRequests":0,"numCtxTokens":{context_tokens},"microBatchId":0,"avgNumDecodedTokensPerIter":1.0}}}}"#
        );
        assert!(written.is_ok());
    }

    /// The exporter has read the record.
    fn delivered(&mut self, record: &Record) {
        if record.absurd {
            self.truth.rejected += 1;
            return;
        }
        let (process, through) = match self.seen {
            Some(seen) => seen,
            // The exporter meets the engine at its first record.
            None => (record.process, 0),
        };
        if record.process != process {
            self.truth.restarts += 1;
            self.seen_reused = 0;
        } else if record.iter > through && self.seen.is_some() {
            let missing = record.iter - through - 1;
            // Without frame numbers, a gap of the PyTorch engine is not certain to be a loss.
            if self.kind != Kind::PyTorch {
                self.truth.lost += missing;
            }
        }
        let late = record.process == process && self.seen.is_some() && record.iter < through;
        if !late {
            self.seen = Some((record.process, record.iter));
            self.truth.reused += record.reused.saturating_sub(self.seen_reused);
            self.seen_reused = self.seen_reused.max(record.reused);
            self.last_active = Some(record.active);
        }
        self.truth.iterations += 1;
        self.truth.context_tokens += record.context_tokens;
        self.truth.generation_tokens += record.generating;
    }
}
