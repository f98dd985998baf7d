//! Hostile publishers on the ingest socket. Meanwhile, the records of an honest publisher must still be counted.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::Duration;

use super::engine::record;
use super::scene::Scene;
use crate::support::ingest::Ingest;
use crate::support::{ensure, until};

impl Scene {
    fn connect(&self) -> UnixStream {
        self.socket.connect()
    }

    /// Sends `bytes` over a new connection and closes it.
    pub(crate) fn publish(&self, bytes: &[u8]) {
        let mut stream = self.connect();
        // The daemon may have closed the connection already.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // The daemon closes the connection when it has read everything.
        let _ = stream.read(&mut [0]);
    }
}

/// For each case: its name, the lines to send, and the errors that the daemon must count for them.
fn lines() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let hello = |model: &str| format!("{{\"hello\":{{\"model\":{model}}}}}\n").into_bytes();
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        ("no line", text(""), ""),
        ("an empty line", text("\n"), ""),
        ("white space", text("  \t \r\n"), ""),
        ("1000 empty lines", text(&"\n".repeat(1000)), ""),
        ("null", text("null\n"), "not_a_record 1"),
        ("an empty object", text("{}\n"), "not_a_record 1"),
        ("an array", text("[]\n"), "not_a_record 1"),
        ("a number", text("7\n"), "not_a_record 1"),
        ("a text", text("\"iter\"\n"), "not_a_record 1"),
        ("foreign keys", text("{\"temperature\":7}\n"), "not_a_record 1"),
        ("an array of records", text("[{\"iter\":1,\"numActiveRequests\":1}]\n"), "not_a_record 1"),
        ("words", text("hello world\n"), "not_json 1"),
        ("an HTTP request", text("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "not_json 2"),
        ("zero bytes", vec![0; 1000], "not_json 1"),
        ("bytes that are not UTF-8", b"{\"iter\":1,\"\xff\":2}\n".to_vec(), "not_json 1"),
        ("NaN", text("{\"iter\":1,\"iterLatencyMS\":NaN}\n"), ""),
        ("two records in a line", text("{\"iter\":1}{\"iter\":2}\n"), "not_json 1"),
        ("an object over two lines", text("{\"iter\":\n1}\n"), "not_a_record 1, truncated 1"),
        ("half of a record", text("{\"iter\":1,\"numAct"), "truncated 1"),
        ("a wrong type", text("{\"iter\":\"one\"}\n"), "implausible 1"),
        ("a negative number of requests", text("{\"iter\":1,\"numActiveRequests\":-5}\n"), ""),
        (
            "an iteration of 2^64 - 1",
            text("{\"iter\":18446744073709551615,\"numActiveRequests\":1}\n"),
            "implausible 1",
        ),
        ("rows without content", text("{\"requestStats\":[{},{},{}]}\n"), ""),
        ("perf metrics that are a text", text("{\"perf_metrics\":\"x\"}\n"), "not_a_record 1"),
        ("perf metrics that are null", text("{\"perf_metrics\":null}\n"), "not_a_record 1"),
        ("100,000 open arrays", text(&("[".repeat(100_000) + "\n")), "not_a_record 1"),
        ("100,000 open objects", text(&("{\"a\":".repeat(100_000) + "\n")), "truncated 1"),
        ("a line of a megabyte of white space", text(&(" ".repeat(1 << 20) + "\n")), ""),
        ("a line of more than a megabyte", text(&("x".repeat((1 << 20) + 1) + "\n")), "too_long 1"),
        ("a line of ten megabytes", text(&("x".repeat(10 << 20) + "\n")), "too_long 1"),
        ("ten megabytes without a line feed", vec![b'{'; 10 << 20], "too_long 1"),
        ("10,000 invalid lines", text(&"x\n".repeat(10_000)), "not_json 10000"),
        (
            "a record after 1000 invalid lines",
            text(&("x\n".repeat(1000) + "{\"numActiveRequests\":1}\n")),
            "not_json 1000",
        ),
        ("a hello without content", text("{\"hello\":{}}\n"), ""),
        ("a hello that is null", text("{\"hello\":null}\n"), "not_a_record 1"),
        ("a hello that is a text", text("{\"hello\":\"x\"}\n"), "not_a_record 1"),
        ("a hello whose model is a number", hello("7"), ""),
        ("a hello whose model has 65 characters", hello(&format!("\"{}\"", "m".repeat(65))), ""),
        ("a hello whose model has a megabyte", hello(&format!("\"{}\"", "m".repeat(1_000_000))), ""),
        ("a hello with a model that needs escapes", hello("\"a\\\"b\\n\\u0000c\""), ""),
        ("a second hello", [hello("\"a\""), hello("\"b\"")].concat(), "not_a_record 1"),
        ("1000 hellos", hello("\"a\"").repeat(1000), "not_a_record 999"),
        ("a hello after a line", [text("x\n"), hello("\"b\"")].concat(), "not_a_record 1, not_json 1"),
    ]
}

