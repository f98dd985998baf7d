//! Checks limits for the memory of data that is read from files, kept for the API, or written into the API's answers.
//! Allocations are counted, as in `peers`.

use std::fmt::Write as _;
use std::path::Path;

use allocation_counter::{AllocationInfo, measure};
use trtllm_engines::State;
use trtllm_http::views::api;
use trtllm_recording::{FORMAT, directory, frame};
use trtllm_records::{EngineName, IterationStats, RECENT_RECORDS};
use trtllm_service::file_text;
use trtllm_service::process::give_back_memory;
use trtllm_sources::playback::Playback;
use trtllm_sources::prometheus_text::{MAX_PAGE, parse_server_metrics};
use trtllm_sources::replay::{Pace, Replay};
use trtllm_sources::{Batch, Blocking, Source};

use super::peers::{many, statistics};

fn bytes(allocated: u64) -> usize {
    usize::try_from(allocated).unwrap()
}

#[test]
fn what_is_kept_of_a_servers_page_has_a_limit() {
    let _alone = super::alone();
    let long = "x".repeat(1000);
    let families = |line: &dyn Fn(&mut String, usize)| {
        let mut page = String::new();
        (0..).find(|number| {
            line(&mut page, *number);
            page.len() > MAX_PAGE
        });
        page
    };
    for page in [
        families(&|page, n| _ = writeln!(page, "trtllm_request_error_total{{http_code=\"{n}{long}\"}} 1")),
        families(&|page, n| _ = writeln!(page, "trtllm_request_error_total{{http_code=\"{n}\"}} 1")),
        families(&|page, n| _ = writeln!(page, "trtllm_model_config_info{{a{n}=\"{long}\"}} 1")),
        families(&|page, n| _ = writeln!(page, "trtllm_e2e_request_latency_seconds_bucket{{le=\"{n}\"}} 1")),
    ] {
        let mut kept = None;
        let allocated = measure(|| kept = parse_server_metrics(page.as_bytes()).ok());
        assert!(kept.is_some());
        println!("a page of {}…: {} bytes at most", &page[..30], allocated.bytes_max);
        assert!(bytes(allocated.bytes_max) < 2 << 20, "{} bytes for {:.60}", allocated.bytes_max, page);
    }
}

/// Reads a file to its end at full speed, like the poll driver. Returns the allocations and the number of messages.
fn replay(path: &Path) -> (AllocationInfo, usize) {
    // A replay needs a multi-threaded runtime, which can move other tasks to another thread.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (path, pace) = (path.to_owned(), Pace::Recorded(f64::INFINITY));
    let mut source = match path.is_dir() {
        true => Source::Recording(Box::new(Blocking::new(String::new(), Playback::open(&path, None, pace).unwrap()))),
        false => Source::Replay(Box::new(Blocking::new(String::new(), Replay::open(&path, pace).unwrap()))),
    };
    let (mut batch, mut messages) = (Batch::default(), 0);
    let allocated = measure(|| {
        runtime.block_on(async {
            while !batch.ended {
                // A line may be invalid or too long.
                let _ = source.poll(&mut batch).await;
                messages += batch.drain().count() + std::mem::take(&mut batch.lines).len();
            }
        });
    });
    (allocated, messages)
}

