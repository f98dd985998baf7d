//! A broken engine, publisher or peer: the failure is counted by kind, logged once, and affects nothing else.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use crate::support::daemon::Daemon;
use crate::support::ingest::Ingest;
use crate::support::lookalike::{Lookalike, steady};
use crate::support::page::Page;
use crate::support::{TIMEOUT, ensure, until};

/// Upper limit of the daemon's memory in every test. Its limit for one answer is half of this.
const MOST_MEMORY: u64 = 64 << 20;

const A: &[&str] = &["model=a"];
const B: &[&str] = &["model=b"];

const ITERATIONS: &str = "nv_trt_llm_iterations_total";

fn iterations(page: &Page, engine: &[&str]) -> u64 {
    page.count(ITERATIONS, engine)
}

/// Waits until engine b has run more iterations than on this page.
fn b_goes_on(daemon: &Daemon, since: &Page) {
    daemon.until_at_least(ITERATIONS, B, (iterations(since, B) + 1) as f64);
}

fn errors(page: &Page, engine: &str, kind: &str) -> u64 {
    page.count("trtllm_exporter_poll_errors_total", &[engine, &format!("kind={kind}")])
}

fn rejected(page: &Page, reason: &str) -> u64 {
    page.count("trtllm_exporter_records_rejected_total", &["model=a", &format!("reason={reason}")])
}

/// Two busy engines behind one daemon.
fn two_engines(more: &[&str]) -> (Lookalike, Lookalike, Daemon) {
    // Engine a is fast, so that each poll returns records.
    let a = Lookalike::start_stopped(&steady(100), &["--ring", "50000"]);
    let b = Lookalike::start(&steady(20), &[]);
    let (source_a, source_b) = (a.source(), b.source());
    let arguments = ["--source", &source_a, "--source", &source_b, "--model", "a", "--model", "b"];
    let daemon = Daemon::start(&[&arguments, more].concat());
    daemon.until_up(A);
    a.resume();
    for engine in [A, B] {
        daemon.until_at_least(ITERATIONS, engine, 1.0);
    }
    (a, b, daemon)
}

/// Engine a answers in each mode for some polls and then correctly. Each failure must be counted by its kind and logged
/// once, complete records must be counted, and engine b must not be affected. `faults` has each answer on its own, and
/// answers that hang.
#[test]
fn an_engine_that_keeps_failing_is_logged_once_and_the_lost_iterations_are_those_that_were_cut() {
    // The timeout is so long that no answer exceeds it.
    let (mut a, _b, daemon) = two_engines(&["--poll.timeout", "60s"]);
    // More changes of one source would be logged later, because its lines are limited.
    let modes = [("truncated", "truncated"), ("huge", "too_large")];
    for (mode, kind) in modes {
        let before = daemon.page();
        a.mode(mode);
        let broken = daemon.until(|page| {
            page.never_below(&before);
            let count = errors(page, "model=a", kind);
            ensure(count >= 2, || format!("{count} errors of kind {kind}"))
        });
        assert_eq!(broken.get("trtllm_exporter_source_up", A), 0.0);
        let meanwhile = daemon.until(|page| {
            assert_eq!(page.get("trtllm_exporter_source_up", B), 1.0);
            let more = iterations(page, B) - iterations(&broken, B);
            ensure(more >= 5, || format!("{more} iterations of b meanwhile"))
        });
        assert_eq!(meanwhile.state(B), "busy");
        assert_eq!(daemon.get("/readyz").status, 200);
        a.mode("ok");
        let back = daemon.until(|page| {
            let up = page.get("trtllm_exporter_source_up", A) == 1.0 && iterations(page, A) > iterations(&meanwhile, A);
            ensure(up, || "a does not come back".to_owned())
        });
        back.never_below(&meanwhile);
        daemon.until_logged(&["source failed", "model=a", &format!("kind={kind} ")]);
    }
    until(|| ensure(daemon.logged(&["source recovered", "model=a"]) == modes.len(), || daemon.stderr()));
    assert_eq!(daemon.logged(&["source failed"]), modes.len(), "{}", daemon.stderr());
    a.stop();
    until(|| ensure(a.truth().count("in_ring") == 0, || "records are left".to_owned()));
    let page = daemon.poll(A, 2);
    // Read the look-alike's counts last, because it counts an answer only after it has sent the answer.
    let truth = a.truth();
    let received = |count: &str| truth.count(&format!("received/{count}"));
    assert_eq!(iterations(&page, A), received("iterations"), "{truth:?}");
    assert_eq!(page.count("nv_trt_llm_requests_completed_total", A), received("completed_requests"), "{truth:?}");
    assert_eq!(page.count("nv_trt_llm_context_tokens_total", A), received("context_tokens"), "{truth:?}");
    let lost = page.count("nv_trt_llm_iterations_lost_total", A);
    assert_eq!(lost, truth.count("cut_iterations"), "{truth:?}");
    assert_eq!(iterations(&page, A) + lost, truth.count("iterations"), "{truth:?}");
    a.kill();
    let killed = daemon.until_at_least("trtllm_exporter_poll_errors_total", &["model=a", "kind=connect"], 3.0);
    b_goes_on(&daemon, &killed);
    daemon.until_logged(&["source failed", "model=a", "kind=connect "]);
    assert_eq!(daemon.logged(&["model=b"]), 0, "{}", daemon.stderr());
    for kind in ["connect", "timeout", "http_status", "not_json", "truncated", "too_large", "io", "engine"] {
        assert_eq!(errors(&killed, "model=b", kind), 0, "{kind}");
    }
    let peak = daemon.peak_memory();
    assert!(peak < MOST_MEMORY, "{peak} bytes");
}

