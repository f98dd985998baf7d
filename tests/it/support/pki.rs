//! Certificates created for a test, and daemons that use them.

use std::fs;
use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd};

use super::daemon::Daemon;
use super::sessions::SESSION;

/// A certificate authority.
pub(crate) struct Authority(Issuer<'static, KeyPair>);

/// A folder with `ca.pem`, `ca.key` and the certificates that this CA signed.
pub(crate) struct Pki {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) ca: Authority,
}

impl Authority {
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        Self::until(folder, name, 2099)
    }

    /// A self-signed certificate, valid until the end of `year`.
    pub(crate) fn until(folder: &Path, name: &str, year: i32) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.not_after = date_time_ymd(year, 12, 31);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
        Self(Issuer::new(params, key))
    }

    /// Writes NAME.pem and then NAME.key, so there is a moment when they do not match.
    pub(crate) fn sign(&self, folder: &Path, name: &str, san: SanType, until_year: i32) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = vec![san];
        params.distinguished_name.push(DnType::CommonName, name);
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(until_year, 1, 1));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

impl Pki {
    /// Creates the CA and a server certificate for 127.0.0.1.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ca = Authority::new(folder.path(), "ca");
        ca.sign(folder.path(), "server", local(), 2099);
        Self { folder, ca }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        // The daemon must not read an incomplete file, so write a temporary file and rename it.
        let part = self.folder.path().join(format!("{name}.part"));
        fs::write(&part, text).unwrap();
        fs::rename(part, self.folder.path().join(name)).unwrap();
        self.path(name)
    }

    /// Starts a daemon with this web configuration.
    pub(crate) fn serve(&self, config: &str) -> Daemon {
        Daemon::start(&["--source", SESSION, "--web.config.file", &self.write("web.yml", config)])
    }
}

pub(crate) fn local() -> SanType {
    SanType::IpAddress([127, 0, 0, 1].into())
}

pub(crate) const TLS: &str = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n";

/// One user: `ann` with the password `open sesame`. The lowest bcrypt cost keeps the tests fast.
pub(crate) fn users() -> String {
    format!("basic_auth_users:\n  ann: {}\n", bcrypt::hash("open sesame", 4).unwrap())
}
