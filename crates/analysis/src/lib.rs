//! What is learned from an engine while its messages are folded: what its iterations cost, why requests waited, where their time went,
//! whether objectives were met, and what happened in the last minutes. Pure: no I/O, no async, no locks, and time is an argument.
//!
//! [`Analysis`] listens to a fold, which does not know it. [`ObservedEngine`] is the two together.
#![forbid(unsafe_code)]

pub mod attribution;
pub mod cost_model;
pub mod iteration_sums;
pub mod numbers;
pub mod objectives;
mod observed_engine;
pub mod recent_requests;
pub mod saturation;
mod timeline;
pub mod window;

pub use observed_engine::{Analysis, ObservedEngine};

#[cfg(test)]
#[path = "../../fold/src/samples.rs"]
mod samples;
#[cfg(test)]
mod tests;
