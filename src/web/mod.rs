//! `--web.config.file`, the web configuration of Prometheus's exporter-toolkit: TLS, client certificates, response headers,
//! basic authentication and a rate limit. It offers a TLS acceptor and tower layers to a server, and reloads the file while
//! the server runs. It knows no page, and of the metrics only the count of refused requests.

mod acceptor;
pub mod basic_auth;
mod client_certificates;
pub mod config;
mod layers;
mod pem;
pub mod rate_limit;
pub mod reload;
mod tls;
mod turns;

pub use acceptor::Acceptor;
pub use layers::protect;
pub use reload::ReloadingConfig;
pub use turns::Peer;
