//! Compares this crate with exporter-toolkit itself, on exporter-toolkit's own configuration files. They come from the
//! Go module of the program `tests/go/toolkit`, which `tests/run` builds; the repository has no copy. The servers are that
//! Go program and this crate's example `server`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use exporter_web_config::WebConfig;
use tempfile::TempDir;

/// In 11 of its files, exporter-toolkit accepts a verifying `client_auth_type` without a certificate authority. In Go,
/// that lets every public authority issue client certificates. This crate requires an authority, so the test adds
/// one to these files for both programs.
const AUTHORITY: &str = "client_ca_file: tls-ca-chain.pem";

/// exporter-toolkit cannot serve with this file, because HTTP/2 needs another cipher suite. This crate has no HTTP/2.
const NO_HTTP2_CIPHER: &str = "web_config_noAuth_noHTTP2Cipher.bad.yml";

/// The only other files that exporter-toolkit accepts and this crate refuses, with the refused key: a curve that rustls
/// does not have, and a limit that lets no request through. The README has the reasons.
const STRICTER: [(&str, &str); 2] = [
    ("web_config_noAuth_someCurves.good.yml", "curve_preferences"),
    ("web_config_rate_limiter_one_second.yaml", "rate_limit.burst"),
];

fn toolkit() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/toolkit");
    assert!(path.exists(), "{} is missing; tests/run builds it with Go from tests/go/toolkit", path.display());
    path
}

/// A copy of exporter-toolkit's own files, which are in the Go module. Files that need an authority and have none get
/// one.
struct Files {
    folder: TempDir,
    files: Vec<PathBuf>,
    completed: usize,
}

impl Files {
    fn copy() -> Self {
        let output = Command::new(toolkit()).arg("testdata").output().unwrap();
        let original = String::from_utf8(output.stdout).unwrap();
        let mut copied = Self { folder: tempfile::tempdir().unwrap(), files: Vec::new(), completed: 0 };
        for entry in fs::read_dir(original.trim()).unwrap() {
            let from = entry.unwrap().path();
            let to = copied.folder.path().join(name(&from));
            let mut text = fs::read_to_string(&from).unwrap();
            // Without optimization, one bcrypt comparison of cost 18 takes minutes. With this line in its file, this
            // crate takes that long for a wrong password of any user.
            if let Some(line) = text.lines().find(|line| line.contains("$2y$18$")) {
                text = text.replace(line, "");
            }
            fs::write(&to, text).unwrap();
            copied.files.extend(to.extension().is_some_and(|ending| ending == "yml" || ending == "yaml").then_some(to));
        }
        copied.files.sort();
        assert!(copied.files.len() > 40, "only {} files in {original}", copied.files.len());
        for (file, verdict) in copied.files.iter().zip(verdicts(&copied.files)) {
            let ours = WebConfig::load(file).map(drop).map_err(|error| error.to_string());
            if verdict.is_none() && ours.is_err_and(|error| error.contains("client_ca_file: is missing")) {
                let text = fs::read_to_string(file).unwrap();
                let (section, keys) = text.split_once('\n').unwrap();
                assert!(section.starts_with("tls_server_config"), "{section}");
                let indentation = &keys[..keys.find(|letter: char| letter != ' ').unwrap()];
                fs::write(file, format!("{section}\n{indentation}{AUTHORITY}\n{keys}")).unwrap();
                copied.completed += 1;
            }
        }
        copied
    }
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// The error that exporter-toolkit reports for each file, `None` if the file is valid.
fn verdicts(files: &[PathBuf]) -> Vec<Option<String>> {
    let output = Command::new(toolkit()).arg("check").args(files).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let verdicts: Vec<_> = text.lines().map(|line| (line != "ok").then(|| line.to_owned())).collect();
    assert_eq!(verdicts.len(), files.len(), "{text}");
    verdicts
}

#[test]
fn its_own_files_are_valid_for_both_or_for_neither() {
    let Files { files, completed, .. } = &Files::copy();
    let (mut valid, mut surprises) = (0, Vec::new());
    for (path, theirs) in files.iter().zip(verdicts(files)) {
        let ours = WebConfig::load(path).map(drop).map_err(|error| error.to_string());
        match (&ours, &theirs) {
            (Ok(()), None) => valid += 1,
            (Err(_), Some(_)) => {}
            (Err(error), None) => surprises.push((name(path), error.clone())),
            (Ok(()), Some(error)) => surprises.push((name(path), format!("only exporter-toolkit refuses it: {error}"))),
        }
    }
    let known = surprises.iter().zip(STRICTER).all(|((name, error), (file, key))| *name == file && error.contains(key));
    assert!(known && surprises.len() == STRICTER.len(), "{surprises:#?}");
    println!("{} files, {valid} valid for both, {completed} of them with an authority", files.len());
    assert_eq!(*completed, 11);
}

struct Server {
    process: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn theirs(file: &Path) -> Server {
    let mut process = Command::new(toolkit()).arg("serve").arg(file).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    Server { process, port: line.trim().parse().unwrap() }
}

/// Starts the example, which cargo builds together with the tests.
fn ours(file: &Path) -> Server {
    let program = std::env::current_exe().unwrap().parent().unwrap().join("../examples/server");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let process = Command::new(program).arg(file).arg(format!("127.0.0.1:{port}")).spawn().unwrap();
    let server = Server { process, port };
    let deadline = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "the example does not listen with {}", name(file));
        std::thread::sleep(Duration::from_millis(20));
    }
    server
}

