//! The step function: ends the running iteration, takes new requests, starts the next iteration.

use std::collections::{BTreeMap, VecDeque};

use crate::adapters::AdapterPool;
use crate::config::Config;
use crate::faults::Faults;
use crate::frontend::FrontendState;
use crate::gpu::{Gpu, GpuState};
use crate::load::{Arrival, Generator};
use crate::random::{Random, mix};
use crate::record::{End, Entry, NumberedEvent, Record, Row};
use crate::request::Request;
use crate::scheduler::{Batch, Pass, Rank};
use crate::truth::{Felt, Truth};
use crate::writer::Writer;

/// What happened in a step.
#[derive(Debug, Default)]
pub struct Step {
    pub records: Vec<Record>,
    /// Rows of requests, with their iteration. Empty with PyTorch, which writes the rows into the record.
    pub rows: Vec<(u64, Vec<Row>)>,
    pub entries: Vec<Entry>,
    pub events: Vec<NumberedEvent>,
    /// What watched requests received.
    pub progress: Vec<Progress>,
    /// When to call [`Engine::step`] next. Absent if nothing happens before the next submission.
    pub next: Option<f64>,
}

/// Tokens that a watched request received, or its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub id: u64,
    pub tokens: u32,
    pub end: Option<End>,
}

/// The iteration that is running.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) start: f64,
    pub(crate) end: f64,
    pub(crate) gpu: f64,
    /// Seconds added by faults.
    pub(crate) delay: f64,
    pub(crate) batches: Vec<Batch>,
    /// Active requests of each rank, including those that end with this batch.
    pub(crate) active: Vec<u32>,
    pub(crate) intake: Intake,
}

/// Requests that became active in one step.
#[derive(Debug, Clone, Default)]
pub(crate) struct Intake {
    /// Their number on each rank.
    pub(crate) new: Vec<u32>,
    pub(crate) queue_seconds: f64,
}

/// One simulated engine. It has no clock: call [`Engine::step`] at the time that the last step returned.
#[derive(Debug)]
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) random: Random,
    pub(crate) generator: Generator,
    pub(crate) frontend: FrontendState,
    pub(crate) faults: Faults,
    adapters: AdapterPool,
    /// Requests that clients will send, by time and the id of the request that they follow.
    pub(crate) coming: BTreeMap<(u64, u64), Arrival>,
    /// Requests on their way from the frontend to the engine, by time and id.
    pub(crate) entering: BTreeMap<(u64, u64), Request>,
    pub(crate) queue: VecDeque<Request>,
    pub(crate) ranks: Vec<Rank>,
    pub(crate) running: Option<Running>,
    pub(crate) up_at: f64,
    pub(crate) iter: u64,
    pub(crate) next_id: u64,
    micro_batch: usize,
    pub(crate) link_free_at: f64,
    /// Whether a request has arrived that its client may cancel or that may time out.
    pub(crate) has_deadlines: bool,
    /// Whether a request is due that the limit `in_flight` keeps outside the engine.
    pub(crate) load_waits: bool,
    pub(crate) progress: Vec<Progress>,
    pub(crate) writer: Writer,
    gpu: GpuState,
    pub(crate) truth: Truth,
}

