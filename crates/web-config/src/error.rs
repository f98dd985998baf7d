//! Why a configuration cannot be used. Every text names the key and the remedy, and contains no secret.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A web configuration that cannot be used.
///
/// The text is one line without secrets. It names the file, the key, the problem and the remedy, such as
/// `/etc/web.yml: rate_limit.burst: is missing or 0, which would refuse every request; set it to at least 1 or remove rate_limit`.
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
    path: PathBuf,
    problem: Problem,
}

impl Error {
    pub(crate) fn new(path: &Path, problem: Problem) -> Self {
        Self { path: path.to_owned(), problem }
    }

    /// The path of the web configuration.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The key that is invalid, such as `tls_server_config.cert_file`. If the text does not match the schema, it is the first key
    /// of that line. `None` if there is none, or if the file cannot be read.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.problem.key.as_deref()
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path.display(), self.problem)
    }
}

impl fmt::Debug for Error {
    /// The same text: it is what people see if `main` returns the error or if somebody unwraps it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// What is wrong, and with which key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    key: Option<String>,
    why: String,
}

impl Problem {
    pub(crate) fn new(key: impl Into<String>, why: impl Into<String>) -> Self {
        Self { key: Some(key.into()), why: why.into() }
    }

    pub(crate) fn without_key(why: String) -> Self {
        Self { key: None, why }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(out, "{key}: {}", self.why),
            None => out.write_str(&self.why),
        }
    }
}

/// The file itself could not be read.
impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::without_key(format!("cannot be read: {error}; check the path and its permissions"))
    }
}
