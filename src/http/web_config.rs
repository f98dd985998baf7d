//! `--web.config.file`: the schema of Prometheus's exporter-toolkit, read strictly and checked as far as text goes. What
//! the named certificates hold is for `tls` to say. An empty file is plain HTTP.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use serde::Deserialize;

use super::auth::Users;
use super::rate_limit::Rate;

/// A web configuration that cannot be used; the text names the key and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum WebConfigError {
    #[error("--web.config.file {}: cannot be read: {cause}; name a file that this user may read", path.display())]
    Unreadable { path: PathBuf, cause: std::io::Error },
    #[error(
        "--web.config.file {}: {cause}; for each key and its values see the web configuration of Prometheus's exporter-toolkit",
        path.display()
    )]
    Malformed { path: PathBuf, cause: String },
    #[error("--web.config.file {}: {wrong}", path.display())]
    Key { path: PathBuf, wrong: Wrong },
}

/// One key and what is wrong with its value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {why}")]
pub struct Wrong {
    pub key: String,
    pub why: String,
}

impl Wrong {
    pub(super) fn new(key: impl Into<String>, why: impl Into<String>) -> Self {
        Self { key: key.into(), why: why.into() }
    }
}

/// The file as meant.
#[derive(Debug)]
pub struct WebConfig {
    pub tls: Option<TlsConfig>,
    pub http2: bool,
    /// Set on every answer.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Everybody is welcome where there are none.
    pub users: Users,
    pub rate: Option<Rate>,
}

/// `tls_server_config` with all that TLS needs.
#[derive(Debug)]
pub struct TlsConfig {
    pub cert: Pem,
    pub key: Pem,
    pub client_auth: ClientAuth,
    pub client_ca: Option<Pem>,
    pub allowed_sans: Option<Vec<String>>,
    pub tls12: bool,
    pub tls13: bool,
    pub cipher_suites: Vec<String>,
    pub prefer_server_order: bool,
    pub curves: Vec<String>,
}

/// Where PEM text stands.
pub enum Pem {
    File(PathBuf),
    Inline(String),
}

impl fmt::Debug for Pem {
    /// Without the text, which may be a private key.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.fmt(out),
            Self::Inline(_) => out.write_str("inline"),
        }
    }
}

/// `client_auth_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    None,
    Request,
    RequireAny,
    VerifyIfGiven,
    RequireAndVerify,
}

impl ClientAuth {
    fn parse(name: &str) -> Result<Self, Wrong> {
        Ok(match name {
            "" | "NoClientCert" => Self::None,
            "RequestClientCert" => Self::Request,
            // The second is the toolkit's older name.
            "RequireAnyClientCert" | "RequireClientCert" => Self::RequireAny,
            "VerifyClientCertIfGiven" => Self::VerifyIfGiven,
            "RequireAndVerifyClientCert" => Self::RequireAndVerify,
            other => {
                let why = format!(
                    "{other:?} is none of NoClientCert, RequestClientCert, RequireAnyClientCert, VerifyClientCertIfGiven \
                     and RequireAndVerifyClientCert"
                );
                return Err(Wrong::new("tls_server_config.client_auth_type", why));
            }
        })
    }

