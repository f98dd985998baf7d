//! The process limits the memory that each peer can use by the weights of the peer's items. Data never takes more
//! memory than its weight. The tests count allocations and do not estimate them.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use allocation_counter::measure;
use trtllm_records::Message;
use trtllm_records::RefusedPublishers;
use trtllm_service::unix_socket::Activated;
use trtllm_sources::server::Access;
use trtllm_sources::socket::{Admission, Ingest, Publishers};
use trtllm_sources::trtllm_json::{ArrayPosition, PublisherLine, StatisticsArray, parse_line};
use trtllm_sources::trtllm_serve::{Extras, TrtllmServe};
use trtllm_sources::{Batch, Source};

/// The allocator rounds sizes up by at most this many bytes in total. The weight of an item includes the unused
/// capacity of its vectors, but not this rounding.
const ROUNDING: usize = 4096;

pub(super) fn many(element: &str, count: usize) -> String {
    vec![element; count].join(",")
}

/// Hostile texts for each kind of statistics: texts that take much memory when they are parsed.
pub(super) fn statistics() -> Vec<(StatisticsArray, String)> {
    let (records, requests) = (StatisticsArray::Records, StatisticsArray::PerfMetrics);
    let name = "9".repeat(64);
    let rows: String = (0..200).map(|row| format!("\"{row}{name}\":{{}}")).collect::<Vec<_>>().join(",");
    vec![
        (records, many("{\"iter\":7}", 300)),
        (records, format!("{{\"iter\":7,\"requestStats\":[{}]}}", many("{}", 20_000))),
        (records, format!("{{\"iter\":7,\"requestStats\":[{}]}}", many("{\"id\":1,\"stage\":\"x\"}", 5000))),
        (records, format!("{{\"iter\":7,\"iterCachedTokensByLevel\":[{}]}}", many("1", 100_000))),
        (records, format!("{{\"iter\":7,\"kvCacheLevelTiers\":[{}]}}", many(&format!("\"{name}\""), 1000))),
        (records, format!("{{\"iter\":7,\"kvCacheIterationStats\":{{{rows}}}}}")),
        (records, format!("{{\"iter\":7,\"kvCacheIterationStatsByPoolGroup\":{{{rows}}}}}")),
        (requests, many("{\"request_id\":7}", 300)),
        (requests, "{\"ctx_perf_metrics\":{},\"gen_perf_metrics\":{\"request_id\":1}}".to_owned()),
        (
            requests,
            format!("{{\"time_breakdown_metrics\":{{\"step_metrics\":[{}]}}}}", many("{\"token_time\":1}", 20_000)),
        ),
    ]
}

#[test]
fn an_item_weighs_at_least_what_it_takes() {
    let _alone = super::alone();
    for (kind, elements) in statistics() {
        let (text, mut batch) = (format!("[{elements}]"), Batch::default());
        let allocated = measure(|| {
            let mut position = ArrayPosition::default();
            while !position.is_complete() {
                kind.parse_part(text.as_bytes(), &mut position, &mut batch).unwrap();
                // Like the poll driver, add no more items to a full batch.
                if !batch.has_room() {
                    break;
                }
            }
        });
        let start = &elements[..elements.len().min(60)];
        let kept = usize::try_from(allocated.bytes_current).unwrap();
        let spare = (batch.messages.capacity() - batch.messages.len()) * size_of::<Message>();
        let weight: usize = batch.messages.iter().map(Message::weight).sum();
        assert!(!batch.messages.is_empty() && kept > 0, "{start}");
        assert!(kept <= weight + spare + ROUNDING, "{start}: {kept} bytes are kept and {weight} are weighed");
    }
}

#[test]
fn a_line_weighs_at_least_what_it_takes() {
    let _alone = super::alone();
    for (kind, elements) in statistics() {
        if kind != StatisticsArray::Records || !elements.starts_with("{\"iter\":7,") {
            continue;
        }
        let mut item = None;
        let allocated = measure(|| item = parse_line(elements.as_bytes()).ok());
        let Some(PublisherLine::Message(item)) = item else { panic!("not an item: {}", &elements[..60]) };
        let kept = usize::try_from(allocated.bytes_current).unwrap();
        assert!(kept <= item.weight() + ROUNDING, "{kept} bytes are kept, and {} are weighed", item.weight());
    }
}

