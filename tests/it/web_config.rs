//! `--web.config.file` with the real binary, real certificates, curl and a real Prometheus. promtool, which contains
//! the code of exporter-toolkit, decides which files are valid.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rcgen::SanType;

use crate::support::daemon::{self, Daemon, refused};
use crate::support::page::Page;
use crate::support::pki::{Authority, Pki, TLS, local, users};
use crate::support::prometheus::prometheus_3;
use crate::support::sessions::SESSION;
use crate::support::{ensure, program, until};

const FIXTURES: &str = "tests/fixtures/web-config";

/// Files that promtool accepts and the exporter rejects. The README of exporter-web-config gives the reasons.
const STRICTER: [&str; 9] = [
    "ca_file_without_certificate.bad.yml",
    "curve_not_served.bad.yml",
    "max_version_too_old.bad.yml",
    "min_above_max.bad.yml",
    "rate_without_burst.bad.yml",
    "sans_without_policy.bad.yml",
    "verify_without_ca.bad.yml",
    "weak_ciphers_only.bad.yml",
    // The password hash of this file is so expensive that the first scrapes would take minutes.
    "user_hash_cost.bad.yml",
];
/// Files with keys that promtool 2.42 does not know yet.
const NEWER: [&str; 6] = [
    "cert_beside_cert_file.good.yml",
    "client_allowed_sans.good.yml",
    "client_allowed_sans_empty.good.yml",
    "rate_interval_in_nanoseconds.good.yml",
    "rate_limit.good.yml",
    "rate_limit_off.good.yml",
];

/// Runs curl. Returns status and body, or curl's error if there is no response.
fn curl(arguments: &[&str]) -> Result<(u16, String), String> {
    let output = Command::new(program("curl"))
        .args(["--silent", "--show-error", "--max-time", "60", "--write-out", "\n%{http_code}"])
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap_or_default();
    match status.parse().unwrap_or(0) {
        0 => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        status => Ok((status, body.to_owned())),
    }
}

/// The status of `/metrics` over TLS.
fn status(daemon: &Daemon, ca: &str, arguments: &[&str]) -> Result<u16, String> {
    let target = format!("https://{}/metrics", daemon.address);
    let arguments: Vec<&str> = ["--cacert", ca, &target].into_iter().chain(arguments.iter().copied()).collect();
    curl(&arguments).map(|(status, _)| status)
}

/// The status of `/metrics` for a client with this certificate, or without one.
fn status_for(daemon: &Daemon, pki: &Pki, client: &str) -> Result<u16, String> {
    let (certificate, key) = (pki.path(&format!("{client}.pem")), pki.path(&format!("{client}.key")));
    let arguments = ["--cert", &certificate, "--key", &key];
    status(daemon, &pki.path("ca.pem"), if client.is_empty() { &[] } else { &arguments })
}

fn files() -> BTreeSet<String> {
    let names = fs::read_dir(FIXTURES).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".yml")).collect()
}

