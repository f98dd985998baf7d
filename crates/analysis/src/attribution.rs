//! Splits the time of each finished request into its parts. The times of the request say when it waited, computed its
//! prompt and decoded. The timeline of the engine says what delayed it meanwhile. The times of an entry
//! (RequestPerfMetrics) are on another clock than those of the records. The end of the request's last iteration is
//! known on both clocks, which gives the difference. Requests that cannot be split are counted.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use trtllm_fold::finished_request::FinishedRequest;
use trtllm_fold::lifecycle::Pause;
use trtllm_fold::observer::EntryOfRequest;
use trtllm_fold::request_times::Times;
use trtllm_fold::served::Served;

use super::numbers::Numbers as _;
use super::objectives::ObjectiveTotals;
use super::timeline::{Busy, Timeline};

pub const PARTS: [&str; 7] = ["queue", "prefill", "blocked", "decode", "pause", "transfer", "unexplained"];
const QUEUE: usize = 0;
const PREFILL: usize = 1;
const BLOCKED: usize = 2;
const DECODE: usize = 3;
const PAUSE: usize = 4;
const TRANSFER: usize = 5;
const UNEXPLAINED: usize = 6;

/// Seconds, by [`PARTS`].
pub type Seconds = [f64; PARTS.len()];

/// The time of one request: seconds in each part.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Split {
    pub until_first_token: Seconds,
    pub after_first_token: Seconds,
}

/// Sums over finished requests. `unattributed` requests could not be split.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RequestParts {
    pub all: Seconds,
    /// The same sums over the requests that missed an objective, for each objective. TTFT counts the time until the first
    /// token, TPOT the time after it, and E2E all time.
    pub missed: [Seconds; 3],
    pub unattributed: u64,
}

/// A finished request that waits for the record after its last iteration.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    since: Instant,
    last_iter: u64,
    request: Spans,
    /// Tokens of its prompt that were computed, from its entry.
    tokens: Option<f64>,
    served: Served,
}

/// The times of a request, in microseconds on one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spans {
    /// The request's id in its rows. Absent if it is unknown.
    row_id: Option<u64>,
    /// Times of the arrival, the first batch, the first token and the last token.
    times: [i64; 4],
    transfer: Option<(i64, i64)>,
}

#[derive(Debug, Clone, Default)]
pub struct Attribution {
    /// Absent until a request can be split for the first time.
    pub(super) timeline: Option<Timeline>,
    waiting: VecDeque<Waiting>,
    pauses: VecDeque<Pause>,
    /// The engine reports which requests are paused.
    knows_pauses: bool,
    /// Absent until a request has complete rows, or an entry with iterations.
    pub totals: Option<RequestParts>,
}

/// The record of the next iteration comes within a poll or two, if there is one.
const PATIENCE: Duration = Duration::from_secs(5);
/// Limits of the finished requests that wait for a record, and of the pauses that are kept.
const MOST_WAITING: usize = 512;
const MOST_PAUSES: usize = 1024;

fn micros(seconds: f64) -> i64 {
    (seconds * 1e6).round() as i64
}

fn overlap(one: (i64, i64), other: (i64, i64)) -> Option<(i64, i64)> {
    let (from, until) = (one.0.max(other.0), one.1.min(other.1));
    (from < until).then_some((from, until))
}

impl Spans {
    /// `None` for a request without a first token, and for a request whose times run backwards.
    fn of(row_id: Option<u64>, times: &Times, transfer: Option<(f64, f64)>) -> Option<Self> {
        let times = [times.arrived?, times.scheduled?, times.first_token?, times.ended?].map(micros);
        let transfer = transfer.map(|(from, until)| (micros(from), micros(until)));
        times.is_sorted().then_some(Self { row_id, times, transfer })
    }

    fn later(self, by_us: i64) -> Self {
        let transfer = self.transfer.map(|(from, until)| (from + by_us, until + by_us));
        Self { times: self.times.map(|time| time + by_us), transfer, ..self }
    }
}

impl Attribution {
    /// Notes that the engine tells which requests are paused, and that these pauses are over.
    pub(super) fn note_pauses(&mut self, over: &[Pause]) {
        self.knows_pauses = true;
        for pause in over {
            if self.pauses.len() >= MOST_PAUSES {
                self.pauses.pop_front();
            }
            self.pauses.push_back(*pause);
        }
    }

    /// Counts a request by its rows, whose times are on the clock of the records. `tokens`: of its prompt, those that were computed.
    pub(super) fn count_row(&mut self, request: &FinishedRequest, tokens: Option<f64>, missed: [bool; 3]) {
        // The row says how long the transfer took. The transfer ends before the first batch.
        let transfer = request.transfer_seconds.zip(request.times.scheduled);
        let transfer = transfer.map(|(seconds, until)| (until - seconds, until));
        let spans = Spans::of(request.row_id, &request.times, transfer).filter(|_| request.row_id.is_some());
        let split = spans.and_then(|spans| self.split(&spans, tokens));
        self.count(split.as_ref(), missed);
    }

    fn count(&mut self, split: Option<&Split>, missed: [bool; 3]) {
        let Some(totals) = &mut self.totals else { return };
        let Some(split) = split else {
            totals.unattributed += 1;
            return;
        };
        for index in 0..PARTS.len() {
            let (before, after) = (split.until_first_token[index], split.after_first_token[index]);
            totals.all[index] += before + after;
            for (sum, (missed, seconds)) in
                totals.missed.iter_mut().zip(missed.into_iter().zip([before, after, before + after]))
            {
                sum[index] += if missed { seconds } else { 0.0 };
            }
        }
    }