    pub(super) const fn verifies(self) -> bool {
        matches!(self, Self::VerifyIfGiven | Self::RequireAndVerify)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    tls_server_config: Option<FileTls>,
    http_server_config: Option<FileHttp>,
    basic_auth_users: Option<BTreeMap<String, String>>,
    rate_limit: Option<FileRate>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileTls {
    cert: String,
    key: String,
    client_ca: String,
    cert_file: String,
    key_file: String,
    client_auth_type: String,
    client_ca_file: String,
    client_allowed_sans: Option<Vec<String>>,
    cipher_suites: Vec<String>,
    curve_preferences: Vec<String>,
    min_version: String,
    max_version: String,
    prefer_server_cipher_suites: bool,
}

impl Default for FileTls {
    fn default() -> Self {
        let unset = String::new;
        Self {
            cert: unset(),
            key: unset(),
            client_ca: unset(),
            cert_file: unset(),
            key_file: unset(),
            client_auth_type: unset(),
            client_ca_file: unset(),
            client_allowed_sans: None,
            cipher_suites: Vec::new(),
            curve_preferences: Vec::new(),
            min_version: "TLS12".to_owned(),
            max_version: "TLS13".to_owned(),
            prefer_server_cipher_suites: true,
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileHttp {
    http2: Option<bool>,
    headers: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRate {
    interval: Option<String>,
    burst: Option<u32>,
}

impl WebConfig {
    /// The text of a file in `folder`.
    ///
    /// # Errors
    /// With the YAML parser's words, or with the key that is wrong.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, ParseError> {
        let file: Option<File> =
            serde_saphyr::from_str(text).map_err(|error| ParseError::Yaml(in_one_line(&error, text)))?;
        let Some(file) = file else { return Ok(Self::plain()) };
        let http = file.http_server_config.unwrap_or_default();
        Ok(Self {
            tls: file.tls_server_config.map_or(Ok(None), |tls| tls.checked(folder))?,
            http2: http.http2.unwrap_or(true),
            headers: headers(http.headers.unwrap_or_default())?,
            users: Users::new(file.basic_auth_users.unwrap_or_default())?,
            rate: file.rate_limit.map_or(Ok(None), FileRate::checked)?,
        })
    }

    /// Plain HTTP for everybody.
    #[must_use]
    pub fn plain() -> Self {
        Self { tls: None, http2: true, headers: Vec::new(), users: Users::default(), rate: None }
    }
}

/// The parser draws the place over several lines; an error is one, and names the key. What stands behind the key may be
/// secret.
fn in_one_line(error: &serde_saphyr::Error, text: &str) -> String {
    let what = error.without_snippet().to_string().lines().collect::<Vec<_>>().join(" ");
    let line = error.location().and_then(|at| text.lines().nth(usize::try_from(at.line()).ok()?.checked_sub(1)?));
    match line.and_then(|line| line.split_once(':')) {
        Some((key, _)) => format!("{}: {what}", key.trim()),
        None => what,
    }
}

/// Why a text is no web configuration.
#[derive(Debug)]
pub enum ParseError {
    Yaml(String),
    Key(Wrong),
}

impl From<Wrong> for ParseError {
    fn from(wrong: Wrong) -> Self {
        Self::Key(wrong)
    }
}

impl FileTls {
    fn checked(self, folder: &Path) -> Result<Option<TlsConfig>, Wrong> {
        let key = |name: &str| format!("tls_server_config.{name}");
        let (tls12, tls13) = versions(&self.min_version, &self.max_version)?;
        let client_auth = ClientAuth::parse(&self.client_auth_type)?;
        let cert = pem(folder, "cert", self.cert, self.cert_file)?;
        let private = pem(folder, "key", self.key, self.key_file)?;
        let client_ca = pem(folder, "client_ca", self.client_ca, self.client_ca_file)?;
        let any = cert.is_some() || private.is_some() || client_ca.is_some() || !self.client_auth_type.is_empty();
        if !any && self.client_allowed_sans.is_none() {
            return Ok(None);
        }
        let missing = |what: &str| Wrong::new(key(&format!("{what}_file")), format!("is missing; give it or {what}"));
        let cert = cert.ok_or_else(|| missing("cert"))?;
        let private = private.ok_or_else(|| missing("key"))?;
        if client_ca.is_some() && client_auth == ClientAuth::None {
            let why = "is given, but no client is asked for a certificate; set client_auth_type to \
                       RequireAndVerifyClientCert or remove it";
            return Err(Wrong::new(key("client_ca_file"), why));
        }
        if client_ca.is_none() && client_auth.verifies() {
            let why = format!(
                "is missing, but client_auth_type is {}: name the CA that signs the clients' certificates",
                self.client_auth_type
            );
            return Err(Wrong::new(key("client_ca_file"), why));
        }
        if self.client_allowed_sans.is_some() && client_auth == ClientAuth::None {
            let why = "is given, but no client is asked for a certificate; set client_auth_type or remove it";
            return Err(Wrong::new(key("client_allowed_sans"), why));
        }
        Ok(Some(TlsConfig {
            cert,
            key: private,
            client_auth,
            client_ca,
            allowed_sans: self.client_allowed_sans,
            tls12,
            tls13,
            cipher_suites: self.cipher_suites,
            prefer_server_order: self.prefer_server_cipher_suites,
            curves: self.curve_preferences,
        }))
    }
}

fn pem(folder: &Path, name: &str, inline: String, file: String) -> Result<Option<Pem>, Wrong> {
    match (inline.is_empty(), file.is_empty()) {
        (true, true) => Ok(None),
        (false, true) => Ok(Some(Pem::Inline(inline))),
        // `join` leaves an absolute path as it is.
        (true, false) => Ok(Some(Pem::File(folder.join(file)))),
        (false, false) => {
            let why = format!("stands beside {name}_file; keep one of them");
            Err(Wrong::new(format!("tls_server_config.{name}"), why))
        }
    }
}

/// Whether TLS 1.2 and 1.3 are spoken. Nothing older is: a lower bound below 1.2 is one at 1.2.
fn versions(min: &str, max: &str) -> Result<(bool, bool), Wrong> {
    let parse = |key: &str, name: &str| match name {
        "TLS10" => Ok(10),
        "TLS11" => Ok(11),
        "TLS12" => Ok(12),
        "TLS13" => Ok(13),
        other => {
            let why = format!("{other:?} is no TLS version; write TLS12 or TLS13");
            Err(Wrong::new(format!("tls_server_config.{key}"), why))
        }
    };
    let (least, most) = (parse("min_version", min)?, parse("max_version", max)?);
    if most < 12 {
        let why = format!("{max} is broken and not spoken here; write TLS12 or TLS13");
        return Err(Wrong::new("tls_server_config.max_version", why));
    }
    if least > most {
        let why = format!("{min} is above max_version {max}: no client could connect; lower it or raise max_version");
        return Err(Wrong::new("tls_server_config.min_version", why));
    }
    Ok((least <= 12, most >= 13))
}

/// The only headers the toolkit lets be set, with their values where these are few.
const HEADERS: [(&str, &[&str]); 5] = [
    ("Strict-Transport-Security", &[]),
    ("X-Content-Type-Options", &["nosniff"]),
    ("X-Frame-Options", &["deny", "sameorigin"]),
    ("X-XSS-Protection", &[]),
    ("Content-Security-Policy", &[]),
];

fn headers(given: BTreeMap<String, String>) -> Result<Vec<(HeaderName, HeaderValue)>, Wrong> {
    let checked = given.into_iter().map(|(name, value)| {
        let wrong = |why: String| Wrong::new(format!("http_server_config.headers.{name}"), why);
        let Some((_, values)) = HEADERS.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = HEADERS.iter().map(|(known, _)| *known).collect();
            return Err(wrong(format!("cannot be set; those that can, so spelled, are {}", known.join(", "))));
        };
        if !values.is_empty() && !values.contains(&value.as_str()) {
            return Err(wrong(format!("{value:?} is not possible; write {}", values.join(" or "))));
        }
        let text = |_| wrong("is no header value; remove line breaks and control characters".to_owned());
        let value = HeaderValue::from_str(&value).map_err(text)?;
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| wrong(error.to_string()))?;
        Ok((name, value))
    });
    checked.collect()
}

impl FileRate {
    /// No interval, or 0, is no limit.
    fn checked(self) -> Result<Option<Rate>, Wrong> {
        let text = self.interval.unwrap_or_default();
        let interval = if text.is_empty() || text == "0" {
            Duration::ZERO
        } else {
            let why = |error| format!("{text:?} is no duration ({error}); write 100ms, 1s or 1m");
            humantime::parse_duration(&text).map_err(|error| Wrong::new("rate_limit.interval", why(error)))?
        };
        match (interval.is_zero(), self.burst.unwrap_or_default()) {
            (true, _) => Ok(None),
            (false, 0) => {
                let why = "is missing or 0, which refuses every request; write at least 1, or remove rate_limit";
                Err(Wrong::new("rate_limit.burst", why))
            }
            (false, burst) => Ok(Some(Rate { interval, burst })),
        }
    }
}
