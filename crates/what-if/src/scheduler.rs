//! One engine in virtual time. Requests wait, enter the batch and receive tokens, as TensorRT-LLM schedules them: decoding before
//! context, and first come, first served. Times are seconds.
//!
//! A loop that overlaps forms a batch while the one before runs, and handles the tokens of a batch after it has formed the next one
//! (upstream: `_executor_loop_overlap`). So a request waits for the running batch, and an ended one keeps its seat for one batch more.

use std::collections::VecDeque;

use trtllm_analysis::cost_model::Work;

use crate::costs::CostEstimator;
use crate::measured_engine::{Cache, Policy, Request};
use crate::random::Random;

/// The settings that decide the schedule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) max_batch_size: u32,
    pub(crate) max_num_tokens: u32,
    pub(crate) chunked_context: bool,
    pub(crate) policy: Policy,
    pub(crate) cache: Option<Cache>,
    /// Draft tokens of each decoding step, and the probability that one is accepted if all earlier ones were.
    pub(crate) draft_len: u32,
    pub(crate) acceptance: f64,
    /// The loop forms a batch while the one before runs.
    pub(crate) overlap: bool,
    pub(crate) host: HostTime,
}

/// What the host's work changes in the time of an iteration, compared with the iterations whose costs are known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum HostTime {
    AsKnown,
    /// The known iterations hid this time, and it is not hidden any more.
    Added(f64),
    /// The known iterations contain this time, and it is hidden.
    Hidden(f64),
}

impl HostTime {
    fn apply(self, seconds: f64) -> f64 {
        match self {
            Self::AsKnown => seconds,
            Self::Added(host) => seconds + host,
            Self::Hidden(host) => (seconds - host).max(host),
        }
    }
}

/// How far a run went beyond what is known, which decides whether its result can be trusted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extrapolation {
    /// By the size of an iteration ÷ the largest known iteration, in steps of a quarter.
    seconds_by_relative_size: [f64; QUARTERS],
    /// Seconds of iterations in which a request waited for blocks of the KV cache.
    full: f64,
    /// Seconds of iterations whose costs are unclear.
    unclear: f64,
    /// A prompt waited because it did not fit into an iteration and chunked context is off.
    pub(crate) prompt_waited_for_tokens: bool,
}

const QUARTERS: usize = 80;
/// Larger iterations or a full cache do not matter during up to this share of the time.
const RARE: f64 = 0.02;

impl Default for Extrapolation {
    fn default() -> Self {
        Self { seconds_by_relative_size: [0.0; QUARTERS], full: 0.0, unclear: 0.0, prompt_waited_for_tokens: false }
    }
}

