//! What people and scripts read instead of metrics.

pub mod page;
