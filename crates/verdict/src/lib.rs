//! What limits an engine: one cause, with its evidence, what it costs users, and one remedy. Pure: it reads the window of an
//! engine and of its GPUs, and time is an argument.
#![forbid(unsafe_code)]

pub mod blind;
pub mod cause;
pub mod findings;
pub mod gpu_window;
pub mod input;
pub mod judge;
mod rules;
pub mod texts;
pub mod verdict;
