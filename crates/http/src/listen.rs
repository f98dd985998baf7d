//! Listeners: TCP addresses, Unix sockets, and sockets that systemd hands over.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use listenfd::ListenFd;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio_util::either::Either;

use trtllm_service::host::is_incomplete_ipv4;
use trtllm_service::unix_socket::{self, Activated, SocketFile};

/// Limit of the connections that wait to be accepted. tokio uses the same number.
const BACKLOG: u32 = 1024;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `HOST:PORT`; the host may be a name.
    Tcp(String),
    /// `:PORT`, on IPv6 and IPv4.
    AnyHost(u16),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(out),
            Self::AnyHost(port) => write!(out, ":{port}"),
            Self::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = |why: &str| Err(format!("{why}; expected HOST:PORT, [IPV6]:PORT, :PORT or unix:PATH"));
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { invalid("the path is missing") } else { Ok(Self::Unix(path.into())) };
        }
        let Some((host, port)) = text.rsplit_once(':') else { return invalid("the port is missing") };
        match port.parse() {
            Err(_) => invalid("the port is not a number from 0 to 65535"),
            Ok(port) if host.is_empty() => Ok(Self::AnyHost(port)),
            Ok(_) if host.contains(['/', '@']) => invalid("it is a URL or a path"),
            Ok(_) if host.contains(char::is_whitespace) => invalid("the host contains a space"),
            Ok(_) if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) => {
                invalid("an IPv6 address needs brackets")
            }
            Ok(_) if host.starts_with('[') && !is_ipv6(host[1..].trim_end_matches(']')) => {
                invalid("the brackets contain no IPv6 address")
            }
            Ok(_) if is_incomplete_ipv4(host) => invalid("the host is not a complete IPv4 address"),
            Ok(_) => Ok(Self::Tcp(text.to_owned())),
        }
    }
}

/// True for an IPv6 address, also with a zone: `fe80::1%eth0`. A link-local address needs one.
fn is_ipv6(host: &str) -> bool {
    let (address, zone) = host.split_once('%').map_or((host, None), |(address, zone)| (address, Some(zone)));
    address.parse::<Ipv6Addr>().is_ok() && zone.is_none_or(|zone| !zone.is_empty() && !zone.contains(['%', '[', ']']))
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("cannot listen on {address}: {cause}; choose another address with {flag}")]
    Address { address: Address, cause: io::Error, flag: &'static str },
    #[error(
        "--web.systemd-socket: systemd passed no socket for the page; start the exporter by a systemd .socket unit or remove the flag"
    )]
    NoneFromSystemd,
    #[error("socket {index} that systemd passed is unusable: {cause}; use ListenStream= in its .socket unit")]
    FromSystemd { index: usize, cause: io::Error },
}

/// A bound listener.
#[derive(Debug)]
pub enum Listener {
    Tcp(TcpListener),
    /// The file of the socket, to be removed at the end unless systemd owns it, and the listener. The file comes first,
    /// so that it is removed before the listener is closed: see [`SocketFile`].
    Unix(Option<SocketFile>, UnixListener),
}

/// A connection. One type for TCP and Unix sockets, so that the server is compiled once.
pub(crate) type Stream = Either<TcpStream, UnixStream>;

/// Checks the paths of Unix sockets without binding them, because another process may use them now. Whether a TCP address is free
/// is known only when it is bound.
pub fn check(addresses: &[Address], flag: &'static str) -> Result<(), BindError> {
    addresses.iter().try_for_each(|address| match address {
        Address::Unix(path) => {
            unix_socket::check(path).map_err(|cause| BindError::Address { address: address.clone(), cause, flag })
        }
        Address::Tcp(_) | Address::AnyHost(_) => Ok(()),
    })
}

/// Binds every address. `flag` is the flag that named the addresses. Fails if an address cannot be bound.
pub async fn bind(addresses: &[Address], flag: &'static str) -> Result<Vec<Listener>, BindError> {
    let mut listeners = Vec::new();
    for address in addresses {
        let bound = match address {
            Address::Tcp(address) => bind_tcp(address).await.map(Listener::Tcp),
            Address::AnyHost(port) => match both_families(*port) {
                // The host has no IPv6, or it is disabled.
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).await.map(Listener::Tcp)
                }
                listener => listener.map(Listener::Tcp),
            },
            Address::Unix(path) => {
                unix_socket::bind(path).await.map(|(listener, file)| Listener::Unix(Some(file), listener))
            }
        };
        listeners.push(bound.map_err(|cause| BindError::Address { address: address.clone(), cause, flag })?);
    }
    Ok(listeners)
}