/// A daemon that listens for engine a and polls engine b.
fn ingest() -> (Daemon, Ingest, Lookalike) {
    let (socket, b) = (Ingest::new(), Lookalike::start(&steady(20), &[]));
    let daemon = socket.serve(&["--source", &b.source(), "--model", "a", "--model", "b"]);
    daemon.until_at_least(ITERATIONS, B, 1.0);
    (daemon, socket, b)
}

fn send(publisher: &mut UnixStream, bytes: impl AsRef<[u8]>) {
    publisher.write_all(bytes.as_ref()).unwrap();
}

fn record(iter: u64) -> String {
    format!(
        r#"{{"iter":{iter},"iterLatencyMS":5.5,"numActiveRequests":2,"numQueuedRequests":0,"numCompletedRequests":1,"numNewActiveRequests":1,"newActiveRequestsQueueLatencyMS":0.5,"inflightBatchingStats":{{"numScheduledRequests":2,"numContextRequests":1,"numGenRequests":1,"numPausedRequests":0,"numCtxTokens":64,"microBatchId":0,"avgNumDecodedTokensPerIter":1.0}}}}"#
    )
}

#[test]
fn a_truncated_last_line_is_counted_and_earlier_lines_are_kept() {
    let (daemon, socket, _b) = ingest();
    let mut publisher = socket.connect();
    for iter in 1..=10 {
        send(&mut publisher, record(iter) + "\n");
    }
    send(&mut publisher, &record(11).as_bytes()[..100]);
    drop(publisher);
    // The rejection can be counted before the records of the same poll are.
    daemon.until(|page| {
        let counts = (rejected(page, "truncated"), iterations(page, A));
        ensure(counts == (1, 10), || format!("{counts:?}"))
    });
    daemon.until_logged(&["invalid records skipped", "reason=truncated "]);
    // The next publisher continues after the last complete record. The last line may lack its line feed if it is
    // complete.
    send(&mut socket.connect(), record(11) + "\n" + &record(12));
    let page = daemon.until_is(ITERATIONS, A, 12.0);
    assert_eq!(page.count("nv_trt_llm_iterations_lost_total", A), 0);
    assert_eq!(rejected(&page, "truncated"), 1);
}