    /// Keeps the request of an entry until its last iteration has ended. Ignores an entry without iterations.
    pub(super) fn note_entry(&mut self, entry: &EntryOfRequest<'_>) {
        let EntryOfRequest { request, tokens_per_block, handling_lag, now, .. } = *entry;
        let Some(last_iter) = request.last_iter.and_then(|iter| iter.checked_sub(handling_lag)) else { return };
        let tokens = request.computed_tokens(tokens_per_block);
        self.begin();
        match Spans::of(request.row_id, &request.times, request.transfer) {
            Some(request) if self.waiting.len() < MOST_WAITING => {
                self.waiting.push_back(Waiting {
                    since: now,
                    last_iter,
                    request,
                    tokens,
                    served: entry.request.served,
                });
            }
            _ => self.count(None, [false; 3]),
        }
    }

    /// Begins to keep iterations, because requests may be split by them.
    pub(super) fn begin(&mut self) {
        self.timeline.get_or_insert_default();
        self.totals.get_or_insert_default();
    }

    /// Counts each kept request once its last iteration has ended, or after [`PATIENCE`]. `computed_tokens`: tokens of a request's prompt
    /// that were computed, by the id in its rows.
    pub(super) fn settle(
        &mut self,
        computed_tokens: impl Fn(u64) -> Option<f64>,
        objectives: Option<&ObjectiveTotals>,
        now: Instant,
    ) {
        while let Some(waiting) = self.waiting.front().copied() {
            let is_late = now.saturating_duration_since(waiting.since) >= PATIENCE;
            let timeline = self.timeline.as_ref();
            let ended_us = timeline.and_then(|timeline| timeline.ended_us(waiting.last_iter));
            let last_us = || timeline.filter(|_| is_late)?.last_end_us(waiting.last_iter);
            let ended_us = ended_us.or_else(last_us);
            if ended_us.is_none() && !is_late {
                return;
            }
            self.waiting.pop_front();
            let split = ended_us.and_then(|ended_us| {
                let request = waiting.request;
                let known = request.row_id.and_then(&computed_tokens);
                self.split(&request.later(ended_us - request.times[3]), known.or(waiting.tokens))
            });
            let missed = objectives.map_or([false; 3], |objectives| objectives.missed(&waiting.served));
            self.count(split.as_ref(), missed);
        }
    }

    /// Forgets all iterations and pauses: those before a restart say nothing about requests after it.
    pub(super) fn restart(&mut self) {
        if let Some(timeline) = &mut self.timeline {
            timeline.clear();
        }
        self.pauses.clear();
        for _ in 0..std::mem::take(&mut self.waiting).len() {
            self.count(None, [false; 3]);
        }
    }

    /// `tokens`: tokens of the request's prompt that were computed.
    fn split(&self, request: &Spans, tokens: Option<f64>) -> Option<Split> {
        let [arrived, scheduled, first_token, ended] = request.times;
        let mut split = Split::default();
        let before = &mut split.until_first_token;
        let transfer = |span| request.transfer.and_then(|transfer| overlap(transfer, span));
        before[TRANSFER] = seconds_of(transfer((arrived, scheduled)));
        before[QUEUE] = seconds_of(Some((arrived, scheduled))) - before[TRANSFER];
        let prefill = (scheduled, first_token);
        let busy = self.busy(request, prefill, transfer(prefill).into_iter())?;
        let own = if busy.context_tokens > 0.0 { (tokens? / busy.context_tokens).min(1.0) } else { 1.0 };
        let transfer_seconds = seconds_of(transfer(prefill));
        before[TRANSFER] += transfer_seconds;
        share_out(before, PREFILL, seconds_of(Some(prefill)) - transfer_seconds, busy.context * (1.0 - own), &busy);
        let after = &mut split.after_first_token;
        let decode = (first_token, ended);
        let paused = || {
            let of_request = self.pauses.iter().filter(|pause| Some(pause.id) == request.row_id);
            of_request.filter_map(|pause| overlap((pause.from_us, pause.until_us), decode))
        };
        let busy = self.busy(request, decode, paused().chain(transfer(decode)))?;
        after[PAUSE] = paused().map(|span| seconds_of(Some(span))).sum();
        after[TRANSFER] = seconds_of(transfer(decode));
        let left = seconds_of(Some(decode)) - after[PAUSE] - after[TRANSFER];
        share_out(after, DECODE, left, busy.context, &busy);
        Some(split)
    }

    /// What the engine was busy with in `span`, except in the spans `without`. Absent if a record is missing, or if requests
    /// were paused and it is unknown whether this one was.
    fn busy(&self, of: &Spans, span: (i64, i64), without: impl Iterator<Item = (i64, i64)>) -> Option<Busy> {
        let timeline = self.timeline.as_ref()?;
        let between = |(from, until)| Some(timeline.at(until)?.since(&timeline.at(from)?));
        let mut busy: Busy = between(span)?;
        let knows_pauses = self.knows_pauses && of.row_id.is_some();
        if busy.gaps > 0.0 || busy.paused > 0.0 && !knows_pauses {
            return None;
        }
        for span in without {
            busy = busy.since(&between(span)?);
        }
        Some(busy)
    }
}

fn seconds_of(span: Option<(i64, i64)>) -> f64 {
    span.map_or(0.0, |(from, until)| (until - from) as f64 / 1e6)
}

/// Divides `seconds`: first the unexplained time, then the time that the prompts of other requests took (`blocked`). The rest
/// belongs to `phase`.
fn share_out(parts: &mut Seconds, phase: usize, seconds: f64, blocked: f64, busy: &Busy) {
    parts[UNEXPLAINED] = busy.unexplained.clamp(0.0, seconds.max(0.0));
    parts[BLOCKED] = blocked.clamp(0.0, (seconds - parts[UNEXPLAINED]).max(0.0));
    parts[phase] = seconds - parts[UNEXPLAINED] - parts[BLOCKED];
}
