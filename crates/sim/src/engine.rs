//! The step function: handles a launched batch, takes new requests, launches the next batch. The PyTorch loop with the
//! overlap scheduler launches a batch before it handles the batch before. `passes` has the times of the loop.

use std::collections::{BTreeMap, VecDeque};

use crate::adapters::AdapterPool;
use crate::config::Config;
use crate::faults::Faults;
use crate::frontend::FrontendState;
use crate::gpu::{Gpu, GpuState};
use crate::load::{Arrival, Generator};
use crate::passes::{Launched, Passes, Phase};
use crate::random::{Random, mix};
use crate::record::{End, Entry};
use crate::request::Request;
use crate::scheduler::{Batch, Rank};
use crate::step::{Step, Unanswered};
use crate::truth::Truth;
use crate::writer::Writer;

/// One simulated engine. It has no clock: call [`Engine::step`] at the time that the last step returned.
#[derive(Debug)]
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) random: Random,
    pub(crate) generator: Generator,
    pub(crate) frontend: FrontendState,
    pub(crate) faults: Faults,
    pub(crate) adapters: AdapterPool,
    /// Requests that clients will send, by time and the id of the request that they follow.
    pub(crate) coming: BTreeMap<(u64, u64), Arrival>,
    /// Requests on their way from the frontend to the engine, by time and id.
    pub(crate) entering: BTreeMap<(u64, u64), Request>,
    /// Requests that the engine has received and its loop has not taken.
    pub(crate) queue: VecDeque<Request>,
    /// Requests that the PyTorch loop has taken and that have no seat. No record counts them.
    pub(crate) waiting: VecDeque<Request>,
    pub(crate) ranks: Vec<Rank>,
    /// Batches that are not handled yet, oldest first. Two with the overlap scheduler, else one.
    pub(crate) launched: VecDeque<Launched>,
    pub(crate) passes: Passes,
    pub(crate) up_at: f64,
    /// Until when [`Truth::waiting_seconds`] is counted.
    pub(crate) waiting_counted_at: f64,
    /// C++: the number of the next record. PyTorch: the number of the running pass, as upstream's `iter_counter`.
    pub(crate) iter: u64,
    pub(crate) next_id: u64,
    pub(crate) micro_batch: usize,
    pub(crate) link_free_at: f64,
    /// Whether a request has arrived that its client may cancel or that may time out.
    pub(crate) has_deadlines: bool,
    /// Whether a request is due that the limit `in_flight` keeps outside the engine.
    pub(crate) load_waits: bool,
    pub(crate) unanswered: Vec<Unanswered>,
    /// In a deployment: the engine that continues the answers of this context engine.
    pub(crate) peer: Option<Peer>,
    pub(crate) writer: Writer,
    gpu: GpuState,
    pub(crate) truth: Truth,
}

/// What a context engine knows about the generation engine that continues its answers.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    /// Requests in the generation engine.
    pub(crate) in_flight: usize,
    /// For each answer since the last step: the request for the generation engine, and the entry of the context engine.
    pub(crate) handed_over: Vec<(Arrival, Entry)>,
}

