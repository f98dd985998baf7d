//! What this process simulates: one engine, or a whole disaggregated deployment of which it shows one server. The processes of a
//! deployment have the same options, seed and start time, so each simulates the same requests.

use clap::ValueEnum;
use serde_json::{Value, json};
use trtllm_sim::pair::{Pair, Side};
use trtllm_sim::record::Entry;
use trtllm_sim::{Config, Engine, Step, write};

use crate::orchestrator::Orchestrator;

/// The server of a disaggregated deployment that a process shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    Context,
    Generation,
    Orchestrator,
}

impl Part {
    fn shows(self, side: Side) -> bool {
        matches!((self, side), (Self::Context, Side::Context) | (Self::Generation, Side::Generation))
    }
}

#[derive(Debug)]
pub(crate) enum World {
    Engine(Box<Engine>),
    Deployment(Box<Pair>, Part),
}

/// What clients of this process can see of a step.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) step: Option<Step>,
    /// Lines of the orchestrator's perf-metrics file.
    pub(crate) lines: Vec<Value>,
    pub(crate) next: Option<f64>,
}

impl World {
    pub(crate) fn engine(config: Config, seed: u64) -> Self {
        Self::Engine(Box::new(Engine::new(config, seed)))
    }

    pub(crate) fn deployment(context: Config, generation: Config, seed: u64, part: Part) -> Self {
        Self::Deployment(Box::new(Pair::new(context, generation, seed)), part)
    }

    /// The engine that this process shows. For an orchestrator: the context engine, whose settings stand for the deployment.
    pub(crate) fn shown(&self) -> &Engine {
        match self {
            Self::Engine(engine) => engine,
            Self::Deployment(pair, Part::Generation) => pair.engine(Side::Generation),
            Self::Deployment(pair, _) => pair.engine(Side::Context),
        }
    }

    /// The only engine. `None` for a deployment: a change here would not reach its other processes.
    pub(crate) fn standalone_engine(&mut self) -> Option<&mut Engine> {
        match self {
            Self::Engine(engine) => Some(engine),
            Self::Deployment(..) => None,
        }
    }

    pub(crate) fn is_up(&self, at: f64) -> bool {
        match self {
            Self::Deployment(pair, Part::Orchestrator) => {
                [Side::Context, Side::Generation].iter().all(|side| pair.engine(*side).is_up(at))
            }
            _ => self.shown().is_up(at),
        }
    }

    pub(crate) fn step(&mut self, at: f64, orchestrator: &mut Orchestrator) -> Seen {
        match self {
            Self::Engine(engine) => {
                let step = engine.step(at);
                Seen { next: step.next, step: Some(step), lines: Vec::new() }
            }
            Self::Deployment(pair, part) => {
                let stepped = pair.step(at);
                orchestrator.arrived(pair.engine(Side::Context).truth());
                if stepped.side == Side::Context {
                    stepped.step.entries.iter().for_each(|entry| orchestrator.answered_by_context(entry));
                }
                for (_, generation) in &stepped.answered {
                    orchestrator.answered_by_generation(generation);
                }
                stepped.step.unanswered.iter().for_each(|call| orchestrator.unanswered(call, stepped.side));
                let is_orchestrator = *part == Part::Orchestrator;
                let lines = stepped.answered.iter().filter(|_| is_orchestrator).map(line).collect();
                Seen { step: part.shows(stepped.side).then_some(stepped.step), lines, next: stepped.next }
            }
        }
    }
}

/// The orchestrator's line of a request, as `combine_disagg_metrics` writes it.
fn line((context, generation): &(Entry, Entry)) -> Value {
    let part = |entry: &Entry| write::entry(entry, write::Version::V2);
    // Without streaming, `on_first_token` is called when the whole answer is there.
    let first_token = generation.server_first_token.unwrap_or(generation.last_token);
    json!({
        "ctx_server": "http://context:8001", "gen_server": "http://generation:8002",
        "disagg_server_arrival_time": write::steady(context.server_arrival),
        "disagg_server_first_token_time": write::steady(first_token),
        "ctx_perf_metrics": part(context), "gen_perf_metrics": part(generation),
        "disagg_request_id": context.id, "status": "complete",
    })
}
