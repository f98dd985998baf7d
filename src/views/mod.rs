//! What people and scripts read instead of metrics: the page at `/` and the JSON of `/api/v1`. Made from the state alone.

pub mod api;
pub mod findings;
pub mod page;
