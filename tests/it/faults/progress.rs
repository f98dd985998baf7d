//! A source reads a file, and the call does not return. The test uses a pipe with half of a line, which blocks a read like a
//! file system that hangs.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

use super::engine::{Engine, record};
use crate::support::daemon::Launch;
use crate::support::{ensure, until};

/// What the daemon has told systemd since the last call.
fn told(socket: &UnixDatagram) -> String {
    let mut told = String::new();
    let mut message = [0; 256];
    while let Ok(length) = socket.recv(&mut message) {
        told += &String::from_utf8_lossy(&message[..length]);
    }
    told
}

#[test]
fn a_read_that_hangs_makes_its_engine_unreachable_and_delays_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let socket = UnixDatagram::bind(path("notify")).unwrap();
    socket.set_nonblocking(true).unwrap();
    assert!(Command::new("mkfifo").arg(path("records")).status().unwrap().success());
    // Open the pipe for reading too: otherwise the open call waits until the daemon opens the pipe.
    let mut records = OpenOptions::new().read(true).write(true).open(path("records")).unwrap();
    let mut write = |text: &str| records.write_all(text.as_bytes()).unwrap();
    write(&(record(1) + "\n"));
    let healthy = Engine::start();
    let program = ["env", &format!("NOTIFY_SOCKET={}", path("notify")), "WATCHDOG_USEC=500000"];
    let replay = format!("replay:{}?speed=max", path("records"));
    let source = healthy.source();
    let engines = ["--source", &replay, "--model", "hung", "--source", &source, "--model", "healthy"];
    let limits = ["--poll.timeout", "500ms", "--stale-after", "1s"];
    let mut daemon = Launch::behind(&program).start(&[&engines[..], &limits].concat());
    let hung = ["model=hung"];
    let iterations = |model: &str| daemon.page().find("nv_trt_llm_iterations_total", &[&format!("model={model}")]);
    until(|| ensure(iterations("hung") == Some(1.0), || "the record is not read".to_owned()));
    // A pipe whose writer waits hangs nothing.
    assert_eq!(daemon.poll(&hung, 3).get("trtllm_exporter_source_up", &hung), 1.0);

    let begin = record(2);
    write(&begin[..9]);
    daemon.until_state(&hung, "unreachable");
    let before = iterations("healthy").unwrap();
    // Those from before the read that hangs.
    let _ = told(&socket);
    // A task without progress in 30 checks ends these messages.
    let mut messages = 0;
    until(|| {
        messages += told(&socket).matches("WATCHDOG=1").count();
        ensure(messages > 60, || format!("systemd would restart the exporter after {messages} messages"))
    });
    assert_eq!(daemon.get("/healthz").status, 200);
    until(|| ensure(iterations("healthy").unwrap() >= before + 10.0, || "the healthy engine is stuck".to_owned()));

    write(&(begin[9..].to_owned() + "\n"));
    until(|| ensure(iterations("hung") == Some(2.0), || "what the read has found is lost".to_owned()));
    // The next read hangs again, and the daemon must still end.
    write(&begin[..9]);
    assert!(daemon.terminate().success());
}
