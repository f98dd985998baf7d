//! How the real binary treats peers that are slow, greedy or many: they end by their deadlines, and nobody else notices.
// A test stops at its first surprise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod e2e;

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use e2e::daemon::{self, Daemon};
use e2e::page::Page;
use e2e::{PATIENCE, http, missing, until};

const SESSION: &str = "replay:tests/fixtures/session.ndjson?speed=max";
/// More answers than any socket buffer holds.
const PIPELINED: usize = 2000;

fn start(arguments: &[&str]) -> Daemon {
    let daemon = Daemon::start(&[&["--source", SESSION, "--stale-after", "1h"], arguments].concat());
    daemon.until_state(&[], "idle");
    daemon
}

fn refused(page: &Page, reason: &str) -> u64 {
    page.count("trtllm_exporter_http_refused_total", &[&format!("reason={reason}")])
}

fn connect(daemon: &Daemon) -> TcpStream {
    let stream = TcpStream::connect(&daemon.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Whether the peer has closed; whatever it said before is read and dropped.
fn closed(stream: &mut TcpStream) -> bool {
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

/// A connection that asks for page after page and reads none.
fn stalled(daemon: &Daemon, header: &str) -> TcpStream {
    let mut stream = connect(daemon);
    let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{header}\r\n").repeat(PIPELINED);
    stream.set_nonblocking(true).unwrap();
    // As much as is taken: the daemon stops reading once its answers are not read.
    let _ = stream.write(request.as_bytes());
    stream
}

#[test]
fn a_thousand_slow_askers_end_by_their_deadline_and_nobody_else_notices() {
    let daemon = start(&[]);
    for _ in 0..20 {
        daemon.page();
    }
    let before = daemon.peak_memory();
    let mut askers: Vec<TcpStream> = (0..1000)
        .map(|_| {
            let mut stream = connect(&daemon);
            // One cut off already to make room for others cannot be written to.
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: ");
            stream
        })
        .collect();
    until(|| {
        // They go on, a byte at a time, and so do the others.
        for asker in &mut askers {
            let _ = asker.write_all(b"a");
        }
        daemon.page();
        askers.retain_mut(|asker| !closed(asker));
        missing(askers.is_empty(), || format!("{} slow askers are still connected", askers.len()))
    });
    let page = daemon.until(|page| {
        let (overloaded, timeout) = (refused(page, "overloaded"), refused(page, "timeout"));
        missing(overloaded + timeout >= 1000, || format!("{overloaded} made room and {timeout} were too slow"))
    });
    let timeout = refused(&page, "timeout");
    assert!(timeout >= 200, "only {timeout} met their deadline");
    let grown = daemon.peak_memory() - before;
    assert!(grown < 20 << 20, "memory grew by {grown} bytes");
}

#[test]
fn readers_that_stop_in_the_middle_end_by_their_deadline_and_nobody_else_notices() {
    let daemon = start(&[]);
    daemon.page();
    let before = daemon.peak_memory();
    let readers: Vec<TcpStream> =
        (0..30).map(|_| stalled(&daemon, "X-Prometheus-Scrape-Timeout-Seconds: 1.5\r\n")).collect();
    daemon.until(|page| {
        let cut = refused(page, "timeout");
        missing(cut == 30, || format!("{cut} of 30 are cut off"))
    });
    drop(readers);
    let grown = daemon.peak_memory() - before;
    assert!(grown < 20 << 20, "memory grew by {grown} bytes");
}

/// Says so when it goes out of scope, also by a failed check.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn one_request_too_many_is_told_so_and_health_is_always_said() {
    let daemon = start(&["--web.max-requests", "1"]);
    let (ended, told) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _ending = Ending(&ended);
        // Together more than can be answered while one of them waits.
        for _ in 0..200 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    let answer = http::ask("GET", &daemon.address, "/api/v1/engines", &[], b"");
                    let refused = answer.is_ok_and(|answer| answer.status == 503);
                    told.fetch_add(usize::from(refused), Ordering::Relaxed);
                }
            });
        }
        until(|| missing(told.load(Ordering::Relaxed) > 0, || "there is room for all".to_owned()));
        assert_eq!(daemon.get("/healthz").status, 200, "health is asked most when there is no room");
    });
    daemon.until(|page| missing(refused(page, "overloaded") >= 1, || "not counted".to_owned()));
}

