//! A log collector that stops reading its pipe does not stop the exporter.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support;

/// Capacity of a pipe on Linux.
const PIPE: usize = 65_536;

#[test]
fn a_full_log_pipe_blocks_neither_scrapes_nor_health_nor_the_end() {
    let (mut reader, mut stderr) = std::io::pipe().unwrap();
    stderr.write_all(&[b'x'; PIPE]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let port = folder.path().join("port");
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_trtllm-exporter"))
        // Nothing listens there: the source fails, which is logged.
        .args(["--gpu", "off", "--source", "trtllm-serve:http://127.0.0.1:1", "--web.listen-address", "127.0.0.1:0"])
        .arg("--web.port-file")
        .arg(&port)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .unwrap();
    let address = support::until(|| std::fs::read_to_string(&port).map_err(|error| error.to_string()));
    for path in ["/healthz", "/metrics"] {
        assert_eq!(support::http::get(address.trim(), path).status, 200, "{path}");
    }
    let page = support::http::get(address.trim(), "/metrics").text().to_owned();
    assert!(page.contains("\ntrtllm_exporter_log_lines_dropped_total 0\n"), "the queue takes these few lines");
    let begun = Instant::now();
    assert!(Command::new("kill").arg(daemon.id().to_string()).status().unwrap().success());
    assert!(daemon.wait().unwrap().success());
    assert!(begun.elapsed() < Duration::from_secs(5), "the end waits for the pipe");
    // Nothing was written after the pipe was full.
    let mut written = Vec::new();
    reader.read_to_end(&mut written).unwrap();
    assert!(written.iter().all(|byte| *byte == b'x'));
}
