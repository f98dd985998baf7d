//! What is published of one engine.

use trtllm_engine::attribution::RequestParts;
use trtllm_engine::cost_model::Costs;
use trtllm_engine::iteration_sums::IterationSums;
use trtllm_engine::lifecycle::Stages;
use trtllm_engine::orchestrator::OrchestratorTotals;
use trtllm_engine::request_totals::RequestTotals;
use trtllm_engine::{EngineFold, EngineState, EngineTotals, Health, Latest};
use trtllm_model::EngineAbout;

use super::source::SourceStatus;

/// One engine at one moment.
#[derive(Debug, Clone)]
pub struct EngineSnapshot {
    pub state: EngineState,
    /// Gives the state at a later time. Absent before the first poll.
    pub health: Option<Health>,
    pub latest: Option<Latest>,
    pub totals: EngineTotals,
    pub requests: RequestTotals,
    /// Where their time went, if their iterations are known.
    pub request_parts: Option<RequestParts>,
    /// Why requests waited, and where the time went.
    pub iteration_sums: IterationSums,
    /// What an iteration costs, if it is known.
    pub costs: Option<Costs>,
    /// Requests by stage, if the engine reports its requests.
    pub stages: Option<Stages>,
    /// What an orchestrator tells. `None` for an engine.
    pub orchestrator: Option<Box<OrchestratorTotals>>,
    pub source: SourceStatus,
    pub about: EngineAbout,
}

impl EngineSnapshot {
    /// The snapshot before the first poll.
    #[must_use]
    pub fn starting() -> Self {
        Self {
            state: EngineState::Starting,
            health: None,
            latest: None,
            totals: EngineTotals::new(),
            requests: RequestTotals::new(),
            request_parts: None,
            iteration_sums: IterationSums::default(),
            costs: None,
            stages: None,
            orchestrator: None,
            source: SourceStatus::default(),
            about: EngineAbout::default(),
        }
    }

    /// The source of load gauges: absent for a stale engine, 0 for an idle one.
    #[must_use]
    pub fn load(&self) -> Option<Latest> {
        let latest = self.latest.filter(|_| !self.state.is_stale())?;
        Some(if self.state == EngineState::Idle { latest.idle() } else { latest })
    }

    /// Replaces all values in place.
    pub fn write(&mut self, state: EngineState, engine: &EngineFold, source: &SourceStatus, about: &EngineAbout) {
        self.state = state;
        self.health = Some(engine.health);
        self.latest = engine.latest().copied();
        self.totals.clone_from(&engine.totals);
        self.requests.clone_from(&engine.requests.totals);
        self.request_parts = engine.requests.attribution.totals;
        self.iteration_sums = engine.iterations.sums;
        self.costs = engine.iterations.model.costs();
        self.stages = engine.stages();
        self.orchestrator = engine.orchestrator().cloned().map(Box::new);
        self.source.clone_from(source);
        self.about.clone_from(about);
    }
}
