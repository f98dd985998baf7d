//! Turns engines and GPUs into one ordered [`page::Page`] according to the [`catalog`]. Does not render it.

pub mod catalog;
pub mod compat;
mod dcgm;
mod engine;
mod engine_series;
mod engine_view;
pub mod gpu;
mod labels;
pub mod own;
pub mod page;
pub mod page_builder;
pub mod series_labels;
mod value;
mod writer;
