//! A task of the daemon makes no progress: it reads a file, and the call does not return. The test uses a pipe without
//! data, which blocks a read like a file system that hangs.

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
fn a_task_that_hangs_fails_the_health_check_and_systemds_watchdog_until_it_continues() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let socket = UnixDatagram::bind(path("notify")).unwrap();
    socket.set_nonblocking(true).unwrap();
    assert!(Command::new("mkfifo").arg(path("records")).status().unwrap().success());
    // Open the pipe for reading too: otherwise the open call waits until the daemon opens the pipe.
    let mut records = OpenOptions::new().read(true).write(true).open(path("records")).unwrap();
    let mut write = |iter: u64| records.write_all((record(iter) + "\n").as_bytes()).unwrap();
    write(1);
    let healthy = Engine::start();
    let program = ["env", &format!("NOTIFY_SOCKET={}", path("notify")), "WATCHDOG_USEC=500000"];
    let replay = format!("replay:{}", path("records"));
    let source = healthy.source();
    let arguments = ["--source", &replay, "--model", "hung", "--source", &source, "--model", "healthy"];
    let mut daemon = Launch::behind(&program).start(&arguments);
    let iterations = |model: &str| daemon.page().find("nv_trt_llm_iterations_total", &[&format!("model={model}")]);

    let stalled = until(|| {
        let health = daemon.get("/healthz");
        ensure(health.status == 503, || "the task still makes progress".to_owned()).map(|()| health)
    });
    assert_eq!(stalled.text(), "the driver of engine hung 1 makes no progress\n");
    // A separate thread writes the log, so the line may appear later.
    daemon.until_logged(&["a task makes no progress"]);
    let earlier = told(&socket);
    assert!(earlier.contains("READY=1") && earlier.contains("WATCHDOG=1"), "{earlier}");
    let before = iterations("healthy").unwrap();
    until(|| ensure(iterations("healthy").unwrap() >= before + 10.0, || "the healthy engine is stuck".to_owned()));
    assert_eq!(daemon.get("/healthz").status, 503);
    assert!(!told(&socket).contains("WATCHDOG=1"), "systemd would not restart the exporter");

    until(|| {
        // Each record ends one read, and the next read hangs again. Therefore, write until the health check succeeds.
        write(2);
        ensure(daemon.get("/healthz").status == 200, || "still not healthy".to_owned())
    });
    until(|| ensure(told(&socket).contains("WATCHDOG=1"), || "systemd would restart the exporter".to_owned()));
    // The last read hangs again, and the daemon must still end.
    assert!(daemon.terminate().success());
}
