//! An HTTP server in the test's process. The test supplies its answers.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// A request: its first line and its headers, as text.
pub(crate) struct Request(String);

impl Request {
    pub(crate) fn method(&self) -> &str {
        self.0.split(' ').next().unwrap_or_default()
    }

    pub(crate) fn path(&self) -> &str {
        self.0.split(' ').nth(1).unwrap_or_default()
    }

    /// The value of a header. The exporter writes names in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| *found == name).map(|(_, value)| value)
    }
}

/// Status and body. `None` closes the connection without an answer.
pub(crate) type Reply = Option<(u16, Vec<u8>)>;

/// Serves on a free port until the process ends, and returns the port. Connections stay open between requests.
pub(crate) fn serve(reply: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let reply = Arc::new(reply);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let reply = Arc::clone(&reply);
            thread::spawn(move || connection(stream, &*reply));
        }
    });
    port
}

fn connection(stream: TcpStream, reply: &impl Fn(&Request) -> Reply) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while reader.read_line(&mut head).is_ok_and(|bytes| bytes > 0) {
        if !head.ends_with("\r\n\r\n") {
            continue;
        }
        let request = Request(std::mem::take(&mut head));
        let Some((status, mut body)) = reply(&request) else { return };
        if request.method() == "HEAD" {
            body.clear();
        }
        // Send everything in one write, because Nagle's algorithm would delay a second write.
        let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n", body.len());
        if reader.get_mut().write_all(&[head.as_bytes(), &body].concat()).is_err() {
            return;
        }
    }
}
