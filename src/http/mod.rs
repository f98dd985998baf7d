//! Serves bytes: which page, which format, which status. Knows no engine and no GPU.

pub mod landing;
pub mod router;
pub mod serve;
