//! A log collector that stops reading its pipe does not stop the exporter.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use crate::support::daemon::Launch;

/// Capacity of a pipe on Linux.
const PIPE: usize = 65_536;

#[test]
fn a_full_log_pipe_blocks_neither_scrapes_nor_health_nor_the_end() {
    let (mut reader, mut stderr) = std::io::pipe().unwrap();
    stderr.write_all(&[b'x'; PIPE]).unwrap();
    // Nothing listens at this address, so the source fails and the failure is logged.
    let mut daemon = Launch::new().stderr(stderr).start(&["--source", "trtllm-serve:http://127.0.0.1:1"]);
    daemon.text("/healthz");
    let dropped = daemon.page().count("trtllm_exporter_log_lines_dropped_total", &[]);
    assert_eq!(dropped, 0, "the queue takes these few lines");
    let begun = Instant::now();
    assert!(daemon.terminate().success());
    assert!(begun.elapsed() < Duration::from_secs(5), "the end waits for the pipe");
    // The daemon must not have written anything, because the pipe was full from the start.
    let mut written = Vec::new();
    reader.read_to_end(&mut written).unwrap();
    assert!(written.iter().all(|byte| *byte == b'x'));
}
