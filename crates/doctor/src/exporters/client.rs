//! Clients for exporters and sources, made from options. Describes errors in plain words. Every request has a deadline.

use std::borrow::Cow;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};

use crate::cli::ClientOptions;
use trtllm_config::ConfigError;
use trtllm_service::permits;
use trtllm_service::small_file;
use trtllm_sources::http_client::HttpClient;
use trtllm_sources::prometheus_text::MAX_PAGE;
use trtllm_sources::server::{Access, TargetServer, check_host, check_token, port_of};
use trtllm_sources::{OpenError, SourceError};

const TIMEOUT: Duration = Duration::from_secs(5);

/// An exporter to read.
#[derive(Clone)]
pub(crate) struct Target {
    /// The URL as the user typed it.
    pub(crate) url: String,
    /// Path of the metrics page.
    pub(crate) page: String,
    server: TargetServer,
}

impl Target {
    /// A client that returns the exporter's texts unchanged.
    pub(crate) fn client(&self) -> Client {
        Client { http: HttpClient::new(self.server.clone()), for_terminal: false }
    }

    /// A client that removes control characters, which a terminal would execute.
    pub(crate) fn client_for_terminal(&self) -> Client {
        Client { for_terminal: true, ..self.client() }
    }
}

/// The exporters of the command line. Fails if a URL or a file is invalid.
pub(crate) async fn targets(connection: &ClientOptions) -> Result<Vec<Target>, ConfigError> {
    let mut targets = Vec::new();
    for url in &connection.urls {
        let invalid = |why: &str| ConfigError::flag("URL", url, why);
        let form = "use HOST:PORT, http://HOST:PORT or https://HOST:PORT, and the path of the metrics page if it is not /metrics";
        let uri: Uri = with_scheme(url).parse().map_err(|_| invalid(form))?;
        let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(invalid(form));
        };
        // Check this first: the errors below quote the port, and with a user in the URL that text could be a part of the password.
        if url.contains('@') {
            return Err(invalid("a user and password in the URL are visible to others; use --user-file"));
        }
        if uri.query().is_some() || url.contains('#') {
            return Err(invalid(
                "the URL of an exporter has no options; remove the text after the ?. Credentials belong into --user-file or --bearer-token-file",
            ));
        }
        port_of(authority).and_then(|_| check_host(authority.host())).map_err(|why| invalid(&why))?;
        if authority.host().is_empty() {
            return Err(invalid(form));
        }
        let access = Access {
            target: format!("{scheme}://{authority}"),
            ca_file: connection.ca_file.clone(),
            bearer_token_file: connection.bearer_token_file.clone(),
        };
        if let Some(path) = &connection.bearer_token_file {
            check_token(path).map_err(|error| {
                let why = format!("cannot read the token: {error}; name a file with a token");
                ConfigError::flag("--bearer-token-file", path.display(), why)
            })?;
        }
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

/// Adds `http://` to `HOST:PORT`. A text without a port is more likely a mistake and stays as it is.
pub(crate) fn with_scheme(url: &str) -> Cow<'_, str> {
    let authority = url.split('/').next().unwrap_or_default();
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0));
    if has_port && !url.contains("://") { format!("http://{url}").into() } else { url.into() }
}

async fn server(access: Access) -> Result<TargetServer, ConfigError> {
    TargetServer::new(access).await.map_err(|error| match error {
        OpenError::Certificates { file, cause } => {
            let file = file.map_or("(not given)".to_owned(), |file| file.display().to_string());
            ConfigError::flag("--ca-file", file, format!("cannot read certificates: {cause}; name a PEM file"))
        }
        error => ConfigError::flag("URL", "", error.to_string()),
    })
}

