//! The HTTP server: metrics, the JSON API and the page for people.
//!
//! The modules in the order in which a request passes them: [`listen`] (addresses and sockets) · [`server`] (one task
//! per connection) · `connections` (deadlines and limits) · [`router`] (routes and limits) · `handlers` · [`views`].
//! [`exporter_web_config`] contains the access rules.
#![forbid(unsafe_code)]

mod connections;
mod handlers;
pub mod listen;
pub mod router;
pub mod server;
pub mod views;
