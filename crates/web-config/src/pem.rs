//! Reads PEM from files or from the web configuration itself, and remembers what was read so that changes are noticed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::Error;

/// PEM text, or the file that contains it.
pub(crate) enum Pem {
    File(PathBuf),
    Inline(String),
}

impl Pem {
    /// The key of the configuration that has it, from its `name`, such as `client_ca`.
    pub(crate) fn key(&self, name: &str) -> String {
        let ending = if matches!(self, Self::File(_)) { "_file" } else { "" };
        format!("tls_server_config.{name}{ending}")
    }
}

impl fmt::Debug for Pem {
    /// Does not show the text, because it may be a private key.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.fmt(out),
            Self::Inline(_) => out.write_str("inline text"),
        }
    }
}

/// Maximum bytes of a file, because a device such as `/dev/zero` has no end. No real bundle of certificates has more.
const MAX_BYTES: u64 = 4 << 20;

/// The files of a configuration, with a digest of what was read. `None` for a file that could not be read.
/// Keeps digests instead of contents, because private keys must not be in memory twice.
#[derive(Debug, Default)]
pub(crate) struct WatchedFiles(BTreeMap<PathBuf, Option<Vec<u8>>>);

impl WatchedFiles {
    pub(crate) fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        let content = read(path);
        self.0.insert(path.to_owned(), content.as_ref().ok().map(|bytes| sha256(bytes)));
        content
    }

    /// Whether the content of any file differs from what was read.
    pub(crate) fn changed(&self) -> bool {
        self.0.iter().any(|(path, before)| read(path).ok().map(|bytes| sha256(&bytes)) != *before)
    }

    fn text(&mut self, pem: &Pem, key: &str) -> Result<Vec<u8>, Error> {
        match pem {
            Pem::Inline(text) => Ok(text.clone().into_bytes()),
            Pem::File(path) => self.read(path).map_err(|error| {
                let hint = "relative paths start at the folder of the web configuration";
                Error::new(key, format!("{} cannot be read: {error}; {hint}", path.display()))
            }),
        }
    }

    /// Reads the certificates. Fails if there is none.
    pub(crate) fn certificates(&mut self, pem: &Pem, name: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
        let key = &*pem.key(name);
        let text = self.text(pem, key)?;
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let found =
            found.map_err(|error| Error::new(key, format!("{pem:?} is not PEM ({}); replace it", describe(&error))))?;
        if found.is_empty() {
            // A DER file begins with a sequence, whose length has two bytes.
            let hint = match text.starts_with(&[0x30, 0x82]) {
                true => "convert it from DER: openssl x509 -inform der -in FILE -out FILE.pem",
                false => "were the files swapped?",
            };
            return Err(Error::new(key, format!("{pem:?} has no PEM certificate; {hint}")));
        }
        Ok(found)
    }

    pub(crate) fn private_key(&mut self, pem: &Pem, name: &str) -> Result<PrivateKeyDer<'static>, Error> {
        let key = &*pem.key(name);
        let text = self.text(pem, key)?;
        if is_encrypted(&text) {
            let why = "is encrypted with a passphrase, which is not supported; decrypt it";
            return Err(Error::new(key, format!("{pem:?} {why}: openssl pkey -in ENCRYPTED -out DECRYPTED")));
        }
        PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
            let why = describe(&error);
            Error::new(key, format!("{pem:?} has no PEM private key ({why}); were the files swapped?"))
        })
    }
}

/// Whether the text has an encrypted private key: in PKCS #8, or in the older form of OpenSSL with a header.
fn is_encrypted(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.lines().map(str::trim).any(|line| {
        line == "-----BEGIN ENCRYPTED PRIVATE KEY-----"
            || (line.starts_with("Proc-Type:") && line.ends_with("ENCRYPTED"))
    })
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    // Opening a pipe would wait for its writer, maybe forever.
    if path.metadata()?.file_type().is_fifo() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a pipe cannot be read again; use a file"));
    }
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut content)?;
    match content.len() as u64 > MAX_BYTES {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {} MiB", MAX_BYTES >> 20))),
        false => Ok(content),
    }
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    digest(&SHA256, bytes).as_ref().to_vec()
}

/// What is wrong with the PEM text. Contains none of its bytes, because it may be a private key and errors are logged.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_key_is_called_encrypted_and_another_key_is_not() {
        let mut files = WatchedFiles::default();
        let mut why = |text: &str| {
            files
                .private_key(&Pem::Inline(text.to_owned()), "key")
                .map_or_else(|error| error.to_string(), |_| String::new())
        };
        let pkcs8 = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIF\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let older = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nMIIF\n\
                     -----END RSA PRIVATE KEY-----\n";
        for text in [pkcs8, older, &pkcs8.replace('\n', "\r\n")] {
            assert!(why(text).contains("is encrypted with a passphrase"), "{}", why(text));
        }
        let swapped = "-----BEGIN CERTIFICATE-----\nMIIF\n-----END CERTIFICATE-----\n";
        assert!(why(swapped).contains("were the files swapped?"), "{}", why(swapped));
        assert_eq!(why("-----BEGIN PRIVATE KEY-----\nMIIF\n-----END PRIVATE KEY-----\n"), "");
        // Real keys, if openssl is there.
        let folder = tempfile::tempdir().unwrap();
        for arguments in [
            &["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-aes256", "-pass", "pass:x"][..],
            &["genrsa", "-aes256", "-passout", "pass:x", "-traditional", "2048"],
        ] {
            let made = std::process::Command::new("openssl").args(arguments).current_dir(folder.path()).output();
            if let Some(made) = made.ok().filter(|made| made.status.success()) {
                let text = String::from_utf8(made.stdout).unwrap();
                assert!(why(&text).contains("is encrypted"), "{arguments:?}: {}", why(&text));
            }
        }
    }

    #[test]
    fn a_certificate_in_der_is_told_from_a_swapped_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c");
        for (content, hint) in
            [(&b"\x30\x82\x03\x01"[..], "openssl x509 -inform der"), (b"key", "were the files swapped?")]
        {
            std::fs::write(&file, content).unwrap();
            let error = WatchedFiles::default().certificates(&Pem::File(file.clone()), "cert").unwrap_err();
            assert!(error.to_string().contains(hint), "{error}");
        }
    }

    #[test]
    fn a_pipe_is_an_error_and_nobody_waits_for_its_writer() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(read(&pipe).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_device_without_an_end_is_an_error() {
        for device in ["/dev/zero", "/dev/urandom", "/dev/full"] {
            assert_eq!(read(Path::new(device)).unwrap_err().kind(), io::ErrorKind::FileTooLarge, "{device}");
        }
    }
}
