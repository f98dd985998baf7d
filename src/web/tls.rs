//! `tls_server_config` as rustls takes it: the server's own certificate, and on what terms it speaks. The toolkit's names
//! for cipher suites and curves are Go's; those that rustls leaves out for their weakness are known and not offered.

use std::sync::Arc;

use tokio_rustls::rustls;
use tokio_rustls::rustls::crypto::{CryptoProvider, SupportedKxGroup, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, ServerConfig};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{SupportedCipherSuite, SupportedProtocolVersion};

use super::client_certificates::verifier;
use super::config::{ClientAuth, Pem, TlsConfig, Wrong};

/// Go's cipher suites that rustls does not have: CBC, or without forward secrecy.
const NEVER_OFFERED: [&str; 8] = [
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
];

/// What rustls takes, where Go takes older and rarer kinds too.
const USABLE: &str = "X.509 version 3 and a key that is RSA of at least 2048 bits, P-256, P-384 or Ed25519";

/// The server's certificate and key.
pub(crate) type Identity = Arc<CertifiedKey>;

/// Reads the certificate and its key.
///
/// # Errors
/// When one cannot be read, or they do not belong together.
pub(crate) fn identity(tls: &TlsConfig) -> Result<Identity, Wrong> {
    let chain = certificates(&tls.cert, "tls_server_config.cert_file")?;
    let key_name = "tls_server_config.key_file";
    let key = PrivateKeyDer::from_pem_slice(&read(&tls.key, key_name)?).map_err(|error| {
        let why = format!("{:?} holds no private key in PEM ({}); were the files swapped?", tls.key, what(&error));
        Wrong::new(key_name, why)
    })?;
    let identity = CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            Wrong::new(key_name, format!("{:?} is not the key of {:?}; name the pair", tls.key, tls.cert))
        }
        other => {
            let why = format!("{:?} and its key cannot be used: {other}; make one with {USABLE}", tls.cert);
            Wrong::new("tls_server_config.cert_file", why)
        }
    })?;
    Ok(Arc::new(identity))
}

/// On what terms connections are accepted as `identity`.
///
/// # Errors
/// When the client CA cannot be read, or nothing would be left to offer.
pub(crate) fn terms(tls: &TlsConfig, http2: bool, identity: Identity) -> Result<ServerConfig, Wrong> {
    let default = ring::default_provider();
    let provider = Arc::new(CryptoProvider {
        cipher_suites: cipher_suites(tls, &default.cipher_suites)?,
        kx_groups: curves(&tls.curves, &default.kx_groups)?,
        ..default
    });
    let spoken = [(tls.tls13, &TLS13), (tls.tls12, &TLS12)];
    let versions: Vec<&SupportedProtocolVersion> =
        spoken.into_iter().filter_map(|(on, version)| on.then_some(version)).collect();
    let unusable = |error| Wrong::new("tls_server_config.cipher_suites", format!("{error}; remove it"));
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_protocol_versions(&versions).map_err(unusable)?;
    let builder = match tls.client_auth {
        ClientAuth::None => builder.with_no_client_auth(),
        _ => builder.with_client_cert_verifier(verifier(tls, &provider)?),
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(identity)));
    // The names are Go's: true means that the server's order of cipher suites holds.
    config.ignore_client_order = tls.prefer_server_order;
    config.alpn_protocols = if http2 { vec![b"h2".to_vec(), b"http/1.1".to_vec()] } else { vec![b"http/1.1".to_vec()] };
    if tls.client_auth != ClientAuth::None {
        // A resumed session would not show its certificate again, which may have expired meanwhile.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

/// At least one certificate.
pub(crate) fn certificates(pem: &Pem, key: &str) -> Result<Vec<CertificateDer<'static>>, Wrong> {
    let text = read(pem, key)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found =
        found.map_err(|error| Wrong::new(key, format!("{pem:?} is no PEM ({}); write it anew", what(&error))))?;
    if found.is_empty() {
        return Err(Wrong::new(key, format!("{pem:?} holds no certificate in PEM; were the files swapped?")));
    }
    Ok(found)
}