/// The status of a request, or "refused" without a response. Go answers HTTP on a port for TLS with status 400, and some of its
/// handshakes end with an alert and others with a closed connection: all of these count as "refused".
fn status(server: &Server, scheme: &str, arguments: &[&str]) -> String {
    let url = format!("{scheme}://127.0.0.1:{}/metrics", server.port);
    let output = Command::new("curl")
        .args(["--silent", "--insecure", "--http1.1", "--max-time", "30", "--output", "/dev/null"])
        .args(["--write-out", "%{http_code}", &url])
        .args(arguments)
        .output()
        .expect("curl is needed; tests/run installs it");
    match String::from_utf8(output.stdout).unwrap().as_str() {
        "000" | "400" => "refused".to_owned(),
        status => status.to_owned(),
    }
}

#[test]
fn the_same_requests_have_the_same_status() {
    let Files { folder, files, .. } = &Files::copy();
    let folder = folder.path().to_str().unwrap();
    let (pem, key) = (format!("{folder}/client_selfsigned.pem"), format!("{folder}/client_selfsigned.key"));
    let (other_pem, other_key) =
        (format!("{folder}/client2_selfsigned.pem"), format!("{folder}/client2_selfsigned.key"));
    let requests: [(&str, &[&str]); 9] = [
        ("http", &[]),
        ("http", &["--user", "alice:alice123"]),
        ("https", &[]),
        ("https", &["--cert", &pem, "--key", &key]),
        ("https", &["--cert", &other_pem, "--key", &other_key]),
        ("https", &["--user", "alice:alice123"]),
        ("https", &["--user", "alice:bob123"]),
        ("https", &["--user", "nobody:alice123"]),
        ("https", &["--tls-max", "1.2"]),
    ];
    let mut seen = BTreeMap::<String, usize>::new();
    for (path, verdict) in files.iter().zip(verdicts(files)) {
        // The number of requests that a limit lets through depends on time.
        if verdict.is_some()
            || name(path).contains("rate_limiter")
            || name(path) == NO_HTTP2_CIPHER
            || WebConfig::load(path).is_err()
        {
            continue;
        }
        let servers = [theirs(path), ours(path)];
        for (scheme, arguments) in requests {
            let [theirs, ours] = servers.each_ref().map(|server| status(server, scheme, arguments));
            assert_eq!(ours, theirs, "{}: {scheme} {arguments:?}: ours and exporter-toolkit", name(path));
            *seen.entry(theirs).or_default() += 1;
        }
    }
    println!("{seen:?}");
    for status in ["200", "401", "refused"] {
        assert!(seen.contains_key(status), "no request had the result {status}: {seen:?}");
    }
}
