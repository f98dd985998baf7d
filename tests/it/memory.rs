//! Memory is bounded, no matter what a peer sends. The inputs have many tiny elements, because a parsed tiny element of
//! JSON can take hundreds of times its size.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use crate::support;
use crate::support::daemon::Daemon;
use crate::support::ensure;
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
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let daemon = Daemon::start(&["--source", &format!("socket:{}", path.display())]);
    let before = daemon.own_memory();
    for engine in 0..ENGINES {
        let mut publisher = UnixStream::connect(&path).unwrap();
        writeln!(publisher, "{{\"hello\": {{\"model\": \"engine-{engine}\"}}}}").unwrap();
        publisher.write_all(records.as_bytes()).unwrap();
    }
    daemon.until(|_| {
        let page = daemon.page();
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

#[test]
fn answers_of_tiny_elements_are_read_in_bounded_memory() {
    // The daemon would refuse much longer answers and elements.
    const SIZE: usize = 7 << 20;
    const ELEMENT: usize = 3 << 20;
    // In a debug build, millions of rejected elements take long. A quarter of them would still exceed the limit if the
    // daemon kept them.
    let rejected = if support::long() { SIZE } else { SIZE / 4 };
    let rows = String::from_utf8(array("{}", ELEMENT)).unwrap();
    let levels = String::from_utf8(array("1", ELEMENT)).unwrap();
    let pools = format!("{{\"\":{{}}{}}}", ",\"\":{}".repeat(ELEMENT / 6));
    let tree = String::from_utf8(array("{\"a\":0}", SIZE)).unwrap();
    let numbers = String::from_utf8(array("0", ELEMENT)).unwrap();
    let nested = (0..100).fold("{}".to_owned(), |entry, _| format!("{{\"gen_perf_metrics\":{entry}}}"));
    // An error message that quotes this text needs six bytes for each byte.
    let text = "\x7f".repeat(ELEMENT);
    for (path, body, reason) in [
        ("/metrics", array("{}", rejected), Some("not_a_record")),
        ("/metrics", array("null", rejected), Some("not_a_record")),
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
        ("/perf_metrics", array("{}", rejected), Some("not_a_record")),
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

#[test]
fn lines_of_tiny_elements_from_many_publishers_are_read_in_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let daemon = Daemon::start(&["--source", &format!("socket:{}", path.display())]);
    // First, each publisher sends one long line. Later, each sends several short lines.
    let (publishers, short) = if support::long() { (64, 40) } else { (32, 4) };
    for (length, lines) in [(1_000_000, 1), (60_000, short)] {
        let rows = String::from_utf8(array("{}", length)).unwrap();
        let line = format!("{{\"iter\":1,\"numActiveRequests\":0,\"requestStats\":{rows}}}\n");
        let publishers: Vec<_> = (0..publishers)
            .map(|_| {
                let (path, line) = (path.clone(), line.clone());
                std::thread::spawn(move || {
                    let mut stream = UnixStream::connect(path).unwrap();
                    // Ignore errors: on a busy machine, the daemon may close a connection that is too slow.
                    let _ = (0..lines).try_for_each(|_| stream.write_all(line.as_bytes()));
                })
            })
            .collect();
        publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
    }
    // The daemon closes a connection when it has read all of its data.
    daemon.until(|page| {
        let seen = page.find("nv_trt_llm_iterations_total", &[]).unwrap_or(0.0);
        let connections = page.find("trtllm_exporter_ingest_connections", &[]);
        ensure(seen >= 1.0 && connections == Some(0.0), || format!("{seen} records, {connections:?} connections"))
    });
    let peak = daemon.peak_memory();
    assert!(peak <= LIMIT, "{} MB", peak / 1_000_000);
}

/// The last 128 records are kept for the API, so each record and the ids in it must be small.
#[test]
fn records_with_long_window_ids_are_kept_in_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let daemon = Daemon::start(&["--source", &format!("socket:{}", path.display())]);
    let id = "9".repeat(500_000);
    let mut stream = UnixStream::connect(&path).unwrap();
    for iter in 1..=130 {
        let record =
            format!("{{\"iter\":{iter},\"numActiveRequests\":1,\"kvCacheIterationStats\":{{\"{id}\":{{}}}}}}\n");
        stream.write_all(record.as_bytes()).unwrap();
    }
    for iter in 131..=140 {
        let tiers = format!("{{\"iter\":{iter},\"numActiveRequests\":1,\"kvCacheLevelTiers\":[\"{id}\",\"host\"]}}\n");
        stream.write_all(tiers.as_bytes()).unwrap();
    }
    daemon.until(|page| {
        let seen = page.find("nv_trt_llm_iterations_total", &[]).unwrap_or(0.0);
        ensure(seen >= 140.0, || format!("{seen} records"))
    });
    let kept = daemon.text("/api/v1/iterations?last=128");
    assert!(kept.len() < 100_000 && kept.contains("\"kvCacheLevelTiers\":[\"\",\"host\"]"), "{} bytes", kept.len());
    let peak = daemon.peak_memory();
    assert!(peak <= LIMIT, "{} MB", peak / 1_000_000);
}
