//! The HTTP server: connections, an axum router and its handlers. The access rules come from `web`.
//!
//! In the order a request takes: [`server`] (one task per connection) · `connections` (deadlines and caps) · `layers` ·
//! [`router`] · `handlers`.

mod connections;
mod handlers;
mod layers;
pub mod router;
pub mod server;
