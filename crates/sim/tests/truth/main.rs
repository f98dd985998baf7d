//! Compares what the exporter computes from a simulated engine's records, and what the scenarios claim, with the
//! simulation's truth.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod attribution;
mod batch_times;
mod executor;
mod folded;
mod frontend;
mod judged;
mod members;
mod pair;
mod passes;
mod scenarios;
mod seats;
mod users;
mod waiting;
