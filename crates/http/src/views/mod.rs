//! The page at `/` and the JSON of `/api/v1`, for people and scripts. Both are built from the state.

pub mod answers;
pub mod api;
pub mod engine;
pub mod history;
pub mod html;
mod json;
pub mod numbers;
mod reasons;

/// Version of the JSON of `/api/v1`. It grows with a change that readers of the old version would misunderstand.
pub const API_VERSION: u32 = 1;