#[test]
fn every_file_is_valid_exactly_if_promtool_accepts_it() {
    let pki = Pki::new();
    let names = files();
    assert!(names.len() > 50, "{names:?}");
    for name in names {
        let text = fs::read_to_string(Path::new(FIXTURES).join(&name)).unwrap();
        let path = pki.write(&name, &text);
        let good = name.ends_with(".good.yml");
        for (promtool, knows_all_keys) in
            [(program("promtool"), false), (prometheus_3().with_file_name("promtool"), true)]
        {
            let output = Command::new(promtool).args(["check", "web-config", &path]).output().unwrap();
            let accepted = output.status.success();
            let stricter = STRICTER.contains(&name.as_str()) && accepted;
            let newer = NEWER.contains(&name.as_str()) && !knows_all_keys;
            assert!(accepted == good || stricter || newer, "{name}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let error = exporter_web_config::WebConfig::load(&path).err().map(|error| error.to_string());
        assert_eq!(error.is_none(), good, "{name}: {error:?}");
        // The first lines of an invalid file have the key and the remedy.
        for line in text.lines().take(if good { 0 } else { 2 }) {
            let (_, word) = line.split_once(": ").unwrap_or_default();
            assert!(error.iter().all(|error| error.contains(word)), "{name}: {word:?} is not in {error:?}");
        }
    }
}

#[test]
fn an_invalid_or_missing_file_is_fatal_at_start_up() {
    let pki = Pki::new();
    let name = "user_hash_cost.bad.yml";
    let invalid = pki.write(name, &fs::read_to_string(Path::new(FIXTURES).join(name)).unwrap());
    for (path, words) in [(invalid.as_str(), name), ("/absent", "--web.config.file /absent: cannot be read")] {
        refused(2, &["--web.config.file", path], &["trtllm-exporter: --web.config.file", words]);
    }
}

#[test]
fn an_error_about_a_private_key_shows_no_part_of_it() {
    let pki = Pki::new();
    let key = fs::read_to_string(pki.path("server.key")).unwrap();
    let (body, folded) = (key.lines().nth(1).unwrap().to_owned(), key.replace('\n', " "));
    for broken in [folded, key.replace("-----END", "-----FIN"), key.replace("-----BEGIN PRIVATE KEY-----", &body)] {
        pki.write("server.key", &broken);
        let path = pki.write("web.yml", TLS);
        let output = daemon::run(&["--gpu", "off", "--web.listen-address", "127.0.0.1:0", "--web.config.file", &path]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("key_file"), "{stderr}");
        let numbers: Vec<String> = body.bytes().take(4).map(|byte| byte.to_string()).collect();
        assert!(!stderr.contains(&body[..8]) && !stderr.contains(&numbers.join(", ")), "{stderr}");
    }
}

#[test]
fn only_the_right_password_is_accepted_and_every_response_has_the_headers() {
    let pki = Pki::new();
    let headers = "http_server_config:\n  headers:\n    X-Frame-Options: deny\n";
    let daemon = pki.serve(&format!("{}{headers}", users()));
    let page = format!("http://{}/metrics", daemon.address);
    let request = |user: &[&str]| curl(&[&["--include", page.as_str()], user].concat()).unwrap();
    for wrong in [&[][..], &["--user", "ann:wrong"], &["--user", "bob:open sesame"], &["--user", "ann:"]] {
        let (status, response) = request(wrong);
        assert_eq!(status, 401, "{wrong:?}: {response}");
        assert!(response.to_lowercase().contains("www-authenticate: basic\r\n"), "{response}");
        assert!(response.to_lowercase().contains("x-frame-options: deny\r\n"), "{response}");
        assert!(!response.contains("nv_trt_llm"), "{response}");
    }
    assert_eq!(request(&["--user", "ann:open sesame"]).0, 200);
    let (_, page) = curl(&["--user", "ann:open sesame", &page]).unwrap();
    assert_eq!(Page::parse(&page).refused("unauthorized"), 4);
    let health = format!("http://{}/healthz", daemon.address);
    assert_eq!(curl(&[&health]).unwrap().0, 401, "every path needs the password, as with every exporter");
}

#[test]
fn guesses_on_many_connections_do_not_delay_a_scraper_that_was_accepted_before() {
    let pki = Pki::new();
    let daemon = pki.serve(&format!("basic_auth_users:\n  ann: {}\n", bcrypt::hash("open sesame", 12).unwrap()));
    let target = format!("http://{}/metrics", daemon.address);
    let scrape = |user: &str| curl(&["--user", user, &target]).unwrap();
    assert_eq!(scrape("ann:open sesame").0, 200);
    // More than the server has connections. `YW5uOmd1ZXNz` is ann:guess.
    let guesses: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut guess = TcpStream::connect(&daemon.address).unwrap();
            // The write fails if the daemon has already closed this connection to make room for another.
            let _ = guess.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic YW5uOmd1ZXNz\r\n\r\n");
            guess
        })
        .collect();
    for _ in 0..5 {
        assert_eq!(scrape("ann:open sesame").0, 200);
    }
    let unanswered = |guess: &&TcpStream| {
        guess.set_nonblocking(true).unwrap();
        guess.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    assert_ne!(guesses.iter().filter(unanswered).count(), 0, "the scrapes waited for all guesses");
    assert!(Page::parse(&scrape("ann:open sesame").1).refused("overloaded") > 200);
}

#[test]
fn the_health_address_needs_neither_tls_nor_a_password() {
    let pki = Pki::new();
    let config = pki.write("web.yml", &format!("{TLS}{}", users()));
    let socket = pki.path("health.sock");
    let address = format!("unix:{socket}");
    let daemon = Daemon::start(&["--source", SESSION, "--web.config.file", &config, "--web.health-address", &address]);
    let status_of = |path: &str| curl(&["--unix-socket", &socket, &format!("http://localhost{path}")]).unwrap().0;
    until(|| ensure(status_of("/readyz") == 200, || "not ready".to_owned()));
    assert_eq!((status_of("/healthz"), status_of("/metrics"), status_of("/")), (200, 404, 404));
    drop(daemon);
}

#[test]
fn requests_above_the_rate_limit_get_429() {
    let pki = Pki::new();
    let daemon = pki.serve("rate_limit:\n  interval: 1h\n  burst: 3\n");
    let statuses: Vec<u16> = (0..5).map(|_| daemon.get("/healthz").status).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
}

#[test]
fn both_versions_of_tls_are_enabled_by_default_and_http2_is_accepted_and_ignored() {
    let pki = Pki::new();
    let ca = pki.path("ca.pem");
    let daemon = pki.serve(TLS);
    for tls in [&["--tlsv1.2", "--tls-max", "1.2"], &["--tlsv1.3", "--tls-max", "1.3"]] {
        assert_eq!(status(&daemon, &ca, tls), Ok(200), "{tls:?}");
    }
    drop(daemon);

    let daemon = pki.serve(&format!("{TLS}  min_version: TLS13\nhttp_server_config:\n  http2: true\n"));
    assert_eq!(status(&daemon, &ca, &["--tlsv1.3"]), Ok(200));
    assert!(status(&daemon, &ca, &["--tlsv1.2", "--tls-max", "1.2"]).is_err());
    let (_, response) =
        curl(&["--cacert", &ca, "--http2", "--include", &format!("https://{}/healthz", daemon.address)]).unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

#[test]
fn plain_http_on_the_tls_port_gets_an_explanation_and_is_counted() {
    let pki = Pki::new();
    let daemon = pki.serve(TLS);
    let (status, body) = curl(&[&format!("http://{}/metrics", daemon.address)]).unwrap();
    assert_eq!((status, body.as_str()), (400, "Client sent an HTTP request to an HTTPS server.\n"));
    let (_, page) = curl(&["--cacert", &pki.path("ca.pem"), &format!("https://{}/metrics", daemon.address)]).unwrap();
    assert_eq!(Page::parse(&page).refused("tls_handshake"), 1);
}

/// Tests whether the daemon accepts each kind of client certificate: none, from another CA, expired, valid, and valid
/// with another name.
fn accepted(pki: &Pki, policy: &str) -> [bool; 5] {
    let daemon = pki.serve(&format!("{TLS}{policy}"));
    ["", "stranger", "expired", "client", "other"].map(|client| status_for(&daemon, pki, client) == Ok(200))
}

#[test]
fn each_client_auth_type_accepts_the_right_certificates() {
    let pki = Pki::new();
    let folder = pki.folder.path();
    let name = |name: &str| SanType::DnsName(name.try_into().unwrap());
    Authority::new(folder, "another-ca").sign(folder, "stranger", name("prometheus.example"), 2099);
    pki.ca.sign(folder, "expired", name("prometheus.example"), 2021);
    pki.ca.sign(folder, "client", name("prometheus.example"), 2099);
    pki.ca.sign(folder, "other", name("grafana.example"), 2099);
    let policy = |policy: &str| format!("  client_auth_type: {policy}\n");
    let verified = |policy: &str| format!("  client_auth_type: {policy}\n  client_ca_file: ca.pem\n");
    // curl always sends the certificate that --cert names, even if the server does not list its CA.
    assert_eq!(accepted(&pki, &policy("NoClientCert")), [true; 5]);
    assert_eq!(accepted(&pki, &policy("RequestClientCert")), [true; 5]);
    assert_eq!(accepted(&pki, &policy("RequireAnyClientCert")), [false, true, true, true, true]);
    assert_eq!(accepted(&pki, &verified("VerifyClientCertIfGiven")), [true, false, false, true, true]);
    assert_eq!(accepted(&pki, &verified("RequireAndVerifyClientCert")), [false, false, false, true, true]);
    let sans = format!("{}  client_allowed_sans: [prometheus.example]\n", verified("RequireAndVerifyClientCert"));
    assert_eq!(accepted(&pki, &sans), [false, false, false, true, false]);
    let sans_if_given = sans.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven");
    assert_eq!(accepted(&pki, &sans_if_given), [false, false, false, true, false]);
}

#[test]
fn the_client_ca_file_may_contain_a_clients_own_certificate() {
    let pki = Pki::new();
    for (name, year) in [("self", 2099), ("self-expired", 2021)] {
        Authority::until(pki.folder.path(), name, year);
    }
    let certificates =
        ["ca.pem", "self.pem", "self-expired.pem"].map(|name| fs::read_to_string(pki.path(name)).unwrap());
    pki.write("clients.pem", &certificates.concat());
    let daemon =
        pki.serve(&format!("{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: clients.pem\n"));
    assert_eq!(status_for(&daemon, &pki, "self"), Ok(200));
    assert!(status_for(&daemon, &pki, "self-expired").is_err());
    // The client must still prove that it has the private key.
    fs::copy(pki.path("self-expired.key"), pki.path("self.key")).unwrap();
    assert!(status_for(&daemon, &pki, "self").is_err());
}

#[test]
fn allowed_sans_may_be_ip_addresses_mail_addresses_and_uris() {
    let pki = Pki::new();
    let folder = pki.folder.path();
    pki.ca.sign(folder, "address", SanType::IpAddress("2001:db8::7".parse().unwrap()), 2099);
    pki.ca.sign(folder, "mail", SanType::Rfc822Name("ops@example.org".try_into().unwrap()), 2099);
    pki.ca.sign(folder, "uri", SanType::URI("spiffe://example.org/prometheus".try_into().unwrap()), 2099);
    let daemon = pki.serve(&format!(
        "{TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n  client_allowed_sans:\n    \
         ['2001:db8::7', ops@example.org, 'spiffe://example.org/prometheus']\n"
    ));
    for client in ["address", "mail", "uri"] {
        assert_eq!(status_for(&daemon, &pki, client), Ok(200), "{client}");
    }
    assert!(status_for(&daemon, &pki, "server").is_err(), "a name that is not listed");
}

#[test]
fn certificate_and_key_may_be_inline() {
    let pki = Pki::new();
    let inline = |name: &str| fs::read_to_string(pki.path(name)).unwrap().replace('\n', "\n    ");
    let config = format!(
        "tls_server_config:\n  cert: |\n    {}\n  key: |\n    {}\n",
        inline("server.pem"),
        inline("server.key")
    );
    assert_eq!(status(&pki.serve(&config), &pki.path("ca.pem"), &[]), Ok(200));
}

#[test]
fn a_new_certificate_is_loaded_without_a_failed_request() {
    let pki = Pki::new();
    let daemon = pki.serve(TLS);
    let new = Authority::new(pki.folder.path(), "new-ca");
    let both = [pki.path("ca.pem"), pki.path("new-ca.pem")].map(|path| fs::read_to_string(path).unwrap()).concat();
    let both = pki.write("both.pem", &both);
    let (ended, scraped) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    assert_eq!(status(&daemon, &both, &[]), Ok(200));
                    scraped.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let more = || {
            let before = scraped.load(Ordering::Relaxed);
            until(|| ensure(scraped.load(Ordering::Relaxed) > before + 10, || "no scrapes".to_owned()));
        };
        more();
        // The test replaces the certificate long before its key, so for a while they do not match.
        let key = fs::read(pki.path("server.key")).unwrap();
        new.sign(pki.folder.path(), "server", local(), 2099);
        let new_key = fs::read(pki.path("server.key")).unwrap();
        fs::write(pki.path("server.key"), key).unwrap();
        until(|| ensure(daemon.logged(&["keeping the previous one"]) > 0, || "the change is not detected".to_owned()));
        more();
        fs::write(pki.path("server.key"), new_key).unwrap();
        let only_new = pki.path("new-ca.pem");
        until(|| status(&daemon, &only_new, &[]).and_then(|status| ensure(status == 200, || status.to_string())));
        more();
        ended.store(true, Ordering::Relaxed);
    });
    assert!(status(&daemon, &pki.path("ca.pem"), &[]).is_err(), "the old certificate is still served");
    daemon.until_logged(&["is valid again"]);
}

