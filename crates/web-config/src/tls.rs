//! Translates `tls_server_config` for rustls: the server's certificate, protocol versions, cipher suites and curves. The
//! configuration uses Go's names for suites and curves.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, SupportedKxGroup, ring};
use tokio_rustls::rustls::server::{NoServerSessionStorage, ServerConfig};
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{self, SupportedCipherSuite, SupportedProtocolVersion};

use crate::client_certificates::verifier;
use crate::error::Error;
use crate::file::{ClientAuth, TlsSection};
use crate::pem::WatchedFiles;

/// Cipher suites of Go that rustls lacks because they use CBC or have no forward secrecy. They are accepted and ignored.
const WEAK: [&str; 8] = [
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
];

/// The certificates that rustls accepts. Go accepts older and rarer kinds, too.
const SUPPORTED: &str = "X.509 version 3 and an RSA key of at least 2048 bits, or a P-256, P-384 or Ed25519 key";

/// `tls_server_config` for rustls.
pub(crate) struct Tls {
    /// The server's certificate and key.
    identity: Arc<CertifiedKey>,
    pub(crate) config: Arc<ServerConfig>,
}

impl Tls {
    /// Reads the files that `tls` names. If only the certificate or its key is invalid, those of `previous` stay in use, and the
    /// second value of the result says why.
    pub(crate) fn load(
        tls: &TlsSection,
        previous: Option<&Self>,
        files: &mut WatchedFiles,
    ) -> Result<(Self, Option<Error>), Error> {
        let (identity, warning) = match (identity(tls, files), previous) {
            (Err(error), Some(previous)) => (Arc::clone(&previous.identity), Some(error)),
            (identity, _) => (identity?, None),
        };
        let config = server_config(tls, Arc::clone(&identity), files)?;
        Ok((Self { identity, config: Arc::new(config) }, warning))
    }
}

/// Reads the certificate and its key.
fn identity(tls: &TlsSection, files: &mut WatchedFiles) -> Result<Arc<CertifiedKey>, Error> {
    let chain = files.certificates(&tls.cert, "cert")?;
    let key = files.private_key(&tls.key, "key")?;
    let identity = CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            Error::new(tls.key.key("key"), format!("{:?} is not the key of {:?}; name a pair", tls.key, tls.cert))
        }
        other => {
            let why = format!("{:?} and its key are not supported: {other}; use {SUPPORTED}", tls.cert);
            Error::new(tls.cert.key("cert"), why)
        }
    })?;
    Ok(Arc::new(identity))
}

fn server_config(
    tls: &TlsSection,
    identity: Arc<CertifiedKey>,
    files: &mut WatchedFiles,
) -> Result<ServerConfig, Error> {
    let default = ring::default_provider();
    let provider = CryptoProvider {
        cipher_suites: cipher_suites(tls, &default.cipher_suites)?,
        kx_groups: curves(&tls.curves, &default.kx_groups)?,
        ..default
    };
    let versions: Vec<&SupportedProtocolVersion> = [(tls.tls13, &TLS13), (tls.tls12, &TLS12)]
        .into_iter()
        .filter_map(|(on, version)| on.then_some(version))
        .collect();
    let unusable = |error| Error::new("tls_server_config.cipher_suites", format!("{error}; remove it"));
    let builder = ServerConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_protocol_versions(&versions).map_err(unusable)?;
    let builder = match tls.client_auth {
        ClientAuth::None => builder.with_no_client_auth(),
        _ => builder.with_client_cert_verifier(verifier(tls, &ring::default_provider().into(), files)?),
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(identity)));
    // Go documents that `true` means that the server's order of cipher suites decides.
    config.ignore_client_order = tls.prefer_server_order;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if tls.client_auth != ClientAuth::None {
        // A resumed session would not send the client's certificate again, which may have expired in the meantime.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

/// All suites of TLS 1.3 are always offered. The list selects among those of TLS 1.2.
fn cipher_suites(tls: &TlsSection, offered: &[SupportedCipherSuite]) -> Result<Vec<SupportedCipherSuite>, Error> {
    let invalid = |why: String| Error::new("tls_server_config.cipher_suites", why);
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
        } else if !WEAK.contains(&name.as_str()) && !chosen.iter().any(|suite| go_name(*suite) == *name) {
            return Err(invalid(format!("{name:?} is unknown; choose from {}", names())));
        }
    }
    if tls.tls12 && !tls.tls13 && of_tls12 == 0 {
        return Err(invalid(format!("leaves no suite for TLS 1.2; choose from {}, or allow TLS13", names())));
    }
    Ok(chosen)
}

/// rustls calls the suites of TLS 1.3 `TLS13_…`; Go calls them `TLS_…`.
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
) -> Result<Vec<&'static dyn SupportedKxGroup>, Error> {
    use rustls::NamedGroup::{X25519, secp256r1, secp384r1};
    const KEY: &str = "tls_server_config.curve_preferences";
    const KNOWN: &str = "choose from X25519, CurveP256, CurveP384";
    let mut chosen = Vec::new();
    for name in names {
        let group = match name.as_str() {
            "X25519" => X25519,
            "CurveP256" => secp256r1,
            "CurveP384" => secp384r1,
            "CurveP521" => continue,
            other => return Err(Error::new(KEY, format!("{other:?} is unknown; {KNOWN}"))),
        };
        chosen.extend(offered.iter().find(|curve| curve.name() == group));
    }
    match (names.is_empty(), chosen.is_empty()) {
        (true, _) => Ok(offered.to_vec()),
        (false, true) => Err(Error::new(KEY, format!("CurveP521 is not supported; {KNOWN}"))),
        (false, false) => Ok(chosen),
    }
}
