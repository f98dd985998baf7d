//! Hostile HTTP clients. Meanwhile, a normal scraper must still be served.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::scene::Scene;
use crate::support::{ensure, until};

impl Scene {
    /// Sends `bytes`. Returns the status of the first response, or 0 if there is no response.
    pub(super) fn send(&self, bytes: &[u8]) -> u16 {
        let mut stream = TcpStream::connect(&self.daemon.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let _ = stream.write_all(bytes);
        let mut response = [0; 64];
        let mut read = 0;
        while read < 13 {
            match stream.read(&mut response[read..]) {
                Ok(bytes @ 1..) => read += bytes,
                Ok(_) | Err(_) => return 0,
            }
        }
        String::from_utf8_lossy(&response[9..12]).parse().unwrap_or_default()
    }
}

/// Requests, and the status of the response. 0 means that the connection is closed without a response.
fn requests() -> Vec<(&'static str, Vec<u8>, u16)> {
    let get = |target: &str, headers: &str| format!("GET {target} HTTP/1.1\r\nHost: x\r\n{headers}\r\n").into_bytes();
    let method =
        |method: &str| format!("{method} /metrics HTTP/1.1\r\nHost: x\r\ncontent-length: 0\r\n\r\n").into_bytes();
    vec![
        ("no HTTP", b"hello\r\n\r\n".to_vec(), 400),
        ("zero bytes", vec![0; 4096], 400),
        ("TLS on a plain port", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), 400),
        ("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), 0),
        ("HTTP/0.9", b"GET /metrics\r\n\r\n".to_vec(), 400),
        ("HTTP/3.7", b"GET /metrics HTTP/3.7\r\nHost: x\r\n\r\n".to_vec(), 400),
        ("no Host", b"GET /metrics HTTP/1.1\r\n\r\n".to_vec(), 400),
        ("two Hosts", get("/metrics", "Host: y\r\n"), 400),
        ("a space in a header's name", get("/metrics", "X Y: 1\r\n"), 400),
        ("a header without a colon", get("/metrics", "nonsense\r\n"), 400),
        ("a zero byte in a header", get("/metrics", "X: \0\r\n"), 400),
        ("two lengths", get("/metrics", "Content-Length: 1\r\nContent-Length: 2\r\n"), 400),
        ("a length and chunks", get("/metrics", "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), 200),
        ("an unknown encoding of a body", get("/metrics", "Transfer-Encoding: rot13\r\n"), 400),
        ("a body of 10 GB that never comes", get("/metrics", "Content-Length: 10000000000\r\n"), 413),
        ("Expect", get("/metrics", "Expect: 100-continue\r\nContent-Length: 10\r\n"), 200),
        (
            "an upgrade to HTTP/2",
            get("/metrics", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n"),
            200,
        ),
        ("a WebSocket", get("/metrics", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n"), 200),
        ("a head of 20 KB", get("/metrics", &format!("X: {}\r\n", "x".repeat(20_000))), 431),
        ("1000 headers", get("/metrics", &"X: 1\r\n".repeat(1000)), 431),
        ("a target of 20 KB", get(&format!("/{}", "x".repeat(20_000)), ""), 431),
        ("POST", method("POST"), 405),
        ("PUT", method("PUT"), 405),
        ("DELETE", method("DELETE"), 405),
        ("OPTIONS", method("OPTIONS"), 405),
        ("TRACE", method("TRACE"), 405),
        ("an invented method", method("SCRAPE"), 405),
        ("CONNECT", b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n".to_vec(), 404),
        ("the target of a proxy", get("http://example.com/metrics", ""), 200),
        ("a target without a slash", get("metrics", ""), 404),
        ("a parent directory", get("/../../etc/passwd", ""), 404),
        ("an escaped parent directory", get("/%2e%2e/%2e%2e/etc/passwd", ""), 404),
        ("invalid escapes", get("/metrics?collect[]=%zz%", ""), 400),
        ("escaped bytes that are not UTF-8", get("/metrics?collect[]=%ff%fe", ""), 400),
        ("an unknown group", get("/metrics?collect[]=everything", ""), 400),
        ("1000 groups", get(&format!("/metrics?{}", "collect[]=engine&".repeat(800)), ""), 200),
        ("a query of nonsense", get("/metrics?&&&===&;;;", ""), 200),
        ("zero records", get("/api/v1/iterations?engine=victim&last=0", ""), 400),
        ("too many records", get("/api/v1/iterations?engine=victim&last=99999999999999999999", ""), 400),
        ("a negative number of records", get("/api/v1/iterations?engine=victim&last=-1", ""), 400),
        ("half a record", get("/api/v1/iterations?engine=victim&last=1.5", ""), 400),
        ("no number of records", get("/api/v1/iterations?engine=victim&last=", ""), 400),
        ("two numbers of records", get("/api/v1/iterations?engine=victim&last=x&last=1", ""), 400),
        ("records of several engines", get("/api/v1/iterations", ""), 400),
        ("an engine of 10,000 characters", get(&format!("/api/v1/iterations?engine={}", "x".repeat(10_000)), ""), 404),
        ("a history of no time", get("/api/v1/history?seconds=0", ""), 400),
        ("a history of NaN seconds", get("/api/v1/history?seconds=NaN", ""), 400),
        ("a history of 1e400 seconds", get("/api/v1/history?seconds=1e400", ""), 400),
        ("a history of an unknown engine", get("/api/v1/history?engine=none", ""), 404),
        ("a model of an unknown engine", get("/api/v1/model?engine=none", ""), 404),
        ("a model of nonsense", get("/api/v1/model?engine=victim&batch=-1&batch=NaN", ""), 200),
        ("an unknown engine", get("/api/v1/iterations?engine=%00%0a%22", ""), 404),
        ("a path below the page", get("/metrics/metrics", ""), 404),
        ("an Accept of nonsense", get("/metrics", "Accept: ;;;,,,;q=\r\n"), 200),
        ("an Accept of 10,000 types", get("/metrics", &format!("Accept: {}\r\n", "a/b,".repeat(3000))), 200),
        ("an Accept with q=NaN", get("/metrics", "Accept: text/plain;q=NaN\r\n"), 200),
        (
            "an Accept that is not UTF-8",
            [b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: \xff\xfe\r\n\r\n".to_vec()].concat(),
            200,
        ),
        ("encodings that do not exist", get("/metrics", "Accept-Encoding: rot13, *;q=0\r\n"), 200),
        ("a scrape timeout of nonsense", get("/metrics", "X-Prometheus-Scrape-Timeout-Seconds: -1e999\r\n"), 200),
        ("a scrape timeout of NaN", get("/metrics", "X-Prometheus-Scrape-Timeout-Seconds: NaN\r\n"), 200),
        ("a password that nobody asks for", get("/metrics", "Authorization: Basic !!!\r\n"), 200),
        ("a forwarded address", get("/metrics", "X-Forwarded-For: ::1, \"><script>\r\n"), 200),
    ]
}

pub(super) fn hostile_requests(scene: &Scene) {
    let harmless = |counted: &str, more: u64| counted.is_empty() && more == 0;
    scene.fault("requests", "all requests", &harmless, |scene| {
        let refused = || scene.daemon.page().refused("bad_request");
        let before = refused();
        for (name, bytes, _) in requests() {
            if ["no HTTP", "no Host", "two Hosts"].contains(&name) {
                scene.send(&bytes);
            }
        }
        // The exporter answers a malformed request first, and counts it afterwards.
        until(|| ensure(refused() == before + 3, || format!("{} instead of {before} + 3", refused())));
        let answered = requests().into_iter().map(|(name, bytes, expected)| (name, scene.send(&bytes), expected));
        let wrong: Vec<_> = answered.filter(|(_, status, expected)| status != expected).collect();
        assert!(wrong.is_empty(), "name, status and expected status: {wrong:?}");
    });
    scene.fault("clients", "1000 connections that send nothing", &harmless, |scene| {
        let open: Vec<_> = (0..1000).filter_map(|_| TcpStream::connect(&scene.daemon.address).ok()).collect();
        assert_eq!(scene.daemon.get("/metrics").status, 200);
        drop(open);
    });
    scene.fault("clients", "100 readers that close in the middle of a page", &harmless, |scene| {
        for _ in 0..100 {
            let mut stream = TcpStream::connect(&scene.daemon.address).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let _ = stream.read(&mut [0; 100]);
        }
    });
    scene.fault("clients", "50 readers that do not read", &harmless, |scene| {
        let mut open = Vec::new();
        for _ in 0..50 {
            let mut stream = TcpStream::connect(&scene.daemon.address).unwrap();
            let _ = stream.write_all(&b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(20));
            open.push(stream);
        }
        assert_eq!(scene.daemon.get("/metrics").status, 200);
    });
    scene.fault("clients", "a head, byte by byte", &harmless, |scene| {
        let mut stream = TcpStream::connect(&scene.daemon.address).unwrap();
        for byte in b"GET /metrics HTTP/1.1\r\nHost: x\r\n" {
            stream.write_all(&[*byte]).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    for signal in ["HUP", "USR1", "USR2", "PIPE", "CHLD", "WINCH", "CONT"] {
        scene.fault("signals", signal, &harmless, |scene| scene.daemon.signal(signal));
    }
    scene.fault("signals", "STOP for a second, then CONT", &harmless, |scene| {
        scene.daemon.signal("STOP");
        std::thread::sleep(Duration::from_secs(1));
        scene.daemon.signal("CONT");
    });
}
