//! Spans that the official SDK of OpenTelemetry sends, over each protocol, become finished requests.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::daemon::{Daemon, doctor, refused};
use crate::support::page::Page;
use crate::support::server::serve;
use crate::support::{ensure, python, root, until};

const OBJECTIVES: &str = "--objectives=ttft=400ms,e2e=5s";

/// A port that is free now. Linux does not give it to connections meanwhile, because it is below 32768.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let start = u64::from(std::process::id()) * 97;
    loop {
        let port = 20_000 + ((start + NEXT.fetch_add(1, Relaxed)) % 12_768) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Number and sum of a histogram.
fn shown(page: &Page, family: &str) -> (u64, f64) {
    (page.count(&format!("{family}_count"), &[]), page.get(&format!("{family}_sum"), &[]))
}

/// Sends the spans of `tests/judges/spans.py`, and checks that the SDK sent all of them.
pub(crate) fn send_spans(port: u16, protocol: &str, compression: &str) {
    until(|| TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string()));
    let endpoint = format!("http://127.0.0.1:{port}");
    let script = root().join("tests/judges/spans.py");
    let sent = Command::new(python()).arg(script).args([&endpoint, protocol, compression]).output().unwrap();
    let said = String::from_utf8_lossy(&sent.stderr).into_owned();
    assert!(sent.status.success(), "{said}");
    let sent: Value = serde_json::from_slice(&sent.stdout).unwrap();
    assert_eq!((&sent["sent"], &sent["failed"]), (&9.into(), &0.into()), "{said}");
}

/// Waits until the requests of `tests/judges/spans.py` are on the page.
fn until_ended(daemon: &Daemon) -> Page {
    daemon.until_is("nv_trt_llm_requests_finished_total", &["reason=stop"], 4.0)
}

/// The page of an engine that has records, 10 entries of 1 s if `has_entries`, and then spans; and the number of requests in the trace of
/// its recording.
fn requests_of_a_server(has_entries: bool) -> (Page, usize) {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().to_str().unwrap();
    let (port, ended) = (free_port(), Arc::new(AtomicBool::new(false)));
    let server_ended = Arc::clone(&ended);
    let iter = AtomicU64::new(0);
    let server = serve(move |request| match request.path() {
        "/metrics" => {
            let iter = iter.fetch_add(1, Relaxed) + 1;
            Some((200, format!("[{{\"iter\":{iter},\"iterLatencyMS\":8.0,\"numActiveRequests\":1}}]").into_bytes()))
        }
        "/perf_metrics" if has_entries && server_ended.swap(false, Relaxed) => {
            let timing = json!({"arrival_time": 10.0, "first_scheduled_time": 10.25, "first_token_time": 10.5,
                "last_token_time": 11.0});
            Some((
                200,
                json!(vec![json!({"request_id": 1, "perf_metrics": {"timing_metrics": timing}}); 10])
                    .to_string()
                    .into_bytes(),
            ))
        }
        "/perf_metrics" if has_entries => Some((200, b"[]".to_vec())),
        _ => Some((404, Vec::new())),
    });
    let source = format!("trtllm-serve:http://127.0.0.1:{server}?otlp=127.0.0.1:{port}");
    let mut daemon = Daemon::start(&["--source", &source, "--model", "m", "--record.dir", recording]);
    daemon.until_at_least("nv_trt_llm_iterations_total", &[], 1.0);
    ended.store(true, Relaxed);
    if has_entries {
        daemon.until_is("nv_trt_llm_e2e_request_latency_seconds_count", &[], 10.0);
    }
    let (protocol, compression) = if has_entries { ("http/protobuf", "gzip") } else { ("grpc", "none") };
    send_spans(port, protocol, compression);
    // Each part of a request in disaggregated serving is a request of its engine.
    let page = until_ended(&daemon);
    daemon.terminate();
    let trace: Value = serde_json::from_slice(&doctor(&["export", recording]).stdout).unwrap();
    let begins =
        |event: &&Value| event["ph"] == "b" && event["name"].as_str().is_some_and(|name| name.starts_with("request "));
    (page, trace["traceEvents"].as_array().unwrap().iter().filter(begins).count())
}

#[test]
fn spans_of_a_server_are_the_request_times_of_its_engine() {
    let (page, in_trace) = requests_of_a_server(false);
    assert_eq!(in_trace, 7);
    assert_eq!(page.get("nv_trt_llm_request_latency_info", &["from=otlp"]), 1.0);
    assert_eq!(shown(&page, "nv_trt_llm_e2e_request_latency_seconds"), (7, 5.0 * 4.0 + 0.5 + 2.0));
    assert_eq!(shown(&page, "nv_llm_output_token_len"), (7, 5.0 * 15.0 + 1.0 + 15.0));
    assert_eq!(page.count("trtllm_exporter_source_up", &["source=trtllm-serve"]), 1);
}

