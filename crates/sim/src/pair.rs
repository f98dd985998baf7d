//! A disaggregated deployment: a context engine, a generation engine, and the requests that an orchestrator passes from the
//! first to the second. It does not know what the orchestrator counts.

use std::collections::HashMap;

use crate::config::{Config, Role};
use crate::engine::{Engine, Peer};
use crate::load::{Arrival, Arrivals, Load};
use crate::random::mix;
use crate::record::{End, Entry};
use crate::step::Step;

/// A request in the generation engine.
#[derive(Debug)]
struct Handed {
    arrival: Arrival,
    context: Entry,
    /// Whether the context engine knows when its KV cache is transferred.
    is_pulled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Context,
    Generation,
}

/// What happened in a step of one of the two engines.
#[derive(Debug)]
pub struct PairStep {
    pub side: Side,
    pub step: Step,
    /// The entries of both engines for each request that the generation engine answered.
    pub answered: Vec<(Entry, Entry)>,
    /// When to call [`Pair::step`] next. Absent if nothing happens any more.
    pub next: Option<f64>,
}

/// Equal configurations and seeds give equal runs, so several processes can show parts of the same deployment.
#[derive(Debug)]
pub struct Pair {
    context: Engine,
    generation: Engine,
    next: [Option<f64>; 2],
    handed: HashMap<u64, Handed>,
}

impl Pair {
    /// Clients send the load of `context`. `generation` describes the other engine; its load is not used.
    #[must_use]
    pub fn new(mut context: Config, mut generation: Config, seed: u64) -> Self {
        (context.role, generation.role) = (Role::ContextOnly, Role::GenerationOnly);
        generation.load = Load { arrivals: Arrivals::Submitted, ..Load::default() };
        // The orchestrator needs both entries.
        (context.statistics.entries, generation.statistics.entries) = (true, true);
        let mut context = Engine::new(context, seed);
        context.peer = Some(Peer::default());
        let generation = Engine::new(generation, mix(seed));
        Self { context, generation, next: [Some(0.0), Some(0.0)], handed: HashMap::new() }
    }

    #[must_use]
    pub fn engine(&self, side: Side) -> &Engine {
        match side {
            Side::Context => &self.context,
            Side::Generation => &self.generation,
        }
    }

    /// Advances the engine that is due first to `now`, the time that the last step returned.
    pub fn step(&mut self, now: f64) -> PairStep {
        // The generation engine is first at equal times, because the context engine may wait for room in it.
        let is_context = self.next[0].is_some_and(|at| self.next[1].is_none_or(|other| at < other));
        let (side, step, answered) = if is_context {
            (Side::Context, self.step_context(now), Vec::new())
        } else {
            let (step, answered) = self.step_generation(now);
            (Side::Generation, step, answered)
        };
        let next = self.next.into_iter().flatten().min_by(f64::total_cmp);
        PairStep { side, step, answered, next }
    }

    fn step_context(&mut self, now: f64) -> Step {
        let in_flight = self.generation.in_flight();
        self.context.peer.get_or_insert_default().in_flight = in_flight;
        let step = self.context.step(now);
        // If the load waits for the end of an answer, only the generation engine can change that.
        let is_blocked = self.context.load_waits && !self.context.is_iterating();
        self.next[0] = if is_blocked { self.next[1] } else { step.next };
        for (arrival, context) in self.context.peer.iter_mut().flat_map(|peer| peer.handed_over.drain(..)) {
            let (id, at) = (context.id, arrival.at);
            self.handed.insert(id, Handed { arrival: arrival.clone(), context, is_pulled: false });
            self.generation.submit(arrival);
            wake(&mut self.next[1], at.max(now));
        }
        step
    }

    fn step_generation(&mut self, now: f64) -> (Step, Vec<(Entry, Entry)>) {
        let step = self.generation.step(now);
        self.next[1] = step.next;
        for (id, (start, end)) in self.generation.transfers() {
            if let Some(handed) = self.handed.get_mut(&id).filter(|handed| !handed.is_pulled) {
                handed.is_pulled = true;
                self.context.set_transfer(id, (start, end));
                wake(&mut self.next[0], end.max(now));
            }
        }
        let mut answered = Vec::new();
        for entry in step.entries.iter().filter(|entry| matches!(entry.end, End::Stop | End::Length)) {
            if let Some(handed) = self.handed.remove(&entry.id) {
                self.context.follow(&handed.arrival, entry.id, now);
                answered.push((handed.context, entry.clone()));
            }
        }
        for unanswered in &step.unanswered {
            if let Some(handed) = self.handed.remove(&unanswered.id) {
                self.context.set_transfer(unanswered.id, (now, now));
                self.context.follow(&handed.arrival, unanswered.id, now);
            }
        }
        if !answered.is_empty() || !step.unanswered.is_empty() {
            wake(&mut self.next[0], now);
        }
        (step, answered)
    }
}

/// Makes an engine's next step be at `at` or earlier.
fn wake(next: &mut Option<f64>, at: f64) {
    *next = Some(next.map_or(at, |next| next.min(at)));
}

impl Engine {
    /// Blocks that no request holds, on all ranks.
    #[must_use]
    pub fn free_blocks(&self) -> usize {
        self.ranks.iter().map(|rank| rank.cache.available()).sum()
    }

    /// Requests in the engine that continues the answers of this one.
    pub(crate) fn peer_in_flight(&self) -> usize {
        self.peer.as_ref().map_or(0, |peer| peer.in_flight + peer.handed_over.len())
    }

    /// Keeps an answered request of a context engine for the generation engine. What is left of its deadlines begins again.
    pub(crate) fn hand_over(
        &mut self,
        arrival: &Arrival,
        (output, max_new_tokens): (u32, u32),
        entry: &Entry,
        at: f64,
    ) {
        let Some(peer) = &mut self.peer else { return };
        let left = |seconds: Option<f64>| seconds.map(|seconds| (arrival.at + seconds - at).max(0.0));
        let (cancelled_after, timeout) = (left(arrival.cancelled_after), left(arrival.timeout));
        let id = Some(entry.id);
        let next = Arrival { at, id, output, max_new_tokens, cancelled_after, timeout, ..arrival.clone() };
        peer.handed_over.push((next, entry.clone()));
    }

    /// The transfers of active requests: their ids, starts and ends.
    fn transfers(&self) -> impl Iterator<Item = (u64, (f64, f64))> {
        let active = self.ranks.iter().flat_map(|rank| &rank.active);
        active.filter_map(|request| Some((request.id, request.transfer?)))
    }

    /// Tells a context engine when the generation engine receives the KV cache of a request.
    fn set_transfer(&mut self, id: u64, transfer: (f64, f64)) {
        let sending = self.ranks.iter_mut().flat_map(|rank| &mut rank.sending);
        if let Some(request) = sending.into_iter().find(|request| request.id == id) {
            request.transfer = Some(transfer);
        }
    }
}
