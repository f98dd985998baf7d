//! TLS of a client: which certificates it accepts, and what a failed handshake means.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};
use x509_parser::prelude::{ASN1Time, FromDer as _, X509Certificate};

use super::error::SourceError;
use trtllm_service::small_file;

/// Trusts the certificates in `ca_file`, or the authorities of the system. Fails if there are none.
pub(super) fn client_config(ca_file: Option<&Path>) -> io::Result<ClientConfig> {
    let Some(path) = ca_file else {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return with_roots(roots);
    };
    let text = small_file::read(path)?;
    let given: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let given = given.map_err(|_| io::Error::other("it is not PEM"))?;
    let mut roots = RootCertStore::empty();
    given.iter().try_for_each(|certificate| roots.add(certificate.clone()).map_err(io::Error::other))?;
    let mut config = with_roots(roots.clone())?;
    let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider())).build();
    let verifier = Verifier { chain: chain.map_err(io::Error::other)?, given };
    config.dangerous().set_certificate_verifier(Arc::new(verifier));
    Ok(config)
}

fn with_roots(roots: RootCertStore) -> io::Result<ClientConfig> {
    if roots.is_empty() {
        return Err(io::Error::other("no certificate found"));
    }
    let config =
        ClientConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions();
    Ok(config.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth())
}

