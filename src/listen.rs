//! Listeners: TCP addresses, Unix sockets, and sockets that systemd hands over.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::either::Either;

use crate::unix_socket;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `HOST:PORT`; the host may be a name.
    Tcp(String),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(out),
            Self::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    /// `:PORT` means all IPv4 interfaces.
    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = |why: &str| Err(format!("{why}; expected HOST:PORT, [IPV6]:PORT, :PORT or unix:PATH"));
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { invalid("the path is missing") } else { Ok(Self::Unix(path.into())) };
        }
        match text.rsplit_once(':') {
            None => invalid("the port is missing"),
            Some((_, port)) if port.parse::<u16>().is_err() => invalid("the port is not a number from 0 to 65535"),
            Some(("", port)) => Ok(Self::Tcp(format!("0.0.0.0:{port}"))),
            Some(_) => Ok(Self::Tcp(text.to_owned())),
        }
    }
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("cannot listen on {address}: {cause}; choose another address with {flag}")]
    Address { address: Address, cause: io::Error, flag: &'static str },
    #[error("--web.systemd-socket: {0}; start the exporter by a systemd .socket unit or remove the flag")]
    Systemd(String),
}

/// A bound listener.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    /// With the path to remove at the end, unless systemd owns it.
    Unix(UnixListener, Option<PathBuf>),
}

/// A connection. One type for both, so that the server is compiled once.
pub(crate) type Stream = Either<TcpStream, UnixStream>;

/// Binds every address; `flag` is where they were given.
///
/// # Errors
/// When an address cannot be bound.
pub async fn bind(addresses: &[Address], flag: &'static str) -> Result<Vec<Listener>, BindError> {
    let mut listeners = Vec::new();
    for address in addresses {
        let bound = match address {
            Address::Tcp(address) => TcpListener::bind(address).await.map(Listener::Tcp),
            Address::Unix(path) => {
                unix_socket::bind(path).await.map(|listener| Listener::Unix(listener, Some(path.clone())))
            }
        };
        listeners.push(bound.map_err(|cause| BindError::Address { address: address.clone(), cause, flag })?);
    }
    Ok(listeners)
}

/// The sockets of a systemd `.socket` unit.
///
/// # Errors
/// When there is none, or one is neither a TCP nor a Unix listener.
pub fn from_systemd() -> Result<Vec<Listener>, BindError> {
    let mut handed = listenfd::ListenFd::from_env();
    let count = handed.len();
    if count == 0 {
        return Err(BindError::Systemd("systemd passed no socket".to_owned()));
    }
    let take = |index| {
        let unusable = |error: io::Error| BindError::Systemd(format!("socket {index} is unusable: {error}"));
        if let Ok(Some(listener)) = handed.take_tcp_listener(index) {
            listener.set_nonblocking(true).map_err(unusable)?;
            return TcpListener::from_std(listener).map(Listener::Tcp).map_err(unusable);
        }
        let listener = handed.take_unix_listener(index).map_err(unusable)?;
        let listener = listener.ok_or_else(|| BindError::Systemd(format!("socket {index} was passed twice")))?;
        listener.set_nonblocking(true).map_err(unusable)?;
        UnixListener::from_std(listener).map(|listener| Listener::Unix(listener, None)).map_err(unusable)
    };
    (0..count).map(take).collect()
}

impl Listener {
    /// The bound address, with the port that was chosen for port 0.
    #[must_use]
    pub fn address(&self) -> Option<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok().map(|address| Address::Tcp(address.to_string())),
            Self::Unix(listener, _) => {
                Some(Address::Unix(listener.local_addr().ok()?.as_pathname().map(Path::to_owned).unwrap_or_default()))
            }
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // A response is written at once; its last packet must not wait for an acknowledgement.
                let _ = stream.set_nodelay(true);
                Ok(Either::Left(stream))
            }
            Self::Unix(listener, _) => Ok(Either::Right(listener.accept().await?.0)),
        }
    }
}

/// The address of a TCP connection's peer.
pub(crate) fn peer_address(stream: &Stream) -> Option<std::net::IpAddr> {
    match stream {
        Either::Left(tcp) => Some(tcp.peer_addr().ok()?.ip()),
        Either::Right(_) => None,
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, Some(path)) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}
