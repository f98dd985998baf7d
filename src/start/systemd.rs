//! Messages to systemd that never block. The crate sd-notify would block the exporter while systemd does not read its socket.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use sd_notify::NotifyState;

/// Sends the states if systemd has asked for them. Without systemd, or if it does not read, this does nothing.
pub(super) fn notify(states: &[NotifyState<'_>]) {
    let _ = send(states);
}

fn send(states: &[NotifyState<'_>]) -> std::io::Result<()> {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    let lines: String = states.iter().map(|state| format!("{state}\n")).collect();
    socket.send_to_addr(lines.as_bytes(), &address)?;
    Ok(())
}
