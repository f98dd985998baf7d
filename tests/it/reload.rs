//! On SIGHUP, the exporter reads `--config.file` again. It adds and removes engines, and unchanged engines keep their
//! totals.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};

use crate::support::daemon::{Daemon, Launch, refused};
use crate::support::ingest::{Ingest, send};
use crate::support::sessions::SESSION;
use crate::support::{ensure, until};

const SUCCESSFUL: &str = "trtllm_exporter_config_last_reload_successful";

fn replay(model: &str) -> String {
    format!("- source: {SESSION}\n  model: {model}\n")
}

/// The entry of an engine that publishes on this socket.
fn entry(socket: &Ingest, more: &str) -> String {
    format!("- source: {}\n{more}", socket.source())
}

/// False once the daemon has ended the connection.
fn is_open(stream: &UnixStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let open = matches!((&*stream).read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
    stream.set_nonblocking(false).unwrap();
    open
}

fn until_engines(daemon: &Daemon, expected: &[(&str, u64)]) {
    until(|| {
        let page = daemon.page();
        let model = |series: &str| series.split("model=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        let found = page.series.iter().filter(|(series, _)| series.starts_with("nv_trt_llm_iterations_total{"));
        let found: Vec<(String, u64)> = found.map(|(series, value)| (model(series), *value as u64)).collect();
        let same = found.iter().map(|(model, count)| (model.as_str(), *count)).eq(expected.iter().copied());
        ensure(same, || format!("{found:?} instead of {expected:?}; {}", daemon.stderr()))
    });
}

#[test]
fn engines_that_stay_the_same_keep_their_totals_and_connections() {
    let socket = Ingest::new();
    let stays = entry(&socket, "  model: stays\n");
    let daemon = Daemon::configured(&(replay("leaves") + &stays), &[]);
    let mut stream = socket.connect();
    send(&mut stream, 1..=10);
    let page = daemon.until_is("nv_trt_llm_iterations_total", &["model=stays"], 10.0);
    let replayed = page.count("nv_trt_llm_iterations_total", &["model=leaves"]);
    assert!(replayed > 0);
    assert_eq!(page.count(SUCCESSFUL, &[]), 1);

    daemon.reload(&(replay("joins") + &stays));
    until_engines(&daemon, &[("joins", replayed), ("stays", 10)]);
    // The connection was not interrupted.
    send(&mut stream, 11..=20);
    until_engines(&daemon, &[("joins", replayed), ("stays", 20)]);
    let page = daemon.page();
    assert_eq!(page.count("nv_trt_llm_engine_restarts_total", &["model=stays"]), 0);
    assert_eq!(page.count("nv_trt_llm_iterations_lost_total", &["model=stays"]), 0);
    assert!(page.series.iter().all(|(series, _)| !series.contains("model=\"leaves\"")), "its series have ended");
    daemon.until_logged(&["configuration reloaded", "added=1", "removed=1", "kept=1"]);

    // The page lists engines in the order of the file.
    daemon.reload(&(stays + &replay("joins")));
    until_engines(&daemon, &[("stays", 20), ("joins", replayed)]);
}

#[test]
fn a_broken_file_changes_nothing_and_is_logged() {
    let socket = Ingest::new();
    let stays = entry(&socket, "  model: stays\n");
    let launch = Launch::new();
    let file = launch.path("engines.yaml");
    let daemon = launch.config(&stays).start(&[]);
    let mut stream = socket.connect();
    send(&mut stream, 1..=5);
    until_engines(&daemon, &[("stays", 5)]);
    let broken = [
        (replay("x") + "  speed: 5\n", "unknown key"),
        (replay("x") + &replay("x"), "line 4, engines[1]"),
        ("- source: trtllm-serve:http://a:1/v1\n".to_owned(), "ends in /v1"),
        ("- source: \"sim:?bogus=1\"\n".to_owned(), "bogus"),
    ];
    for (text, words) in broken {
        daemon.reload(&text);
        daemon.until_logged(&["configuration not reloaded", words]);
        daemon.until_is(SUCCESSFUL, &[], 0.0);
        refused(2, &["check-config", file.to_str().unwrap()], &[words]);
    }
    std::fs::remove_file(&file).unwrap();
    daemon.signal("HUP");
    daemon.until_logged(&["configuration not reloaded", "No such file"]);
    send(&mut stream, 6..=10);
    until_engines(&daemon, &[("stays", 10)]);
    daemon.reload(&stays);
    daemon.until_is(SUCCESSFUL, &[], 1.0);
    until_engines(&daemon, &[("stays", 10)]);
}

#[test]
fn a_socket_whose_engine_is_renamed_is_opened_again() {
    let socket = Ingest::new();
    let daemon = Daemon::configured(&entry(&socket, "  model: before\n"), &[]);
    let mut stream = socket.connect();
    send(&mut stream, 1..=5);
    until_engines(&daemon, &[("before", 5)]);
    daemon.reload(&entry(&socket, ""));
    until_engines(&daemon, &[]);
    // Without a model in the configuration, each publisher of the socket names its engine. Until the old listener has
    // ended it may still take a connection, and ends it then; a publisher connects again.
    let mut stream = None;
    until(|| {
        let open = stream.take().filter(is_open);
        stream = match open {
            Some(open) => Some(open),
            None => {
                let mut new = UnixStream::connect(socket.path()).map_err(|error| error.to_string())?;
                writeln!(new, "{{\"hello\":{{\"model\":\"named\"}}}}").map_err(|error| error.to_string())?;
                Some(new)
            }
        };
        let page = daemon.page();
        ensure(page.find("nv_trt_llm_iterations_total", &["model=named"]).is_some(), || daemon.stderr())
    });
    send(stream.as_mut().unwrap(), 1..=3);
    until_engines(&daemon, &[("named", 3)]);
    // A configured engine cannot use the name of a publisher.
    daemon.reload(&(entry(&socket, "") + &replay("named")));
    daemon.until_logged(&["configuration not reloaded", "named"]);
    until_engines(&daemon, &[("named", 3)]);
    // When a socket is removed, its engines are removed too.
    daemon.reload(&replay("other"));
    daemon.until_shown("nv_trt_llm_iterations_total", &["model=named"], false);
    assert!(!socket.path().exists(), "the socket is removed");
}

#[test]
fn a_new_source_that_cannot_be_opened_ends_nothing_and_is_tried_at_the_next_reload() {
    let [first, second] = [Ingest::new(), Ingest::new()];
    let stays = entry(&first, "  model: stays\n");
    let mut daemon = Daemon::configured(&stays, &[]);
    let mut stream = first.connect();
    send(&mut stream, 1..=5);
    let taken = UnixListener::bind(second.path()).unwrap();
    daemon.reload(&(stays + &entry(&second, "  model: joins\n")));
    daemon.until_logged(&["cannot be opened", "another process listens on it"]);
    daemon.until_is(SUCCESSFUL, &[], 0.0);
    drop(taken);
    std::fs::remove_file(second.path()).unwrap();
    daemon.signal("HUP");
    let mut other = second.connect();
    send(&mut other, 1..=7);
    until_engines(&daemon, &[("stays", 5), ("joins", 7)]);
    daemon.until_is(SUCCESSFUL, &[], 1.0);
    assert_eq!(daemon.terminate().code(), Some(0), "{}", daemon.stderr());
}
