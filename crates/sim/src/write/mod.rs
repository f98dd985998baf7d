//! Writes what the engine reports as TensorRT-LLM's JSON, for the backend and the release. Only here are upstream's key names.

mod entry;
mod event;
mod iteration;

pub use entry::{Version, entry};
pub use event::event;
pub use iteration::{record, rows};