#[test]
fn a_file_that_becomes_invalid_makes_every_request_fail_until_it_is_fixed() {
    let pki = Pki::new();
    let good = format!("{}http_server_config:\n", users());
    let daemon = pki.serve(&good);
    let page = format!("http://{}/metrics", daemon.address);
    let now = || curl(&["--user", "ann:open sesame", &page]).unwrap().0;
    assert_eq!(now(), 200);
    // An empty file would remove the password.
    pki.write("web.yml", "");
    until(|| ensure(now() == 500, || "the change is not detected".to_owned()));
    assert_eq!(curl(&[&page]).unwrap().0, 500);
    pki.write("web.yml", &good);
    until(|| ensure(now() == 200, || "the fix is not detected".to_owned()));
    daemon.until_logged(&["level=error", "refusing all requests"]);
    daemon.until_logged(&["is valid again"]);
    assert!(Page::parse(&curl(&["--user", "ann:open sesame", &page]).unwrap().1).refused("web_config") >= 2);
    // After a change, only the new password is accepted.
    pki.write("web.yml", &format!("basic_auth_users:\n  ann: {}\n", bcrypt::hash("changed", 4).unwrap()));
    until(|| ensure(now() == 401, || "the old password is still accepted".to_owned()));
    assert_eq!(curl(&["--user", "ann:changed", &page]).unwrap().0, 200);
}

