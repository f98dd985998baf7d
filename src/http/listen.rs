//! Listeners: TCP, Unix sockets, or those a service manager hands over. Bound before anything runs.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::either::Either;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
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

/// An address that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("cannot listen on {address}: {cause}; choose another address with {flag}")]
    Address { address: Address, cause: io::Error, flag: &'static str },
    #[error("--web.systemd-socket: {0}; start by a systemd .socket unit, or leave the flag out")]
    Handed(String),
}

/// A bound listener.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    /// With the path to remove at the end, where it was made here.
    Unix(UnixListener, Option<PathBuf>),
}

/// A peer's stream. One type, so that what speaks over it is compiled once.
pub(super) type Stream = Either<TcpStream, UnixStream>;

/// Binds every address, given by `flag`.
///
/// # Errors
/// With the first address that cannot be bound.
pub async fn bind(addresses: &[Address], flag: &'static str) -> Result<Vec<Listener>, BindError> {
    let mut listeners = Vec::new();
    for address in addresses {
        let bound = match address {
            Address::Tcp(address) => TcpListener::bind(address).await.map(Listener::Tcp),
            Address::Unix(path) => bind_unix(path),
        };
        listeners.push(bound.map_err(|cause| BindError::Address { address: address.clone(), cause, flag })?);
    }
    Ok(listeners)
}

/// The sockets of a systemd `.socket` unit.
///
/// # Errors
/// When there are none, or one is neither a TCP nor a Unix listener.
pub fn handed_over() -> Result<Vec<Listener>, BindError> {
    let mut handed = listenfd::ListenFd::from_env();
    let count = handed.len();
    if count == 0 {
        return Err(BindError::Handed("no socket was handed over".to_owned()));
    }
    let take = |index| {
        let odd = |error: io::Error| BindError::Handed(format!("socket {index} cannot be served: {error}"));
        if let Ok(Some(listener)) = handed.take_tcp_listener(index) {
            listener.set_nonblocking(true).map_err(odd)?;
            return TcpListener::from_std(listener).map(Listener::Tcp).map_err(odd);
        }
        let listener = handed.take_unix_listener(index).map_err(odd)?;
        let listener = listener.ok_or_else(|| BindError::Handed(format!("socket {index} is taken twice")))?;
        listener.set_nonblocking(true).map_err(odd)?;
        UnixListener::from_std(listener).map(|listener| Listener::Unix(listener, None)).map_err(odd)
    };
    (0..count).map(take).collect()
}

impl Listener {
    /// Where it really listens.
    #[must_use]
    pub fn address(&self) -> Option<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok().map(Address::Tcp),
            Self::Unix(listener, _) => {
                Some(Address::Unix(listener.local_addr().ok()?.as_pathname().map(Path::to_owned).unwrap_or_default()))
            }
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // An answer is written at once; its last packet must not wait for an acknowledgement.
                let _ = stream.set_nodelay(true);
                Ok(Either::Left(stream))
            }
            Self::Unix(listener, _) => Ok(Either::Right(listener.accept().await?.0)),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, Some(path)) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A socket left behind by a process that ended is replaced; one that is served is not.
fn bind_unix(path: &Path) -> io::Result<Listener> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something other than a socket stands there"));
        }
        Ok(_) if std::os::unix::net::UnixStream::connect(path).is_ok() => {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on it"));
        }
        Ok(_) => std::fs::remove_file(path)?,
    }
    let listener = UnixListener::bind(path)?;
    // Owner and group may ask.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))?;
    Ok(Listener::Unix(listener, Some(path.to_owned())))
}
