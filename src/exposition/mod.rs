//! A [`crate::metrics::page::Page`] as bytes, in the formats readers ask for. Knows formats, not meanings.

pub mod cache;
pub mod negotiate;
pub mod openmetrics;
pub mod pack;
pub mod protobuf;
pub mod text;
