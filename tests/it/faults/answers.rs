//! Broken answers of an engine, on each path that the exporter reads.

use super::engine::{Answer, End, RESET, record};
use super::scene::Scene;
use crate::support;

/// Expects exactly these counts. On a busy machine, an answer that is too large may exceed its time limit instead.
fn exactly(wanted: &str, records: u64) -> impl Fn(&str, u64) -> bool {
    move |counted, more| more == records && (counted == wanted || (wanted == "too_large 1" && counted == "timeout 1"))
}

fn head(more: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{more}\r\n").into_bytes()
}

/// Bodies that are not an array of statistics, and the error that is counted if `/metrics` returns them.
fn bodies() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let deep = |open: &str, close: &str| (open.repeat(100_000) + &close.repeat(100_000)).into_bytes();
    vec![
        ("an empty body", Vec::new(), "truncated 1"),
        ("white space", b" \n\t ".to_vec(), "truncated 1"),
        ("a megabyte of white space", vec![b' '; 1 << 20], "truncated 1"),
        ("null", b"null".to_vec(), "not_json 1"),
        ("an object", b"{}".to_vec(), "not_json 1"),
        ("a text", b"\"statistics\"".to_vec(), "not_json 1"),
        ("a number", b"7".to_vec(), "not_json 1"),
        ("an HTML page", b"<html><body>502 Bad Gateway</body></html>".to_vec(), "not_json 1"),
        ("an array of null", b"[null]".to_vec(), "not_a_record 1"),
        ("an array of an empty object", b"[{}]".to_vec(), "not_a_record 1"),
        ("an array of numbers", b"[1,2,3]".to_vec(), "not_a_record 3"),
        ("an array of arrays", b"[[],[]]".to_vec(), "not_a_record 2"),
        ("an object with foreign keys", br#"[{"a":1,"b":[2,{"c":3}]}]"#.to_vec(), "not_a_record 1"),
        ("a comma at the end", b"[{},]".to_vec(), "not_json 1, not_a_record 1"),
        ("no comma between elements", b"[{}{}]".to_vec(), "not_json 1, not_a_record 1"),
        ("text after the array", b"[]x".to_vec(), "not_json 1"),
        ("two arrays", b"[][]".to_vec(), "not_json 1"),
        ("an open array", b"[".to_vec(), "truncated 1"),
        ("an open text", b"[{\"iter".to_vec(), "truncated 1"),
        ("bytes that are not UTF-8", b"[{\"\xff\xfe\":1}]".to_vec(), "not_json 1"),
        ("a byte order mark", b"\xef\xbb\xbf[]".to_vec(), "not_json 1"),
        ("a zero byte", b"[\0]".to_vec(), "not_json 1"),
        ("a lone surrogate", br#"[{"\ud800":1}]"#.to_vec(), "not_json 1"),
        ("NaN", br#"[{"iter":NaN}]"#.to_vec(), "implausible 1"),
        ("Infinity", br#"[{"iter":1,"iterLatencyMS":Infinity}]"#.to_vec(), ""),
        ("a comment", b"[/* none */]".to_vec(), "not_json 1"),
        ("100,000 open arrays", deep("[", "]"), "not_a_record 1"),
        ("100,000 open objects", ("[".to_owned() + &"{\"a\":".repeat(100_000)).into_bytes(), "truncated 1"),
        (
            "gzip without being asked",
            b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x8b\x8e\x05\x00".to_vec(),
            "not_json 1",
        ),
        ("a million empty objects", format!("[{}{{}}]", "{},".repeat(999_999)).into_bytes(), "not_a_record 1000000"),
        ("a million nulls", format!("[{}null]", "null,".repeat(999_999)).into_bytes(), "not_a_record 1000000"),
        ("a key of a megabyte", format!("[{{\"{}\":1}}]", "k".repeat(1 << 20)).into_bytes(), "not_a_record 1"),
    ]
}

pub(super) fn bodies_that_are_not_an_array_of_records(scene: &Scene) {
    for (name, body, counted) in bodies() {
        // This record counts without its impossible value.
        let records = u64::from(name == "Infinity");
        scene.fault("/metrics", name, &exactly(counted, records), |scene| scene.answer("/metrics", Answer::Body(body)));
    }
    // This path returns no iterations. The counted `http_status` is the failed poll that makes the exporter read them.
    // The parser is the same.
    for (name, body, _) in bodies().into_iter().step_by(if support::long() { 1 } else { 4 }) {
        let harmless = |counted: &str, more: u64| more == 0 && counted.starts_with("http_status 1");
        scene.fault("/perf_metrics", name, &harmless, |scene| {
            scene.answer_after_failure("/perf_metrics", Answer::Body(body));
        });
    }
}

pub(super) fn answers_that_are_cut_lose_only_the_record_that_was_cut(scene: &Scene) {
    let length = format!("[{}]", record(1_000_000)).len();
    // Cuts the answer at some bytes of the second record, and at its last byte.
    for cut in (0..length).step_by(if support::long() { 10 } else { 70 }).chain([length - 1]) {
        let name = format!("cut {cut} bytes after the first record");
        scene.fault("truncation", &name, &exactly("truncated 1", 1), |scene| {
            let first = format!("[{},", record(scene.victim.next_iter()));
            let second = format!("{}]", record(scene.victim.next_iter()));
            let cut = cut.min(second.len() - 1);
            let body = first + &second[..cut];
            let body = if cut == second.len() - 1 { body[..body.len() - 1].to_owned() } else { body };
            scene.answer("/metrics", Answer::Body(body.into_bytes()));
        });
    }
    scene.fault("truncation", "the connection ends in the second record", &exactly("io 1", 1), |scene| {
        let body = format!("[{},{{\"iter\"", record(scene.victim.next_iter()));
        let head = head(&format!("content-length: {}\r\n", body.len() + 1));
        scene.answer("/metrics", Answer::Raw([&head, body.as_bytes()].concat(), End::Close));
    });
}

pub(super) fn broken_http_responses(scene: &Scene) {
    let array = b"[]";
    let raw = |head: Vec<u8>, body: &[u8]| Answer::Raw([&head[..], body].concat(), End::Close);
    let start = |more: &str| format!("HTTP/1.1 200 OK\r\n{more}");
    let endless = |start: &str, bytes: &[u8]| Answer::Raw(start.as_bytes().to_vec(), End::Endless(bytes.to_vec()));
    let status =
        |line: &str| Answer::Raw(format!("HTTP/1.1 {line}\r\ncontent-length: 2\r\n\r\n[]").into_bytes(), End::Close);
    for (name, answer, counted) in [
        ("nothing but a closed connection", Answer::Raw(Vec::new(), End::Close), ""),
        ("half of a head", Answer::Raw(b"HTTP/1.1 200 OK\r\nconte".to_vec(), End::Close), ""),
        ("no HTTP", Answer::Raw(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), End::Close), "io 1"),
        ("TLS", Answer::Raw(b"\x15\x03\x01\x00\x02\x02\x46".to_vec(), End::Close), "io 1"),
        ("zero bytes", Answer::Raw(vec![0; 10_000], End::Close), "io 1"),
        ("a length that is not a number", raw(head("content-length: two\r\n"), array), "io 1"),
        ("a negative length", raw(head("content-length: -1\r\n"), array), "io 1"),
        ("two different lengths", raw(head("content-length: 2\r\ncontent-length: 3\r\n"), array), "io 1"),
        ("a length beyond 64 bits", raw(head("content-length: 99999999999999999999\r\n"), array), "io 1"),
        ("a longer length than the body", raw(head("content-length: 3\r\n"), array), "io 1"),
        ("a shorter length than the body", raw(head("content-length: 1\r\n"), array), "truncated 1"),
        ("a body that ends with the connection", raw(head(""), array), ""),
        (
            "a chunk whose size is not a number",
            raw(head("transfer-encoding: chunked\r\n"), b"x\r\n[]\r\n0\r\n\r\n"),
            "io 1",
        ),
        ("a chunk that is cut", raw(head("transfer-encoding: chunked\r\n"), b"10\r\n[]"), "io 1"),
        ("chunks without an end", raw(head("transfer-encoding: chunked\r\n"), b"2\r\n[]\r\n"), "io 1"),
        ("an endless head", endless(&start("x-header: 1\r\n"), b"x-header: 1\r\n"), "io 1"),
        ("an endless header", endless(&start("x-header: "), b"xxxxxxxxxxxxxxxx"), "io 1"),
        ("an endless body", endless(&start("\r\n"), &[b' '; 4096]), "too_large 1"),
        (
            "endless chunks",
            endless(
                &start("transfer-encoding: chunked\r\n\r\n"),
                &b"100\r\n".iter().chain(&[b' '; 256]).chain(b"\r\n").copied().collect::<Vec<u8>>(),
            ),
            "too_large 1",
        ),
        ("a body of 20 MiB", Answer::Body(vec![b' '; 20 << 20]), "too_large 1"),
        ("status 204", Answer::Raw(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(), End::Close), "http_status 1"),
        ("status 301", status("301 Moved Permanently"), "http_status 1"),
        ("status 401", status("401 Unauthorized"), "http_status 1"),
        ("status 404", status("404 Not Found"), "http_status 1"),
        ("status 429", status("429 Too Many Requests"), "http_status 1"),
        ("status 500", status("500 Internal Server Error"), "http_status 1"),
        ("status 503", status("503 Service Unavailable"), "http_status 1"),
        ("a status that does not exist", status("999 What"), "http_status 1"),
        ("a status of two digits", status("20 OK"), "io 1"),
    ] {
        scene.fault("http", name, &exactly(counted, 0), |scene| scene.answer("/metrics", answer));
    }
    // The exporter retries a request whose connection was closed before the server read it.
    let repeated = |counted: &str, more: u64| more == 0 && ["", "io 1"].contains(&counted);
    scene.fault("http", "a connection that is reset", &repeated, |scene| {
        // The exporter's open connection ends first, so the next request opens a new connection, which is reset.
        scene.answer(RESET, Answer::Body(Vec::new()));
    });
    for path in ["/perf_metrics", "/version", "/prometheus/metrics"] {
        for (name, answer) in [
            ("a closed connection", Answer::Raw(Vec::new(), End::Close)),
            ("no HTTP", Answer::Raw(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), End::Close)),
            ("status 500", status("500 Internal Server Error")),
            ("an endless body", endless(&start("\r\n"), &[b' '; 4096])),
        ] {
            scene.fault(path, name, &exactly("http_status 1", 0), |scene| {
                scene.answer_after_failure(path, answer);
            });
        }
    }
}

#[test]
fn an_engine_that_hangs_is_a_timeout_and_its_old_numbers_leave_the_page() {
    let scene = Scene::start(&["--poll.timeout", "1500ms", "--stale-after", "1s"]);
    let length = || head("content-length: 100\r\n");
    // A record without a number is a new iteration, however many the engine has sent meanwhile.
    let body = b"[{\"numActiveRequests\":1},{\"it".to_vec();
    for (name, answer, records) in [
        ("no head", Answer::Raw(Vec::new(), End::Hang), 0),
        ("half of a head", Answer::Raw(b"HTTP/1.1 200".to_vec(), End::Hang), 0),
        ("no body", Answer::Raw(length(), End::Hang), 0),
        ("a whole record and half of one", Answer::Raw([length(), body].concat(), End::Hang), 1),
        ("a byte each 100 ms", Answer::Raw(length(), End::Slow(vec![b' '; 100])), 0),
    ] {
        scene.hang(name, answer, records);
    }
    assert_eq!(scene.daemon.logged(&["model=victim"]), 10, "one line per change: each time it fails, and recovers");
    scene.finish();
}
