//! One simulated TensorRT-LLM engine in virtual time. A pure step function: state and time in; records, request rows,
//! perf-metrics entries and the time of the next step out. See README.md for what is not simulated.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod adapters;
pub mod cache;
mod completion;
pub mod config;
pub mod cost;
mod engine;
mod faults;
mod frontend;
mod gpu;
mod intake;
mod launch;
pub mod load;
pub mod options;
pub mod pair;
mod parts;
mod pass;
mod passes;
pub mod random;
pub mod record;
mod report;
mod request;
pub mod scenario;
mod scheduler;
mod step;
pub mod truth;
pub mod write;
mod writer;

pub use config::Config;
pub use engine::Engine;
pub use gpu::Gpu;
pub use load::Arrival;
pub use record::{End, Stage};
pub use step::{Step, Unanswered};
