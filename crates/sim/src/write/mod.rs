//! Writes what the engine reports as TensorRT-LLM's JSON, for the backend and the release. Upstream's key names are only here.

mod entry;
mod iteration;
mod log;

pub use entry::{Version, entry, steady};
pub use iteration::{record, rows};
pub use log::IterationLog;