#[test]
fn readers_that_stopped_make_room_however_often_they_come_back() {
    let daemon = start(&["--web.max-requests", "10"]);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ending = Ending(&ended);
        scope.spawn(|| {
            let mut readers: Vec<TcpStream> = (0..15).map(|_| stalled(&daemon, "")).collect();
            while !ended.load(Ordering::Relaxed) {
                for reader in &mut readers {
                    // Looked at without reading: one that was cut off comes again.
                    if reader.write(b"G").is_err_and(|error| error.kind() != ErrorKind::WouldBlock) {
                        *reader = stalled(&daemon, "");
                    }
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        daemon.until(|page| missing(refused(page, "timeout") >= 1, || "nobody is cut off".to_owned()));
        let asked = 40;
        let answered = (0..asked).filter(|_| daemon.get("/metrics").status == 200).count();
        assert!(answered * 4 >= asked * 3, "{answered} of {asked} were answered");
    });
}

#[test]
fn the_beginning_of_a_request_behind_another_has_its_deadline_too() {
    let daemon = start(&[]);
    let mut peer = connect(&daemon);
    peer.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /he").unwrap();
    until(|| missing(closed(&mut peer), || "it is still connected".to_owned()));
    assert!(refused(&daemon.page(), "timeout") >= 1);
}

#[test]
fn what_is_not_http_1_1_is_told_so_and_counted() {
    let daemon = start(&[]);
    for hosts in ["", "Host: a\r\nHost: b\r\n"] {
        let mut peer = connect(&daemon);
        peer.write_all(format!("GET /healthz HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        peer.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{hosts:?}: {answer}");
    }
    let mut peer = connect(&daemon);
    peer.write_all(b"good morning\r\n\r\n").unwrap();
    let mut answer = String::new();
    peer.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    daemon.until(|page| missing(refused(page, "bad_request") == 3, || "not counted".to_owned()));
}

#[test]
fn no_limit_of_requests_is_no_limit() {
    let daemon = start(&["--web.max-requests", "0"]);
    let readers: Vec<TcpStream> = (0..60).map(|_| stalled(&daemon, "")).collect();
    assert_eq!(refused(&daemon.page(), "overloaded"), 0);
    drop(readers);
}

#[test]
fn a_head_or_a_body_beyond_its_bound_is_refused() {
    let daemon = start(&[]);
    let long = "x".repeat(20 << 10);
    let ask = |method: &str, headers: &[(&str, &str)], body: &[u8]| {
        http::ask(method, &daemon.address, "/metrics", headers, body).unwrap().status
    };
    assert_eq!(ask("GET", &[("X-Long", &long)], b""), 431);
    let many: Vec<(String, &str)> = (0..200).map(|number| (format!("X-{number}"), "x")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    assert_eq!(ask("GET", &many, b""), 431);
    assert_eq!(ask("GET", &[("Content-Length", "1000000000")], b""), 413);
    assert_eq!(ask("GET", &[], b"a small body that nobody reads"), 200);
    daemon.page();
}

#[test]
fn a_page_is_read_and_nothing_else_can_be_done_to_it() {
    let daemon = start(&[]);
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let answer = http::ask(method, &daemon.address, "/metrics", &[], b"").unwrap();
        assert_eq!((answer.status, answer.header("allow")), (405, Some("GET,HEAD")), "{method}");
    }
    for target in ["/metrics", "/metrics/gateway", "/", "/healthz", "/readyz"] {
        let [head, get] = ["HEAD", "GET"].map(|method| http::ask(method, &daemon.address, target, &[], b"").unwrap());
        assert_eq!((head.status, head.body.as_slice()), (200, &b""[..]), "{target}");
        let kept = |answer: &http::Answer| {
            let kept = answer.headers.iter().filter(|(name, _)| name != "date" && name != "content-length");
            kept.cloned().collect::<Vec<_>>()
        };
        assert_eq!(kept(&head), kept(&get), "{target}");
        assert!(head.header("content-length").is_some_and(|length| length != "0"), "{target}");
    }
}

#[test]
fn a_list_may_stand_in_several_lines() {
    let daemon = start(&[]);
    let lines = [
        ("Accept", "text/plain;q=0.3"),
        ("Accept", "application/openmetrics-text;version=1.0.0;q=0.9"),
        ("Accept-Encoding", "br"),
        ("Accept-Encoding", "gzip"),
    ];
    let answer = http::ask("GET", &daemon.address, "/metrics", &lines, b"").unwrap();
    assert!(answer.header("content-type").unwrap_or_default().starts_with("application/openmetrics-text;"));
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
}

#[test]
fn a_connection_is_kept_for_the_next_request() {
    let daemon = start(&[]);
    let mut stream = connect(&daemon);
    for _ in 0..3 {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
    }
}

#[test]
fn neither_idle_nor_slow_peers_keep_it_from_stopping() {
    let mut daemon = start(&[]);
    let idle = connect(&daemon);
    let mut asking = connect(&daemon);
    asking.write_all(b"GET /met").unwrap();
    let reading = stalled(&daemon, "");
    daemon.page();
    assert_eq!(daemon.terminate().code(), Some(0));
    drop((idle, asking, reading));
}

/// `GET` over a Unix socket.
fn ask_unix(path: &std::path::Path, target: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_unix_socket_is_an_address_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("web.sock");
    // One that a process left behind.
    drop(UnixListener::bind(&path).unwrap());
    let address = format!("unix:{}", path.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_trtllm-exporter"));
    command.args(["--gpu", "off", "--source", SESSION, "--web.listen-address", &address]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    until(|| {
        let answer = ask_unix(&path, "/metrics").map_err(|error| error.to_string())?;
        missing(answer.starts_with("HTTP/1.1 200") && answer.contains("nv_trt_llm_iterations_total"), || answer)
    });
    let second = daemon::run(&["--gpu", "off", "--source", SESSION, "--web.listen-address", &address]);
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains("another process listens on it; choose another address with --web.listen-address"), "{said}");
    Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(child.wait().unwrap().success());
    assert!(!path.exists(), "the socket is left behind");
}

/// A trtllm-serve that takes its time: where it is. It answers until the test ends.
fn slow_engine(takes: Duration) -> String {
    let fixture = fs::read_to_string("tests/fixtures/metrics_record_SHAPE_2026H2.json").unwrap();
    let records = serde_json::from_str::<serde_json::Value>(&fixture).unwrap()["payload"].to_string();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let records = records.clone();
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while let Some(Ok(request)) = lines.next() {
                    while lines.next().is_some_and(|header| header.is_ok_and(|header| !header.is_empty())) {}
                    let (status, body) = match request.contains(" /metrics ") {
                        true => ("200 OK", records.as_str()),
                        false => ("404 Not Found", ""),
                    };
                    std::thread::sleep(takes);
                    // In one piece: the kernel would wait before it sends a second one.
                    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                    let _ = (&stream).write_all(answer.as_bytes());
                }
            });
        }
    });
    format!("trtllm-serve:http://{address}")
}