/// A runtime whose tasks run on the current thread, so that their allocations are counted.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Publishers send as much as they can to a socket, but the driver does not read the lines.
#[test]
fn lines_that_wait_are_bounded_whatever_their_length() {
    let _alone = super::alone();
    const CONNECTIONS: usize = 24;
    const MOST: usize = 2 << 20;
    // The sum of: the queued lines of all engines, and those of this engine; for each connection, a short line and the read
    // buffer; and two long lines.
    const LIMIT: usize = (4 << 20) + (64 << 10) + CONNECTIONS * (80 << 10) + 2 * (1 << 20);
    for length in [2, 200, 20_000, 40_000, 900_000] {
        let runtime = runtime();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        // The text is shared, so that no other thread frees memory that this thread allocated.
        let line: Arc<str> = format!("{{\"iter\":1,\"unknown\":\"{}\"}}\n", "x".repeat(length)).into();
        let mut ingest = None;
        let allocated = measure(|| {
            runtime.block_on(async {
                let admission = Admission { uids: Vec::new(), limit: 128, refused: RefusedPublishers::default() };
                ingest = Some(Ingest::bind(&path, &Activated::default(), &Publishers::new(admission)).await.unwrap());
                let publishers: Vec<_> = (0..CONNECTIONS)
                    .map(|_| {
                        let (path, line) = (path.clone(), Arc::clone(&line));
                        std::thread::spawn(move || {
                            let mut stream = UnixStream::connect(path).unwrap();
                            stream.set_write_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
                            let mut sent = 0;
                            // The loop ends when the socket is full, because there is no room in the queue.
                            while sent < MOST && stream.write_all(line.as_bytes()).is_ok() {
                                sent += line.len();
                            }
                            (stream, sent)
                        })
                    })
                    .collect();
                while publishers.iter().any(|publisher| !publisher.is_finished()) {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
                let sent: usize = publishers.into_iter().map(|publisher| publisher.join().unwrap().1).sum();
                assert!(sent < CONNECTIONS * MOST, "nobody had to wait with lines of {length}");
            });
        });
        let peak = usize::try_from(allocated.bytes_max).unwrap();
        println!("lines of {length} bytes: {peak} bytes at most");
        assert!(peak <= LIMIT, "{peak} bytes for lines of {length}");
        let freed = measure(|| {
            drop(ingest);
            drop(runtime);
        });
        let left = allocated.bytes_current + freed.bytes_current;
        assert!(left < 256 << 10, "{left} bytes are left");
    }
}

/// A server that answers each request with `body`. If `missing` is not 0, it announces that many more bytes and closes
/// the connection.
fn serve(body: Vec<u8>, missing: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, body) = (stream.unwrap(), body.clone());
            std::thread::spawn(move || {
                let mut head = [0; 4096];
                while stream.read(&mut head).is_ok_and(|read| read > 0) {
                    let length = body.len() + missing;
                    let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
                    let _ = stream.write_all(&body);
                    if missing > 0 {
                        break;
                    }
                }
            });
        }
    });
    port
}

#[test]
fn a_long_answer_takes_the_memory_of_a_part_of_it_and_frees_that_when_it_is_parsed() {
    let _alone = super::alone();
    // Enough for a part of the answer, a batch of items, and the buffers of the connection.
    const LIMIT: usize = 2 << 20;
    let text = |length| format!("{{\"iter\":7,\"unknown\":\"{}\"}}", "x".repeat(length));
    let (text, long_text) = (text(2000), text(1_000_000));
    let elements = ["{}", "{\"iter\":7}", &text, &long_text];
    for (element, missing) in elements.into_iter().flat_map(|element| [(element, 0), (element, 9)]) {
        // For a long element, allow the maximum size of an element in addition.
        let limit = LIMIT + if element.len() > 100_000 { 4 << 20 } else { 0 };
        let sent = (7 << 20) / (element.len() + 1);
        let port = serve(format!("[{}]", many(element, sent)).into_bytes(), missing);
        let runtime = runtime();
        let mut source = None;
        let allocated = measure(|| {
            runtime.block_on(async {
                let access =
                    Access { target: format!("http://127.0.0.1:{port}"), ca_file: None, bearer_token_file: None };
                let extras = Extras { perf_metrics: false, prometheus_metrics: false, ..Extras::default() };
                let mut opened = Source::TrtllmServe(Box::new(TrtllmServe::open(access, extras).await.unwrap()));
                let (mut batch, mut items) = (Batch::default(), 0);
                loop {
                    let polled = opened.poll(&mut batch).await;
                    // Like the poll driver, take the complete items of a truncated answer.
                    while polled.is_err() && opened.take_partial(&mut batch) {
                        items += batch.drain().count();
                    }
                    let more = batch.more;
                    items += batch.drain().count();
                    if polled.is_err() || !more {
                        assert_eq!(polled.is_err(), missing > 0);
                        break;
                    }
                }
                assert_eq!(items, if element == "{}" { 0 } else { sent });
                source = Some(opened);
            });
        });
        let peak = usize::try_from(allocated.bytes_max).unwrap();
        println!("an answer of {}…: {peak} bytes at most, {} kept", &element[..2], allocated.bytes_current);
        assert!(peak <= limit, "{peak} bytes for {element:.20}");
        // Only the buffer for the next answer, the connection, and the capacity for items may remain.
        assert!(allocated.bytes_current < 1 << 20, "{} bytes are kept", allocated.bytes_current);
        drop((source, runtime));
    }
}
