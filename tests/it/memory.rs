//! Memory is bounded, no matter what a peer sends. The inputs have many tiny elements, because a parsed tiny element of
//! JSON can take hundreds of times its size.

use std::io::Write as _;
use std::sync::Mutex;

use crate::support;
use crate::support::daemon::Daemon;
use crate::support::ensure;
use crate::support::ingest::Ingest;
use crate::support::server::serve;

/// The resident memory of the daemon, in bytes, must never exceed this limit.
const LIMIT: u64 = 64_000_000;

/// Serves `body` as the first answer of `path`, and `[]` to everything else. Returns the source.
fn server(path: &'static str, body: Vec<u8>) -> String {
    let body = Mutex::new(Some(body));
    let port = serve(move |request| {
        let body = if request.path() == path { body.lock().unwrap().take() } else { None };
        Some((200, body.unwrap_or_else(|| b"[]".to_vec())))
    });
    format!("trtllm-serve:http://127.0.0.1:{port}")
}

fn array(element: &str, bytes: usize) -> Vec<u8> {
    let mut text = vec![element; bytes / (element.len() + 1)].join(",");
    text.insert(0, '[');
    text.push(']');
    text.into_bytes()
}

/// Regression: the last 128 records of each engine took most of the memory. Each took 2.8 KB, because it had unused
/// capacity for windows.
#[test]
fn many_engines_with_records_of_kv_cache_manager_v2_take_less_than_half_a_megabyte_each() {
    const ENGINES: usize = 64;
    let mut record = support::payload("metrics_v2_cold_tiers_sampled.json")[1].clone();
    let records: String = (1..=150)
        .map(|iter| {
            record["iter"] = iter.into();
            format!("{record}\n")
        })
        .collect();
    let socket = Ingest::new();
    let daemon = socket.serve(&[]);
    let before = daemon.own_memory();
    for engine in 0..ENGINES {
        let mut publisher = socket.publisher(&format!("{{\"model\": \"engine-{engine}\"}}"));
        publisher.write_all(records.as_bytes()).unwrap();
    }
    daemon.until(|page| {
        let counted = (0..ENGINES).filter(|engine| {
            let model = format!("model=engine-{engine}");
            page.find("nv_trt_llm_kv_cache_blocks_allocated_total", &[&model]).is_some()
                && page.find("nv_trt_llm_iterations_total", &[&model]).is_some_and(|count| count >= 15.0)
        });
        let counted = counted.count();
        ensure(counted == ENGINES, || format!("{counted} engines have sent all"))
    });
    let grown = daemon.own_memory().saturating_sub(before) / ENGINES as u64;
    assert!(grown <= 500_000, "{grown} bytes an engine");
}

/// `faults::answers` has millions of empty elements.
#[test]
fn answers_of_tiny_elements_are_read_in_bounded_memory() {
    // The daemon would refuse much longer answers and elements.
    const SIZE: usize = 7 << 20;
    const ELEMENT: usize = 3 << 20;
    let rows = String::from_utf8(array("{}", ELEMENT)).unwrap();
    let levels = String::from_utf8(array("1", ELEMENT)).unwrap();
    let pools = format!("{{\"\":{{}}{}}}", ",\"\":{}".repeat(ELEMENT / 6));
    let tree = String::from_utf8(array("{\"a\":0}", SIZE)).unwrap();
    let numbers = String::from_utf8(array("0", ELEMENT)).unwrap();
    let nested = (0..100).fold("{}".to_owned(), |entry, _| format!("{{\"gen_perf_metrics\":{entry}}}"));
    // An error message that quotes this text needs six bytes for each byte.
    let text = "\x7f".repeat(ELEMENT);
    for (path, body, reason) in [
        ("/metrics", array("{\"iter\":7}", SIZE), None),
        ("/metrics", format!("[{{\"iter\":7,\"requestStats\":{rows}}}]").into_bytes(), None),
        ("/metrics", format!("[{{\"iter\":7,\"iterCachedTokensByLevel\":{levels}}}]").into_bytes(), None),
        ("/metrics", format!("[{{\"iter\":7,\"kvCacheIterationStatsByPoolGroup\":{pools}}}]").into_bytes(), None),
        ("/metrics", format!("[{{\"iter\":\"{text}\"}}]").into_bytes(), Some("implausible")),
        ("/metrics", format!("[\"{text}\"]").into_bytes(), Some("not_a_record")),
        ("/server_info", format!("{{\"startup_metrics\":{tree}}}").into_bytes(), None),
        ("/version", format!("{{\"version\":\"{text}\"}}").into_bytes(), None),
        ("/perf_metrics", array(&nested, SIZE), None),
        ("/perf_metrics", format!("[{{\"request_id\":{numbers}}}]").into_bytes(), None),
        ("/perf_metrics", array("{\"request_id\":7}", SIZE), None),
    ] {
        let start = String::from_utf8_lossy(&body[..40]).into_owned();
        let source = server(path, body);
        let daemon = Daemon::start(&["--source", &source, "--poll.timeout", "60s"]);
        daemon.until(|page| {
            let read = match reason {
                Some(reason) => page.find("trtllm_exporter_records_rejected_total", &[&format!("reason={reason}")]),
                // Wait for three polls. The first of them reads the answer.
                None => page.find("trtllm_exporter_polls_total", &[]).map(|polls| polls - 2.0),
            };
            ensure(read.unwrap_or(0.0) > 0.0, || format!("{path} {start} is not read"))
        });
        let peak = daemon.peak_memory();
        assert!(peak <= LIMIT, "{path} {start}: {} MB", peak / 1_000_000);
    }
}