#[test]
fn a_replay_takes_the_memory_of_its_longest_line_and_not_that_of_its_file() {
    let _alone = super::alone();
    // The longest line, plus one item with the maximum number of request rows. While the vector of these rows grows,
    // its old and its new memory count.
    const LIMIT: usize = file_text::MAX + (16 << 20);
    let folder = tempfile::tempdir().unwrap();
    let (lines, recorded) = (folder.path().join("lines"), folder.path().join("recorded"));
    std::fs::create_dir(&recorded).unwrap();
    let record = "{\"iter\":7,\"numActiveRequests\":1}\n";
    let long = format!("{{\"iter\":7,\"requestStats\":[{}]}}\n", many("{}", 4_000_000));
    for (text, expected) in [
        (record.repeat(100_000), 100_000),
        (format!("{long}{record}"), 2),
        (format!("{}\n{record}", "x".repeat(3 * file_text::MAX)), 1),
    ] {
        std::fs::write(&lines, &text).unwrap();
        let (allocated, items) = replay(&lines);
        println!("lines of {}…: {} bytes at most", &text[..20], allocated.bytes_max);
        assert_eq!(items, expected);
        assert!(bytes(allocated.bytes_max) <= LIMIT, "{} bytes for {:.40}", allocated.bytes_max, text);
    }
    let line = |item: &str| format!(r#"{{"us":1,"clock_us":1,"model":"m","version":"1",{item}}}"#);
    let header = line(&format!(
        r#""recording":{{"format":{FORMAT},"exporter":"x","session":1,"model":"m","version":"1","labels":[],"source":"test","objectives":{{}},"stale_after_ms":15000}}"#
    ));
    let record = line(r#""record":{"iter":7,"numActiveRequests":1}"#);
    for (lines, expected) in [(vec![record; 120_000], 120_000), (vec!["x".repeat(500 << 20)], 0)] {
        let (path, _) = directory::create(&recorded, 1, "m").unwrap();
        let mut encoder = frame::Encoder::default();
        let mut file = encoder.encode(header.as_bytes()).unwrap();
        let lines = lines.join("\n");
        file.extend(encoder.encode(lines.as_bytes()).unwrap());
        std::fs::write(&path, file).unwrap();
        let (allocated, items) = replay(&recorded);
        println!("a frame of {} bytes: {} bytes at most, {items} items", lines.len(), allocated.bytes_max);
        assert!(items >= expected, "{items} items");
        assert!(bytes(allocated.bytes_max) <= LIMIT, "{} bytes", allocated.bytes_max);
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_record_that_is_kept_for_the_api_takes_a_few_kilobytes_whatever_is_in_it() {
    let _alone = super::alone();
    const RECORD: usize = 8 << 10;
    for (_, elements) in statistics() {
        let Ok(record) = serde_json::from_str::<IterationStats>(&elements) else { continue };
        let state = State::new(vec![EngineName::new("m", "1", "test")]);
        let slot = &state.slots()[0];
        let kept = measure(|| {
            // The exporter also keeps records one at a time, as they arrive.
            for _ in 0..2 * RECENT_RECORDS {
                let most = slot.most_records();
                slot.lock().keep_record(&mut record.clone(), most);
            }
        });
        let kept = bytes(u64::try_from(kept.bytes_current).unwrap());
        let start = &elements[..elements.len().min(60)];
        assert!(kept <= RECENT_RECORDS * RECORD, "{kept} bytes are kept of {start}");
        let mut text = None;
        let answered = measure(|| text = api::iterations(&state, &format!("last={RECENT_RECORDS}")).ok());
        let length = text.unwrap().len();
        println!("{kept} bytes are kept of {start}, and {} for an answer of {length}", answered.bytes_max);
        assert!(bytes(answered.bytes_max) <= 2 * length + (1 << 20), "{} bytes for {length}", answered.bytes_max);
    }
}

#[test]
fn an_answer_takes_little_more_than_its_text() {
    let _alone = super::alone();
    let state = State::new((0..64).map(|number| EngineName::new(&format!("m{number}"), "1", "test")).collect());
    for slot in 0..70_u32 {
        for engine in state.slots().iter() {
            engine.lock().observed.fold.totals.iterations += u64::from(slot);
        }
        state.judge(5.0 * f64::from(slot), 5.0 * f64::from(slot));
    }
    let history = || api::history(&state, "").ok();
    let engines = || Some(api::engines(&state));
    for (name, answer) in [("history", &history as &dyn Fn() -> Option<String>), ("engines", &engines)] {
        let mut text = None;
        let allocated = measure(|| text = answer());
        let length = text.unwrap().len();
        println!("{name}: {} bytes for a text of {length}", allocated.bytes_max);
        assert!(length > 64 * 100 && bytes(allocated.bytes_max) <= 3 * length + (1 << 20), "{name}");
    }
}

/// A small allocation at the end of the allocator's memory prevents the release of all freed memory before it, unless
/// the process trims its memory.
#[test]
fn memory_that_was_freed_before_an_allocation_that_stays_is_given_back() {
    let _alone = super::alone();
    let resident = || {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
    };
    // Returns how many bytes more are resident after the memory was freed and after it was given back.
    let freed_and_given_back = || {
        give_back_memory();
        let before = resident();
        let mut many: Vec<Box<[u8; 1000]>> = (0..32_000).map(|byte| Box::new([byte as u8; 1000])).collect();
        let stays = many.pop();
        drop(many);
        let freed = resident().saturating_sub(before);
        give_back_memory();
        let given_back = resident().saturating_sub(before);
        drop(stays);
        (freed, given_back)
    };
    // Other tests of this process may allocate and free memory at the same time.
    let tries: Vec<_> = (0..5).map(|_| freed_and_given_back()).collect();
    let is_shown = tries.iter().any(|(freed, given_back)| *freed > 24 << 20 && *given_back < 12 << 20);
    assert!(is_shown, "bytes after freeing and after giving back: {tries:?}");
}