impl Engine {
    #[must_use]
    pub fn new(config: Config, seed: u64) -> Self {
        let adapters = config.adapters.as_ref().map_or(0, |adapters| adapters.count);
        Self {
            random: Random::new(mix(seed) ^ 1),
            generator: Generator::new(config.load.clone(), adapters, mix(seed) ^ 2),
            frontend: FrontendState::new(config.frontend.clone()),
            faults: Faults::new(config.faults.clone()),
            adapters: AdapterPool::new(config.adapters.as_ref()),
            coming: BTreeMap::new(),
            entering: BTreeMap::new(),
            queue: VecDeque::new(),
            ranks: (0..config.ranks.attention_dp).map(|_| Rank::new(&config)).collect(),
            running: None,
            up_at: config.startup.iter().map(|(_, seconds)| seconds).sum(),
            iter: u64::from(!config.release.is_cpp()),
            next_id: config.first_id(),
            micro_batch: 0,
            link_free_at: 0.0,
            has_deadlines: false,
            load_waits: false,
            progress: Vec::new(),
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

    /// Whether an iteration runs.
    #[must_use]
    pub fn is_iterating(&self) -> bool {
        self.running.is_some()
    }

    /// Requests that wait in the engine's queue.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// What the GPU driver shows at `now`. The utilization is that of the time since the last call.
    pub fn gpu(&mut self, now: f64) -> Gpu {
        let (memory, slow) = (self.gpu_memory(), self.faults.slow(now));
        self.gpu.read(now, self.truth.busy_seconds, slow, memory)
    }

    /// For each pipeline stage, the work of its GPU ÷ the work of the slowest stage's GPU.
    #[must_use]
    pub fn stage_shares(&self) -> Vec<f64> {
        let stages = self.config.ranks.pipeline;
        let slowest = 1.0 + self.config.ranks.imbalance;
        let other = (stages as f64 - slowest) / (stages as f64 - 1.0).max(1.0) / slowest;
        (0..stages).map(|stage| if stage == 0 { 1.0 } else { other.max(0.0) }).collect()
    }

    /// What users experienced between two times.
    #[must_use]
    pub fn felt(&self, from: f64, until: f64) -> Felt {
        let active = self.ranks.iter().flat_map(|rank| &rank.active);
        let open = active.chain(&self.queue).chain(self.entering.values());
        let waiting: Vec<f64> = open.filter(|r| r.first_seen_at.is_none()).map(|r| r.arrival.at).collect();
        self.truth.felt(from, until, &waiting)
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
        if let Some(until) = self.faults.restart(now) {
            self.restart(now, until);
        }
        self.take_arrivals(now);
        if now < self.up_at {
            step.next = Some(self.up_at);
            return step;
        }
        if let Some(running) = &self.running
            && now < running.end
        {
            step.next = Some(running.end);
            return step;
        }
        let finished = self.running.take();
        if let Some(running) = &finished {
            self.finish(running, now);
        }
        self.end_others(now);
        step.entries = std::mem::take(&mut self.writer.entries);
        if let Some(running) = finished {
            self.report_finished(&running, now, &mut step);
        }
        if self.load_waits {
            self.take_arrivals(now);
        }
        self.enter_queue(now);
        let intake = self.fetch(now);
        self.launch(now, intake, &mut step);
        self.collect_events(&mut step);
        step.progress = std::mem::take(&mut self.progress);
        step.next = match &self.running {
            Some(running) => Some(running.end),
            None => self.next_change(now),
        };
        step
    }

    /// Starts the next iteration, if there is work.
    fn launch(&mut self, now: f64, intake: Intake, step: &mut Step) {
        if self.faults.is_wedged(now) || self.ranks.iter().all(|rank| rank.active.is_empty()) {
            return;
        }
        let stages = self.config.ranks.pipeline;
        let batch_limit = self.batch_limit(now);
        let mut batches = Vec::new();
        for _ in 0..stages {
            batches.clear();
            for rank in &mut self.ranks {
                let mut pass = Pass {
                    config: &self.config,
                    now,
                    batch_limit,
                    micro_batch: self.micro_batch,
                    random: &mut self.random,
                    adapters: &mut self.adapters,
                    link_free_at: &mut self.link_free_at,
                };
                batches.push(rank.schedule(&mut pass));
            }
            if batches.iter().any(|batch| batch.work.scheduled > 0) {
                break;
            }
            self.micro_batch = (self.micro_batch + 1) % stages;
        }
        self.writer.carry_intake(&intake);
        if batches.iter().all(|batch| batch.work.scheduled == 0) {
            return;
        }
        let costs = &self.config.costs;
        let slow = self.faults.slow(now).map_or(1.0, |(factor, _)| factor);
        let drafts = self.draft_seconds(&batches);
        let longest = batches.iter().map(|batch| costs.gpu_seconds(&batch.work)).fold(0.0, f64::max);
        let skew = if stages > 1 { (1.0 + self.config.ranks.imbalance) / stages as f64 } else { 1.0 };
        let spread = match costs.jitter {
            0.0 => 1.0,
            jitter => (1.0 + jitter * self.random.normal()).clamp(0.3, 3.0),
        };
        let gpu = (longest * skew * spread + drafts) * slow;
        let host = batches.iter().map(|batch| costs.host_seconds(&batch.work)).fold(0.0, f64::max);
        let loading: f64 = batches.iter().map(|batch| batch.loading).sum();
        let seconds = costs.together(host, gpu) + loading;
        let delay = self.faults.delay(now, seconds);
        let end = now + seconds + delay;
        self.truth.busy_seconds += gpu;
        self.count(&batches, &intake);
        let active = self.ranks.iter().map(|rank| rank.active.len() as u32).collect();
        let running = Running { start: now, end, gpu, delay, batches, active, intake };
        self.report_launched(&running, step);
        self.running = Some(running);
        self.micro_batch = (self.micro_batch + 1) % stages;
    }

    /// Seconds that the draft tokens of a batch take.
    pub(crate) fn draft_seconds(&self, batches: &[Batch]) -> f64 {
        let Some(speculation) = &self.config.speculation else { return 0.0 };
        let drafts = batches.iter().any(|batch| batch.work.generation_requests > 0);
        if drafts { speculation.seconds_per_position * f64::from(speculation.draft_len) } else { 0.0 }
    }

    fn count(&mut self, batches: &[Batch], intake: &Intake) {
        self.truth.iterations += 1;
        self.truth.started += intake.new.iter().map(|new| u64::from(*new)).sum::<u64>();
        self.truth.queue_seconds += intake.queue_seconds;
        for batch in batches {
            self.truth.context_tokens += batch.work.context_tokens;
            self.truth.decoded_tokens += batch.decoded;
            self.truth.drafted += batch.drafted;
            self.truth.accepted += batch.decoded - u64::from(batch.work.generation_requests);
            self.truth.pauses += u64::from(batch.work.paused);
        }
    }

    /// The next time at which something changes if no iteration runs.
    fn next_change(&self, now: f64) -> Option<f64> {
        let first = |key: Option<&(u64, u64)>| key.map(|(bits, _)| f64::from_bits(*bits));
        let transfers = self.ranks.iter().flat_map(|rank| &rank.active);
        let transfer = transfers.filter_map(|r| r.transfer.map(|(_, end)| end).filter(|end| *end > now));
        let times = [self.generator.next_at(), first(self.coming.keys().next()), first(self.entering.keys().next())];
        let next =
            times.into_iter().flatten().chain(transfer).chain(self.next_deadline()).fold(f64::INFINITY, f64::min);
        next.is_finite().then(|| next.max(now + 1e-6))
    }

    /// The engine crashes: all requests fail, and the cache is lost. It serves again at `until`.
    pub fn restart(&mut self, now: f64, until: f64) {
        self.running = None;
        self.up_at = until;
        self.truth.restarts += 1;
        let queued: Vec<_> = self.queue.drain(..).collect();
        let active: Vec<_> = self.ranks.iter_mut().flat_map(|rank| std::mem::take(&mut rank.active)).collect();
        self.ranks = self.ranks.iter().map(|_| Rank::new(&self.config)).collect();
        for request in active.into_iter().chain(queued) {
            self.leave(&request, End::Error, now);
        }
        self.iter = u64::from(!self.config.release.is_cpp());
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
