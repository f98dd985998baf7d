//! Reads PEM from files or from the web configuration itself, and records what was read so that changes are noticed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::config::{InvalidKey, Pem};
use crate::small_file;

/// The files a configuration was loaded from, with a digest of what was read; `None` for a file that could not be read.
/// Digests and not contents: the daemon must not keep private keys in memory twice.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Files(BTreeMap<PathBuf, Option<Vec<u8>>>);

impl Files {
    pub(super) fn read(&mut self, path: &Path) -> std::io::Result<Vec<u8>> {
        let read = small_file::read(path);
        self.0.insert(path.to_owned(), read.as_ref().ok().map(|bytes| sha256(bytes)));
        read
    }

    /// Whether any of the files reads differently now.
    pub(super) fn changed(&self) -> bool {
        self.0.iter().any(|(path, before)| small_file::read(path).ok().map(|bytes| sha256(&bytes)) != *before)
    }

    fn text(&mut self, pem: &Pem, key: &str) -> Result<Vec<u8>, InvalidKey> {
        match pem {
            Pem::Inline(text) => Ok(text.clone().into_bytes()),
            Pem::File(path) => self.read(path).map_err(|error| {
                let hint = "relative paths start at the folder of the web configuration";
                InvalidKey::new(key, format!("{} cannot be read: {error}; {hint}", path.display()))
            }),
        }
    }

    /// At least one certificate.
    pub(super) fn certificates(&mut self, pem: &Pem, key: &str) -> Result<Vec<CertificateDer<'static>>, InvalidKey> {
        let text = self.text(pem, key)?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let found = found
            .map_err(|error| InvalidKey::new(key, format!("{pem:?} is not PEM ({}); replace it", describe(&error))))?;
        if found.is_empty() {
            return Err(InvalidKey::new(key, format!("{pem:?} has no PEM certificate; were the files swapped?")));
        }
        Ok(found)
    }

    pub(super) fn private_key(&mut self, pem: &Pem, key: &str) -> Result<PrivateKeyDer<'static>, InvalidKey> {
        PrivateKeyDer::from_pem_slice(&self.text(pem, key)?).map_err(|error| {
            let why = describe(&error);
            InvalidKey::new(key, format!("{pem:?} has no PEM private key ({why}); were the files swapped?"))
        })
    }
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    digest(&SHA256, bytes).as_ref().to_vec()
}

/// What is wrong with a PEM, without any of its bytes: it may be a private key, and the error is logged.
fn describe(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no end; are the line breaks missing?",
        pem::Error::IllegalSectionStart { .. } => "the first line of a section is malformed",
        pem::Error::Base64Decode(_) => "a section is not Base64",
        pem::Error::SectionTooLarge => "a section is too long",
        pem::Error::NoItemsFound => "none found",
        _ => "it cannot be read",
    }
}
