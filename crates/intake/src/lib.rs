//! The way of an engine's statistics into the exporter: [`poll`] asks a source on its schedule, and an [`Intake`] folds what it
//! sends and publishes the result.
#![forbid(unsafe_code)]

mod intake;
pub mod past;
pub mod poll;
#[cfg(test)]
mod simulation;
mod source_log;

pub use intake::{Intake, Moment};
