//! What people and scripts read instead of metrics: the page at `/` and the JSON of `/api/v1`. Made from the state.

pub mod api;
pub mod engine;
pub mod history;
pub mod model;
pub mod numbers;
pub mod page;
pub mod past;
mod reasons;

/// Of the JSON of `/api/v1`. It grows when a reader of the present one would misunderstand the next.
pub const API_VERSION: u32 = 1;
