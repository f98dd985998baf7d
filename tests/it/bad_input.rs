//! A broken engine, publisher or peer: the failure is counted by kind, logged once, and affects nothing else.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::support;
use crate::support::daemon::Daemon;
use crate::support::lookalike::{Lookalike, steady};
use crate::support::page::Page;
use crate::support::{TIMEOUT, ensure, until};

/// Upper limit of the daemon's memory in every test. Its limit for one answer is half of this.
const MOST_MEMORY: u64 = 64 << 20;

const A: &[&str] = &["model=a"];
const B: &[&str] = &["model=b"];

fn iterations(page: &Page, engine: &[&str]) -> u64 {
    page.count("nv_trt_llm_iterations_total", engine)
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
    daemon.until(|page| ensure(page.get("trtllm_exporter_source_up", A) == 1.0, || "a is not up".to_owned()));
    a.resume();
    daemon.until(|page| {
        ensure(iterations(page, A) > 0 && iterations(page, B) > 0, || "the engines do not work".to_owned())
    });
    (a, b, daemon)
}

/// Engine a answers in `mode` for some polls and then correctly. Each failure must be counted as `kind` and logged
/// once, complete records must be counted, and engine b must not be affected.
fn broken_answer(mode: &str, kind: &str, more: &[&str]) {
    let (a, _b, daemon) = two_engines(more);
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
    a.stop();
    until(|| ensure(a.truth().count("in_ring") == 0, || "records are left".to_owned()));
    let page = daemon.poll(A, 2);
    // Read the look-alike's counts last, because it counts an answer only after it has sent the answer.
    let truth = a.truth();

    let both = |count: &str| truth.count(&format!("handed_out/{count}")) + truth.count(&format!("salvageable/{count}"));
    assert_eq!(iterations(&page, A), both("iterations"), "{truth:?}");
    assert_eq!(page.count("nv_trt_llm_requests_completed_total", A), both("completed_requests"), "{truth:?}");
    assert_eq!(page.count("nv_trt_llm_context_tokens_total", A), both("context_tokens"), "{truth:?}");
    let lost = page.count("nv_trt_llm_iterations_lost_total", A);
    assert_eq!(lost, truth.count("cut_iterations"), "{truth:?}");
    assert_eq!(iterations(&page, A) + lost, truth.count("iterations"), "{truth:?}");

    let log = daemon.stderr();
    daemon.until_logged(&["source failed", "model=a", &format!("kind={kind} ")]);
    // A second failure is possible: a hanging answer is cut when the engine recovers.
    let fails = daemon.logged(&["source failed"]);
    assert!(fails == 1 || (mode == "hang" && fails == 2), "{log}");
    daemon.until_logged(&["source recovered", "model=a"]);
    assert_eq!(daemon.logged(&["model=b"]), 0, "{log}");
    for other in ["connect", "timeout", "http_status", "not_json", "truncated", "too_large", "io", "engine"] {
        assert_eq!(errors(&page, "model=b", other), 0);
        assert!(other == kind || other == "io" || errors(&page, "model=a", other) == 0, "{other}: {log}");
    }
    let peak = daemon.peak_memory();
    println!("{mode}: at most {} MiB resident", peak >> 20);
    assert!(peak < MOST_MEMORY, "{peak} bytes");
}

/// A poll timeout that only a hanging engine exceeds.
const PATIENT: &[&str] = &["--poll.timeout", "60s"];

#[test]
fn an_answer_that_is_not_json_is_counted_and_logged_once() {
    broken_answer("not-json", "not_json", PATIENT);
}

#[test]
fn an_array_that_ends_in_a_record_is_counted_and_its_complete_records_are_kept() {
    broken_answer("truncated", "truncated", PATIENT);
}

#[test]
fn an_answer_of_100_mib_is_counted_and_not_stored() {
    broken_answer("huge", "too_large", PATIENT);
}

#[test]
fn a_status_of_500_is_counted_and_logged_once() {
    broken_answer("500", "http_status", PATIENT);
}

#[test]
fn an_engine_that_hangs_is_a_timeout_and_delays_no_other() {
    broken_answer("hang", "timeout", &["--poll.timeout", "4500ms"]);
}