/// What is wrong with a PEM, without a byte of it: it may be a private key, and an error is logged.
fn what(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no end; are the line breaks still there?",
        pem::Error::IllegalSectionStart { .. } => "the first line of a section is malformed",
        pem::Error::Base64Decode(_) => "a section is not Base64",
        pem::Error::SectionTooLarge => "a section is too long",
        pem::Error::NoItemsFound => "there is none",
        _ => "it cannot be read",
    }
}

fn read(pem: &Pem, key: &str) -> Result<Vec<u8>, Wrong> {
    match pem {
        Pem::Inline(text) => Ok(text.clone().into_bytes()),
        Pem::File(path) => std::fs::read(path).map_err(|error| {
            Wrong::new(
                key,
                format!("{} cannot be read: {error}; relative paths begin at this file's folder", path.display()),
            )
        }),
    }
}

/// Those of TLS 1.3 are always offered; the list chooses among those of TLS 1.2.
fn cipher_suites(tls: &TlsConfig, offered: &[SupportedCipherSuite]) -> Result<Vec<SupportedCipherSuite>, Wrong> {
    let wrong = |why: String| Wrong::new("tls_server_config.cipher_suites", why);
    if tls.cipher_suites.is_empty() {
        return Ok(offered.to_vec());
    }
    let (mut chosen, choice): (Vec<SupportedCipherSuite>, Vec<SupportedCipherSuite>) =
        offered.iter().partition(|suite| suite.tls13().is_some());
    let names = || choice.iter().map(|suite| go_name(*suite)).collect::<Vec<_>>().join(", ");
    let mut of_tls12 = 0;
    for name in &tls.cipher_suites {
        if let Some(suite) = choice.iter().find(|suite| go_name(**suite) == *name) {
            chosen.push(*suite);
            of_tls12 += 1;
        } else if NEVER_OFFERED.contains(&name.as_str()) {
            tracing::debug!(cipher_suite = name, "not offered, for it is weak");
        } else if !chosen.iter().any(|suite| go_name(*suite) == *name) {
            return Err(wrong(format!("{name:?} is unknown; choose from {}", names())));
        }
    }
    if tls.tls12 && !tls.tls13 && of_tls12 == 0 {
        return Err(wrong(format!("leaves none for TLS 1.2; choose from {}, or allow TLS13", names())));
    }
    Ok(chosen)
}

/// rustls writes TLS 1.3 suites `TLS13_…`, Go `TLS_…`.
fn go_name(suite: SupportedCipherSuite) -> String {
    let name = suite.suite().as_str().unwrap_or_default();
    match name.strip_prefix("TLS13_") {
        Some(rest) => format!("TLS_{rest}"),
        None => name.to_owned(),
    }
}

fn curves(
    names: &[String],
    offered: &[&'static dyn SupportedKxGroup],
) -> Result<Vec<&'static dyn SupportedKxGroup>, Wrong> {
    use rustls::NamedGroup::{X25519, secp256r1, secp384r1};
    const KEY: &str = "tls_server_config.curve_preferences";
    const KNOWN: &str = "choose from X25519, CurveP256, CurveP384";
    let mut chosen = Vec::new();
    for name in names {
        let group = match name.as_str() {
            "X25519" => X25519,
            "CurveP256" => secp256r1,
            "CurveP384" => secp384r1,
            "CurveP521" => {
                tracing::debug!(curve = name, "not offered");
                continue;
            }
            other => return Err(Wrong::new(KEY, format!("{other:?} is unknown; {KNOWN}"))),
        };
        chosen.extend(offered.iter().find(|curve| curve.name() == group));
    }
    match (names.is_empty(), chosen.is_empty()) {
        (true, _) => Ok(offered.to_vec()),
        (false, true) => Err(Wrong::new(KEY, format!("CurveP521 alone cannot be served; {KNOWN}"))),
        (false, false) => Ok(chosen),
    }
}
