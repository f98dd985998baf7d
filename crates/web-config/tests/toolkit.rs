//! Compares this crate with exporter-toolkit itself, by exporter-toolkit's own configuration files. `tests/run` builds the Go
//! program `tests/go/toolkit`, whose module has these files; none is copied here. Both examples are tried as servers.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use exporter_web_config::WebConfig;

/// Files that exporter-toolkit accepts at the start and this crate refuses, with the reason.
const STRICTER: [(&str, &str); 2] = [
    ("web_config_auth_clientCAs_missing.bad.yml", "client_ca_file"),
    ("web_config_noAuth_noHTTP2Cipher.bad.yml", "cipher_suites"),
];

fn toolkit() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/toolkit");
    assert!(path.exists(), "{} is missing; tests/run builds it with Go from tests/go/toolkit", path.display());
    path
}

/// exporter-toolkit's own files, in the Go module.
fn files() -> Vec<PathBuf> {
    let output = Command::new(toolkit()).arg("testdata").output().unwrap();
    let folder = String::from_utf8(output.stdout).unwrap();
    let entries = fs::read_dir(folder.trim()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "yml" || ending == "yaml")).collect();
    files.sort();
    assert!(files.len() > 40, "only {} files in {folder}", files.len());
    files
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// What exporter-toolkit says about each file: `None` if it is valid.
fn verdicts(files: &[PathBuf]) -> Vec<Option<String>> {
    let output = Command::new(toolkit()).arg("check").args(files).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let verdicts: Vec<_> = text.lines().map(|line| (line != "ok").then(|| line.to_owned())).collect();
    assert_eq!(verdicts.len(), files.len(), "{text}");
    verdicts
}

#[test]
fn its_own_files_are_valid_for_both_or_for_neither() {
    let files = files();
    let (mut valid, mut stricter) = (0, Vec::new());
    for (path, theirs) in files.iter().zip(verdicts(&files)) {
        let ours = WebConfig::load(path).map(drop).map_err(|error| error.to_string());
        match (&ours, &theirs) {
            (Ok(()), None) => valid += 1,
            (Err(_), Some(_)) => {}
            (Err(error), None) => {
                let known = STRICTER.iter().find(|(file, _)| *file == name(path));
                let (file, key) = known.unwrap_or_else(|| panic!("only this crate refuses {}: {error}", name(path)));
                assert!(error.contains(key), "{file}: {key} is not in {error}");
                stricter.push(*file);
            }
            (Ok(()), Some(error)) => panic!("only exporter-toolkit refuses {}: {error}", name(path)),
        }
    }
    assert!(valid >= 15, "only {valid} files are valid");
    assert_eq!(stricter, STRICTER.map(|(file, _)| file), "STRICTER and the README list what no longer differs");
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

/// An example, which cargo builds beside the tests.
fn ours(example: &str, file: &Path) -> Server {
    let program = std::env::current_exe().unwrap().parent().unwrap().join("../examples").join(example);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let process = Command::new(program).arg(file).arg(format!("127.0.0.1:{port}")).spawn().unwrap();
    let server = Server { process, port };
    let deadline = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "the example {example} does not listen with {}", name(file));
        std::thread::sleep(Duration::from_millis(20));
    }
    server
}

/// The status of a request, or "refused" without a response. Go answers HTTP on a port for TLS with status 400, and some of its
/// handshakes end with an alert and others with a closed connection: all of these refuse.
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
    let files = files();
    let folder = files[0].parent().unwrap().to_str().unwrap();
    let (pem, key) = (format!("{folder}/client_selfsigned.pem"), format!("{folder}/client_selfsigned.key"));
    let (other_pem, other_key) = (format!("{folder}/client2_selfsigned.pem"), format!("{folder}/client2_selfsigned.key"));
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
    for (path, verdict) in files.iter().zip(verdicts(&files)) {
        // The number of requests that a limit lets through depends on time.
        if verdict.is_some() || STRICTER.iter().any(|(file, _)| *file == name(path)) || name(path).contains("rate_limiter") {
            continue;
        }
        let servers = [theirs(path), ours("server", path), ours("hyper", path)];
        for (scheme, arguments) in requests {
            let [theirs, axum, hyper] = servers.each_ref().map(|server| status(server, scheme, arguments));
            assert_eq!([&axum, &hyper], [&theirs; 2], "{}: {scheme} {arguments:?}: axum, hyper and exporter-toolkit", name(path));
            *seen.entry(theirs).or_default() += 1;
        }
    }
    println!("{seen:?}");
    for status in ["200", "401", "refused"] {
        assert!(seen.contains_key(status), "no request had the result {status}: {seen:?}");
    }
}
