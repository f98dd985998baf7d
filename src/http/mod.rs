//! Serves bytes: which page, which format, which status, to whom. Knows no engine and no GPU.
//!
//! From a peer inwards: [`listen`], [`server`], `speak` (TLS, HTTP) watched by `connections`, [`layers`] (rate, password, room),
//! [`router`]. `web` says on what terms.

pub mod api;
mod connections;
mod handlers;
pub mod layers;
pub mod listen;
pub mod router;
pub mod server;
mod speak;
mod watched;
