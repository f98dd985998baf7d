//! Why a configuration cannot be used. Every text names the key and the remedy, and contains no secret.

use std::fmt;
use std::path::{Path, PathBuf};

use http::StatusCode;

/// A web configuration that cannot be used.
///
/// It is the first mistake of the file and of the files that it names. The text has no secrets and names the file, the line, the key,
/// the problem and the remedy, such as
/// `/etc/web.yml line 1: rate_limit.burst: is missing or 0, which would refuse every request; set it to at least 1 or remove rate_limit`.
///
/// ```
/// use exporter_web_config::WebConfig;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("web.yml");
/// std::fs::write(&path, "rate_limit:\n  interval: 1s\n")?;
/// let error = WebConfig::load(&path).unwrap_err();
/// assert_eq!(error.path(), path);
/// assert_eq!(error.key(), Some("rate_limit.burst"));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Error {
    /// Empty until [`Self::in_file`].
    path: PathBuf,
    line: Option<usize>,
    key: Option<String>,
    why: String,
}

impl Error {
    pub(crate) fn new(key: impl Into<String>, why: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..Self::without_key(why) }
    }

    pub(crate) fn without_key(why: impl Into<String>) -> Self {
        Self { path: PathBuf::new(), line: None, key: None, why: why.into() }
    }

    pub(crate) fn at(self, line: Option<usize>) -> Self {
        Self { line, ..self }
    }

    /// Adds the path of the file, and finds the line of the key, or of the section that should have it.
    pub(crate) fn in_file(self, path: &Path, text: &str) -> Self {
        let names = self.key.iter().flat_map(|key| key.rsplit('.'));
        let line_of = |name: &str| {
            let begins = |line: &str| {
                line.trim_start().strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with(':'))
            };
            text.lines().position(begins)
        };
        let line = self.line.or_else(|| names.map(line_of).find_map(|line| Some(line? + 1)));
        Self { path: path.to_owned(), line, ..self }
    }

    /// The path of the web configuration.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The key that is invalid, such as `tls_server_config.cert_file`. `None` if the text is not a map, or if the file cannot be read.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line.map(|line| format!(" line {line}")).unwrap_or_default();
        let key = self.key.as_ref().map(|key| format!("{key}: ")).unwrap_or_default();
        let text = format!("{}{line}: {key}{}", self.path.display(), self.why);
        // A value or a key that the text quotes may have several lines.
        out.write_str(&text.replace(char::is_control, " "))
    }
}

impl fmt::Debug for Error {
    /// Shows the same text as `Display`, because people see it if `main` returns the error or if somebody unwraps it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// Why a request or a connection was refused. [`WebConfig::on_refusal`](crate::WebConfig::on_refusal) reports each one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The TLS handshake failed, or the client certificate was missing or invalid.
    TlsHandshake,
    /// The user or the password was missing or wrong. Status 401.
    Unauthorized,
    /// The rate limit was exceeded. Status 429.
    RateLimited,
    /// Too many requests wait for a password check. Status 503.
    Overloaded,
    /// The configuration became invalid while the server was running. Status 500, or a failed handshake.
    InvalidConfig,
}

impl Refusal {
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            // A failed handshake has no response.
            Self::InvalidConfig | Self::TlsHandshake => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}
