//! Memory is bounded whatever a peer sends: tiny elements of JSON take hundreds of times their bytes in memory.
// A test fails by a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod e2e;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;

use e2e::daemon::Daemon;
use e2e::ensure;

/// Bytes that the process may have in memory at any time.
const LIMIT: u64 = 64_000_000;

/// Serves `body` as the first answer of `path`, and `[]` to everything else. Returns the source.
fn server(path: &'static str, body: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut body = Some(body);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut request = String::new();
            while reader.read_line(&mut request).is_ok_and(|bytes| bytes > 0) {
                if !request.ends_with("\r\n\r\n") {
                    continue;
                }
                let wanted = request.split(' ').nth(1) == Some(path);
                let body = if wanted { body.take() } else { None }.unwrap_or_else(|| b"[]".to_vec());
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                let stream = reader.get_mut();
                if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).is_err() {
                    break;
                }
                request.clear();
            }
        }
    });
    format!("trtllm-serve:http://{address}?kv_cache_events=true")
}

fn array(element: &str, bytes: usize) -> Vec<u8> {
    let mut text = vec![element; bytes / (element.len() + 1)].join(",");
    text.insert(0, '[');
    text.push(']');
    text.into_bytes()
}

fn rejected(daemon: &Daemon, reason: &str) -> f64 {
    daemon.page().find("trtllm_exporter_records_rejected_total", &[&format!("reason={reason}")]).unwrap_or(0.0)
}

#[test]
fn answers_of_tiny_elements_are_read_in_bounded_memory() {
    const SIZE: usize = 15 << 20;
    let rows = String::from_utf8(array("{}", SIZE)).unwrap();
    let levels = String::from_utf8(array("1", SIZE)).unwrap();
    let pools = format!("{{\"\":{{}}{}}}", ",\"\":{}".repeat(SIZE / 6));
    for (path, body, reason) in [
        ("/metrics", array("{}", SIZE), Some("not_a_record")),
        ("/metrics", array("null", SIZE), Some("not_a_record")),
        ("/metrics", array("{\"iter\":7}", SIZE), None),
        ("/metrics", format!("[{{\"iter\":7,\"requestStats\":{rows}}}]").into_bytes(), None),
        ("/metrics", format!("[{{\"iter\":7,\"iterCachedTokensByLevel\":{levels}}}]").into_bytes(), None),
        ("/metrics", format!("[{{\"iter\":7,\"kvCacheIterationStatsByPoolGroup\":{pools}}}]").into_bytes(), None),
        ("/perf_metrics", array("{}", SIZE), Some("not_a_record")),
        ("/perf_metrics", array("{\"request_id\":7}", SIZE), None),
        ("/kv_cache_events", array("{}", SIZE), Some("not_a_record")),
        ("/kv_cache_events", array("{\"event_id\":7}", SIZE), None),
    ] {
        let start = String::from_utf8_lossy(&body[..40]).into_owned();
        let source = server(path, body);
        let daemon = Daemon::start(&["--source", &source, "--poll.timeout", "60s"]);
        daemon.until(|page| {
            let read = match reason {
                Some(reason) => page.find("trtllm_exporter_records_rejected_total", &[&format!("reason={reason}")]),
                // It is in the first poll.
                None => page.find("trtllm_exporter_polls_total", &[]).map(|polls| polls - 2.0),
            };
            ensure(read.unwrap_or(0.0) > 0.0, || format!("{path} {start} is not read"))
        });
        let peak = daemon.peak_memory();
        assert!(peak <= LIMIT, "{path} {start}: {} MB", peak / 1_000_000);
    }
}

#[test]
fn lines_of_tiny_elements_from_many_publishers_are_read_in_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let daemon = Daemon::start(&["--source", &format!("socket:{}", path.display())]);
    // One long line each, then forty short ones: each has most elements for its limits.
    for (length, lines) in [(1_000_000, 1), (60_000, 40)] {
        let rows = String::from_utf8(array("{}", length)).unwrap();
        let line = format!("{{\"iter\":1,\"numActiveRequests\":0,\"requestStats\":{rows}}}\n");
        let publishers: Vec<_> = (0..64)
            .map(|_| {
                let (path, line) = (path.clone(), line.clone());
                std::thread::spawn(move || {
                    let mut stream = UnixStream::connect(path).unwrap();
                    (0..lines).for_each(|_| stream.write_all(line.as_bytes()).unwrap());
                })
            })
            .collect();
        publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
    }
    daemon.until(|_| {
        let page = daemon.page();
        let seen = page.find("nv_trt_llm_iterations_total", &[]).unwrap_or(0.0);
        ensure(seen >= 1.0 && rejected(&daemon, "too_many") + seen >= 1.0, || format!("{seen} records"))
    });
    std::thread::sleep(std::time::Duration::from_secs(1));
    let peak = daemon.peak_memory();
    assert!(peak <= LIMIT, "{} MB", peak / 1_000_000);
}
