//! `--web.config.file`, the web configuration of Prometheus's exporter-toolkit. It knows no page.

pub mod basic_auth;
mod client_certificates;
pub mod config;
pub mod rate_limit;
pub mod reload;
mod tls;
