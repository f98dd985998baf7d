//! What people and scripts read instead of metrics: the page at `/` and the JSON of `/api/v1`. Made from the state; the findings
//! also read the metrics page.

pub mod api;
pub mod findings;
mod orchestrator;
pub mod page;
mod reasons;
