//! What limits an engine: rules over what an exporter showed in a window. Pure: `doctor` and the page for people read the numbers,
//! and both get the same findings.
#![forbid(unsafe_code)]

pub mod about;
pub mod batches;
pub mod finding;
pub mod judge;
pub mod observation;
pub mod page;
pub mod records;
pub mod report;
pub mod rules;
pub mod thresholds;

#[cfg(test)]
mod tests;
