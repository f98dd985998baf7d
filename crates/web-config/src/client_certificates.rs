//! Verifies client certificates by `client_auth_type`, `client_ca` and `client_allowed_sans`. The first decides whether a known CA
//! must have signed the certificate. A client must always prove that it has the private key of its certificate.

use std::net::IpAddr;
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error as TlsError, RootCertStore, SignatureScheme,
};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{ASN1Time, FromDer as _, X509Certificate};

use crate::error::Error;
use crate::file::{ClientAuth, TlsSection};
use crate::pem::{Pem, WatchedFiles};

const CA: &str = "client_ca";

/// The verifier for `tls`, whose `client_auth` is not [`ClientAuth::None`]. Fails if the CA cannot be read.
pub(crate) fn verifier(
    tls: &TlsSection,
    provider: &Arc<CryptoProvider>,
    files: &mut WatchedFiles,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let given = tls.client_ca.as_ref().map(|pem| files.certificates(pem, CA)).transpose()?.unwrap_or_default();
    let chain = match &tls.client_ca {
        Some(pem) if tls.client_auth.verifies() => Some(chain(pem, &given, provider)?),
        _ => None,
    };
    let allowed_sans = tls.allowed_sans.clone();
    // Allowed names make a certificate mandatory, because a client without one has none of the names.
    let mandatory =
        matches!(tls.client_auth, ClientAuth::RequireAny | ClientAuth::RequireAndVerify) || allowed_sans.is_some();
    Ok(Arc::new(Verifier { chain, given, mandatory, allowed_sans, provider: Arc::clone(provider) }))
}

/// Accepts certificate chains that end at one of the certificates `given` in `pem`. As in Go, invalid certificates are skipped if
/// a valid one is left.
fn chain(
    pem: &Pem,
    given: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let (mut roots, mut invalid) = (RootCertStore::empty(), None);
    for certificate in given {
        if let Err(error) = roots.add(certificate.clone()) {
            tracing::debug!(%error, file = ?pem, "unusable certificate in client_ca skipped");
            invalid = Some(error);
        }
    }
    if let Some(error) = invalid.filter(|_| roots.is_empty()) {
        return Err(Error::new(pem.key(CA), format!("{pem:?} has an unusable certificate: {error}; replace it")));
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    builder.build().map_err(|error| Error::new(pem.key(CA), format!("{pem:?}: {error}; replace it")))
}

#[derive(Debug)]
struct Verifier {
    chain: Option<Arc<dyn ClientCertVerifier>>,
    /// The certificates of `client_ca`.
    given: Vec<CertificateDer<'static>>,
    mandatory: bool,
    /// The certificate must have one of these names. `None` accepts any name.
    allowed_sans: Option<Vec<String>>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        self.mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.as_ref().map_or(&[], |chain| chain.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        // As in Go, `client_ca` may list the client's own certificate instead of its CA. webpki does not support that.
        if let Some(chain) = &self.chain
            && !(self.given.iter().any(|given| given == certificate) && is_valid_client(certificate, now))
        {
            chain.verify_client_cert(certificate, intermediates, now)?;
        }
        if let Some(allowed) = &self.allowed_sans {
            let has = names(certificate).ok_or(CertificateError::BadEncoding)?;
            if !has.iter().any(|name| allowed.contains(name)) {
                return Err(CertificateError::ApplicationVerificationFailure.into());
            }
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether a certificate is valid now and may be used by a client.
fn is_valid_client(certificate: &[u8], now: UnixTime) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    let now = i64::try_from(now.as_secs()).ok().and_then(|now| ASN1Time::from_timestamp(now).ok());
    let current = now.is_some_and(|now| certificate.validity().is_valid_at(now));
    let purposes = certificate.extended_key_usage();
    current && purposes.is_ok_and(|found| found.is_none_or(|found| found.value.any || found.value.client_auth))
}

/// The DNS, e-mail, URI and IP names of a certificate; `None` if it cannot be parsed.
fn names(certificate: &[u8]) -> Option<Vec<String>> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let Some(extension) = certificate.subject_alternative_name().ok()? else { return Some(Vec::new()) };
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) | GeneralName::RFC822Name(name) | GeneralName::URI(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match *bytes {
            [a, b, c, d] => Some(IpAddr::from([*a, *b, *c, *d]).to_string()),
            bytes => Some(IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?).to_string()),
        },
        _ => None,
    };
    Some(extension.value.general_names.iter().filter_map(text).collect())
}