#[test]
fn who_asks_before_anybody_else_gets_what_the_engine_said_first() {
    let folder = tempfile::tempdir().unwrap();
    let first_answer = |start: u32, takes| {
        let path = folder.path().join(format!("{start}.sock"));
        let address = format!("--web.listen-address=unix:{}", path.display());
        let asking = std::thread::spawn(move || {
            let begun = std::time::Instant::now();
            loop {
                match ask_unix(&path, "/metrics") {
                    Ok(answer) => return answer,
                    Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
                }
                std::thread::yield_now();
            }
        });
        let _daemon = Daemon::start(&["--source", &slow_engine(takes), &address]);
        asking.join().unwrap()
    };
    let told = |answer: &String| answer.contains("\nnv_trt_llm_request_metrics{");
    let quick: Vec<String> = (0..5).map(|start| first_answer(start, Duration::from_millis(4))).collect();
    // A machine may be too busy for one of them.
    assert!(quick.iter().filter(|answer| told(answer)).count() >= 3, "{}", quick[0]);
    // An engine that hangs keeps nobody waiting for long.
    let hung = first_answer(5, PATIENCE * 2);
    assert!(!told(&hung) && hung.contains("nv_trt_llm_engine_state{"), "{hung}");
}

#[test]
fn something_else_at_a_socket_s_path_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    fs::write(&path, "mine").unwrap();
    let address = format!("unix:{}", path.display());
    let output = daemon::run(&["--gpu", "off", "--source", SESSION, "--web.listen-address", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn sockets_that_a_service_manager_hands_over_are_served() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // As systemd hands it over: descriptor 3, and its number under this process's id.
    let mut child = Command::new("sh")
        .args(["-c", "exec 3<&0; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_trtllm-exporter"))
        .args(["--gpu", "off", "--source", SESSION, "--web.systemd-socket"])
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Connected before anybody accepts: nothing is lost over a restart.
    assert_eq!(http::get(&address, "/healthz").status, 200);
    Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(child.wait().unwrap().success());

    let none = daemon::run(&["--gpu", "off", "--source", SESSION, "--web.systemd-socket"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&none.stderr).contains("--web.systemd-socket: systemd passed no socket"));
}

#[test]
fn a_peer_of_http_1_0_is_answered_and_left() {
    let daemon = start(&[]);
    let mut stream = connect(&daemon);
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 OK") && answer.ends_with("\r\n\r\nok\n"), "{answer}");
}
