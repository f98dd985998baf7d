//! Tests each resource that peers share, with many slow or hostile peers and an honest peer. docs/ARCHITECTURE.md
//! has the rules, in "What peers can cost". The tests compare counts, not times, because this machine may be busy.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::support::daemon::{Daemon, Launch};
use crate::support::ingest::Ingest;
use crate::support::page::Page;
use crate::support::standin::Standin;
use crate::support::{ensure, until};

const A: &[&str] = &["model=a"];
const B: &[&str] = &["model=b"];
const C: &[&str] = &["model=c"];

const ITERATIONS: &str = "nv_trt_llm_iterations_total";

fn record(iter: u64, filling: usize) -> String {
    format!("{{\"iter\":{iter},\"numActiveRequests\":1,\"unknown\":\"{}\"}}\n", "x".repeat(filling))
}

/// Hostile clients: threads that connect again and again. They stop when this value is dropped.
struct Crowd(Arc<AtomicBool>, Vec<thread::JoinHandle<()>>);

impl Crowd {
    /// Each thread sends `start` once, and `more` several times a second.
    fn new(number: usize, path: &Path, start: Vec<u8>, more: &'static [u8]) -> Self {
        let (stop, start) = (Arc::new(AtomicBool::new(false)), Arc::new(start));
        let threads = (0..number).map(|_| {
            let (stop, start, path) = (Arc::clone(&stop), Arc::clone(&start), path.to_owned());
            thread::spawn(move || {
                while !stop.load(Relaxed) {
                    // The connection fails if the daemon has reached its limits or has ended.
                    let Ok(mut stream) = UnixStream::connect(&path) else { break };
                    let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
                    let _ = stream.set_write_timeout(Some(Duration::from_millis(200)));
                    let _ = stream.write_all(&start);
                    // Keep the connection open until the daemon closes it.
                    while !stop.load(Relaxed)
                        && stream.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
                    {
                        let _ = stream.write(more);
                    }
                }
            })
        });
        let threads = threads.collect();
        Self(stop, threads)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
        self.1.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// A daemon with the ingest sockets `a`, `b` and `c`.
fn three_sockets() -> (Daemon, [Ingest; 3]) {
    let sockets = [(); 3].map(|()| Ingest::new());
    let sources = sockets.each_ref().map(Ingest::source);
    let engines = sources.iter().zip(["a", "b", "c"]);
    let arguments = engines.flat_map(|(source, model)| ["--source", source, "--model", model]);
    (Daemon::start(&arguments.collect::<Vec<_>>()), sockets)
}

/// The shared resource: permits for long lines.
#[test]
fn half_lines_on_one_socket_delay_no_short_line_on_another_and_cost_no_long_one() {
    let (daemon, [a, b, c]) = three_sockets();
    let crowd = Crowd::new(6, &a.path(), record(1, 70_000).into_bytes()[..70_000].to_vec(), b"");
    daemon.until_at_least("trtllm_exporter_ingest_connections", A, 6.0);
    // This line waits until two half lines have been cut.
    let mut long = c.connect();
    long.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    long.write_all(record(1, 100_000).as_bytes()).unwrap();
    let mut short = b.connect();
    for line in 1..=100 {
        short.write_all(record(line, 20_000).as_bytes()).unwrap();
    }
    for (model, lines) in [(B, 100.0), (C, 1.0)] {
        let page = daemon.until_is(ITERATIONS, model, lines);
        for reason in ["truncated", "too_long"] {
            let rejected =
                page.find("trtllm_exporter_records_rejected_total", &[model[0], &format!("reason={reason}")]);
            assert_eq!(rejected.unwrap_or(0.0), 0.0, "{reason} {model:?}");
        }
    }
    drop(crowd);
}

/// A server that answers each request with `start`, and then sends single bytes with pauses between them.
fn dripping_server(start: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let source = format!("trtllm-serve:http://{}?perf_metrics=false", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, start) = (stream.unwrap(), start.clone());
            thread::spawn(move || {
                let mut request = [0; 4096];
                while stream.read(&mut request).is_ok_and(|read| read > 0) {
                    if !String::from_utf8_lossy(&request).starts_with("GET /metrics ") {
                        let _ = stream.write_all(b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n");
                        continue;
                    }
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
                    let mut sent = stream.write_all(&start);
                    while sent.is_ok() {
                        thread::sleep(Duration::from_millis(200));
                        sent = stream.write_all(b" ");
                    }
                    return;
                }
            });
        }
    });
    source
}

