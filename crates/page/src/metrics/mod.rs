//! Turns engines and GPUs into one ordered [`page::Page`] according to the [`catalog`]. Does not render it.

pub mod catalog;
pub mod compat;
mod dcgm;
mod engine;
mod engine_series;
mod engine_view;
pub(crate) mod family;
pub mod gpu;
mod labels;
pub mod own;
mod own_page;
pub mod page;
pub mod page_builder;
mod series_labels;
mod value;
mod writer;
