#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod acceptor;
mod access;
mod basic_auth;
mod client_certificates;
mod error;
mod file;
mod pem;
mod rate_limit;
mod tls;
mod web_config;

pub use acceptor::TlsAcceptor;
pub use access::{AccessControl, AccessControlLayer};
pub use error::{Error, Refusal};
pub use web_config::WebConfig;

#[cfg(test)]
mod tests {
    #[test]
    fn the_readme_shows_the_example_server() {
        assert!(include_str!("../README.md").contains(include_str!("../examples/server.rs")));
    }
}
