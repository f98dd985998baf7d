//! Names of hosts.

use std::net::Ipv4Addr;

/// Such a host, for example `127.1`, would be looked up as a name, or be taken for another address.
pub fn is_incomplete_ipv4(host: &str) -> bool {
    host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && host.parse::<Ipv4Addr>().is_err()
}
