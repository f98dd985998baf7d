//! Connections of the real binary: slow, greedy and many peers are closed by their deadlines, and other scrapes succeed.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::daemon::{Daemon, Launch};
use crate::support::http::{closed, get_unix};
use crate::support::page::Page;
use crate::support::server::serve;
use crate::support::sessions::{SESSION, session};
use crate::support::{TIMEOUT, ensure, http, payload, until};

/// More responses than any socket buffer holds.
const PIPELINED: usize = 2000;

fn connect(daemon: &Daemon) -> TcpStream {
    let stream = TcpStream::connect(&daemon.address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// A connection that requests many pages and reads no response.
fn stalled(daemon: &Daemon, header: &str) -> TcpStream {
    let mut stream = connect(daemon);
    let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{header}\r\n").repeat(PIPELINED);
    stream.set_nonblocking(true).unwrap();
    // Writes as much as the daemon accepts: it stops reading requests while its responses are not read.
    let _ = stream.write(request.as_bytes());
    stream
}

/// A thousand clients that send `start`, and then one byte at a time, are closed by their deadline, in bounded memory. Meanwhile each
/// scrape succeeds.
pub(crate) fn a_thousand_slow_clients_are_closed(daemon: &Daemon, start: &[u8], byte: u8, scrape: impl Fn() -> Page) {
    for _ in 0..20 {
        scrape();
    }
    let before = daemon.peak_memory();
    let mut clients: Vec<TcpStream> = (0..1000)
        .map(|_| {
            let mut stream = connect(daemon);
            // The write fails if the daemon has already closed this connection to make room for another.
            let _ = stream.write_all(start);
            stream
        })
        .collect();
    until(|| {
        for client in &mut clients {
            let _ = client.write_all(&[byte]);
        }
        scrape();
        clients.retain_mut(|client| !closed(client));
        ensure(clients.is_empty(), || format!("{} slow clients are still connected", clients.len()))
    });
    until(|| {
        let page = scrape();
        let (timeout, overloaded) = (page.refused("timeout"), page.refused("overloaded"));
        ensure(timeout >= 200 && timeout + overloaded >= 1000, || {
            format!("{timeout} were closed by their deadline, {overloaded} to make room")
        })
    });
    let grown = daemon.peak_memory().saturating_sub(before);
    assert!(grown < 20 << 20, "memory grew by {grown} bytes");
}

#[test]
fn a_thousand_slow_requests_are_closed_by_their_deadline_and_other_scrapes_succeed() {
    let daemon = session(&[]);
    let start = b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: ";
    a_thousand_slow_clients_are_closed(&daemon, start, b'a', || daemon.page());
}

#[test]
fn readers_that_stall_are_closed_by_their_deadline_and_other_scrapes_succeed() {
    let daemon = session(&[]);
    daemon.page();
    let before = daemon.peak_memory();
    let readers: Vec<TcpStream> =
        (0..30).map(|_| stalled(&daemon, "X-Prometheus-Scrape-Timeout-Seconds: 1.5\r\n")).collect();
    daemon.until_is("trtllm_exporter_http_refused_total", &["reason=timeout"], 30.0);
    drop(readers);
    let grown = daemon.peak_memory().saturating_sub(before);
    assert!(grown < 20 << 20, "memory grew by {grown} bytes");
}

/// Sets the flag when it goes out of scope, even after a failed assertion. The threads of the test then stop.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_request_above_the_limit_gets_503_and_health_is_still_served() {
    let daemon = session(&["--web.max-requests", "1"]);
    let (ended, refusals) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&ended);
        // With 200 clients, some requests arrive while the server still handles another one.
        for _ in 0..200 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    let response = http::request("GET", &daemon.address, "/api/v1/engines", &[], b"");
                    let refused = response.is_ok_and(|response| response.status == 503);
                    refusals.fetch_add(usize::from(refused), Ordering::Relaxed);
                }
            });
        }
        until(|| ensure(refusals.load(Ordering::Relaxed) > 0, || "no request was refused".to_owned()));
        assert_eq!(daemon.get("/healthz").status, 200, "an overloaded exporter must still answer its health check");
    });
    daemon.until(|page| ensure(page.refused("overloaded") >= 1, || "not counted".to_owned()));
}

