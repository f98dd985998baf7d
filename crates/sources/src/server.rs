//! The server that a client reads: its address, the certificate authorities that are trusted, and the token that is sent.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderValue;
use http::uri::Authority;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_rustls::rustls::ClientConfig;

use super::error::{OpenError, SourceError};
use super::tls::client_config;
use trtllm_service::host::is_incomplete_ipv4;
use trtllm_service::small_file;

/// Default port of trtllm-serve.
pub const DEFAULT_PORT: u16 = 8000;
/// How long a token is used before its file is read again. The kubelet replaces a token at 80 % of its lifetime, which is at least 10
/// minutes.
const TOKEN_AGE: Duration = Duration::from_secs(60);

/// How to reach a server, as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// `http(s)://HOST:PORT[/BASE]`
    pub target: String,
    /// Certificate authorities of the server, or its own certificate, instead of the system's authorities.
    pub ca_file: Option<PathBuf>,
    /// A token to send with each request.
    pub bearer_token_file: Option<PathBuf>,
}

impl Access {
    /// Checks that the certificates for https can be read. The token is not checked: its file may appear later. Fails
    /// if the certificates cannot be read, or there are none.
    pub fn check(&self) -> Result<(), OpenError> {
        self.tls().map(drop)
    }

    /// The settings for https: trusts the certificates in `ca_file`, or the authorities of the system.
    fn tls(&self) -> Result<Option<ClientConfig>, OpenError> {
        let ca_file = &self.ca_file;
        let failed = |cause| OpenError::Certificates { file: ca_file.clone(), cause };
        self.is_https().then(|| client_config(ca_file.as_deref()).map_err(failed)).transpose()
    }

    fn is_https(&self) -> bool {
        self.target.starts_with("https:")
    }
}

/// The port of `HOST:PORT`, if there is one. The crate `http` ignores a port that it cannot parse, and the default port
/// could be that of another server. Fails if the text after the colon is not a port.
pub fn port_of(authority: &Authority) -> Result<Option<u16>, String> {
    let Some((_, port)) = authority.as_str().split_at(authority.host().len()).1.split_once(':') else {
        return Ok(None);
    };
    parse_port(port).map(Some).ok_or_else(|| format!("port {port:?} is not a number from 1 to 65535; correct it"))
}

/// A number from 1 to 65535. Unlike Rust's own parser, this one allows no sign.
pub(super) fn parse_port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0 && text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Fails if the host of a URL looks like an IPv4 address and is not one, or is an IPv6 address with a zone, such as `[fe80::1%eth0]`: the
/// syntax of URLs has no zones.
pub fn check_host(host: &str) -> Result<(), String> {
    if let Some((_, zone)) = host.trim_end_matches(']').split_once('%') {
        return Err(format!(
            "the zone %{zone} is not supported in a URL; use an address without a zone, or a host name"
        ));
    }
    match is_incomplete_ipv4(host) {
        true => Err(format!("{host:?} is not an IPv4 address; write four numbers from 0 to 255, as in 127.0.0.1")),
        false => Ok(()),
    }
}

/// A server to connect to. Clones share the certificates that were read.
#[derive(Debug, Clone)]
pub struct TargetServer {
    pub(super) target: String,
    /// The TLS settings for https.
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) token_file: Option<PathBuf>,
    /// The header `Authorization` with a user and a password.
    pub(super) authorization: Option<HeaderValue>,
}

impl TargetServer {
    /// Reads the certificates that the connection needs. Fails if there are none.
    pub async fn new(access: Access) -> Result<Self, OpenError> {
        let opening = access.clone();
        let tls = match access.is_https() {
            true => spawn_blocking(move || opening.tls()).await,
            false => Ok(Ok(None)),
        };
        let Access { target, ca_file, bearer_token_file } = access;
        let aborted = |error| OpenError::Certificates { file: ca_file, cause: io::Error::other(error) };
        let tls = tls.map_err(aborted)??.map(Arc::new);
        Ok(Self { target, tls, token_file: bearer_token_file, authorization: None })
    }

    /// A server that is reached without TLS and token.
    pub(super) fn plain(target: String) -> Self {
        Self { target, tls: None, token_file: None, authorization: None }
    }

    /// Sends this header `Authorization` unless there is a token file.
    pub fn with_user(self, authorization: HeaderValue) -> Self {
        Self { authorization: Some(authorization), ..self }
    }
}

/// The token of a server, as last read from its file.
#[derive(Debug, Default)]
pub(super) struct Token {
    cached: Option<(Instant, HeaderValue)>,
    /// A read that has outlived its poll. The next poll waits for it, so that a file system that hangs blocks only one thread.
    reading: Option<JoinHandle<io::Result<Vec<u8>>>>,
}

impl Token {
    /// The value of the header `Authorization`. Fails if the file cannot be read or does not contain a token.
    pub(super) async fn header(&mut self, file: &Path) -> Result<HeaderValue, SourceError> {
        if let Some((read_at, header)) = &self.cached
            && read_at.elapsed() < TOKEN_AGE
        {
            return Ok(header.clone());
        }
        let path = file.to_owned();
        let read = self.reading.get_or_insert_with(|| spawn_blocking(move || read_token(&path))).await;
        self.reading = None;
        let header = read.unwrap_or_else(|error| Err(io::Error::other(error))).and_then(|text| bearer(&text));
        let header = header.map_err(|cause| SourceError::Token { path: file.to_owned(), cause })?;
        self.cached = Some((Instant::now(), header.clone()));
        Ok(header)
    }

    /// To be called when the server refuses the token: the file may have a newer one.
    pub(super) fn refused(&mut self) {
        self.cached = None;
    }
}

/// Checks that the file contains a token now. Fails if it cannot be read, or contains no token.
pub fn check_token(file: &Path) -> io::Result<()> {
    read_token(file).and_then(|text| bearer(&text)).map(drop)
}

/// Reads the file. Refuses pipes: each read would wait for a writer, and could block a thread forever.
fn read_token(file: &Path) -> io::Result<Vec<u8>> {
    match small_file::is_stream(file) {
        true => Err(io::Error::new(io::ErrorKind::InvalidInput, "a pipe or device cannot be read again; name a file")),
        false => small_file::read(file),
    }
}

fn bearer(text: &[u8]) -> io::Result<HeaderValue> {
    let token = text.trim_ascii();
    let header = HeaderValue::from_bytes(&[b"Bearer ", token].concat());
    let mut header =
        header.ok().filter(|_| !token.is_empty()).ok_or_else(|| io::Error::other("it does not contain a token"))?;
    // So `Debug` does not show the token.
    header.set_sensitive(true);
    Ok(header)
}
