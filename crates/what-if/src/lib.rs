//! What an engine would do with another limit or another load. A small simulation of the scheduler runs with the costs of the
//! engine's own iterations and with its own requests. Pure: no clock, no I/O, and equal questions have equal answers.
#![forbid(unsafe_code)]

pub mod answer;
mod ask;
pub mod change;
pub mod compare;
mod costs;
mod headroom;
mod latencies;
mod load;
mod measured;
pub mod measured_engine;
pub mod output;
mod random;
mod replay;
mod scheduler;

pub use answer::{Answer, Forecast, Range};
pub use ask::ask;
pub use change::Change;
pub use compare::{Comparison, compare};
pub use headroom::{Headroom, capacity};
pub use measured_engine::MeasuredEngine;