/// The shared resource: permits for long answers.
#[test]
fn servers_that_drip_cost_an_honest_one_no_record_and_one_with_short_records_no_time() {
    // Answers that never end: one after 200 complete records, the other in its first record.
    let starts = [
        format!("[{}", (record(1, 1000).trim().to_owned() + ",").repeat(200)),
        format!("[{}", &record(1, 900_000)[..700_000]),
    ];
    let mut arguments: Vec<String> = (0..6)
        .flat_map(|server| {
            let start = starts[server % 2].clone().into_bytes();
            ["--source".to_owned(), dripping_server(start), "--model".to_owned(), format!("drip-{server}")]
        })
        .collect();
    for (source, model) in [(server_of(1, 300_000), "b"), (server_of(300, 1000), "a")] {
        arguments.extend(["--source", &source, "--model", model].map(str::to_owned));
    }
    arguments.extend(["--poll.interval", "50ms"].map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let daemon = Daemon::start(&arguments);
    for (model, enough) in [(A, 20.0 * 300.0), (B, 3.0)] {
        let page = daemon.until_at_least(ITERATIONS, model, enough);
        assert_nothing_failed(&daemon, &page, model);
    }
}

/// A server whose answers each contain so many new records of this size.
fn server_of(records: u64, filling: usize) -> String {
    let answered = AtomicU64::new(0);
    let port = crate::support::server::serve(move |request| {
        if request.path() != "/metrics" {
            return Some((200, b"[]".to_vec()));
        }
        let first = 1 + records * answered.fetch_add(1, Relaxed);
        let records: Vec<String> = (first..first + records).map(|number| record(number, filling)).collect();
        Some((200, format!("[{}]", records.join(",")).into_bytes()))
    });
    format!("trtllm-serve:http://127.0.0.1:{port}?perf_metrics=false")
}

fn assert_nothing_failed(daemon: &Daemon, page: &Page, model: &[&str]) {
    assert_eq!(page.count("nv_trt_llm_iterations_lost_total", model), 0);
    let failed: f64 = ["timeout", "too_large", "io"]
        .iter()
        .filter_map(|kind| page.find("trtllm_exporter_poll_errors_total", &[model[0], &format!("kind={kind}")]))
        .sum();
    assert_eq!(failed, 0.0, "{}", daemon.stderr());
}

/// All permits: long lines, long answers and unread responses flood the exporter together.
#[test]
fn kinds_of_input_that_are_flooded_cost_honest_peers_of_each_kind_nothing() {
    const EACH: u64 = 3;
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    // More than there are permits for long answers.
    let [first, second, third] =
        [(); 3].map(|()| dripping_server(format!("[{}", &record(1, 900_000)[..200_000]).into_bytes()));
    let [a_source, b_source] = [&a, &b].map(|path| format!("socket:{}", path.display()));
    let sources = [first, second, third, server_of(1, 300_000), a_source, b_source];
    let mut arguments = vec!["--poll.interval", "50ms"];
    for (source, model) in sources.iter().zip(["drip-1", "drip-2", "drip-3", "answers", "a", "b"]) {
        arguments.extend(["--source", source, "--model", model]);
    }
    let daemon = Daemon::start(&arguments);
    // The first clients send half lines, which keep their permits. The others send whole lines that wait for a permit.
    let crowds = [
        Crowd::new(4, &a, record(1, 70_000).into_bytes()[..70_000].to_vec(), b""),
        Crowd::new(6, &a, record(1, 900_000).into_bytes(), b""),
    ];
    let readers: Vec<std::net::TcpStream> = (0..40)
        .map(|_| {
            let mut reader = std::net::TcpStream::connect(&daemon.address).unwrap();
            reader.write_all(&b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(20)).unwrap();
            reader
        })
        .collect();
    let mut honest = UnixStream::connect(&b).unwrap();
    honest.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    for line in 1..=EACH {
        honest.write_all(record(line, 100_000).as_bytes()).unwrap();
        daemon.until_is(ITERATIONS, B, line as f64);
    }
    let answers = &["model=answers"];
    let page = daemon.until_at_least(ITERATIONS, answers, EACH as f64);
    assert_nothing_failed(&daemon, &page, answers);
    assert_eq!(page.count("nv_trt_llm_iterations_lost_total", B), 0);
    drop((crowds, readers));
}

/// The shared resource: log lines.
#[test]
fn endless_xids_fill_neither_the_log_nor_the_page() {
    let codes = |number: u64| (1..=number).map(|code| code.to_string()).collect::<Vec<_>>().join(",");
    let standin = Standin::new("gpus=1\n");
    let daemon = Launch::new().gpus(&standin).start(&["--source", "replay:/dev/null", "--metrics.compat", "dcgm"]);
    // From then on, errors of the GPU are events.
    daemon.until_shown("DCGM_FI_DEV_XID_ERRORS", &[], true);
    standin.set(&format!("gpus=1\ngpu.0.xids={}\n", codes(400)));
    // The page shows at most 64 codes. The check after the log lines ensures that no further code appears.
    let seen =
        |page: &Page| page.series.iter().filter(|(series, _)| series.starts_with("nv_gpu_xid_errors_total{")).count();
    daemon.until(|page| ensure(seen(page) >= 64, || format!("{} codes", seen(page))));
    until(|| ensure(daemon.logged(&["Xid error;"]) >= 90, || "the log is silent".to_owned()));
    assert_eq!(seen(&daemon.page()), 64);
    // The limit is a hundred lines at once, and one more per second.
    let logged = daemon.logged(&["Xid error;"]);
    assert!(logged <= 200, "{logged} lines");
}