/// The Authorization header for the USER:PASSWORD in a file.
fn basic(path: &Path) -> Result<HeaderValue, ConfigError> {
    let invalid = |why: &str| ConfigError::flag("--user-file", path.display(), why);
    let text = small_file::read(path)
        .map_err(|error| invalid(&format!("cannot read the file: {error}; check the path and its permissions")))?;
    let line = text.trim_ascii();
    if !line.contains(&b':') || line.contains(&b'\n') {
        return Err(invalid("write USER:PASSWORD on one line"));
    }
    let header = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(line)));
    let mut header = header.map_err(|_| invalid("write USER:PASSWORD on one line"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// A connection to one server.
pub(crate) struct Client {
    http: HttpClient,
    pub(super) for_terminal: bool,
}

/// Why a request has no answer with status 200.
pub(crate) enum Failure {
    Status(u16),
    /// The server says that its model loads.
    Starting,
    /// No connection, no answer in time, or an answer that is broken or has another form.
    NoUsableAnswer(String),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(status) => write!(out, "status {status}"),
            Self::Starting => out.write_str("the model loads"),
            Self::NoUsableAnswer(why) => write!(out, "{why}"),
        }
    }
}

impl Client {
    /// A client for a source, whose answers are shorter than those of an exporter. Fails if its certificates cannot be read.
    pub(crate) async fn of_source(access: Access) -> Result<Self, OpenError> {
        let http = HttpClient::new(TargetServer::new(access).await?).with_max_body(MAX_PAGE);
        Ok(Self { http, for_terminal: true })
    }

    /// The body of an answer with status 200.
    pub(crate) async fn get(&mut self, path: &str) -> Result<Vec<u8>, Failure> {
        let read = permits::timeout(TIMEOUT, pin!(self.http.read(path))).await;
        let answer = read.unwrap_or_else(|_| Err(SourceError::Timeout { target: String::new(), after: TIMEOUT }));
        let copied = answer.map(<[u8]>::to_vec);
        // The long bodies of all clients share one memory budget. A client that keeps its buffer would make the others wait.
        self.http.release();
        copied.map_err(|error| match error {
            SourceError::HttpStatus { status, .. } | SourceError::Unauthorized { status, .. } => {
                Failure::Status(status)
            }
            SourceError::Starting { .. } => Failure::Starting,
            SourceError::Connect { cause, .. } => Failure::NoUsableAnswer(format!("cannot connect: {cause}")),
            SourceError::Io { cause, .. } => Failure::NoUsableAnswer(format!("reading failed: {cause}")),
            SourceError::Timeout { after, .. } => Failure::NoUsableAnswer(format!("no answer within {after:?}")),
            SourceError::Token { path, cause } => {
                Failure::NoUsableAnswer(format!("cannot read the token in {}: {cause}", path.display()))
            }
            error => Failure::NoUsableAnswer(error.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_host_with_a_port_needs_no_scheme() {
        for url in ["h:8002", "127.0.0.1:8002/m", "[::1]:8002", "localhost:1"] {
            assert_eq!(with_scheme(url), format!("http://{url}"));
        }
        for url in ["http://h:1", "https://h", "h", "[::1]", "h:0", "h:65536", "h:", "ftp://h:1", "h/m:1"] {
            assert_eq!(with_scheme(url), url);
        }
    }

    /// A server that sends an answer of this length to each request.
    async fn server(length: usize) -> ClientOptions {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await.unwrap());
                    }
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
                    // The client may close the connection before the end.
                    let _ = stream.write_all(&[head.as_bytes(), &vec![b'x'; length]].concat()).await;
                });
            }
        });
        ClientOptions { urls: vec![url], ca_file: None, user_file: None, bearer_token_file: None }
    }

    #[tokio::test]
    async fn a_body_that_was_copied_makes_no_other_client_wait() {
        let connection = server(7 << 20).await;
        let target = targets(&connection).await.unwrap().remove(0);
        let mut clients = [target.client(), target.client(), target.client()];
        for client in &mut clients {
            let body = client.get("/").await.map_err(|failure| failure.to_string());
            assert_eq!(body.map(|body| body.len()), Ok(7 << 20));
        }
    }

    #[tokio::test]
    async fn a_source_that_sends_more_than_a_page_is_refused() {
        let connection = server(MAX_PAGE + 1).await;
        let target = connection.urls[0].clone();
        let access = Access { target, ca_file: None, bearer_token_file: None };
        let mut client = Client::of_source(access).await.map_err(|error| error.to_string()).unwrap();
        let failure = client.get("/").await.unwrap_err().to_string();
        assert!(failure.contains(&format!("more than {MAX_PAGE} bytes")), "{failure}");
    }
}
