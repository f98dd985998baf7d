//! What people and scripts read instead of metrics: the page at `/` and the JSON of `/api/v1`. Made from the state; the findings
//! also read the metrics page.

pub mod api;
pub mod findings;
pub mod history;
mod orchestrator;
pub mod page;
mod reasons;

/// Of the JSON of `/api/v1`. It grows when a reader of the present one would misunderstand the next.
pub const API_VERSION: u32 = 1;