impl Extrapolation {
    fn note(&mut self, relative_size: f64, cache_is_full: bool, is_unclear: bool, seconds: f64) {
        let quarter = (4.0 * relative_size).ceil() as usize;
        self.seconds_by_relative_size[quarter.clamp(1, QUARTERS) - 1] += seconds;
        if cache_is_full {
            self.full += seconds;
        }
        if is_unclear {
            self.unclear += seconds;
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (sum, more) in self.seconds_by_relative_size.iter_mut().zip(other.seconds_by_relative_size) {
            *sum += more;
        }
        self.full += other.full;
        self.unclear += other.unclear;
        self.prompt_waited_for_tokens |= other.prompt_waited_for_tokens;
    }

    pub(crate) fn cache_was_full(&self) -> bool {
        self.full > RARE * self.seconds_by_relative_size.iter().sum::<f64>()
    }

    /// The share of the time in iterations whose costs are unclear.
    pub(crate) fn unclear(&self) -> f64 {
        self.unclear / self.seconds_by_relative_size.iter().sum::<f64>().max(1e-9)
    }

    /// The largest iteration ÷ the largest known iteration. Ignores the largest iterations if they take only a small share
    /// of the time.
    pub(crate) fn beyond(&self) -> f64 {
        let mut left = RARE * self.seconds_by_relative_size.iter().sum::<f64>();
        let index = self.seconds_by_relative_size.iter().rposition(|seconds| {
            left -= seconds;
            left < 0.0
        });
        index.map_or(0.0, |index| (index as f64 + 1.0) / 4.0)
    }
}

#[derive(Default)]
struct Active {
    request: usize,
    /// Tokens that must be in the cache before decoding (`context`), and tokens that are in it (`filled`), with those of the batches
    /// that run.
    context: u32,
    filled: u32,
    generated: u32,
    /// A batch that runs generates its last token.
    is_complete: bool,
    /// Blocks that this request takes, 0 before it is admitted. Its cached tokens are in free blocks or in those of others.
    blocks: u32,
    cached: u32,
    /// Its work in this iteration.
    chunk: u32,
    decodes: bool,
}

/// The batch of one iteration.
#[derive(Default)]
struct Batch {
    work: Work,
    requests: u32,
    tokens: u32,
}

/// A batch that runs: when it ends, the requests that receive a token then, and whether that is their last one.
struct Running {
    end: f64,
    receivers: Vec<(usize, bool)>,
}

pub(crate) struct Scheduler<'a> {
    rules: Rules,
    costs: &'a CostEstimator,
    /// Shifts all costs of this run by this many standard errors.
    cost_bias: f64,
    random: Random,
    waiting: VecDeque<usize>,
    active: Vec<Active>,
    blocks_left: i64,
    /// Whether a request waits for blocks in this iteration.
    cache_is_full: bool,
    pub(crate) reached: Extrapolation,
}

impl<'a> Scheduler<'a> {
    pub(crate) fn new(rules: Rules, costs: &'a CostEstimator, cost_bias: f64, random: Random) -> Self {
        let blocks_left = rules.cache.map_or(i64::MAX / 2, |cache| i64::from(cache.blocks));
        Self {
            rules,
            costs,
            cost_bias,
            random,
            waiting: VecDeque::new(),
            active: Vec::new(),
            blocks_left,
            cache_is_full: false,
            reached: Extrapolation::default(),
        }
    }

    /// Serves all requests, of which only the arrivals and the lengths matter, and returns them with their new times. With
    /// `clients`, this many requests are in the engine at any time, regardless of their times of arrival.
    pub(crate) fn serve(&mut self, coming: &[Request], clients: Option<usize>) -> Vec<Request> {
        let mut served = vec![Request::default(); coming.len()];
        let (mut now, mut next) = (0.0, 0);
        // With the overlap scheduler, the batch that runs while the next one is formed.
        let mut before: Option<Running> = None;
        loop {
            while let Some(request) = coming.get(next).filter(|request| clients.is_none() && request.arrived <= now) {
                self.arrive(next, request.arrived, coming, &mut served);
                next += 1;
            }
            let mut work = self.schedule(coming);
            // A client sends its next request a moment after its last answer, when the next batch is already chosen.
            while next < coming.len() && clients.is_some_and(|most| self.waiting.len() + self.active.len() < most) {
                self.arrive(next, now, coming, &mut served);
                next += 1;
            }
            // A request that arrived or was paused above may run at once.
            if work.is_none() && before.is_none() {
                work = self.schedule(coming);
            }
            let begin = before.as_ref().map_or(now, |before| before.end);
            let batch = work.map(|work| Running { end: begin + self.seconds(&work), receivers: self.launch(coming) });
            let handled = if self.rules.overlap { std::mem::replace(&mut before, batch) } else { batch };
            match handled {
                Some(handled) => {
                    now = handled.end;
                    self.handle(&handled, &mut served);
                }
                None if before.is_some() => {}
                None => match coming.get(next).filter(|_| clients.is_none()) {
                    Some(request) if self.active.is_empty() => now = request.arrived,
                    // All are served, or the first request can never run: its prompt does not fit into an iteration.
                    _ => return served,
                },
            }
        }
    }

