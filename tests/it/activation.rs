//! Sockets that systemd opens: one for the page, and one on which engines publish.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::support;
use crate::support::daemon::{Daemon, Launch};
use crate::support::until;

/// Listens on each path and then executes the daemon, as systemd does.
const SYSTEMD: &str = "
import os, socket, sys
paths = sys.argv[1].split(',')
for descriptor, path in enumerate(paths, 3):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    os.dup2(listener.fileno(), 100 + descriptor)
for descriptor in range(3, 3 + len(paths)):
    os.dup2(100 + descriptor, descriptor)
    os.close(100 + descriptor)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(paths)))
os.execv(sys.argv[2], sys.argv[2:])
";

fn activated(paths: &[&Path], arguments: &[&str]) -> Daemon {
    let paths: Vec<&str> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    Launch::behind(&["python3", "-c", SYSTEMD, &paths.join(",")]).start(arguments)
}

fn publish(path: &Path, iter: u64) {
    let mut publisher = UnixStream::connect(path).unwrap();
    writeln!(publisher, "{{\"iter\":{iter},\"numActiveRequests\":1}}").unwrap();
}

fn until_iterations(daemon: &Daemon, expected: u64) {
    daemon.until(|page| {
        let found = page.count("nv_trt_llm_iterations_total", &[]);
        support::ensure(found == expected, || format!("{found} iterations instead of {expected}"))
    });
}

#[test]
fn engines_publish_on_a_socket_of_systemd_which_outlives_the_exporter() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ingest.sock");
    let source = format!("socket:{}", path.display());
    let mut daemon = activated(&[&path], &["--source", &source, "--model", "m"]);
    publish(&path, 1);
    until_iterations(&daemon, 1);
    assert_eq!(daemon.logged(&["systemd"]), 0, "{}", daemon.stderr());
    assert!(daemon.terminate().success());
    assert!(path.exists(), "the exporter removed the socket of systemd");
}

#[test]
fn a_reload_closes_and_opens_a_socket_of_systemd() {
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().join("ingest.sock"), folder.path().join("engines.yaml"));
    let entry = |model: &str| format!("engines:\n- source: socket:{}\n  model: {model}\n", path.display());
    std::fs::write(&file, entry("before")).unwrap();
    let daemon = activated(&[&path], &["--config.file", file.to_str().unwrap()]);
    publish(&path, 1);
    until_iterations(&daemon, 1);
    std::fs::write(&file, entry("after")).unwrap();
    daemon.signal("HUP");
    daemon.until_logged(&["configuration reloaded"]);
    // For a moment after the reload, the previous source may still accept a connection. Therefore, publish repeatedly.
    daemon.until(|page| {
        publish(&path, 1);
        let counted = |(series, _): &(String, f64)| series.starts_with("nv_trt_llm_iterations_total{model=\"after\"");
        support::ensure(page.series.iter().any(counted), || "the socket is not open again".to_owned())
    });
}

#[test]
fn the_page_and_the_ingest_socket_are_told_apart_by_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let (ingest, web) = (folder.path().join("ingest.sock"), folder.path().join("web.sock"));
    let source = format!("socket:{}", ingest.display());
    let arguments = ["--source", &source, "--model", "m", "--web.systemd-socket"];
    // The exporter recognizes each socket by its path, so systemd may pass them in any order.
    let daemon = activated(&[&ingest, &web], &arguments);
    assert_eq!(daemon.address, format!("unix:{}", web.display()));
    publish(&ingest, 1);
    until(|| {
        let mut stream = UnixStream::connect(&web).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        let counted = page.contains("nv_trt_llm_iterations_total{model=\"m\",version=\"1\"} 1");
        support::ensure(counted, || page)
    });
}

#[test]
fn a_socket_for_the_page_without_its_flag_is_logged() {
    let script = SYSTEMD.replace("AF_UNIX", "AF_INET").replace("bind(path)", "bind(('127.0.0.1', 0))");
    let daemon = Launch::behind(&["python3", "-c", &script, "tcp"]).start(&["--source", "replay:/dev/null"]);
    daemon.until_logged(&["systemd passed a socket", "--web.systemd-socket"]);
}