#[test]
fn stalled_readers_that_reconnect_do_not_block_other_scrapes() {
    let daemon = session(&["--web.max-requests", "10"]);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ended = SetOnDrop(&ended);
        scope.spawn(|| {
            let mut readers: Vec<TcpStream> = (0..15).map(|_| stalled(&daemon, "")).collect();
            while !ended.load(Ordering::Relaxed) {
                for reader in &mut readers {
                    // A failed write means that the daemon has closed the connection: the reader reconnects.
                    if reader.write(b"G").is_err_and(|error| error.kind() != ErrorKind::WouldBlock) {
                        *reader = stalled(&daemon, "");
                    }
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        daemon.until(|page| ensure(page.refused("timeout") >= 1, || "no reader was closed".to_owned()));
        let scrapes = 40;
        let succeeded = (0..scrapes).filter(|_| daemon.get("/metrics").status == 200).count();
        assert!(succeeded * 4 >= scrapes * 3, "{succeeded} of {scrapes} scrapes succeeded");
    });
}

#[test]
fn unusual_requests_have_the_right_responses() {
    let daemon = session(&[]);
    a_list_header_may_span_several_lines(&daemon);
    a_connection_serves_several_requests(&daemon);
    an_http_1_0_client_gets_a_response_and_the_connection_closes(&daemon);
}

#[test]
fn a_request_limit_of_0_means_no_limit() {
    let daemon = session(&["--web.max-requests", "0"]);
    let readers: Vec<TcpStream> = (0..60).map(|_| stalled(&daemon, "")).collect();
    assert_eq!(daemon.page().refused("overloaded"), 0);
    drop(readers);
}

fn a_list_header_may_span_several_lines(daemon: &Daemon) {
    let lines = [
        ("Accept", "text/plain;q=0.3"),
        ("Accept", "application/openmetrics-text;version=1.0.0;q=0.9"),
        ("Accept-Encoding", "br"),
        ("Accept-Encoding", "gzip"),
    ];
    let response = http::request("GET", &daemon.address, "/metrics", &lines, b"").unwrap();
    assert!(response.header("content-type").unwrap_or_default().starts_with("application/openmetrics-text;"));
    assert_eq!(response.header("content-encoding"), Some("gzip"));
}

fn a_connection_serves_several_requests(daemon: &Daemon) {
    let mut stream = connect(daemon);
    for _ in 0..3 {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\nok\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            response.push(byte[0]);
        }
    }
}

#[test]
fn idle_and_slow_connections_do_not_delay_shutdown() {
    let mut daemon = session(&[]);
    let idle = connect(&daemon);
    let mut incomplete = connect(&daemon);
    incomplete.write_all(b"GET /met").unwrap();
    let reader = stalled(&daemon, "");
    daemon.page();
    assert_eq!(daemon.terminate().code(), Some(0));
    drop((idle, incomplete, reader));
}

#[test]
fn a_unix_socket_is_a_valid_listen_address() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("web.sock");
    // Leave a stale socket at the path, like a process that did not remove its socket.
    drop(UnixListener::bind(&path).unwrap());
    let address = format!("unix:{}", path.display());
    let mut daemon = session(&["--web.listen-address", &address]);
    until(|| {
        let response = get_unix(&path, "/metrics").map_err(|error| error.to_string())?;
        ensure(response.starts_with("HTTP/1.1 200") && response.contains("nv_trt_llm_iterations_total"), || response)
    });
    assert!(daemon.terminate().success());
    assert!(!path.exists(), "the socket was not removed");
}

/// Starts a trtllm-serve that waits `delay` before each response. Returns its `--source` URL. It runs until the test ends.
fn slow_engine(delay: Duration) -> String {
    let records = payload("metrics_record_SHAPE_2026H2.json").to_string();
    let port = serve(move |request| {
        std::thread::sleep(delay);
        Some(if request.path() == "/metrics" { (200, records.clone().into_bytes()) } else { (404, Vec::new()) })
    });
    format!("trtllm-serve:http://127.0.0.1:{port}")
}

#[test]
fn the_first_scrape_waits_for_the_initial_poll_of_a_fast_engine_only() {
    let folder = tempfile::tempdir().unwrap();
    let first_page = |start: u32, delay| {
        let path = folder.path().join(format!("{start}.sock"));
        let address = format!("--web.listen-address=unix:{}", path.display());
        let scrape = std::thread::spawn(move || {
            let started = std::time::Instant::now();
            loop {
                match get_unix(&path, "/metrics") {
                    Ok(response) => return response,
                    Err(error) => assert!(started.elapsed() < TIMEOUT, "{error}"),
                }
                std::thread::yield_now();
            }
        });
        let _daemon = Daemon::start(&["--source", &slow_engine(delay), &address]);
        scrape.join().unwrap()
    };
    let has_load = |page: &String| page.contains("\nnv_trt_llm_request_metrics{");
    let fast: Vec<String> = (0..5).map(|start| first_page(start, Duration::from_millis(4))).collect();
    // On a busy machine, the initial poll may be too late in some of the five starts.
    assert!(fast.iter().filter(|page| has_load(page)).count() >= 3, "{}", fast[0]);
    // An engine that hangs does not delay the first scrape for long.
    let hung = first_page(5, TIMEOUT * 2);
    assert!(!has_load(&hung) && hung.contains("nv_trt_llm_engine_state{"), "{hung}");
}

#[test]
fn sockets_passed_by_systemd_are_served() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // A connection that is queued before the daemon accepts must be served, so a restart loses no request.
    let mut early = TcpStream::connect(&address).unwrap();
    early.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    // Pass the socket like systemd: as descriptor 3, with LISTEN_FDS=1 and LISTEN_PID.
    let systemd = ["sh", "-c", "exec 3<&0; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\""];
    let launch = Launch::behind(&systemd).stdin(OwnedFd::from(listener));
    let mut daemon = launch.start(&["--source", SESSION, "--web.systemd-socket"]);
    assert_eq!(daemon.address, address);
    let mut response = String::new();
    early.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    assert!(daemon.terminate().success());
}

fn an_http_1_0_client_gets_a_response_and_the_connection_closes(daemon: &Daemon) {
    let mut stream = connect(daemon);
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.0 200 OK") && response.ends_with("\r\n\r\nok\n"), "{response}");
}
