//! The vocabulary: what an engine and a GPU say, as plain data. No I/O, no async, no metric names.

pub mod gpu;
