//! A minimal HTTP client: one request per connection, so that a test sees every byte of the response.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::TIMEOUT;

/// A response. The body contains the bytes that the server sent, without chunk headers.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Header names are in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body in UTF-8")
    }

    /// The body without its content encoding.
    pub(crate) fn decompressed(&self) -> Vec<u8> {
        match self.header("content-encoding") {
            None => self.body.clone(),
            Some("gzip") => {
                let mut plain = Vec::new();
                flate2::read::GzDecoder::new(&self.body[..]).read_to_end(&mut plain).expect("gzip");
                plain
            }
            Some("zstd") => zstd::stream::decode_all(&self.body[..]).expect("zstd"),
            Some(other) => panic!("unknown content encoding {other}"),
        }
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// Sends a request to `address` (`HOST:PORT`) and reads the response to its end.
pub(crate) fn request(
    method: &str,
    address: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Response> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let host = headers.iter().find(|(name, _)| *name == "Host").map_or(address, |(_, host)| host);
    let mut request = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for (name, value) in headers.iter().filter(|(name, _)| *name != "Host") {
        request += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        request += &format!("Content-Length: {}\r\n", body.len());
    }
    request += "\r\n";
    // Send head and body in one write. Between two writes, a server that responds before it has read the body may close
    // the connection.
    stream.write_all(&[request.as_bytes(), body].concat())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    parse_response(&bytes)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{target}: not an HTTP response")))
}

/// Sends a `GET`. Panics if there is no response.
pub(crate) fn get(address: &str, target: &str) -> Response {
    request("GET", address, target, &[], b"").unwrap_or_else(|error| panic!("GET {address}{target}: {error}"))
}

/// Sends a `GET` over a Unix socket. Returns the whole response as text.
pub(crate) fn get_unix(path: &Path, target: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

fn parse_response(bytes: &[u8]) -> Option<Response> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let body = &bytes[end + 4..];
    let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let body = if chunked { dechunk(body)? } else { body.to_vec() };
    Some(Response { status, headers, body })
}

fn dechunk(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let end = bytes.windows(2).position(|two| two == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).ok()?, 16).ok()?;
        if length == 0 {
            return Some(whole);
        }
        whole.extend_from_slice(bytes.get(end + 2..end + 2 + length)?);
        bytes = bytes.get(end + 2 + length + 2..)?;
    }
}

/// True if the server has closed the connection. Reads and discards what it sent before.
pub(crate) fn closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}
