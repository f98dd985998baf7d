//! Accepts TLS connections with the configuration that is current when the client says hello.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, rustls};

use super::reload::{InvalidConfig, ReloadingConfig};

/// A TLS acceptor for the connections of one server.
#[derive(Debug, Clone)]
pub struct Acceptor(Arc<ReloadingConfig>);

impl Acceptor {
    /// `None` if the configuration has no `tls_server_config`. No reload changes that.
    pub fn new(config: &Arc<ReloadingConfig>) -> Option<Self> {
        config.current().is_ok_and(|settings| settings.tls.is_some()).then(|| Self(Arc::clone(config)))
    }

    /// # Errors
    /// When the handshake fails. The error contains [`InvalidConfig`] if the configuration is invalid now.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<TlsStream<S>> {
        let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
        let settings = self.0.current().map_err(io::Error::other)?;
        let config = settings.tls.clone().ok_or_else(|| io::Error::other(InvalidConfig))?;
        hello.into_stream(config).await
    }
}
