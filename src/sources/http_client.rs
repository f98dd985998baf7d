//! One keep-alive HTTP/1.1 connection to one engine. Every response is limited in size. The caller sets the deadlines: a
//! request that is dropped before its end closes its connection, and the next one opens another.

use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::SourceError;
use super::name_lookup::NameLookup;

/// hyper's own default is a read buffer of half a megabyte per connection.
const READ_BUFFER: usize = 64 << 10;
/// Buffer kept from one response to the next: enough for a poll of a busy engine.
const KEPT_BODY: usize = 256 << 10;

/// An `http://HOST:PORT[/BASE]` target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpTarget {
    /// `HOST:PORT`
    pub authority: String,
    /// Path in front of the endpoint's own path, without a trailing slash.
    pub base: String,
}

/// A client of one target.
#[derive(Debug)]
pub struct HttpClient {
    target: HttpTarget,
    name_lookup: NameLookup,
    connection: Option<Connection>,
    body: Vec<u8>,
}

#[derive(Debug)]
struct Connection {
    sender: http1::SendRequest<Empty<Bytes>>,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A peer that never finishes its response must not keep a task and a descriptor.
        self.driver.abort();
    }
}

/// Status and body. The body is complete unless `too_large`.
#[derive(Debug)]
pub struct Response<'a> {
    pub status: u16,
    pub body: &'a [u8],
    pub too_large: bool,
}

impl HttpClient {
    #[must_use]
    pub const fn new(target: HttpTarget) -> Self {
        Self { target, name_lookup: NameLookup::new(), connection: None, body: Vec::new() }
    }

    /// `GET path`. Reads at most `limit` bytes of the body.
    ///
    /// # Errors
    /// If the target cannot be reached or closes the connection early. An error status is a response, not an error.
    pub async fn get(&mut self, path: &str, limit: usize) -> Result<Response<'_>, SourceError> {
        self.send(Method::GET, path, limit).await
    }

    /// `POST path` without a body. Otherwise like [`HttpClient::get`].
    ///
    /// # Errors
    /// Like [`HttpClient::get`].
    pub async fn post(&mut self, path: &str, limit: usize) -> Result<Response<'_>, SourceError> {
        self.send(Method::POST, path, limit).await
    }

    async fn send(&mut self, method: Method, path: &str, limit: usize) -> Result<Response<'_>, SourceError> {
        self.body.clear();
        self.body.shrink_to(KEPT_BODY);
        // Taken, not borrowed: only a request that completes puts the connection back.
        let kept = self.connection.take().filter(|connection| connection.sender.is_ready());
        let reused = kept.is_some();
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let sent = connection.sender.send_request(self.request(&method, path)?).await;
        let response = match sent {
            // The server closed the idle connection before the request reached it.
            Err(error) if reused && (error.is_canceled() || error.is_incomplete_message()) => {
                connection = self.connect().await?;
                connection
                    .sender
                    .send_request(self.request(&method, path)?)
                    .await
                    .map_err(|error| failed(&self.target, path, &error))?
            }
            sent => sent.map_err(|error| failed(&self.target, path, &error))?,
        };
        let status = response.status().as_u16();
        let mut body = response.into_body();
        let mut too_large = false;
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame.map_err(|error| failed(&self.target, path, &error))?.into_data() {
                let room = limit - self.body.len();
                self.body.extend_from_slice(&data[..data.len().min(room)]);
                if data.len() > room {
                    too_large = true;
                    break;
                }
            }
        }
        if !too_large && connection.sender.ready().await.is_ok() {
            self.connection = Some(connection);
        }
        Ok(Response { status, body: &self.body, too_large })
    }

    /// The part of the last body that had arrived when its request failed or was dropped.
    #[must_use]
    pub fn partial_body(&self) -> &[u8] {
        &self.body
    }

    fn request(&self, method: &Method, path: &str) -> Result<http::Request<Empty<Bytes>>, SourceError> {
        http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.target.base))
            .header(http::header::HOST, &self.target.authority)
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::USER_AGENT, concat!("trtllm-exporter/", env!("CARGO_PKG_VERSION")))
            .body(Empty::new())
            .map_err(|error| failed(&self.target, path, &error))
    }

    async fn connect(&mut self) -> Result<Connection, SourceError> {
        let authority = &self.target.authority;
        let unreachable = |cause| SourceError::Connect { target: format!("http://{authority}"), cause };
        let addresses = self.name_lookup.addresses(authority).await.map_err(unreachable)?;
        let stream = TcpStream::connect(&*addresses).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(READ_BUFFER)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|cause| unreachable(std::io::Error::other(cause)))?;
        let driver = tokio::spawn(async move {
            // The request returns its error.
            let _ = connection.await;
        });
        Ok(Connection { sender, driver })
    }
}

fn failed(target: &HttpTarget, path: &str, cause: &dyn std::error::Error) -> SourceError {
    SourceError::Io { target: format!("http://{}{}{path}", target.authority, target.base), cause: cause.to_string() }
}
