//! A small HTTP server. Handlers write to the socket themselves, because some of them send incomplete answers or check whether the client
//! is still connected. A server library would hide the socket.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use rustix::net::{AddressFamily, SocketType, bind, listen as listen_on, socket, sockopt};

/// Limit for a request's head, and for its body, in bytes.
const LONGEST: u64 = 64 << 10;

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// The path without the query.
    pub(crate) path: String,
    pub(crate) body: Vec<u8>,
    is_last: bool,
}

/// Whether the connection stays open.
pub(crate) type Kept = io::Result<bool>;

/// Opens this many listeners at one address. The system spreads the connections over them.
pub(crate) fn listen(address: SocketAddr, times: u16) -> io::Result<Vec<TcpListener>> {
    if times == 1 {
        return Ok(vec![TcpListener::bind(address)?]);
    }
    let mut listeners: Vec<TcpListener> = Vec::new();
    for _ in 0..times {
        let address = listeners.first().map_or(Ok(address), TcpListener::local_addr)?;
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket(family, SocketType::STREAM, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        sockopt::set_socket_reuseport(&socket, true)?;
        bind(&socket, &address)?;
        listen_on(&socket, 128)?;
        listeners.push(socket.into());
    }
    Ok(listeners)
}

/// Answers requests until the process ends, with a thread for each connection.
pub(crate) fn serve(listener: TcpListener, handler: impl Fn(&Request, &mut TcpStream) -> Kept + Send + Sync + 'static) {
    let handler = Arc::new(handler);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let handler = Arc::clone(&handler);
            thread::spawn(move || connection(stream, &*handler));
        }
    });
}

/// Serves one connection. An error means that the client has disconnected, which it may do at any time.
fn connection(stream: TcpStream, handler: &impl Fn(&Request, &mut TcpStream) -> Kept) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader)? {
        if !handler(&request, reader.get_mut())? || request.is_last {
            break;
        }
    }
    Ok(())
}

fn read(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let mut head = String::new();
    let mut limited = reader.by_ref().take(LONGEST);
    while limited.read_line(&mut head)? > 2 {}
    if !head.ends_with("\r\n\r\n") {
        return Ok(None);
    }
    let header = |name: &str| {
        let mut headers = head.lines().filter_map(|line| line.split_once(':'));
        headers.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    let length = header("content-length").and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
    let is_last = header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    let mut body = Vec::new();
    reader.by_ref().take(length.min(LONGEST)).read_to_end(&mut body)?;
    let mut words = head.split(' ').map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default().to_owned();
    Ok(Some(Request { method, path, body, is_last }))
}

/// The head of an answer, including the blank line at its end.
pub(crate) fn head(status: u16, kind: &str, length: usize) -> String {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    };
    format!("HTTP/1.1 {status} {reason}\r\nserver: uvicorn\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n")
}

/// Writes the whole answer with one call, so that a short one needs only one packet.
pub(crate) fn answer(request: &Request, stream: &mut TcpStream, status: u16, kind: &str, body: &str) -> Kept {
    let mut text = head(status, kind, body.len());
    if request.method != "HEAD" {
        text += body;
    }
    stream.write_all(text.as_bytes())?;
    Ok(true)
}

/// Whether the client has closed the connection.
pub(crate) fn is_closed(stream: &TcpStream) -> io::Result<bool> {
    stream.set_nonblocking(true)?;
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false)?;
    Ok(match peeked {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    })
}
