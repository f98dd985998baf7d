//! The list of engines, each behind one lock, and the GPUs of the host.

mod capacity;
mod engine;
mod judgement;
mod judging;
mod slot;
mod source;
mod state;

pub use engine::{Engine, KeptRecord, Tells};
pub use judgement::EngineJudgement;
pub use slot::{EngineOrigin, EngineSlot, LockedEngine, SourceIndex};
pub use source::{SourceMetrics, SourceStatus, StartPhase};
pub use state::State;
