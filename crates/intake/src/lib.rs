//! How statistics of an engine get into the exporter: [`poll`] polls a source on its schedule. An [`Intake`] folds the messages and
//! publishes the result.
#![forbid(unsafe_code)]

mod intake;
pub mod past;
pub mod poll;
#[cfg(test)]
mod simulation;
mod source_log;

pub use intake::{Intake, Moment, UnknownKeyFilter};
