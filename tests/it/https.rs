//! trtllm-serve over https: the server's certificate is checked, and the token file is read again when it changes.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use crate::support;
use crate::support::daemon::{Daemon, doctor};
use crate::support::pki::{Authority, Pki, local};
use crate::support::process::Process;

/// A Python server that imitates trtllm-serve behind https (tests/judges/https_server.py).
struct Server {
    _process: Process,
    port: String,
}

impl Server {
    fn start(pki: &Pki, certificate: &str) -> Self {
        let arguments = [format!("{certificate}.pem"), format!("{certificate}.key"), "expected".to_owned()];
        let mut command = Command::new(support::python());
        command.arg(support::root().join("tests/judges/https_server.py")).args(arguments.map(|name| pki.path(&name)));
        let mut process = Process::spawn(command.stdout(Stdio::piped()));
        let mut port = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { _process: process, port: port.trim().to_owned() }
    }

    /// The value of `--source`, to which a test can append options.
    fn source(&self) -> String {
        format!("trtllm-serve:https://127.0.0.1:{}?perf_metrics=false", self.port)
    }
}

fn until_counted(daemon: &Daemon, more_than: u64) -> u64 {
    let name = "nv_trt_llm_iterations_total";
    daemon.until_at_least(name, &[], (more_than + 1) as f64).count(name, &[])
}

#[test]
fn a_server_with_a_certificate_of_the_ca_file_is_read_with_a_token_that_may_change() {
    let pki = Pki::new();
    pki.write("expected", "first-secret\n");
    let token = pki.write("token", "first-secret\n");
    let server = Server::start(&pki, "server");
    let source = format!("{}&ca_file={}&bearer_token_file={token}", server.source(), pki.path("ca.pem"));
    let daemon = Daemon::start(&["--source", &source]);
    let before = until_counted(&daemon, 3);
    assert!(daemon.text("/metrics").contains("engine_version=\"1.2.0\""));
    // First the server expects a new token, and later the token file contains it. Then the exporter must use the new
    // token immediately, not a minute later.
    pki.write("expected", "second-secret\n");
    daemon.until_at_least("trtllm_exporter_poll_errors_total", &["kind=http_status"], 1.0);
    pki.write("token", "second-secret\n");
    until_counted(&daemon, before + 3);
    daemon.until_logged(&["source failed", "status 401", "bearer_token_file"]);
    for secret in ["first-secret", "second-secret"] {
        assert!(!daemon.stderr().contains(secret) && !daemon.text("/metrics").contains(secret), "{secret} is shown");
    }
}

/// What people make with `openssl req -x509`. Prometheus and curl accept it if ca_file names it.
#[test]
fn a_self_signed_certificate_in_the_ca_file_is_trusted_by_the_exporter_doctor_and_top() {
    let pki = Pki::new();
    pki.write("expected", "secret\n");
    let token = pki.write("token", "secret\n");
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=self"])
        .args([
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            &pki.path("self.key"),
            "-out",
            &pki.path("self.pem"),
        ])
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        return;
    }
    let server = Server::start(&pki, "self");
    let source = format!("{}&ca_file={}&bearer_token_file={token}", server.source(), pki.path("self.pem"));
    until_counted(&Daemon::start(&["--source", &source]), 3);
    // The exporter's own https has the same certificate.
    let web = pki.write("web.yml", "tls_server_config:\n  cert_file: self.pem\n  key_file: self.key\n");
    let daemon = Daemon::start(&["--source", "sim:", "--web.config.file", &web]);
    let url = format!("https://{}", daemon.address);
    let [trusted, other] = ["self.pem", "ca.pem"].map(|name| pki.path(name));
    for arguments in [&["diagnose", &url, "--no-sources"][..], &["top", &url, "--once"]] {
        let without_scheme = [arguments[0], &daemon.address, arguments[2]];
        for (arguments, words) in [
            ([arguments, &["--ca-file", &trusted]].concat(), &["tensorrt_llm"][..]),
            ([arguments, &["--ca-file", &other]].concat(), &["is not accepted", "--ca-file"]),
            (without_scheme.to_vec(), &["speaks https"]),
        ] {
            let output = doctor(&arguments);
            let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
            assert!(words.iter().all(|word| text.contains(word)), "{arguments:?}: {text}");
            assert_eq!(output.status.success(), words == ["tensorrt_llm"], "{arguments:?}: {text}");
        }
    }
}

#[test]
fn a_certificate_that_cannot_be_trusted_is_refused_and_named() {
    let pki = Pki::new();
    pki.write("expected", "secret\n");
    let token = pki.write("token", "secret\n");
    Authority::new(pki.folder.path(), "other");
    pki.ca.sign(pki.folder.path(), "expired", local(), 2021);
    let name = rcgen::SanType::DnsName("elsewhere.example".try_into().unwrap());
    pki.ca.sign(pki.folder.path(), "elsewhere", name, 2099);
    // Without a ca_file, the system's CA certificates are used.
    for (certificate, ca, why) in [
        ("server", Some("other"), "UnknownIssuer"),
        ("server", None, "UnknownIssuer"),
        ("expired", Some("ca"), "expired"),
        ("elsewhere", Some("ca"), "not valid for name"),
    ] {
        let server = Server::start(&pki, certificate);
        let ca = ca.map(|ca| format!("&ca_file={}", pki.path(&format!("{ca}.pem")))).unwrap_or_default();
        let source = format!("{}{ca}&bearer_token_file={token}", server.source());
        let daemon = Daemon::start(&["--source", &source]);
        daemon.until_logged(&["source failed", why]);
        let page = daemon.page();
        assert!(page.count("trtllm_exporter_poll_errors_total", &["kind=connect"]) > 0);
        assert_eq!(page.find("nv_trt_llm_iterations_total", &[]).unwrap_or_default(), 0.0);
    }
}
