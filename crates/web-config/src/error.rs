//! Why a configuration cannot be used. Every text names the key and the remedy, and contains no secret.

use std::fmt;
use std::path::{Path, PathBuf};

use http::StatusCode;

/// A web configuration that cannot be used.
///
/// It lists every mistake of the file and of the files that it names. Values are checked only if all keys are valid. The text has one
/// line for each mistake, without secrets. Each line names the file, the line, the key, the problem and the remedy, such as
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
    path: PathBuf,
    /// At least one.
    problems: Vec<Problem>,
}

impl Error {
    pub(crate) fn new(path: &Path, problems: Vec<Problem>) -> Self {
        Self { path: path.to_owned(), problems }
    }

    /// The path of the web configuration.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The first key that is invalid, such as `tls_server_config.cert_file`. If the text does not match the schema, it
    /// is the key in the line of the first mistake. `None` if that line has no key, or if the file cannot be read.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.problems.first()?.key.as_deref()
    }

    /// The mistakes, one line each.
    pub fn mistakes(&self) -> impl Iterator<Item = String> {
        self.problems.iter().map(|problem| {
            let line = problem.line.map(|line| format!(" line {line}")).unwrap_or_default();
            let mistake = format!("{}{line}: {problem}", self.path.display());
            // A value or a key that the text quotes may have several lines.
            mistake.replace(char::is_control, " ")
        })
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.mistakes().collect::<Vec<_>>().join("\n"))
    }
}

impl fmt::Debug for Error {
    /// Shows the same text as `Display`, because people see it if `main` returns the error or if somebody unwraps it.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// What is wrong, and with which key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    key: Option<String>,
    why: String,
    line: Option<usize>,
}

impl Problem {
    pub(crate) fn new(key: impl Into<String>, why: impl Into<String>) -> Self {
        Self { key: Some(key.into()), why: why.into(), line: None }
    }

    pub(crate) fn without_key(why: String) -> Self {
        Self { key: None, why, line: None }
    }

    pub(crate) fn at(mut self, line: usize) -> Self {
        self.line = Some(line);
        self
    }

    /// Finds the line of the key, or of the section that should have it.
    pub(crate) fn locate(&mut self, text: &str) {
        let names = self.key.iter().flat_map(|key| key.rsplit('.'));
        let line_of = |name: &str| {
            let begins = |line: &str| {
                line.trim_start().strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with(':'))
            };
            text.lines().position(begins)
        };
        self.line = self.line.or_else(|| names.map(line_of).find_map(|line| Some(line? + 1)));
    }
}

/// Collects the problems of several checks, so that one run names all of them.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    /// Returns the value, or keeps the problems.
    pub(crate) fn take<T>(&mut self, result: Result<T, impl Into<Self>>) -> Option<T> {
        result.map_err(|problems| self.0.extend(problems.into().0)).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `value`, or the problems if there are any. If `value` is missing, there must be a problem.
    pub(crate) fn unless_any<T>(self, value: Option<T>) -> Result<T, Self> {
        value.filter(|_| self.is_empty()).ok_or(self)
    }

    /// The problems in the order of the file, with their lines.
    pub(crate) fn in_text(mut self, text: &str) -> Vec<Problem> {
        self.0.iter_mut().for_each(|problem| problem.locate(text));
        self.0.sort_by_key(|problem| problem.line);
        self.0
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl FromIterator<Problem> for Problems {
    fn from_iter<T: IntoIterator<Item = Problem>>(problems: T) -> Self {
        Self(problems.into_iter().collect())
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
    /// Too many requests of this client wait for a password check. Status 503.
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