#[test]
fn an_answer_of_a_byte_per_second_is_a_timeout_and_delays_no_other() {
    broken_answer("slow-body", "timeout", &["--poll.timeout", "4500ms"]);
}

/// A server that sends two records and half of a third one, and then hangs or closes the connection. It has no other
/// endpoints.
fn truncated_answer(hangs: bool, kind: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let source = format!("trtllm-serve:http://{}", listener.local_addr().unwrap());
    let third = record(3);
    let part = format!("[{},{},{}", record(1), record(2), &third[..third.len() / 2]);
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for (index, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let (status, body) = if index == 0 {
                ("200 OK", part.as_str())
            } else {
                ("503 Service Unavailable\r\nconnection: close", "")
            };
            let length = if index == 0 { body.len() + third.len() } else { 0 };
            let _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
            if index == 0 && hangs {
                held.push(stream);
            }
        }
    });
    // Only the hang may exceed the timeout. A later poll that exceeded it would be counted too.
    let timeout = if hangs { "10s" } else { "60s" };
    let daemon = Daemon::start(&["--source", &source, "--poll.timeout", timeout, "--model", "a"]);
    let page = daemon
        .until(|page| ensure(errors(page, "model=a", "http_status") >= 1, || "the first answer has no end".to_owned()));
    assert_eq!(errors(&page, "model=a", kind), 1, "{}", daemon.stderr());
    assert_eq!(iterations(&page, A), 2, "the complete records");
    assert_eq!(page.count("nv_trt_llm_requests_completed_total", A), 2);
}

#[test]
fn complete_records_of_an_answer_that_hangs_are_kept() {
    truncated_answer(true, "timeout");
}

#[test]
fn complete_records_of_a_truncated_answer_are_kept() {
    truncated_answer(false, "io");
}

#[test]
fn an_unreachable_engine_is_a_connect_error_and_logged_once() {
    let (mut a, b, daemon) = two_engines(&[]);
    a.kill();
    let page = daemon.until(|page| {
        let count = errors(page, "model=a", "connect");
        ensure(count >= 3, || format!("{count} errors of kind connect"))
    });
    daemon.until(|later| ensure(iterations(later, B) > iterations(&page, B), || "b stands still".to_owned()));
    daemon.until_logged(&["source failed", "model=a", "kind=connect "]);
    drop(b);
}

/// A daemon that listens for engine a and polls engine b.
fn ingest() -> (Daemon, std::path::PathBuf, Lookalike, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ingest.sock");
    let b = Lookalike::start(&steady(20), &[]);
    let (socket, source) = (format!("socket:{}", path.display()), b.source());
    let daemon = Daemon::start(&["--source", &socket, "--source", &source, "--model", "a", "--model", "b"]);
    daemon.until(|page| ensure(iterations(page, B) > 0, || "b does not work".to_owned()));
    (daemon, path, b, folder)
}

struct Publisher(UnixStream);