    /// The seconds of an iteration with this work.
    fn seconds(&mut self, work: &Work) -> f64 {
        let cost = self.costs.seconds(work);
        // A cost with a large error must not become zero or negative.
        let seconds = self.rules.host.apply(cost.mean * (1.0 + self.cost_bias * cost.error).max(0.3));
        self.reached.note(self.costs.beyond(work), self.cache_is_full, cost.is_unclear, seconds);
        seconds
    }

    fn arrive(&mut self, index: usize, at: f64, coming: &[Request], served: &mut [Request]) {
        served[index] = Request { arrived: at, first_token: 0.0, ended: 0.0, ..coming[index] };
        self.waiting.push_back(index);
    }

    /// Chooses the next batch. `None` if no request can run.
    fn schedule(&mut self, coming: &[Request]) -> Option<Work> {
        let mut batch = Batch::default();
        self.cache_is_full = false;
        let paused = self.schedule_decoding(coming, &mut batch);
        self.schedule_context(coming, &mut batch, paused);
        (batch.requests > 0).then_some(batch.work)
    }

    /// Returns whether requests were paused.
    fn schedule_decoding(&mut self, coming: &[Request], batch: &mut Batch) -> bool {
        let (step, mut paused, mut index) = (1 + self.rules.draft_len, false, 0);
        while index < self.active.len() {
            let request = &self.active[index];
            let fits = batch.requests < self.rules.max_batch_size && batch.tokens + step <= self.rules.max_num_tokens;
            if request.is_complete || request.filled < request.context || !fits {
                index += 1;
                continue;
            }
            let needed = self.blocks(request.filled + step - request.cached);
            let more = i64::from(needed.saturating_sub(request.blocks));
            // A request that never fits has made the number of free blocks negative.
            if more > 0 && more > self.blocks_left {
                // The latest request is paused. It computes all its tokens again later.
                self.cache_is_full = true;
                paused = true;
                if self.pause_last(coming).is_none_or(|last| last == index) {
                    break;
                }
                continue;
            }
            self.blocks_left -= more;
            let request = &mut self.active[index];
            request.blocks = request.blocks.max(needed);
            request.decodes = true;
            batch.work.kv_tokens += f64::from(request.filled);
            batch.work.generation_tokens += f64::from(step);
            batch.requests += 1;
            batch.tokens += step;
            index += 1;
        }
        paused
    }

    /// Pauses the latest admitted request. Returns its index in `active`.
    fn pause_last(&mut self, coming: &[Request]) -> Option<usize> {
        let last = self.active.iter().rposition(|request| request.blocks > 0 && !request.is_complete)?;
        let request = &mut self.active[last];
        self.blocks_left += i64::from(request.blocks);
        request.context = coming[request.request].prompt + request.generated;
        (request.filled, request.blocks) = (0, 0);
        Some(last)
    }

    fn schedule_context(&mut self, coming: &[Request], batch: &mut Batch, paused: bool) {
        while self.active.len() < self.rules.max_batch_size as usize
            && let Some(request) = self.waiting.pop_front()
        {
            self.active.push(Active { request, context: coming[request].prompt, ..Active::default() });
        }
        for index in 0..self.active.len() {
            let budget = self.rules.max_num_tokens.saturating_sub(batch.tokens);
            if batch.requests >= self.rules.max_batch_size || budget == 0 {
                return;
            }
            let request = &self.active[index];
            if request.is_complete || request.filled >= request.context {
                continue;
            }
            if request.blocks == 0 && (paused || !self.admit(index, coming, budget)) {
                return;
            }
            let request = &mut self.active[index];
            let left = request.context - request.filled;
            let mut chunk = left.min(budget);
            if chunk < left {
                if !self.rules.chunked_context {
                    self.reached.prompt_waited_for_tokens = true;
                    return;
                }
                // Chunks are whole blocks.
                let size = self.rules.cache.map_or(1, |cache| cache.tokens_per_block.max(1));
                if self.rules.max_num_tokens >= size {
                    chunk -= chunk % size;
                }
            }
            if chunk == 0 {
                return;
            }
            request.chunk = chunk;
            batch.work.context_tokens += f64::from(chunk);
            batch.requests += 1;
            batch.tokens += chunk;
        }
    }

