//! A host that lacks something that the daemon needs, and paths that are devices, folders or links. The daemon either
//! runs with reduced functions, or ends with one message that names the flag and the remedy.

use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::Command;

use super::engine::Engine;
use crate::support::daemon::{BINARY, Daemon, Launch, run};
use crate::support::ingest::Ingest;
use crate::support::{self, ensure};

/// Each case has a command line, the expected exit code, and text that the message must contain.
#[test]
fn a_start_that_cannot_succeed_ends_with_one_message_that_names_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::create_dir(path("folder")).unwrap();
    std::fs::write(path("text"), "hello").unwrap();
    std::fs::write(path("bytes"), b"\xff\xfe\x00").unwrap();
    std::fs::write(path("empty"), "").unwrap();
    let _served = UnixListener::bind(path("served.sock")).unwrap();
    let _datagrams = UnixDatagram::bind(path("datagrams.sock")).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let socket = |name: &str| format!("socket:{}", path(name));
    let long = "x".repeat(200);
    let mut faults: Vec<(String, Vec<String>, i32, &str)> = Vec::new();
    let mut add = |name: &str, arguments: &[&str], code: i32, words: &'static str| {
        faults.push((name.to_owned(), arguments.iter().map(|&text| text.to_owned()).collect(), code, words));
    };
    for device in ["/dev/zero", "/dev/urandom", "/dev/full"] {
        add(&format!("--config.file {device}"), &["--config.file", device], 2, "longer than 4 MiB");
        add(
            &format!("--web.config.file {device}"),
            &["--web.config.file", device, "--source", "sim:"],
            2,
            "longer than 4 MiB",
        );
        add(&format!("check-config {device}"), &["check-config", device], 2, "longer than 4 MiB");
    }
    for flag in ["--config.file", "--web.config.file"] {
        add(&format!("{flag} is a folder"), &[flag, &path("folder")], 2, flag);
        add(&format!("{flag} does not exist"), &[flag, &path("none")], 2, flag);
        // For an error inside a file, the message names the file. For an unreadable file, it names the flag.
        let words = if flag == "--config.file" { "/text line 1: the file is not a map" } else { flag };
        add(&format!("{flag} is text"), &[flag, &path("text")], 2, words);
        add(&format!("{flag} is not UTF-8"), &[flag, &path("bytes")], 2, flag);
    }
    add("--config.file is empty", &["--config.file", &path("empty")], 2, "/empty");
    add("--config.file /dev/null", &["--config.file", "/dev/null"], 2, "/dev/null line 1");
    add("a socket that is served", &["--source", &socket("served.sock")], 1, "another process listens on it");
    add("a datagram socket", &["--source", &socket("datagrams.sock")], 1, "cannot listen on the ingest socket");
    add("a socket path that is a file", &["--source", &socket("text")], 2, "not a socket");
    add("a socket path that is a folder", &["--source", &socket("folder")], 2, "not a socket");
    add("a socket in a folder that does not exist", &["--source", &socket("none/x.sock")], 2, "choose another path");
    add("a socket below a file", &["--source", &socket("text/x.sock")], 2, "choose another path");
    add("a socket path that is too long", &["--source", &socket(&long)], 2, "cannot listen on the ingest socket");
    add("a socket on a file system without sockets", &["--source", "socket:/proc/x.sock"], 1, "choose another path");
    add("a replay of a folder", &["--source", &format!("replay:{}", path("folder"))], 2, "--source replay");
    add("a replay of no file", &["--source", &format!("replay:{}", path("none"))], 2, "--source replay");
    add("an address in use", &["--web.listen-address", &address], 1, "choose another address");
    add("an address of another host", &["--web.listen-address", "192.0.2.1:8002"], 1, "choose another address");
    add(
        "a Unix address that is served",
        &["--web.listen-address", &format!("unix:{}", path("served.sock"))],
        1,
        "another process listens on it; choose another address with --web.listen-address",
    );
    let file = format!("unix:{}", path("text"));
    add("a Unix address that is a file", &["--web.listen-address", &file], 2, "--web.listen-address");
    add(
        "a health address in use",
        &["--web.listen-address", "127.0.0.1:0", "--web.health-address", &address],
        1,
        "--web.health-address",
    );
    for (name, file) in
        [("a folder", "folder"), ("in a folder that does not exist", "none/port"), ("below a file", "text/port")]
    {
        let code = if file == "folder" { 1 } else { 2 };
        let arguments = ["--source", "sim:", "--web.port-file", &path(file)];
        add(&format!("--web.port-file is {name}"), &arguments, code, "--web.port-file");
    }
    let read_only = ["--source", "sim:", "--web.port-file", "/proc/port"];
    add("--web.port-file on a read-only file system", &read_only, 1, "--web.port-file");
    let no_socket = "--web.systemd-socket: systemd passed no socket";
    add("--web.systemd-socket without systemd", &["--web.systemd-socket"], 1, no_socket);
    add("a user id that is a name", &["--ingest.allow-uid", "root"], 2, "--ingest.allow-uid");
    add("a negative user id", &["--ingest.allow-uid=-1"], 2, "--ingest.allow-uid");
    let library = ["--gpu", "required", "--gpu.library", &path("text"), "--source", "sim:"];
    add("a GPU library that is text", &library, 1, "gpu");
    let (count, mut wrong) = (faults.len(), Vec::new());
    for (name, arguments, code, words) in faults {
        let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        // Another exporter on this machine may use the default port.
        if !arguments.contains(&"--web.listen-address") && arguments[0] != "check-config" {
            arguments.extend(["--web.listen-address", "127.0.0.1:0"]);
        }
        let output = run(&arguments);
        let message = String::from_utf8(output.stderr).unwrap();
        if output.status.code() != Some(code) || !message.contains(words) || message.contains("panic") {
            wrong.push(format!("{name}: {:?}, not {code}, {words:?}: {message}", output.status.code()));
        }
        println!("start        {name:<60} exit code {code}");
    }
    println!("{count} faults");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The files and sockets of other programs must still be there.
    assert_eq!(std::fs::read_to_string(path("text")).unwrap(), "hello");
    assert!(std::os::unix::net::UnixStream::connect(path("served.sock")).is_ok());
    assert!(UnixDatagram::unbound().unwrap().send_to(b"x", path("datagrams.sock")).is_ok());
}

