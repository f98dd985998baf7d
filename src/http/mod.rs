//! Serves bytes: which page, which format, which status, to whom. Knows no engine and no GPU.
//!
//! From a peer inwards: [`listen`], [`serve`], `speak` (TLS, HTTP) watched by `connections`, [`gate`] (rate, password, room),
//! [`router`]. [`web_config`] says on what terms, [`reload`] what they are now.

pub mod api;
pub mod auth;
mod client_certificates;
mod connections;
pub mod gate;
pub mod landing;
pub mod listen;
mod pages;
pub mod rate_limit;
pub mod reload;
pub mod router;
pub mod serve;
mod speak;
mod tls;
mod watched;
pub mod web_config;
