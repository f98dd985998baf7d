//! What the exporter makes of a simulated engine's records, and what its scenarios claim, against the simulation's truth.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod attribution;
mod folded;
mod judged;
mod scenarios;