    /// Gives a request its blocks, if there are enough. Cached tokens need no computation.
    fn admit(&mut self, index: usize, coming: &[Request], budget: u32) -> bool {
        let request = &self.active[index];
        let known = &coming[request.request];
        let context = request.context;
        let cached = known.cached.min(context - 1);
        if !self.rules.chunked_context && context - cached > budget {
            self.reached.prompt_waited_for_tokens = true;
            return false;
        }
        let is_alone = self.active.iter().all(|request| request.blocks == 0);
        let tokens = match self.rules.policy {
            Policy::GuaranteedNoEvict => known.prompt + known.output + self.rules.draft_len,
            Policy::MaxUtilization => context,
        };
        let blocks = self.blocks(tokens - cached).max(1);
        // Keeps a block for the others to decode. Otherwise they would soon pause this request.
        let spare = u32::from(self.rules.policy == Policy::MaxUtilization && !is_alone);
        // A real engine refuses a request that is larger than the cache. Here it is admitted, so that others can follow.
        let never_fits = is_alone && self.rules.cache.is_some_and(|cache| blocks > cache.blocks);
        if i64::from(blocks + spare) > self.blocks_left && !never_fits {
            self.cache_is_full = true;
            return false;
        }
        self.blocks_left -= i64::from(blocks);
        let request = &mut self.active[index];
        (request.blocks, request.cached, request.filled) = (blocks, cached, cached);
        true
    }

    fn blocks(&self, tokens: u32) -> u32 {
        self.rules.cache.map_or(0, |cache| tokens.div_ceil(cache.tokens_per_block.max(1)))
    }

    /// Starts the batch. The loop knows how many tokens it generates. Returns the requests that will receive some.
    fn launch(&mut self, coming: &[Request]) -> Vec<(usize, bool)> {
        let (rules, random) = (self.rules, &mut self.random);
        let mut receivers = Vec::new();
        for request in &mut self.active {
            let output = coming[request.request].output;
            let made = if request.decodes {
                let accepted = (0..rules.draft_len).take_while(|_| random.unit() < rules.acceptance).count() as u32;
                let made = (1 + accepted).min(output - request.generated);
                request.filled += made;
                // The next step continues after the decoded tokens.
                request.context = request.filled;
                made
            } else if request.chunk > 0 {
                request.filled += request.chunk;
                u32::from(request.filled >= request.context)
            } else {
                0
            };
            (request.decodes, request.chunk) = (false, 0);
            request.generated += made;
            request.is_complete = request.generated >= output;
            if made > 0 {
                receivers.push((request.request, request.is_complete));
            }
        }
        receivers
    }

    /// Handles the tokens of a batch that has ended. The receivers are in the order of `active`.
    fn handle(&mut self, batch: &Running, served: &mut [Request]) {
        let mut receivers = batch.receivers.iter().peekable();
        let mut freed = 0;
        self.active.retain(|request| {
            let Some((_, is_last)) = receivers.next_if(|(receiver, _)| *receiver == request.request) else {
                return true;
            };
            let served = &mut served[request.request];
            if served.first_token == 0.0 {
                served.first_token = batch.end - served.arrived;
            }
            if *is_last {
                served.ended = batch.end - served.arrived;
                freed += i64::from(request.blocks);
            }
            !is_last
        });
        self.blocks_left += freed;
    }
}

#[cfg(test)]
pub(crate) mod bench_reports;