impl Engine {
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        let adapters = config.adapters.as_ref().map_or(0, |adapters| adapters.count);
        let up_at = config.startup.iter().map(|(.., seconds)| seconds).sum();
        Self {
            random: Random::new(mix(seed) ^ 1),
            generator: Generator::new(config.load.clone(), adapters, mix(seed) ^ 2),
            frontend: FrontendState::new(config.frontend.clone()),
            faults: Faults::new(config.faults.clone()),
            adapters: AdapterPool::new(config.adapters.as_ref()),
            coming: BTreeMap::new(),
            entering: BTreeMap::new(),
            queue: VecDeque::new(),
            waiting: VecDeque::new(),
            ranks: (0..config.ranks.attention_dp).map(|_| Rank::new(&config)).collect(),
            launched: VecDeque::new(),
            passes: Passes::new(up_at),
            up_at,
            waiting_counted_at: 0.0,
            iter: 0,
            next_id: config.first_id(),
            micro_batch: 0,
            link_free_at: 0.0,
            has_deadlines: false,
            load_waits: false,
            unanswered: Vec::new(),
            peer: None,
            writer: Writer::new(mix(seed) ^ 3),
            gpu: GpuState::default(),
            truth: Truth::default(),
            config,
        }
    }

    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    #[must_use]
    pub fn truth(&self) -> &Truth {
        &self.truth
    }

    /// Whether the server answers. It does not while its model loads or while it restarts.
    #[must_use]
    pub fn is_up(&self, now: f64) -> bool {
        now >= self.up_at
    }

    /// Replaces the load, costs, speculation, faults and statistics. Other settings and the requests do not change.
    pub fn change(&mut self, config: Config, now: f64) {
        self.generator.change(config.load.clone(), now);
        self.faults = Faults::new(config.faults.clone());
        self.config.load = config.load;
        self.config.costs = config.costs;
        self.config.speculation = config.speculation;
        self.config.faults = config.faults;
        self.config.statistics = config.statistics;
    }

    /// Replaces the limit of requests in the engine. Excess requests wait outside.
    pub fn limit_in_flight(&mut self, most: Option<usize>) {
        self.config.load.in_flight = most;
    }

    /// Whether no request is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.in_flight() == 0
    }

    /// Whether a batch was launched whose tokens are not handled yet.
    #[must_use]
    pub fn is_iterating(&self) -> bool {
        !self.launched.is_empty()
    }

    /// Requests in the engine that wait to become active, whether or not a record counts them.
    #[must_use]
    pub fn waiting_for_seat(&self) -> usize {
        self.queue.len() + self.waiting.len()
    }

    /// What the GPU driver shows at `now` for one GPU of each pipeline stage; the first stage is the slowest. The utilization is that
    /// of the time since the last call.
    pub fn gpus(&mut self, now: f64) -> Vec<Gpu> {
        let (memory, slow) = (self.gpu_memory(), self.faults.slow(now));
        let first = self.gpu.read(now, self.truth.busy_seconds, slow, memory);
        let stages = self.config.ranks.pipeline;
        let slowest = 1.0 + self.config.ranks.imbalance;
        let share = (stages as f64 - slowest) / (stages as f64 - 1.0).max(1.0) / slowest;
        let others = (1..stages).map(|_| first.with_share(share.max(0.0), now)).collect::<Vec<_>>();
        std::iter::once(first).chain(others).collect()
    }

    /// When the requests arrived that have no first token yet.
    pub fn arrivals_without_token(&self) -> impl Iterator<Item = f64> {
        let active = self.ranks.iter().flat_map(|rank| &rank.active);
        let open = active.chain(&self.queue).chain(&self.waiting).chain(self.entering.values());
        open.filter(|request| request.first_seen_at.is_none()).map(|request| request.arrival.at)
    }

    /// Runs until `until` and passes each step to `each`.
    pub fn run(&mut self, until: f64, mut each: impl FnMut(Step)) {
        let mut now = Some(0.0);
        while let Some(at) = now.filter(|at| *at <= until) {
            let step = self.step(at);
            now = step.next;
            each(step);
        }
        // Takes the requests that arrived during the last iteration.
        each(self.step(until));
    }

    /// Advances to `now`: the time that the last step returned, or an earlier time if a request was submitted since.
    pub fn step(&mut self, now: f64) -> Step {
        let mut step = Step::default();
        self.count_waiting(now);
        if let Some(until) = self.faults.restart(now) {
            self.restart(now, until);
        }
        self.take_arrivals(now);
        if now < self.up_at {
            step.next = Some(self.up_at);
            return step;
        }
        if let Some(due) = self.passes.due.filter(|due| now < *due) {
            step.next = Some(due);
            return step;
        }
        match self.passes.phase {
            Phase::Handle => self.handle(now, &mut step),
            Phase::Finish => {}
            Phase::Fetch => {
                self.spin(now);
                self.end_others(now);
                step.entries = std::mem::take(&mut self.writer.entries);
            }
        }
        if !self.begin_tail(now) {
            self.begin_pass(now, &mut step);
        }
        step.unanswered = std::mem::take(&mut self.unanswered);
        step.next = self.passes.due.or_else(|| self.next_change(now));
        step
    }

    /// Handles the tokens of the oldest launched batch.
    fn handle(&mut self, now: f64, step: &mut Step) {
        let Some(launched) = self.launched.pop_front() else { return };
        let received = self.finish(&launched, now);
        if self.config.writes_after_tokens() {
            self.report_cpp(now, &launched, step);
        }
        self.end_all_finished(now, received.seen_at);
        if !self.config.release.is_cpp() {
            self.enter_queue(now);
            self.count(&launched, received.decoded);
        }
        self.end_others(now);
        step.entries = std::mem::take(&mut self.writer.entries);
        self.report_finished(&launched, now, step);
    }

    /// Takes new requests and launches a batch of what can be scheduled.
    fn begin_pass(&mut self, now: f64, step: &mut Step) {
        if self.load_waits {
            self.take_arrivals(now);
        }
        self.enter_queue(now);
        let micro_batches = if self.config.has_cpp_pipeline() { self.config.ranks.pipeline } else { 1 };
        for _ in 0..micro_batches {
            let intake = self.fetch(now);
            self.launch(now, intake, step);
            if !self.launched.is_empty() || self.ranks.iter().all(|rank| rank.active.is_empty()) {
                return;
            }
            if self.config.has_cpp_pipeline() && !self.faults.is_wedged(now) {
                self.pass_empty_micro_batch(now, step);
            }
        }
    }

    /// A pass of the C++ Executor whose micro batch is empty takes no time, and writes a record.
    fn pass_empty_micro_batch(&mut self, now: f64, step: &mut Step) {
        let empty = Launched {
            pass: self.iter,
            pass_begin: now,
            at: now,
            since: now,
            start: now,
            end: now,
            batches: vec![Batch::default(); self.ranks.len()],
            active: self.ranks.iter().map(|rank| rank.active.len() as u32).collect(),
            intake: std::mem::take(&mut self.passes.intake),
            ..Launched::default()
        };
        self.micro_batch = (self.micro_batch + 1) % self.config.ranks.pipeline;
        self.count(&empty, 0);
        self.report_cpp(now, &empty, step);
        self.end_all_finished(now, now);
        self.report_finished(&empty, now, step);
    }

    /// The next time at which something changes if no batch is launched.
    fn next_change(&self, now: f64) -> Option<f64> {
        let first = |key: Option<&(u64, u64)>| key.map(|(bits, _)| f64::from_bits(*bits));
        let transfers = self.ranks.iter().flat_map(|rank| rank.active.iter().chain(&rank.sending));
        let transfer = transfers.filter_map(|r| r.transfer.map(|(_, end)| end).filter(|end| *end > now));
        let times = [self.generator.next_at(), first(self.coming.keys().next()), first(self.entering.keys().next())];
        let next =
            times.into_iter().flatten().chain(transfer).chain(self.next_deadline()).fold(f64::INFINITY, f64::min);
        next.is_finite().then(|| next.max(now + 1e-6))
    }

    /// The engine crashes: all requests fail, and the cache is lost. It serves again at `until`.
    pub fn restart(&mut self, now: f64, until: f64) {
        self.launched.clear();
        self.passes = Passes::new(until.max(now));
        self.up_at = until;
        self.truth.restarts += 1;
        let queued: Vec<_> = self.waiting.drain(..).chain(self.queue.drain(..)).collect();
        let ranks = std::mem::take(&mut self.ranks);
        // In a deployment, the orchestrator has the answers of requests whose KV cache is being sent.
        let sending = |rank: Vec<Request>| rank.into_iter().filter(|_| self.peer.is_none());
        let active: Vec<_> =
            ranks.into_iter().flat_map(|rank| rank.active.into_iter().chain(sending(rank.sending))).collect();
        self.ranks = (0..self.config.ranks.attention_dp).map(|_| Rank::new(&self.config)).collect();
        for request in active.into_iter().chain(queued) {
            self.leave(&request, End::Error, now);
        }
        (self.iter, self.micro_batch) = (0, 0);
        self.writer.restart();
    }

    pub(crate) fn batch_limit(&self, now: f64) -> u32 {
        let limit = self.config.limits.max_batch_size;
        self.faults.tuned_limit(now).map_or(limit, |low| low.min(limit))
    }

    /// Bytes of the weights and of the KV cache.
    pub(crate) fn gpu_memory(&self) -> u64 {
        let cache = &self.config.cache;
        (16 << 30) + u64::from(cache.blocks) * u64::from(cache.tokens_per_block) * cache.bytes_per_token
    }
}
