//! On SIGHUP, the exporter reads `--config.file` again. It adds and removes engines, and unchanged engines keep their
//! totals.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use crate::support;
use crate::support::daemon::Daemon;
use crate::support::{ensure, until};

const SUCCESSFUL: &str = "trtllm_exporter_config_last_reload_successful";

struct Config {
    folder: tempfile::TempDir,
    file: PathBuf,
}

impl Config {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { file: folder.path().join("engines.yaml"), folder }
    }

    /// An ingest socket in the folder.
    fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, engines: &[String]) {
        std::fs::write(&self.file, format!("engines:\n{}", engines.concat())).unwrap();
    }

    fn serve(&self) -> Daemon {
        Daemon::start(&["--config.file", self.file.to_str().unwrap(), "--gpu", "off"])
    }

    fn socket_entry(&self, name: &str, more: &str) -> String {
        format!("- source: socket:{}\n{more}", self.socket(name).display())
    }
}

fn replay(model: &str) -> String {
    let file = support::root().join("tests/fixtures/session.ndjson");
    format!("- source: replay:{}?speed=max\n  model: {model}\n", file.display())
}

fn send(stream: &mut UnixStream, iterations: std::ops::RangeInclusive<u64>) {
    for iter in iterations {
        writeln!(stream, "{{\"iter\":{iter},\"numActiveRequests\":1}}").unwrap();
    }
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
    let config = Config::new();
    config.write(&[replay("leaves"), config.socket_entry("a", "  model: stays\n")]);
    let daemon = config.serve();
    let mut stream = UnixStream::connect(config.socket("a")).unwrap();
    send(&mut stream, 1..=10);
    let page = daemon.until(|page| {
        let counted = page.find("nv_trt_llm_iterations_total", &["model=stays"]);
        ensure(counted == Some(10.0), || format!("{counted:?}"))
    });
    let replayed = page.count("nv_trt_llm_iterations_total", &["model=leaves"]);
    assert!(replayed > 0);
    assert_eq!(page.count(SUCCESSFUL, &[]), 1);

    config.write(&[replay("joins"), config.socket_entry("a", "  model: stays\n")]);
    daemon.signal("HUP");
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
    config.write(&[config.socket_entry("a", "  model: stays\n"), replay("joins")]);
    daemon.signal("HUP");
    until_engines(&daemon, &[("stays", 20), ("joins", replayed)]);
}

#[test]
fn a_broken_file_changes_nothing_and_is_logged() {
    let config = Config::new();
    config.write(&[config.socket_entry("a", "  model: stays\n")]);
    let daemon = config.serve();
    let mut stream = UnixStream::connect(config.socket("a")).unwrap();
    send(&mut stream, 1..=5);
    until_engines(&daemon, &[("stays", 5)]);
    let broken = [
        (replay("x") + "  speed: 5\n", "unknown key"),
        (replay("x") + &replay("x"), "line 4, engines[1]"),
        ("- source: trtllm-serve:http://a:1/v1\n".to_owned(), "ends in /v1"),
        ("- source: \"sim:?bogus=1\"\n".to_owned(), "bogus"),
    ];
    for (index, (text, words)) in broken.iter().enumerate() {
        config.write(std::slice::from_ref(text));
        daemon.signal("HUP");
        until(|| {
            let logged = daemon.logged(&["configuration not reloaded", words]);
            ensure(logged == 1, || format!("{index}: {logged} {}", daemon.stderr()))
        });
        daemon.until(|page| ensure(page.count(SUCCESSFUL, &[]) == 0, || "successful".to_owned()));
        let checked = support::daemon::run(&["check-config", config.file.to_str().unwrap()]);
        assert_eq!(checked.status.code(), Some(2), "check-config refuses it, too");
    }
    std::fs::remove_file(&config.file).unwrap();
    daemon.signal("HUP");
    daemon.until_logged(&["configuration not reloaded", "No such file"]);
    send(&mut stream, 6..=10);
    until_engines(&daemon, &[("stays", 10)]);
    config.write(&[config.socket_entry("a", "  model: stays\n")]);
    daemon.signal("HUP");
    daemon.until(|page| ensure(page.count(SUCCESSFUL, &[]) == 1, || "still broken".to_owned()));
    until_engines(&daemon, &[("stays", 10)]);
}

#[test]
fn a_socket_whose_engine_is_renamed_is_opened_again() {
    let config = Config::new();
    config.write(&[config.socket_entry("a", "  model: before\n")]);
    let daemon = config.serve();
    let mut stream = UnixStream::connect(config.socket("a")).unwrap();
    send(&mut stream, 1..=5);
    until_engines(&daemon, &[("before", 5)]);
    config.write(&[config.socket_entry("a", "")]);
    daemon.signal("HUP");
    until_engines(&daemon, &[]);
    // Without a model in the configuration, each publisher of the socket names its engine. Until the old listener has
    // ended it may still take a connection, and ends it then; a publisher connects again.
    let mut stream = None;
    until(|| {
        let open = stream.take().filter(is_open);
        stream = match open {
            Some(open) => Some(open),
            None => {
                let mut new = UnixStream::connect(config.socket("a")).map_err(|error| error.to_string())?;
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
    config.write(&[config.socket_entry("a", ""), replay("named")]);
    daemon.signal("HUP");
    daemon.until_logged(&["configuration not reloaded", "named"]);
    until_engines(&daemon, &[("named", 3)]);
    // When a socket is removed, its engines are removed too.
    config.write(&[replay("other")]);
    daemon.signal("HUP");
    daemon.until(|page| {
        let named = page.find("nv_trt_llm_iterations_total", &["model=named"]);
        ensure(named.is_none(), || format!("{named:?}"))
    });
    assert!(!config.socket("a").exists(), "the socket is removed");
}

#[test]
fn a_new_source_that_cannot_be_opened_ends_nothing_and_is_tried_at_the_next_reload() {
    let config = Config::new();
    config.write(&[config.socket_entry("a", "  model: stays\n")]);
    let mut daemon = config.serve();
    let mut stream = UnixStream::connect(config.socket("a")).unwrap();
    send(&mut stream, 1..=5);
    let taken = UnixListener::bind(config.socket("b")).unwrap();
    let both = [config.socket_entry("a", "  model: stays\n"), config.socket_entry("b", "  model: joins\n")];
    config.write(&both);
    daemon.signal("HUP");
    daemon.until_logged(&["cannot be opened", "another process listens on it"]);
    daemon.until(|page| ensure(page.count(SUCCESSFUL, &[]) == 0, || "successful".to_owned()));
    drop(taken);
    std::fs::remove_file(config.socket("b")).unwrap();
    daemon.signal("HUP");
    let mut other = until(|| UnixStream::connect(config.socket("b")).map_err(|error| error.to_string()));
    send(&mut other, 1..=7);
    until_engines(&daemon, &[("stays", 5), ("joins", 7)]);
    daemon.until(|page| ensure(page.count(SUCCESSFUL, &[]) == 1, || "not successful".to_owned()));
    assert_eq!(daemon.terminate().code(), Some(0), "{}", daemon.stderr());
}