#[test]
fn a_request_with_an_entry_and_a_span_counts_once() {
    let (page, in_trace) = requests_of_a_server(true);
    assert_eq!(in_trace, 10, "spans are not drawn beside entries");
    assert_eq!(page.get("nv_trt_llm_request_latency_info", &["from=perf_metrics"]), 1.0);
    assert_eq!(shown(&page, "nv_trt_llm_e2e_request_latency_seconds"), (10, 10.0));
    // Entries have no lengths, so those of spans count.
    assert_eq!(shown(&page, "nv_llm_output_token_len"), (7, 5.0 * 15.0 + 1.0 + 15.0));
}

/// An exporter that receives spans at the first port, and forwards them to the second one.
fn forwarding(port: u16, next: u16) -> Daemon {
    let (source, endpoint) = (format!("otlp:127.0.0.1:{port}"), format!("http://127.0.0.1:{next}"));
    Daemon::start(&["--source", &source, "--otlp.endpoint", &endpoint, "--model", "m", OBJECTIVES])
}

/// The requests of an exporter that receives spans, and of one to which it forwards them.
fn spans_are_requests(protocol: &str, compression: &str) {
    let (port, next) = (free_port(), free_port());
    let last = Daemon::start(&["--source", &format!("otlp:127.0.0.1:{next}"), "--model", "m", OBJECTIVES]);
    let first = forwarding(port, next);
    send_spans(port, protocol, compression);
    for daemon in [&last, &first] {
        let page = until_ended(daemon);
        for (reason, requests) in [("length", 1), ("cancelled", 1), ("timeout", 0)] {
            assert_eq!(page.count("nv_trt_llm_requests_finished_total", &[&format!("reason={reason}")]), requests);
        }
        // The request of two engines has one time from its arrival at the first to the end at the second: 0.5 + 2 s.
        for (family, (count, sum)) in [
            ("nv_trt_llm_e2e_request_latency_seconds", (6, 5.0 * 4.0 + 2.5)),
            ("nv_trt_llm_time_to_first_token_seconds", (5, 4.0 * 0.5 + 0.625)),
            ("nv_trt_llm_request_queue_time_seconds", (5, 5.0 * 0.25)),
            ("nv_trt_llm_kv_cache_transfer_seconds", (1, 0.0625)),
            ("nv_llm_input_token_len", (6, 600.0)),
            ("nv_llm_output_token_len", (6, 90.0)),
        ] {
            let shown = shown(&page, family);
            assert!(shown.0 == count && (shown.1 - sum).abs() < 1e-5, "{family}: {shown:?}, not {count} and {sum}");
        }
        assert_eq!(page.get("nv_trt_llm_request_latency_info", &["from=otlp"]), 1.0);
        // The spans of the HTTP server and of the program that called the engine.
        let dropped = daemon.until_is("trtllm_exporter_spans_dropped_total", &["reason=not_a_request"], 2.0);
        assert_eq!(dropped.count("trtllm_exporter_spans_dropped_total", &["reason=incomplete"]), 0);
        assert_eq!(page.count("nv_trt_llm_objective_requests_total", &["objective=ttft", "outcome=missed"]), 4);
    }
    let page = first.until_is("trtllm_exporter_spans_forwarded_total", &[], 9.0);
    for why in ["queue_full", "failed"] {
        assert_eq!(page.count("trtllm_exporter_spans_forward_dropped_total", &[&format!("reason={why}")]), 0);
    }
    assert_eq!(last.page().find("trtllm_exporter_spans_forwarded_total", &[]), None);
}

#[test]
fn spans_over_grpc_are_requests_and_are_forwarded() {
    spans_are_requests("grpc", "gzip");
}

#[test]
fn spans_over_http_are_requests_and_are_forwarded() {
    spans_are_requests("http/protobuf", "none");
}

#[test]
fn forwarded_bytes_are_those_that_came() {
    let (next, port) = (TcpListener::bind("127.0.0.1:0").unwrap(), free_port());
    let daemon = forwarding(port, next.local_addr().unwrap().port());
    // A member that is not known, too.
    let body = [field(1, &field(2, &field(2, &field(5, b"GET /health")))), field(15, b"later")].concat();
    assert!(ask(port, "POST /v1/traces", &body).starts_with("HTTP/1.1 200"));
    let (mut stream, _) = next.accept().unwrap();
    let (mut received, mut part) = (Vec::new(), [0; 4096]);
    while !received.ends_with(&body) {
        let bytes = stream.read(&mut part).unwrap();
        assert!(bytes > 0, "{}", String::from_utf8_lossy(&received));
        received.extend_from_slice(&part[..bytes]);
    }
    let head = String::from_utf8_lossy(&received).to_lowercase();
    assert!(
        head.starts_with("post /v1/traces http/1.1") && head.contains("content-type: application/x-protobuf"),
        "{head}"
    );
    // A redirect or an error is no success.
    stream.write_all(b"HTTP/1.1 503 x\r\ncontent-length: 0\r\n\r\n").unwrap();
    daemon.until_is("trtllm_exporter_spans_forward_dropped_total", &["reason=failed"], 1.0);
    daemon.until_logged(&["spans cannot be forwarded", "kind=http_status", "check --otlp.endpoint"]);
}