#[test]
fn a_publisher_that_floods_is_slowed_down_and_loses_nothing() {
    const RECORDS: u64 = 40_000;
    let (daemon, socket, _b) = ingest();
    let before = daemon.page();
    let flood = std::thread::spawn(move || {
        let mut publisher = socket.connect();
        let mut iter = 0;
        while iter < RECORDS {
            let lines: String = (1..=1000).map(|more| record(iter + more) + "\n").collect();
            send(&mut publisher, lines);
            iter += 1000;
        }
        socket
    });
    let page = daemon.until(|page| {
        assert_eq!(page.get("trtllm_exporter_source_up", B), 1.0);
        let counted = iterations(page, A);
        ensure(counted == RECORDS, || format!("{counted} iterations"))
    });
    let _socket = flood.join().unwrap();
    assert_eq!(page.count("nv_trt_llm_requests_completed_total", A), RECORDS);
    assert_eq!(page.count("nv_trt_llm_iterations_lost_total", A), 0);
    b_goes_on(&daemon, &before);
    let peak = daemon.peak_memory();
    println!("flood: at most {} MiB resident", peak >> 20);
    assert!(peak < MOST_MEMORY, "{peak} bytes");
}

#[test]
fn many_connections_are_all_served_in_bounded_memory() {
    let (daemon, socket, _b) = ingest();
    // A record without a number is always a new iteration, so the order of the publishers does not matter.
    let line = "{\"numActiveRequests\":1,\"numCompletedRequests\":1}\n";
    let crowd: Vec<UnixStream> = (0..288)
        .map(|_| {
            let mut publisher = socket.connect();
            send(&mut publisher, line);
            // An incomplete line occupies a buffer.
            send(&mut publisher, vec![b' '; 24 << 10]);
            publisher
        })
        .collect();
    let connections = |page: &Page| page.get("trtllm_exporter_ingest_connections", A);
    // Only 256 publishers are allowed. The others wait.
    let page = daemon.until(|page| {
        let met = connections(page) == 256.0 && iterations(page, A) == 256;
        ensure(met, || format!("{} connections, {} records", connections(page), iterations(page, A)))
    });
    b_goes_on(&daemon, &page);
    drop(crowd);
    let page = daemon.until(|page| {
        let met = iterations(page, A) == 288 && connections(page) == 0.0;
        ensure(met, || format!("{} connections, {} records", connections(page), iterations(page, A)))
    });
    assert_eq!(page.count("nv_trt_llm_requests_completed_total", A), 288);
    let peak = daemon.peak_memory();
    println!("crowd: at most {} MiB resident", peak >> 20);
    assert!(peak < MOST_MEMORY, "{peak} bytes");
}

#[test]
fn sigterm_ends_with_0_while_a_poll_hangs() {
    let (a, _b, mut daemon) = two_engines(&["--poll.timeout", "10m"]);
    a.mode("hang");
    // The poll of engine a hangs. Five polls of engine b show that enough time has passed for it to start.
    daemon.poll(B, 5);
    assert_eq!(daemon.terminate().code(), Some(0), "{}", daemon.stderr());
    daemon.until_logged(&["stopping", "SIGTERM"]);
}

#[test]
fn sigint_ends_with_0_and_an_open_request_is_answered() {
    let engine = Lookalike::start(&steady(50), &[]);
    let mut daemon = Daemon::start(&["--source", &engine.source()]);
    let mut stream = TcpStream::connect(&daemon.address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n").unwrap();
    // When the daemon has answered a later connection, it has also accepted this one.
    daemon.text("/healthz");
    daemon.signal("INT");
    daemon.until_logged(&["stopping", "SIGINT"]);
    let finished = stream.write_all(b"\r\n");
    let mut answer = String::new();
    let read = finished.and_then(|()| stream.read_to_string(&mut answer));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{read:?} {answer:?}");
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.stderr());
}