#[test]
fn a_file_that_is_created_later_is_loaded() {
    let pki = Pki::new();
    let daemon = pki.serve(TLS);
    let ca = pki.path("ca.pem");
    assert_eq!(status(&daemon, &ca, &[]), Ok(200));
    pki.write("web.yml", &format!("{TLS}  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: later.pem\n"));
    until(|| ensure(status(&daemon, &ca, &[]).is_err(), || "the change is not detected".to_owned()));
    // The missing file is created long after web.yml changed, so only its own creation can cause the reload.
    std::thread::sleep(std::time::Duration::from_millis(3500));
    assert!(status(&daemon, &ca, &[]).is_err());
    pki.write("later.pem", &fs::read_to_string(&ca).unwrap());
    until(|| status(&daemon, &ca, &[]).and_then(|status| ensure(status == 200, || status.to_string())));
}

#[test]
fn with_tls_a_file_that_becomes_invalid_makes_handshakes_fail() {
    let pki = Pki::new();
    let daemon = pki.serve(TLS);
    let ca = pki.path("ca.pem");
    assert_eq!(status(&daemon, &ca, &[]), Ok(200));
    // An empty file is valid and means plain HTTP. A reload must not switch TLS off.
    pki.write("web.yml", "");
    until(|| ensure(status(&daemon, &ca, &[]).is_err(), || "the change is not detected".to_owned()));
    assert_eq!(curl(&[&format!("http://{}/metrics", daemon.address)]).unwrap().0, 400);
    pki.write("web.yml", TLS);
    until(|| status(&daemon, &ca, &[]).and_then(|status| ensure(status == 200, || status.to_string())));
    let (_, page) = curl(&["--cacert", &ca, &format!("https://{}/metrics", daemon.address)]).unwrap();
    assert!(
        Page::parse(&page).refused("tls_handshake") >= 1 && Page::parse(&page).refused("web_config") >= 1,
        "{page}"
    );
}