#[test]
fn a_reader_that_takes_nothing_ends_the_tools_without_a_panic() {
    for command in ["catalog", "catalog --format json", "--help", "--version"] {
        for to in [">/dev/full", "| true", ">&-"] {
            let script = format!("exec 2>&1; {{ {BINARY} {command} {to}; }} 3>&1");
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(!text.contains("panicked") && !text.contains("RUST_BACKTRACE"), "{command} {to}: {text}");
            println!("tools        {command} {to}");
        }
    }
}

/// Runs `script`, and then the daemon.
fn behind(script: &str) -> Launch {
    Launch::behind(&["bash", "-c", &format!("{script}; exec \"$@\""), "bash"])
}

#[test]
fn with_few_descriptors_fewer_peers_connect_and_the_daemon_goes_on() {
    for limit in [32, 64] {
        let (socket, kept, engine) = (Ingest::new(), tempfile::tempdir().unwrap(), Engine::start());
        let kept = kept.path().to_str().unwrap();
        let arguments = ["--source", &socket.source(), "--source", &engine.source(), "--model", "a", "--model", "b"];
        let daemon = behind(&format!("ulimit -n {limit}"))
            .start(&[&arguments[..], &["--record.dir", kept, "--poll.interval", "20ms"]].concat());
        let clients: Vec<_> = (0..100).filter_map(|_| std::net::TcpStream::connect(&daemon.address).ok()).collect();
        let publishers: Vec<_> =
            (0..100).filter_map(|_| std::os::unix::net::UnixStream::connect(socket.path()).ok()).collect();
        let sent = engine.handed_out();
        support::until(|| {
            let answer = support::http::request("GET", &daemon.address, "/metrics", &[], b"");
            let answer = answer.map_err(|error| error.to_string())?;
            ensure(answer.status == 200, || format!("status {}", answer.status))?;
            ensure(engine.handed_out() > sent + 20, || "the engine is not read".to_owned())
        });
        drop((clients, publishers));
        let page = daemon.page();
        assert!(page.get("trtllm_exporter_ingest_connections", &[]) <= f64::from(limit / 4));
        assert_eq!(page.count("nv_trt_llm_iterations_lost_total", &["model=b"]), 0);
        assert_eq!(page.count("trtllm_exporter_recorder_errors_total", &[]), 0);
        let log = daemon.stderr();
        assert!(log.lines().count() < 30, "{log}");
    }
}

#[test]
fn the_port_file_follows_no_link_and_waits_for_no_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let precious = folder.path().join("precious");
    std::fs::write(&precious, "kept").unwrap();
    type Prepare<'a> = &'a dyn Fn(&Path);
    let kinds: [(&str, Prepare<'_>); 3] = [
        ("a symbolic link", &|path| std::os::unix::fs::symlink(&precious, path).unwrap()),
        ("a hard link", &|path| std::fs::hard_link(&precious, path).unwrap()),
        ("a named pipe", &|path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success())),
    ];
    for (kind, prepare) in kinds {
        for name in ["port", "port.part"] {
            let launch = Launch::new();
            prepare(&launch.path(name));
            let daemon = launch.start(&["--source", "sim:"]);
            println!("files        {name} is {kind}: {}", daemon.address);
            drop(daemon);
            assert_eq!(std::fs::read_to_string(&precious).unwrap(), "kept", "{name} is {kind}");
        }
    }
}

#[test]
fn a_limit_of_the_size_of_files_is_a_failed_write_and_no_signal_that_ends_the_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("port").display().to_string();
    let arguments = ["--web.listen-address=127.0.0.1:0", "--source=sim:", "--web.port-file", &file];
    let output = behind("ulimit -f 0").run(&arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{:?}: {message}", output.status);
    assert!(message.contains("--web.port-file") && message.contains("File too large"), "{message}");
}

#[test]
fn sigterm_keeps_a_socket_and_a_file_that_another_process_put_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let [ingest, page, own] = ["ingest.sock", "page.sock", "own.sock"].map(|name| folder.path().join(name));
    let (source, address) = (format!("socket:{}", ingest.display()), format!("unix:{}", page.display()));
    let second = format!("unix:{}", own.display());
    let mut daemon =
        Daemon::start(&["--source", &source, "--web.listen-address", &address, "--web.listen-address", &second]);
    support::until(|| ensure(ingest.exists() && page.exists(), || "no sockets".to_owned()));
    std::fs::remove_file(&ingest).unwrap();
    let _theirs = UnixListener::bind(&ingest).unwrap();
    std::fs::remove_file(&page).unwrap();
    std::fs::write(&page, "theirs").unwrap();
    assert!(daemon.terminate().success());
    assert!(ingest.exists() && page.exists(), "removed what is not its own");
    assert!(!own.exists(), "left its own");
}
