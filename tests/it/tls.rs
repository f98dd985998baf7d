//! TLS with real Prometheus servers and with peers that stall. Authorized servers scrape without a gap. The daemon
//! refuses and counts other servers, and closes stalled connections when their deadline passes.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rcgen::SanType;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::connections::a_thousand_slow_clients_are_closed;
use crate::support::daemon::Daemon;
use crate::support::page::Page;
use crate::support::pki::{Authority, Pki, TLS, local, users};
use crate::support::prometheus::{Prometheus, prometheus_2, prometheus_3};
use crate::support::{TIMEOUT, ensure, until};

const MTLS: &str = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n";

type TlsPeer = StreamOwned<ClientConnection, TcpStream>;

/// A TLS connection after its handshake. The client offers only `protocol` in the handshake (ALPN).
fn connect_tls(pki: &Pki, daemon: &Daemon, protocol: &str) -> std::io::Result<TlsPeer> {
    let mut roots = RootCertStore::empty();
    let pem = fs::read(pki.path("ca.pem")).unwrap();
    roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let name = ServerName::IpAddress(std::net::IpAddr::from([127, 0, 0, 1]).into());
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(&daemon.address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut peer = StreamOwned::new(connection, stream);
    peer.conn.complete_io(&mut peer.sock)?;
    Ok(peer)
}

/// Scrapes the page over a new connection.
fn scrape(pki: &Pki, daemon: &Daemon) -> Page {
    let mut peer = connect_tls(pki, daemon, "http/1.1").unwrap();
    peer.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    peer.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    Page::parse(response.split_once("\r\n\r\n").unwrap().1)
}

/// A scrape job with these settings.
fn job(name: &str, daemon: &Daemon, settings: &str) -> String {
    format!("- {{job_name: {name}, static_configs: [{{targets: ['{}']}}], {settings}}}\n", daemon.address)
}

fn config(jobs: &[String]) -> String {
    format!("global: {{scrape_interval: 250ms, scrape_timeout: 250ms}}\nscrape_configs:\n{}", jobs.concat())
}

#[test]
fn prometheus_with_certificate_and_password_is_accepted_and_others_are_refused_and_counted() {
    let pki = Pki::new();
    let folder = pki.folder.path();
    let name = || SanType::DnsName("prometheus.example".try_into().unwrap());
    pki.ca.sign(folder, "client", name(), 2099);
    pki.ca.sign(folder, "expired", name(), 2021);
    Authority::new(folder, "another-ca").sign(folder, "stranger", name(), 2099);
    let daemon = pki.serve(&format!("{TLS}{MTLS}{}", users()));
    let secure = |name: &str, password: &str, client: &str| {
        let certificate = match client {
            "" => String::new(),
            client => {
                let path = |end: &str| pki.path(&format!("{client}.{end}"));
                format!(", cert_file: '{}', key_file: '{}'", path("pem"), path("key"))
            }
        };
        let ca = pki.path("ca.pem");
        let password = format!("basic_auth: {{username: ann, password: '{password}'}}");
        job(name, &daemon, &format!("scheme: https, {password}, tls_config: {{ca_file: '{ca}'{certificate}}}"))
    };
    let prometheus = Prometheus::start(
        &prometheus_3(),
        &config(&[
            secure("authorized", "open sesame", "client"),
            secure("password", "wrong", "client"),
            secure("certificate", "open sesame", ""),
            secure("stranger", "open sesame", "stranger"),
            secure("expired", "open sesame", "expired"),
            job("plain", &daemon, "scheme: http"),
        ]),
    );
    for (name, health, error) in [
        ("authorized", "up", ""),
        ("password", "down", "401"),
        ("certificate", "down", "certificate required"),
        ("stranger", "down", "tls: "),
        ("expired", "down", "expired certificate"),
        ("plain", "down", "400"),
    ] {
        until(|| {
            let (actual, reason) = prometheus.target(name)?;
            ensure(actual == health && reason.contains(error), || format!("{name}: {actual} {reason}"))
        });
    }
    // The daemon has refused each of the other servers at least once. The authorized job has stored these counts.
    let count = |reason: &str| format!("trtllm_exporter_http_refused_total{{job=\"authorized\",reason=\"{reason}\"}}");
    until(|| {
        let (handshakes, passwords) =
            (prometheus.value(&count("tls_handshake"), None), prometheus.value(&count("unauthorized"), None));
        let counted = handshakes.is_some_and(|count| count >= 4.0) && passwords.is_some_and(|count| count >= 1.0);
        ensure(counted, || format!("{handshakes:?} handshakes and {passwords:?} passwords refused"))
    });
}

#[test]
fn prometheus_refuses_our_expired_certificate_and_we_count_the_failed_handshake() {
    let pki = Pki::new();
    pki.ca.sign(pki.folder.path(), "server", local(), 2021);
    let daemon = pki.serve(TLS);
    let tls = format!("scheme: https, tls_config: {{ca_file: '{}'", pki.path("ca.pem"));
    let jobs = [
        job("strict", &daemon, &format!("{tls}}}")),
        job("lenient", &daemon, &format!("{tls}, insecure_skip_verify: true}}")),
    ];
    let prometheus = Prometheus::start(&prometheus_2(), &config(&jobs));
    until(|| {
        let (health, reason) = prometheus.target("strict")?;
        ensure(health == "down" && reason.contains("expired"), || format!("{health} {reason}"))
    });
    until(|| {
        let count =
            prometheus.value("trtllm_exporter_http_refused_total{job=\"lenient\",reason=\"tls_handshake\"}", None);
        ensure(count.is_some_and(|count| count >= 1.0), || format!("{count:?} handshakes refused"))
    });
}

#[test]
fn a_thousand_stalled_handshakes_are_closed_by_their_deadline_and_other_scrapes_succeed() {
    let pki = Pki::new();
    let daemon = pki.serve(TLS);
    // The start of a ClientHello of 16 KiB.
    let start = [22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc, 3, 3];
    a_thousand_slow_clients_are_closed(&daemon, &start, 0, || scrape(&pki, &daemon));
}

#[test]
fn idle_and_stalled_tls_connections_do_not_delay_shutdown() {
    let pki = Pki::new();
    let mut daemon = pki.serve(TLS);
    let silent = TcpStream::connect(&daemon.address).unwrap();
    let mut hello = TcpStream::connect(&daemon.address).unwrap();
    // This peer sends only the first bytes of a handshake.
    hello.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    let mut incomplete = connect_tls(&pki, &daemon, "http/1.1").unwrap();
    incomplete.write_all(b"GET /met").unwrap();
    incomplete.flush().unwrap();
    let idle = connect_tls(&pki, &daemon, "http/1.1").unwrap();
    scrape(&pki, &daemon);
    assert_eq!(daemon.terminate().code(), Some(0));
    drop((silent, hello, incomplete, idle));
}
