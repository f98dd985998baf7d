//! Sockets that systemd opens: one for the page, and one on which engines publish.

use std::path::Path;

use crate::support::daemon::Launch;
use crate::support::http::get_unix;
use crate::support::ingest::{Ingest, send};
use crate::support::{ensure, until};

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

fn activated(paths: &[&Path]) -> Launch {
    let paths: Vec<&str> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    Launch::behind(&["python3", "-c", SYSTEMD, &paths.join(",")])
}

#[test]
fn engines_publish_on_a_socket_of_systemd_which_outlives_the_exporter() {
    let socket = Ingest::new();
    let mut daemon = activated(&[&socket.path()]).start(&["--source", &socket.source(), "--model", "m"]);
    send(&mut socket.connect(), 1..=1);
    daemon.until_is("nv_trt_llm_iterations_total", &[], 1.0);
    assert_eq!(daemon.logged(&["systemd"]), 0, "{}", daemon.stderr());
    assert!(daemon.terminate().success());
    assert!(socket.path().exists(), "the exporter removed the socket of systemd");
}

#[test]
fn a_reload_closes_and_opens_a_socket_of_systemd() {
    let socket = Ingest::new();
    let entry = |model: &str| format!("- source: {}\n  model: {model}\n", socket.source());
    let daemon = activated(&[&socket.path()]).config(&entry("before")).start(&[]);
    send(&mut socket.connect(), 1..=1);
    daemon.until_is("nv_trt_llm_iterations_total", &[], 1.0);
    daemon.reload(&entry("after"));
    daemon.until_logged(&["configuration reloaded"]);
    // For a moment after the reload, the previous source may still accept a connection. Therefore, publish repeatedly.
    daemon.until(|page| {
        send(&mut socket.connect(), 1..=1);
        let counted = page.find("nv_trt_llm_iterations_total", &["model=after"]);
        ensure(counted.is_some(), || "the socket is not open again".to_owned())
    });
}

#[test]
fn the_page_and_the_ingest_socket_are_told_apart_by_the_path() {
    let (socket, folder) = (Ingest::new(), tempfile::tempdir().unwrap());
    let web = folder.path().join("web.sock");
    // The exporter recognizes each socket by its path, so systemd may pass them in any order.
    let arguments = ["--source", &socket.source(), "--model", "m", "--web.systemd-socket"];
    let daemon = activated(&[&socket.path(), &web]).start(&arguments);
    assert_eq!(daemon.address, format!("unix:{}", web.display()));
    send(&mut socket.connect(), 1..=1);
    until(|| {
        let page = get_unix(&web, "/metrics").map_err(|error| error.to_string())?;
        let counted = page.contains("nv_trt_llm_iterations_total{model=\"m\",version=\"1\"} 1");
        ensure(counted, || page)
    });
}

#[test]
fn a_socket_for_the_page_without_its_flag_is_logged() {
    let script = SYSTEMD.replace("AF_UNIX", "AF_INET").replace("bind(path)", "bind(('127.0.0.1', 0))");
    let daemon = Launch::behind(&["python3", "-c", &script, "tcp"]).start(&["--source", "replay:/dev/null"]);
    daemon.until_logged(&["systemd passed a socket", "--web.systemd-socket"]);
}
