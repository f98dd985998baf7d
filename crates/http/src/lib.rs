//! The HTTP server: metrics, the JSON API and the page for people.
//!
//! In the order a request takes: [`listen`] (addresses and sockets) · [`server`] (one task per connection) · `connections`
//! (deadlines and caps) · [`router`] (routes and limits) · `handlers` · [`views`]. The access rules are those of
//! [`exporter_web_config`].
#![forbid(unsafe_code)]

mod connections;
mod handlers;
pub mod listen;
pub mod router;
pub mod server;
pub mod views;
