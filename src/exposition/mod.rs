//! A [`crate::metrics::page::Page`] as bytes, in the formats readers ask for. Knows formats, not meanings.

pub mod cache;
mod compress;
pub mod negotiate;
pub mod openmetrics;
pub mod protobuf;
pub mod text;