pub(super) fn invalid_lines(scene: &Scene) {
    for (name, bytes, counted) in lines() {
        // A record counts without its impossible value, and whatever comes before it.
        let counts = ["NaN", "a negative number of requests", "a record after 1000 invalid lines"];
        let records = u64::from(counts.contains(&name));
        let expected = move |found: &str, more: u64| found == counted && more == records;
        scene.fault("lines", name, &expected, |scene| scene.publish(&bytes));
    }
    let harmless = |counted: &str, more: u64| counted.is_empty() && more == 0;
    scene.fault("publishers", "1000 connections that send nothing", &harmless, |scene| {
        (0..1000).for_each(|_| drop(scene.connect()));
    });
    scene.fault("publishers", "a publisher that never reads, and never sends", &harmless, |scene| {
        let held = scene.connect();
        std::thread::sleep(Duration::from_millis(200));
        drop(held);
    });
    scene.fault(
        "publishers",
        "half of a line, byte by byte",
        &|counted, more| counted == "truncated 1" && more == 0,
        |scene| {
            let mut stream = scene.connect();
            for byte in b"{\"iter\":12345" {
                stream.write_all(&[*byte]).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
            drop(stream);
            std::thread::sleep(Duration::from_millis(100));
        },
    );
    scene.fault("publishers", "a datagram", &harmless, |scene| {
        let socket = UnixDatagram::unbound().unwrap();
        assert!(socket.send_to(b"{\"iter\":1}", scene.socket.path()).is_err());
    });
}

pub(super) fn hellos_that_are_cut_at_any_byte(scene: &Scene) {
    let hello = b"{\"hello\":{\"model\":\"m\",\"version\":\"1\"}}";
    let cuts = 1..hello.len();
    let counted = format!("truncated {}", cuts.len());
    scene.fault(
        "truncation",
        "a hello that is cut at any byte",
        &|found, more| found == counted && more == 0,
        |scene| {
            cuts.for_each(|cut| scene.publish(&hello[..cut]));
        },
    );
}

#[test]
fn silent_publishers_make_room_for_an_honest_one_and_are_counted() {
    let socket = Ingest::new();
    let daemon = socket.serve(&["--model", "m"]);
    let silent: Vec<UnixStream> = (0..256).map(|_| socket.connect()).collect();
    daemon.until_is("trtllm_exporter_ingest_connections", &[], 256.0);
    // A new publisher waits in the backlog or is refused until the daemon disconnects one of the silent publishers.
    until(|| {
        let mut honest = socket.connect();
        let sent = honest.write_all((record(1) + "\n").as_bytes());
        let _ = honest.shutdown(Shutdown::Write);
        let _ = honest.read(&mut [0]);
        let counted = daemon.page().find("nv_trt_llm_iterations_total", &[]).unwrap_or_default();
        ensure(sent.is_ok() && counted >= 1.0, || "the honest publisher has no place".to_owned())
    });
    let page = daemon.page();
    assert_eq!(page.count("trtllm_exporter_publishers_refused_total", &["reason=silent"]), 1);
    daemon.until_logged(&["publisher dropped to make room", "silent"]);
    drop(silent);
}

#[test]
fn only_listed_users_may_publish() {
    let socket = Ingest::new();
    let own = rustix::process::getuid().as_raw();
    for (listed, counted) in [(own + 1, 0.0), (own, 1.0)] {
        let daemon = socket.serve(&["--ingest.allow-uid", &listed.to_string()]);
        let mut stream = socket.connect();
        let _ = stream.write_all((record(1) + "\n").as_bytes());
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read(&mut [0]);
        let page = daemon.until(|page| {
            let refused = page.find("trtllm_exporter_publishers_refused_total", &["reason=uid"]).unwrap_or_default();
            let iterations = page.find("nv_trt_llm_iterations_total", &[]).unwrap_or_default();
            ensure(refused + iterations == 1.0, || format!("{refused} refused, {iterations} iterations"))
        });
        assert_eq!(page.find("nv_trt_llm_iterations_total", &[]).unwrap_or_default(), counted);
    }
}