/// Accepts what webpki accepts, and each certificate that the file contains byte for byte. `openssl req -x509` makes a
/// server's certificate that is an authority, too. webpki refuses such a server; OpenSSL and Go accept it.
#[derive(Debug)]
struct Verifier {
    chain: Arc<WebPkiServerVerifier>,
    /// The certificates of the file.
    given: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.chain.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(_) if self.given.iter().any(|given| given == certificate) => {
                is_valid_server(certificate, now)?;
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// Fails unless the certificate is valid now and may be used by a server.
fn is_valid_server(certificate: &[u8], now: UnixTime) -> Result<(), Error> {
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).ok().and_then(|now| ASN1Time::from_timestamp(now).ok());
    let now = now.ok_or(Error::FailedToGetCurrentTime)?;
    let validity = certificate.validity();
    if now < validity.not_before {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after {
        return Err(CertificateError::Expired.into());
    }
    let purposes = certificate.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    match purposes.is_none_or(|purposes| purposes.value.any || purposes.value.server_auth) {
        true => Ok(()),
        false => Err(CertificateError::InvalidPurpose.into()),
    }
}

/// Why the handshake with `target` failed, and what to do.
pub(super) fn handshake_error(target: &str, error: &io::Error) -> SourceError {
    let target = target.to_owned();
    match error.get_ref().and_then(|error| error.downcast_ref()) {
        Some(Error::InvalidMessage(_)) => SourceError::SpeaksHttp { target },
        Some(error @ Error::InvalidCertificate(why)) => {
            let is_authority = matches!(why, CertificateError::Other(_)) && error.to_string().contains(AUTHORITY);
            let cause = match is_authority {
                true => format!("it is self-signed or an authority ({AUTHORITY}), and no trusted file contains it"),
                false => error.to_string(),
            };
            SourceError::Certificate { target, cause, remedy: if is_authority { TRUST } else { remedy(why) } }
        }
        _ => SourceError::Connect { target, cause: super::error::root_cause(error) },
    }
}

/// The name of webpki's error for a server with the certificate of an authority.
const AUTHORITY: &str = "CaUsedAsEndEntity";
const TRUST: &str = "name a PEM file that contains this certificate or that of its authority: ca_file in --source, \
                     --ca-file of trtllm-doctor";

fn remedy(why: &CertificateError) -> &'static str {
    use CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet, NotValidYetContext,
    };
    match why {
        NotValidForName | NotValidForNameContext { .. } => {
            "use one of its names in the URL, or issue it with the name of the URL (subjectAltName)"
        }
        Expired | ExpiredContext { .. } => "renew it, or correct the clock of this host",
        NotValidYet | NotValidYetContext { .. } => "correct the clocks of both hosts",
        _ => TRUST,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;

    use super::*;
    use crate::http_client::HttpClient;
    use crate::server::{Access, TargetServer};

    /// A certificate and its key as PEM.
    struct Identity {
        certificate: String,
        key: String,
    }

    /// The same kind of certificate, made without openssl.
    fn self_signed(change: impl FnOnce(&mut rcgen::CertificateParams)) -> Identity {
        let mut params = rcgen::CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        change(&mut params);
        let key = rcgen::KeyPair::generate().unwrap();
        Identity { certificate: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
    }

    /// Reads a page from a server with this identity. `trusted`: the text of the client's ca_file.
    async fn read(identity: &Identity, host: &str, trusted: &str) -> Result<Vec<u8>, SourceError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(chain, key).unwrap()));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]").await.unwrap();
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let ca_file = folder.path().join("ca.pem");
        std::fs::write(&ca_file, trusted).unwrap();
        let target = format!("https://{host}:{port}");
        let access = Access { target, ca_file: Some(ca_file), bearer_token_file: None };
        let mut client = HttpClient::new(TargetServer::new(access).await.unwrap());
        let page = client.read("/metrics").await.map(<[u8]>::to_vec);
        serving.abort();
        page
    }

    #[tokio::test]
    async fn name_validity_and_purpose_of_a_certificate_in_the_ca_file_are_checked() {
        use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
        let year = rcgen::date_time_ymd;
        for (identity, host, why, remedy) in [
            (self_signed(|params| params.not_after = year(2021, 1, 1)), "localhost", "expired", "renew it"),
            (self_signed(|params| params.not_before = year(3021, 1, 1)), "localhost", "notvalidyet", "clocks"),
            (
                self_signed(|params| params.subject_alt_names.truncate(1)),
                "127.0.0.1",
                "not valid for name",
                "subjectAltName",
            ),
            (self_signed(|params| params.extended_key_usages = vec![ClientAuth]), "localhost", "purpose", "PEM file"),
        ] {
            let error = read(&identity, host, &identity.certificate).await.unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, SourceError::Certificate { .. }), "{text}");
            assert!(text.to_lowercase().contains(why) && text.contains(remedy), "{text}");
        }
        // The control: the purpose of a server.
        let server = self_signed(|params| params.extended_key_usages = vec![ServerAuth]);
        read(&server, "localhost", &server.certificate).await.unwrap();
    }

    /// Answers each connection with `answer`, after the first bytes of the client.
    async fn answering(answer: &'static [u8]) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(answer).await;
            }
        });
        port
    }

    const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

    #[tokio::test]
    async fn a_plain_client_is_told_that_a_port_speaks_https_and_the_other_way_round() {
        let go = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n".as_slice();
        // Servers with TLS close the connection, send an alert, or explain it in plain HTTP.
        for answer in [b"".as_slice(), &[21, 3, 1, 0, 2, 2, 40], go] {
            let target = format!("http://127.0.0.1:{}", answering(answer).await);
            let mut client = HttpClient::new(TargetServer::plain(target.clone()));
            for _ in 0..2 {
                let text = client.read("/metrics").await.unwrap_err().to_string();
                assert!(text.contains(&target) && text.contains("speaks https, write https://"), "{text}");
            }
        }
        let plain = answering(PLAIN).await;
        // The other way round.
        let folder = tempfile::tempdir().unwrap();
        let ca_file = folder.path().join("ca.pem");
        std::fs::write(&ca_file, self_signed(|_| {}).certificate).unwrap();
        let access =
            Access { target: format!("https://127.0.0.1:{plain}"), ca_file: Some(ca_file), bearer_token_file: None };
        let mut client = HttpClient::new(TargetServer::new(access).await.unwrap());
        let error = client.read("/metrics").await.unwrap_err();
        assert!(error.to_string().contains("does not speak https; write http://"), "{error}");
    }
}
