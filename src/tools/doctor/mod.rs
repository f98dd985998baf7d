//! `doctor`: says what limits each engine. A rule is a pure function of an observation.

mod batches;
pub mod finding;
pub mod judge;
pub mod observation;
pub mod report;
pub mod rules;

#[cfg(test)]
mod tests;