#[test]
fn a_next_receiver_that_hangs_delays_nothing() {
    let (next, port) = (TcpListener::bind("127.0.0.1:0").unwrap(), free_port());
    let daemon = forwarding(port, next.local_addr().unwrap().port());
    // Two of these do not fit into the queue.
    let body = field(1, &field(2, &field(2, &field(5, &vec![b'x'; 600 << 10]))));
    for _ in 0..3 {
        let begun = Instant::now();
        assert!(ask(port, "POST /v1/traces", &body).starts_with("HTTP/1.1 200"));
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
    daemon.until_is("trtllm_exporter_spans_forward_dropped_total", &["reason=queue_full"], 2.0);
}

/// The answer of the receiver to one request over HTTP.
fn ask(port: u16, head: &str, body: &[u8]) -> String {
    let mut stream = until(|| TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string()));
    let length = body.len();
    write!(stream, "{head} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n").unwrap();
    _ = write!(stream, "content-type: application/x-protobuf\r\n\r\n").and_then(|()| stream.write_all(body));
    let mut answer = Vec::new();
    _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A field of a message of protobuf.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = value.len();
    while length > 0x7f {
        field.push(length as u8 | 0x80);
        length >>= 7;
    }
    [field, vec![length as u8], value.to_vec()].concat()
}

#[test]
fn the_answer_says_which_spans_of_requests_were_refused() {
    let port = free_port();
    let daemon = Daemon::start(&["--source", &format!("otlp:127.0.0.1:{port}"), "--model", "m"]);
    // A value that is the number -1, as an engine writes a time that it does not know.
    let unknown = field(2, &[[0x21].as_slice(), &(-1.0_f64).to_le_bytes()].concat());
    let incomplete = field(9, &[field(1, b"gen_ai.latency.e2e"), unknown].concat());
    let other = field(9, &field(1, b"http.route"));
    let request = |spans: &[&[u8]]| {
        let spans: Vec<u8> = spans.iter().flat_map(|span| field(2, span)).collect();
        field(1, &field(2, &spans))
    };
    let answer = ask(port, "POST /v1/traces", &request(&[&incomplete, &other, b"\xff"]));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    for words in ["1 spans cannot be decoded", "1 spans have no time and no length; set return_perf_metrics: true"] {
        assert!(answer.contains(words), "{answer}");
    }
    assert!(ask(port, "POST /v1/traces", &request(&[&other])).ends_with("\r\n\r\n"), "nothing was refused");
    daemon.until(|page| {
        let counts =
            [("spans_dropped", "incomplete"), ("spans_dropped", "not_a_request"), ("records_rejected", "not_a_record")]
                .map(|(name, why)| page.count(&format!("trtllm_exporter_{name}_total"), &[&format!("reason={why}")]));
        ensure(counts == [1, 2, 1], || format!("{counts:?}"))
    });
}

#[test]
fn what_is_not_otlp_is_refused_with_a_remedy() {
    let port = free_port();
    let daemon = Daemon::start(&["--source", &format!("otlp:127.0.0.1:{port}"), "--model", "m"]);
    let ask = |head: &str, body: &[u8]| ask(port, head, body);
    let long = vec![0; (1 << 20) + 1];
    for (head, body, status, remedy) in [
        ("GET /v1/traces", &b""[..], "404", "by POST"),
        ("POST /v1/metrics", b"", "404", "to /v1/traces"),
        ("POST /v1/traces", b"{\"resourceSpans\":[]}", "400", "as protobuf"),
        ("POST /v1/traces", &long, "413", "send_batch_max_size"),
    ] {
        let answer = ask(head, body);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(remedy), "{head}: {answer}");
    }
    assert!(ask("POST /v1/traces", b"").starts_with("HTTP/1.1 200"), "a request without spans");
    // A second receiver has no place beside the first one.
    let taken = format!("otlp:127.0.0.1:{port}");
    refused(1, &["--source", &taken], &["cannot listen on", "choose another address"]);
    // Each request that was refused, other than those for another path, is counted.
    daemon.until_is("trtllm_exporter_records_rejected_total", &["reason=not_a_record"], 2.0);
}
