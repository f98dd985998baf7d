//! Accepts TLS connections with the configuration that is current at the time of the client's first message.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_rustls::{LazyConfigAcceptor, rustls};

use crate::error::Refusal;
use crate::web_config::WebConfig;

/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 22;
/// The answer that Go's server sends to plain HTTP, so that people find the cause.
const NOT_TLS: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n\
    Cache-Control: no-store\r\nConnection: close\r\n\r\n\
    Client sent an HTTP request to an HTTPS server.\n";

/// Accepts TLS connections by the `tls_server_config` of a [`WebConfig`]. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TlsAcceptor(WebConfig);

impl WebConfig {
    /// The acceptor for TLS connections. `None` if the file has no `tls_server_config`; a reload never changes that.
    #[must_use]
    pub fn tls_acceptor(&self) -> Option<TlsAcceptor> {
        self.state.uses_tls.then(|| TlsAcceptor(self.clone()))
    }
}

impl TlsAcceptor {
    /// Performs the TLS handshake with the client at the other end of `stream`.
    ///
    /// A new certificate takes effect with the next handshake; open connections keep theirs. ALPN offers `http/1.1` only. A
    /// client that sends plain HTTP gets status 400 and an explanation.
    ///
    /// There is no timeout: wrap the call in [`tokio::time::timeout`], because a client may never finish.
    ///
    /// # Errors
    /// If the handshake fails, if the client certificate is missing or invalid, or while the configuration is invalid. All of
    /// these are reported to [`WebConfig::on_refusal`]. A client that disconnects without sending a byte is an error, too, but it is not
    /// reported, because some health checks only connect.
    pub async fn accept<S>(&self, mut stream: S) -> io::Result<impl AsyncRead + AsyncWrite + Unpin + use<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let first = [stream.read_u8().await?];
        let failed = |_: &io::Error| self.0.report(Refusal::TlsHandshake);
        if first != [HANDSHAKE] {
            explain(stream).await;
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the client does not use TLS")).inspect_err(failed);
        }
        let mut hello = rustls::server::Acceptor::default();
        hello.read_tls(&mut &first[..])?;
        let hello = LazyConfigAcceptor::new(hello, stream).await.inspect_err(failed)?;
        let Some(tls) = self.0.settings().and_then(|settings| settings.tls.as_ref().map(|tls| Arc::clone(&tls.config)))
        else {
            self.0.report(Refusal::InvalidConfig);
            return Err(io::Error::other("the web configuration is invalid"));
        };
        hello.into_stream(tls).await.inspect_err(failed)
    }
}

/// Answers a client that sent plain HTTP.
async fn explain<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let _ = stream.write_all(NOT_TLS).await;
    let _ = stream.shutdown().await;
    // If a socket is closed with unread input, the connection is reset and the client may lose the answer.
    let mut ignored = [0; 1024];
    let rest = async { while matches!(stream.read(&mut ignored).await, Ok(1..)) {} };
    let _ = tokio::time::timeout(Duration::from_secs(1), rest).await;
}
