//! Connections to exporters and sources: options into clients, errors into plain words. Every request has a deadline.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Method, Uri};

use crate::cli::Connection;
use crate::config::ConfigError;
use crate::small_file;
use crate::sources::http_client::HttpClient;
use crate::sources::server::{Access, Server};
use crate::sources::{OpenError, SourceError};

const TIMEOUT: Duration = Duration::from_secs(5);

/// An exporter to read.
pub(crate) struct Target {
    /// As typed.
    pub(crate) url: String,
    /// Path of the metrics page.
    pub(crate) page: String,
    server: Server,
}

impl Target {
    pub(crate) fn client(&self) -> Client {
        Client(HttpClient::new(self.server.clone()))
    }
}

/// The exporters of the command line.
///
/// # Errors
/// When a URL or a file is invalid.
pub(crate) async fn targets(connection: &Connection) -> Result<Vec<Target>, ConfigError> {
    let mut targets = Vec::new();
    for url in &connection.urls {
        let invalid = |why: &str| ConfigError::Flag { flag: "URL", value: url.clone(), why: why.to_owned() };
        let form = "use http://HOST:PORT or https://HOST:PORT, and the path of the metrics page if it is not /metrics";
        let uri: Uri = url.parse().map_err(|_| invalid(form))?;
        let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(invalid(form));
        };
        if authority.as_str().contains('@') {
            let why = "a user and password in the URL are visible to others; use --user-file".to_owned();
            return Err(ConfigError::Flag { flag: "URL", value: format!("{scheme}://…"), why });
        }
        let access = Access {
            target: format!("{scheme}://{authority}"),
            ca_file: connection.ca_file.clone(),
            bearer_token_file: connection.bearer_token_file.clone(),
        };
        let mut server = server(access).await?;
        if let Some(path) = &connection.user_file {
            server = server.with_user(basic(path)?);
        }
        let page = match uri.path().trim_end_matches('/') {
            "" => "/metrics".to_owned(),
            path => path.to_owned(),
        };
        targets.push(Target { url: url.trim_end_matches('/').to_owned(), page, server });
    }
    Ok(targets)
}

async fn server(access: Access) -> Result<Server, ConfigError> {
    Server::new(access).await.map_err(|error| match error {
        OpenError::Certificates { file, cause } => ConfigError::Flag {
            flag: "--ca-file",
            value: file.map_or("(not given)".to_owned(), |file| file.display().to_string()),
            why: format!("cannot read certificates: {cause}; name a PEM file"),
        },
        error => ConfigError::Flag { flag: "URL", value: String::new(), why: error.to_string() },
    })
}

/// The header of a user and password.
fn basic(path: &Path) -> Result<HeaderValue, ConfigError> {
    let invalid = |why: String| ConfigError::Flag { flag: "--user-file", value: path.display().to_string(), why };
    let text = small_file::read(path).map_err(|error| invalid(format!("cannot read the file: {error}")))?;
    let line = text.trim_ascii();
    if !line.contains(&b':') || line.contains(&b'\n') {
        return Err(invalid("write USER:PASSWORD on one line".to_owned()));
    }
    let header = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(line)));
    let mut header = header.map_err(|_| invalid("write USER:PASSWORD on one line".to_owned()))?;
    header.set_sensitive(true);
    Ok(header)
}

/// A connection to one server.
pub(crate) struct Client(HttpClient);

/// Why a request has no answer with status 200.
pub(crate) enum Failure {
    Status(u16),
    /// No connection, no answer in time, or a broken one.
    Unanswered(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(status) => write!(out, "status {status}"),
            Self::Unanswered(why) => write!(out, "{why}"),
        }
    }
}

impl Client {
    /// For a source.
    ///
    /// # Errors
    /// When its certificates cannot be read.
    pub(crate) async fn of_source(access: Access) -> Result<Self, OpenError> {
        Ok(Self(HttpClient::new(Server::new(access).await?)))
    }

    /// The body of an answer with status 200.
    pub(crate) async fn get(&mut self, path: &str) -> Result<Vec<u8>, Failure> {
        let read = tokio::time::timeout(TIMEOUT, self.0.read(Method::GET, path)).await;
        let answer = read.unwrap_or_else(|_| Err(SourceError::Timeout { target: String::new(), after: TIMEOUT }));
        answer.map(<[u8]>::to_vec).map_err(|error| match error {
            SourceError::HttpStatus { status, .. } | SourceError::Unauthorized { status, .. } => {
                Failure::Status(status)
            }
            SourceError::Connect { cause, .. } => Failure::Unanswered(format!("cannot connect: {cause}")),
            SourceError::Io { cause, .. } => Failure::Unanswered(format!("reading failed: {cause}")),
            SourceError::Timeout { after, .. } | SourceError::Slow { after, .. } => {
                Failure::Unanswered(format!("no answer within {after:?}"))
            }
            SourceError::Token { path, cause } => {
                Failure::Unanswered(format!("cannot read the token in {}: {cause}", path.display()))
            }
            error => Failure::Unanswered(error.to_string()),
        })
    }
}
