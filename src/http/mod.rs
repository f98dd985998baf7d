//! The HTTP server: listeners, connections, an axum router and its handlers. The access rules come from `web`.
//!
//! From a peer inwards: [`listen`] · [`server`] (one task per connection) · `connections` (deadlines and caps) · `layers` ·
//! [`router`] · `handlers`.

mod connections;
mod handlers;
mod layers;
pub mod listen;
pub mod router;
pub mod server;