async fn bind_tcp(address: &str) -> io::Result<TcpListener> {
    let Some((host, port)) = address.rsplit_once(':').filter(|(host, _)| host.contains('%')) else {
        return TcpListener::bind(address).await;
    };
    // The system resolves the name of a zone, without brackets.
    let port = port.parse().map_err(io::Error::other)?;
    TcpListener::bind((host.trim_matches(['[', ']']), port)).await.map_err(|error| {
        let text = format!("{error} (the zone after % must be a network interface of this host with this address)");
        io::Error::new(error.kind(), text)
    })
}

/// Listens on all addresses of IPv6 and IPv4. The addresses of IPv4 clients then look like `::ffff:10.0.0.1`.
fn both_families(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    socket.set_reuseaddr(true)?;
    rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
    socket.bind((Ipv6Addr::UNSPECIFIED, port).into())?;
    socket.listen(BACKLOG)
}

/// Takes the sockets that systemd `.socket` units have passed to this process: those of the page, and the Unix sockets that publishers
/// use, for whose path `is_ingest` is true. Without systemd there are none. Fails if a socket is neither a TCP nor a Unix
/// listener.
pub fn from_systemd(is_ingest: impl Fn(&Path) -> bool) -> Result<(Vec<Listener>, Activated), BindError> {
    let mut passed = ListenFd::from_env();
    let (mut of_page, mut of_ingest) = (Vec::new(), Vec::new());
    let mut take = |passed: &mut ListenFd, index| {
        if let Ok(Some(listener)) = passed.take_tcp_listener(index) {
            listener.set_nonblocking(true)?;
            of_page.push(Listener::Tcp(TcpListener::from_std(listener)?));
            return Ok(());
        }
        let listener = passed.take_unix_listener(index)?;
        let listener = listener.ok_or_else(|| io::Error::other("it was passed twice"))?;
        listener.set_nonblocking(true)?;
        if listener.local_addr()?.as_pathname().is_some_and(&is_ingest) {
            of_ingest.push(listener);
        } else {
            of_page.push(Listener::Unix(None, UnixListener::from_std(listener)?));
        }
        Ok(())
    };
    for index in 0..passed.len() {
        take(&mut passed, index).map_err(|cause| BindError::FromSystemd { index, cause })?;
    }
    Ok((of_page, Activated(of_ingest.into())))
}

impl Listener {
    /// The bound address, with the port that was chosen for port 0.
    pub fn address(&self) -> Option<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok().map(|address| Address::Tcp(address.to_string())),
            Self::Unix(_, listener) => {
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
            Self::Unix(_, listener) => Ok(Either::Right(listener.accept().await?.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_zone() {
        let address = |text: &str| text.parse::<Address>().unwrap();
        for zone in ["[fe80::1%eth0]:8002", "[fe80::1%2]:8002"] {
            assert_eq!(address(zone), Address::Tcp(zone.to_owned()));
        }
        for wrong in [
            "[fe80::1%]:1",
            "[%eth0]:1",
            "fe80::1%eth0:1",
            "[fe80::1%a%b]:1",
            "300.0.0.1:1",
            "127.1:1",
            "::1:8002",
            "[::g]:1",
            "a b:1",
            "[::1:1",
        ] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn an_address_with_a_zone_is_bound_or_refused_with_the_reason() {
        // Each line: the address in 32 digits, the index, the length of the prefix, the scope, flags and the interface.
        let interfaces = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
        for line in interfaces.lines().filter(|line| line.starts_with("fe80")) {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let bits = u128::from_str_radix(fields[0], 16).unwrap();
            let zone: Address = format!("[{}%{}]:0", Ipv6Addr::from_bits(bits), fields[5]).parse().unwrap();
            bind(&[zone], "--flag").await.unwrap();
        }
        let unknown: Address = "[fe80::1%no-such-zone]:0".parse().unwrap();
        let error = bind(&[unknown], "--flag").await.unwrap_err().to_string();
        assert!(error.contains("[fe80::1%no-such-zone]:0") && error.contains("must be a network interface"), "{error}");
    }

    #[tokio::test]
    async fn a_port_alone_takes_clients_of_both_families() {
        let listeners = bind(&[":0".parse().unwrap()], "--flag").await.unwrap();
        let [Listener::Tcp(listener)] = listeners.as_slice() else { panic!("one TCP listener") };
        let address = listener.local_addr().unwrap();
        let v4 = std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()));
        let _v4 = TcpStream::connect(v4).await.unwrap();
        listeners[0].accept().await.unwrap();
        // A machine may have no IPv6. Then the listener has an IPv4 address.
        if address.is_ipv6() && std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            let v6 = std::net::SocketAddr::from((Ipv6Addr::LOCALHOST, address.port()));
            let _v6 = TcpStream::connect(v6).await.unwrap();
            listeners[0].accept().await.unwrap();
        }
        // The port is in use. A listener on IPv4 alone would hide this.
        let port: Address = format!(":{}", address.port()).parse().unwrap();
        assert!(bind(&[port], "--flag").await.is_err());
    }
}