impl Publisher {
    fn connect(path: &Path) -> Self {
        Self(UnixStream::connect(path).unwrap())
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    fn record(&mut self, iter: u64) {
        self.send(record(iter) + "\n");
    }
}

fn record(iter: u64) -> String {
    format!(
        r#"{{"iter":{iter},"iterLatencyMS":5.5,"numActiveRequests":2,"numQueuedRequests":0,"numCompletedRequests":1,"numNewActiveRequests":1,"newActiveRequestsQueueLatencyMS":0.5,"inflightBatchingStats":{{"numScheduledRequests":2,"numContextRequests":1,"numGenRequests":1,"numPausedRequests":0,"numCtxTokens":64,"microBatchId":0,"avgNumDecodedTokensPerIter":1.0}}}}"#
    )
}

/// Sends the line `bad` `times` times between two valid records. The lines must be skipped, counted and logged once,
/// the connection must stay open, and engine b must not be affected. A second round of bad lines is logged again.
fn bad_line(bad: &[u8], times: u64, reason: &str) {
    let (daemon, path, _b, _folder) = ingest();
    let mut publisher = Publisher::connect(&path);
    publisher.record(1);
    let before = daemon.until(|page| ensure(iterations(page, A) == 1, || "no record".to_owned()));
    for round in 1..=2 {
        for _ in 0..times {
            publisher.send(bad);
            publisher.send(b"\n");
        }
        daemon.until(|page| {
            let count = rejected(page, reason);
            ensure(count == round * times, || format!("{count} lines rejected as {reason}"))
        });
        daemon.poll(A, 2);
        publisher.record(1 + round);
        daemon.until(|page| ensure(iterations(page, A) == 1 + round, || "the connection did not stay".to_owned()));
        // A poll with only valid records ends the series of failures.
        daemon.poll(A, 2);
        let logged = daemon.logged(&["invalid records skipped", "model=a", &format!("reason={reason} ")]);
        assert_eq!(logged as u64, round, "{}", daemon.stderr());
    }
    let page = daemon.page();
    for other in ["not_json", "not_a_record", "too_long", "truncated"] {
        assert!(other == reason || rejected(&page, other) == 0, "{other}");
    }
    assert_eq!(page.count("nv_trt_llm_iterations_lost_total", A), 0);
    assert_eq!(page.get("trtllm_exporter_ingest_connections", A), 1.0);
    assert_eq!(page.get("trtllm_exporter_source_up", A), 1.0);
    daemon.until(|page| ensure(iterations(page, B) > iterations(&before, B), || "b stands still".to_owned()));
    assert_eq!(daemon.logged(&["source failed"]), 0, "{}", daemon.stderr());
    let peak = daemon.peak_memory();
    assert!(peak < MOST_MEMORY, "{peak} bytes");
}

#[test]
fn a_line_of_2_mib_is_skipped_and_counted() {
    bad_line(&vec![b'x'; 2 << 20], 5, "too_long");
}

#[test]
fn a_record_of_2_mib_is_skipped_and_counted() {
    let long = record(7).replacen('{', &format!(r#"{{"unknown":"{}","#, "y".repeat(2 << 20)), 1);
    bad_line(long.as_bytes(), 5, "too_long");
}

#[test]
fn garbage_is_skipped_and_counted() {
    bad_line(b"\x00\xff\xfe no json at all }{", 1000, "not_json");
}

#[test]
fn a_record_whose_number_has_a_wrong_type_is_skipped_and_counted() {
    bad_line(br#"{"iter":"seven","numActiveRequests":[1]}"#, 300, "implausible");
}

#[test]
fn json_that_is_not_a_record_is_skipped_and_counted() {
    bad_line(br#"{"message":"hello, world"}"#, 300, "not_a_record");
}

#[test]
fn half_a_record_on_a_line_is_skipped_and_counted() {
    bad_line(&record(7).as_bytes()[..100], 300, "truncated");
}

#[test]
fn a_truncated_last_line_is_counted_and_earlier_lines_are_kept() {
    let (daemon, path, _b, _folder) = ingest();
    let mut publisher = Publisher::connect(&path);
    for iter in 1..=10 {
        publisher.record(iter);
    }
    publisher.send(&record(11).as_bytes()[..100]);
    drop(publisher);
    // The rejection can be counted before the records of the same poll are.
    daemon.until(|page| {
        let counts = (rejected(page, "truncated"), iterations(page, A));
        ensure(counts == (1, 10), || format!("{counts:?}"))
    });
    daemon.until_logged(&["invalid records skipped", "reason=truncated "]);
    // The next publisher continues after the last complete record. The last line may lack its line feed if it is
    // complete.
    let mut publisher = Publisher::connect(&path);
    publisher.record(11);
    publisher.send(record(12));
    drop(publisher);
    let page = daemon
        .until(|page| ensure(iterations(page, A) == 12, || "the records of the next publisher are missing".to_owned()));
    assert_eq!(page.count("nv_trt_llm_iterations_lost_total", A), 0);
    assert_eq!(rejected(&page, "truncated"), 1);
}

#[test]
fn a_publisher_that_floods_is_slowed_down_and_loses_nothing() {
    const RECORDS: u64 = 40_000;
    let (daemon, path, _b, _folder) = ingest();
    let before = daemon.page();
    let flood = std::thread::spawn(move || {
        let mut publisher = Publisher::connect(&path);
        let mut iter = 0;
        while iter < RECORDS {
            let lines: String = (1..=1000).map(|more| record(iter + more) + "\n").collect();
            publisher.send(lines);
            iter += 1000;
        }
    });
    let page = daemon.until(|page| {
        assert_eq!(page.get("trtllm_exporter_source_up", B), 1.0);
        let counted = iterations(page, A);
        ensure(counted == RECORDS, || format!("{counted} iterations"))
    });
    flood.join().unwrap();
    assert_eq!(page.count("nv_trt_llm_requests_completed_total", A), RECORDS);
    assert_eq!(page.count("nv_trt_llm_iterations_lost_total", A), 0);
    daemon.until(|page| ensure(iterations(page, B) > iterations(&before, B), || "b stands still".to_owned()));
    let peak = daemon.peak_memory();
    println!("flood: at most {} MiB resident", peak >> 20);
    assert!(peak < MOST_MEMORY, "{peak} bytes");
}

#[test]
fn a_flood_of_garbage_is_counted_by_line_and_logged_once() {
    const LINES: u64 = 200_000;
    let (daemon, path, _b, _folder) = ingest();
    let flood = std::thread::spawn(move || {
        let mut publisher = Publisher::connect(&path);
        for _ in 0..LINES / 1000 {
            publisher.send("}garbage{\n".repeat(1000));
        }
        publisher
    });
    daemon.until(|page| {
        let count = rejected(page, "not_json");
        ensure(count == LINES, || format!("{count} lines"))
    });
    drop(flood.join().unwrap());
    daemon.until_logged(&["invalid records skipped"]);
    let peak = daemon.peak_memory();
    assert!(peak < MOST_MEMORY, "{peak} bytes");
}

#[test]
fn many_connections_are_all_served_in_bounded_memory() {
    let (daemon, path, _b, _folder) = ingest();
    // A record without a number is always a new iteration, so the order of the publishers does not matter.
    let line = "{\"numActiveRequests\":1,\"numCompletedRequests\":1}\n";
    let crowd: Vec<Publisher> = (0..288)
        .map(|_| {
            let mut publisher = Publisher::connect(&path);
            publisher.send(line);
            // An incomplete line occupies a buffer.
            publisher.send(vec![b' '; 24 << 10]);
            publisher
        })
        .collect();
    let connections = |page: &Page| page.get("trtllm_exporter_ingest_connections", A);
    // Only 256 publishers are allowed. The others wait.
    let page = daemon.until(|page| {
        let met = connections(page) == 256.0 && iterations(page, A) == 256;
        ensure(met, || format!("{} connections, {} records", connections(page), iterations(page, A)))
    });
    daemon.until(|later| ensure(iterations(later, B) > iterations(&page, B), || "b stands still".to_owned()));
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
fn a_scraper_that_never_finishes_its_request_delays_no_other() {
    let (_a, _b, daemon) = two_engines(&[]);
    let hung: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(&daemon.address).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: ").unwrap();
            stream
        })
        .collect();
    let before = daemon.page();
    daemon.until(|page| ensure(iterations(page, B) > iterations(&before, B) + 20, || "b stands still".to_owned()));
    drop(hung);
}

#[test]
fn sigterm_ends_with_0_while_a_poll_hangs() {
    let (a, _b, mut daemon) = two_engines(&["--poll.timeout", "10m"]);
    a.mode("hang");
    // The poll of engine a hangs. Five polls of engine b show that enough time has passed for it to start.
    let page = daemon.page();
    daemon.until(|later| {
        let polls = |page: &Page, engine| page.count("trtllm_exporter_polls_total", engine);
        let hangs = polls(later, B) >= polls(&page, B) + 5;
        ensure(hangs, || "b is not polled".to_owned())
    });
    assert_eq!(daemon.terminate().code(), Some(0), "{}", daemon.stderr());
    daemon.until_logged(&["stopping", "SIGTERM"]);
}

#[test]
fn a_publisher_says_hello_once_and_cannot_fill_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let daemon = Daemon::start(&["--source", &format!("socket:{}", path.display()), "--model", "m"]);
    let hello = |model: &str| format!("{{\"hello\":{{\"model\":\"{model}\",\"pid\":7}}}}\n");
    // A hello is accepted only as the first line of a connection. A long name is cut.
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(hello("m").repeat(101).as_bytes()).unwrap();
    let mut long = UnixStream::connect(&path).unwrap();
    long.write_all(hello(&"x".repeat(65)).as_bytes()).unwrap();
    for _ in 0..200 {
        UnixStream::connect(&path).unwrap().write_all(hello("again").as_bytes()).unwrap();
    }
    daemon.until(|page| {
        let rejected = page.count("trtllm_exporter_records_rejected_total", &["reason=not_a_record"]);
        ensure(rejected == 100, || format!("{rejected} rejected"))
    });
    // A separate thread writes the log, so the lines may appear later.
    let logged = || daemon.logged(&["publisher connected"]);
    until(|| ensure((1..=10).contains(&logged()), || format!("{} lines: {}", logged(), daemon.stderr())));
    assert_eq!(daemon.page().count("nv_trt_llm_engine_restarts_total", &[]), 0);
}

#[test]
fn sighup_does_not_end_the_process() {
    let mut daemon = Daemon::start(&["--source", "replay:tests/fixtures/session.ndjson?speed=max"]);
    for _ in 0..3 {
        daemon.signal("HUP");
    }
    support::until(|| ensure(daemon.logged(&["SIGHUP"]) > 0, || "not logged".to_owned()));
    daemon.text("/metrics");
    assert_eq!(daemon.terminate().code(), Some(0), "{}", daemon.stderr());
}

#[test]
fn sigterm_ends_with_0_while_a_scrape_hangs() {
    let engine = Lookalike::start(&steady(50), &[]);
    let mut daemon = Daemon::start(&["--source", &engine.source()]);
    let mut stream = TcpStream::connect(&daemon.address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: ").unwrap();
    daemon.text("/metrics");
    assert_eq!(daemon.terminate().code(), Some(0), "{}", daemon.stderr());
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

/// Regression: kv_cache_pressure_ratio was -0.5 and saturation_ratio up to 9, because the counts of a record contradict
/// each other.
#[test]
fn no_share_of_a_record_with_more_free_blocks_or_requests_than_fit_is_outside_0_to_1() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sock");
    let daemon = Daemon::start(&["--source", &format!("socket:{}", path.display()), "--model", "a"]);
    let mut stream = UnixStream::connect(&path).unwrap();
    let record = serde_json::json!({
        "iter": 1, "numActiveRequests": 36, "numQueuedRequests": 0, "maxNumActiveRequests": 4, "maxBatchSizeRuntime": 4,
        "maxNumTokensRuntime": 10,
        "kvCacheStats": {"maxNumBlocks": 100, "freeNumBlocks": 150, "usedNumBlocks": 120, "tokensPerBlock": 32},
        "inflightBatchingStats": {"numScheduledRequests": 9, "numContextRequests": 9, "numGenRequests": 0, "numCtxTokens": 90},
        "specDecodingStats": {"numDraftTokens": 2, "numAcceptedTokens": 5},
    });
    writeln!(stream, "{record}").unwrap();
    let page = daemon.until(|page| ensure(iterations(page, A) == 1, || "no record".to_owned()));
    let saturation = |resource| page.find("nv_trt_llm_saturation_ratio", &[&format!("resource={resource}")]);
    assert_eq!(["batch", "tokens", "kv_cache"].map(saturation), [Some(1.0); 3]);
    assert_eq!(saturation("queue"), Some(27.0 / 4.0));
    for absent in ["kv_cache_pressure_ratio", "batch_occupancy_ratio", "spec_decode_acceptance_ratio"] {
        assert_eq!(page.find(&format!("nv_trt_llm_{absent}"), A), None, "{absent}");
    }
    assert_eq!(page.get("nv_trt_llm_kv_cache_block_metrics", &["kv_cache_block_type=fraction"]), 1.0);
}
