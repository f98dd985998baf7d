//! One keep-alive HTTP/1.1 connection to one engine. Each response is limited in size, and only a few long ones are in memory
//! at once. Deadlines are up to the caller: dropping a request before its end closes the connection, and the next
//! request opens a new one.

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::either::Either;
use tower::ServiceExt as _;
use trtllm_service::permits::{Permit, Permits};

use super::error::SourceError;
use super::error::root_cause;
use super::name_lookup::{Resolver, look_up, resolver};
use super::server::{TargetServer, Token};
use super::tls::handshake_error;

/// Longest response, in bytes. A full ring of 1000 records with their requests is a few MiB.
const MAX_BODY: usize = 8 << 20;
/// The longest buffer kept from one response to the next: enough for a poll of a busy engine. A longer response needs a
/// permit, unless it is parsed in parts.
const KEPT_BODY: usize = 128 << 10;
/// Longest part of a response that is parsed in parts: one record with the rows of all its requests.
const MAX_PART: usize = 4 << 20;
/// Permits for responses, and parts of them, above [`KEPT_BODY`], while they are received and parsed.
static LONG_RESPONSES: Permits = Permits::new(2);
/// Part of the answer of a frontend (`--num_serve_frontends`) that cannot reach the process with the engine.
const LAUNCHER_GONE: &str = "The launcher frontend that serves ";
/// The header with which a server that loads its model says `starting` (upstream issue 17787).
const SERVER_STATE: &str = "x-trtllm-server-state";
/// Size of hyper's read buffer. Its default is half a megabyte per connection.
const READ_BUFFER: usize = 64 << 10;

/// A client of one target. hyper-util's `legacy::Client` is not used. If a request follows another one directly, it opens a
/// second connection, because the first one is not back in the pool yet: with 0.1.21 and two worker threads, 100 requests
/// opened up to 33 connections. It also does not repeat a request whose connection the server closed meanwhile.
#[derive(Debug)]
pub struct HttpClient {
    pub(super) server: TargetServer,
    token: Token,
    connector: HttpConnector<Resolver>,
    connection: Option<ServerConnection>,
    response: Option<OpenResponse>,
    /// A request was sent, and its answer has not ended: the server may have removed what nobody received.
    unanswered: bool,
    /// What has arrived of the last body, without the parts that are already parsed.
    body: Vec<u8>,
    /// Usual length of a long body. It falls slowly, because one poll has long and short answers.
    usual_body: usize,
    /// For a body above [`KEPT_BODY`], from then until it is parsed.
    permit: Option<Permit>,
    max_body: usize,
}

/// The two halves of hyper's connection. `io` moves the bytes. It runs in the caller's task during a request, and not at
/// all between requests: a separate task would wake another thread for each poll.
#[derive(Debug)]
struct ServerConnection {
    requests: SendRequest<Full<Bytes>>,
    /// `None` once the connection has ended.
    io: Option<Io>,
}

/// A response whose body has not ended.
#[derive(Debug)]
struct OpenResponse {
    connection: ServerConnection,
    status: StatusCode,
    /// The server says that it is starting.
    starting: bool,
    body: Incoming,
    /// Bytes that have arrived and are not in the client's buffer.
    arrived: Bytes,
    /// Bytes that the body may still have.
    room: usize,
    max_body: usize,
    url: String,
}

/// The method of a request, its own headers and its body.
type Content = (Method, HeaderMap, Bytes);

type Io = http1::Connection<TokioIo<Either<TcpStream, TlsStream<TcpStream>>>, Full<Bytes>>;

impl ServerConnection {
    async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        let response = self.requests.send_request(request);
        run(&mut self.io, response).await
    }

    /// Whether the connection accepts another request.
    async fn is_ready(&mut self) -> bool {
        run(&mut self.io, self.requests.ready()).await.is_ok()
    }
}

/// Moves bytes until `exchange` has ended.
async fn run<T>(io: &mut Option<Io>, exchange: impl Future<Output = T>) -> T {
    let mut exchange = pin!(exchange);
    if let Some(open) = io {
        tokio::select! {
            biased;
            _ = open => *io = None,
            result = &mut exchange => return result,
        }
    }
    // The connection has ended, but bytes that arrived before may not have been read yet.
    exchange.await
}

impl HttpClient {
    pub fn new(server: TargetServer) -> Self {
        Self::with_resolver(server, resolver(look_up))
    }

    fn with_resolver(server: TargetServer, resolver: Resolver) -> Self {
        let mut connector = HttpConnector::new_with_resolver(resolver);
        connector.set_nodelay(true);
        // TLS is added after the connection.
        connector.enforce_http(false);
        Self {
            server,
            token: Token::default(),
            connector,
            connection: None,
            response: None,
            unanswered: false,
            body: Vec::new(),
            usual_body: 0,
            permit: None,
            max_body: MAX_BODY,
        }
    }

    /// Sets another limit for the length of a response.
    pub fn with_max_body(self, max_body: usize) -> Self {
        Self { max_body, ..self }
    }

    /// The body of a complete response with status 200. Fails if the target cannot be reached, closes the connection early,
    /// or sends another status or too many bytes.
    pub async fn read(&mut self, path: &str) -> Result<&[u8], SourceError> {
        self.read_at_most(self.max_body, path).await
    }

    /// Like [`HttpClient::read`], with another limit for the length of this response.
    pub async fn read_at_most(&mut self, max_body: usize, path: &str) -> Result<&[u8], SourceError> {
        self.request(max_body, Method::GET, path).await?;
        self.receive(usize::MAX).await?;
        Ok(&self.body)
    }

    /// Asks for the head of a response only. Fails as [`HttpClient::read`].
    pub async fn head(&mut self, path: &str) -> Result<(), SourceError> {
        self.request(self.max_body, Method::HEAD, path).await?;
        self.receive(usize::MAX).await
    }

    /// Sends a body, and returns the answer, which must have status 200. Fails as [`HttpClient::read`].
    pub(super) async fn post(&mut self, path: &str, headers: HeaderMap, body: Bytes) -> Result<Vec<u8>, SourceError> {
        self.request_with(self.max_body, (Method::POST, headers, body), path).await?;
        self.receive(usize::MAX).await?;
        let answer = self.received().to_vec();
        self.release();
        Ok(answer)
    }

    /// Sends a request, and receives the first part of the response: see [`Self::received`]. Fails as [`HttpClient::read`].
    pub(super) async fn read_first_part(&mut self, path: &str) -> Result<(), SourceError> {
        self.request(self.max_body, Method::GET, path).await?;
        self.receive(KEPT_BODY).await
    }

    /// Drops the first `parsed` bytes that have arrived, and receives more. Fails as [`HttpClient::read`].
    pub(super) async fn read_next_part(&mut self, parsed: usize) -> Result<(), SourceError> {
        self.drop_parsed(parsed);
        // An incomplete element is parsed again from its start, so a long one must grow in large steps.
        self.receive((2 * self.body.len()).max(KEPT_BODY)).await
    }

    /// Sends a request whose response may never end. [`Self::read_more`] receives its body. Fails as [`HttpClient::read`].
    pub(super) async fn open(&mut self, path: &str) -> Result<(), SourceError> {
        self.request(self.max_body, Method::GET, path).await?;
        // An error has a short body that ends.
        self.receive(0).await
    }

    /// Drops the first `parsed` bytes that have arrived, and waits for more, however few. Cancel-safe. Fails as
    /// [`HttpClient::read`].
    pub(super) async fn read_more(&mut self, parsed: usize) -> Result<(), SourceError> {
        self.drop_parsed(parsed);
        let arrived = self.response.as_ref().map_or(0, |response| response.arrived.len());
        self.receive(self.body.len() + arrived.max(1)).await
    }

    fn drop_parsed(&mut self, parsed: usize) {
        self.usual_body = self.usual_body.max(self.body.len().min(KEPT_BODY));
        self.body.drain(..parsed);
        if self.body.len() <= KEPT_BODY && self.permit.is_some() {
            self.permit = None;
            self.body.shrink_to(KEPT_BODY);
        }
    }

    /// Whether a request was sent whose answer has not ended.
    pub(super) fn is_unanswered(&self) -> bool {
        self.unanswered
    }

    /// Whether there is a next part.
    pub(super) fn is_receiving(&self) -> bool {
        self.response.is_some()
    }

    async fn request(&mut self, max_body: usize, method: Method, path: &str) -> Result<(), SourceError> {
        self.request_with(max_body, (method, HeaderMap::new(), Bytes::new()), path).await
    }

    /// Sends a request, and waits for the head of the response. A redirect is not followed: a token must not go to another server.
    async fn request_with(&mut self, max_body: usize, content: Content, path: &str) -> Result<(), SourceError> {
        self.release();
        self.unanswered = false;
        let url = format!("{}{path}", self.server.target);
        let uri: Uri = url.parse().map_err(|error: http::uri::InvalidUri| io_error(&url, &error))?;
        let (connection, response) = self.send(&content, &uri, &url).await?;
        let (head, body) = response.into_parts();
        let status = head.status;
        let starting = head.headers.get(SERVER_STATE).is_some_and(|state| state == "starting");
        // Another status than 200 returns no statistics, so the server has removed none.
        self.unanswered = status == StatusCode::OK;
        if let Some(to) = head.headers.get(LOCATION).filter(|_| status.is_redirection()) {
            let to = without_secrets(to.to_str().unwrap_or_default());
            return Err(SourceError::Redirect { target: url, to, status: status.as_u16() });
        }
        self.response = Some(OpenResponse {
            connection,
            status,
            starting,
            body,
            arrived: Bytes::new(),
            room: max_body,
            max_body,
            url,
        });
        Ok(())
    }

    /// Sends one request, and waits for the head of its response. `url` is for messages.
    async fn send(
        &mut self,
        (method, headers, body): &Content,
        uri: &Uri,
        url: &str,
    ) -> Result<(ServerConnection, Response<Incoming>), SourceError> {
        let authorization = match &self.server.token_file {
            Some(file) => Some(self.token.header(file).await?),
            None => self.server.authorization.clone(),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(uri.path_and_query().map_or("/", |path| path.as_str()))
            .header(HOST, uri.authority().map_or("", |authority| authority.as_str()))
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("trtllm-exporter/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(body.clone()))
            .map_err(|error| io_error(url, &error))?;
        request.headers_mut().extend(headers.clone());
        request.headers_mut().extend(authorization.map(|value| (AUTHORIZATION, value)));
        // Taken, not borrowed: only a request that completes puts the connection back.
        let mut kept = self.connection.take();
        let reused = match &mut kept {
            // Not ready if the server has closed or reset the connection meanwhile.
            Some(kept) => kept.is_ready().await,
            None => false,
        };
        let mut connection = match kept.filter(|_| reused) {
            Some(kept) => kept,
            None => self.connect(uri).await?,
        };
        self.unanswered = true;
        let mut sent = connection.send(request.clone()).await;
        // The server closed the connection while the request was on its way, so the request is sent again.
        if reused && sent.as_ref().is_err_and(|error| error.is_canceled() || error.is_incomplete_message()) {
            connection = self.connect(uri).await?;
            sent = connection.send(request).await;
        }
        match sent {
            Ok(response) => Ok((connection, response)),
            // A server with TLS closes the connection, or sends a TLS alert.
            Err(error) if self.server.tls.is_none() => {
                Err(SourceError::NoHttp { target: self.server.target.clone(), cause: root_cause(&error) })
            }
            Err(error) => Err(io_error(url, &error)),
        }
    }

    /// Receives until there are `enough` bytes of the body, or the body ends. The body of an error status is received to
    /// its end. If receiving fails, the response is closed.
    async fn receive(&mut self, enough: usize) -> Result<(), SourceError> {
        let received = self.receive_open(enough).await;
        if received.is_err() {
            self.response = None;
        }
        received
    }

    async fn receive_open(&mut self, enough: usize) -> Result<(), SourceError> {
        let Some(response) = &mut self.response else { return Ok(()) };
        let OpenResponse { connection, body, arrived, room, max_body, url, .. } = response;
        let enough = if response.status == StatusCode::OK { enough } else { usize::MAX };
        let longest = if enough == usize::MAX { *max_body } else { MAX_PART };
        while self.body.len() < enough {
            if arrived.is_empty() {
                let Some(frame) = run(&mut connection.io, body.frame()).await else { return self.complete().await };
                let frame =
                    frame.map_err(|error| SourceError::Io { target: url.clone(), cause: root_cause(&error) })?;
                *arrived = frame.into_data().unwrap_or_default();
            }
            let more = arrived.len().min(enough - self.body.len());
            if self.permit.is_none() && self.body.len() + more > KEPT_BODY {
                self.permit = Some(LONG_RESPONSES.take().await);
                // All that may follow. Otherwise the vector doubles its capacity, above the limit.
                let announced = body.size_hint().exact().map_or(longest, |rest| arrived.len() + rest as usize);
                self.body.reserve_exact(announced.min(longest - self.body.len()));
            }
            if self.permit.is_none() && self.body.len() + more > KEPT_BODY / 2 {
                self.body.reserve_exact(KEPT_BODY - self.body.len());
            }
            let data = arrived.split_to(more);
            let left = (*room).min(longest - self.body.len());
            self.body.extend_from_slice(&data[..more.min(left)]);
            *room -= more.min(left);
            if more > left {
                let limit = if *room == 0 { *max_body } else { longest };
                return Err(SourceError::TooLarge { target: url.clone(), limit });
            }
        }
        Ok(())
    }

    /// Ends a response whose body has ended.
    async fn complete(&mut self) -> Result<(), SourceError> {
        let Some(OpenResponse { mut connection, status, starting, url, .. }) = self.response.take() else {
            return Ok(());
        };
        self.unanswered = false;
        if connection.is_ready().await {
            self.connection = Some(connection);
        }
        if status == StatusCode::OK {
            return Ok(());
        }
        // Some servers with TLS explain it in plain HTTP.
        if self.server.tls.is_none() && memchr::memmem::find(&self.body, b"HTTPS").is_some() {
            self.body.clear();
            return Err(SourceError::NoHttp { target: self.server.target.clone(), cause: format!("status {status}") });
        }
        let has_launcher = memchr::memmem::find(&self.body, LAUNCHER_GONE.as_bytes()).is_none();
        self.body.clear();
        if status == StatusCode::SERVICE_UNAVAILABLE && !has_launcher {
            return Err(SourceError::LauncherGone { target: url });
        }
        if status == StatusCode::SERVICE_UNAVAILABLE && starting {
            return Err(SourceError::Starting { target: url });
        }
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            self.token.refused();
            return Err(SourceError::Unauthorized { target: url, status: status.as_u16() });
        }
        Err(SourceError::HttpStatus { target: url, status: status.as_u16() })
    }

    /// Frees the last body after it was parsed. An engine's first answer is often its whole ring, and later answers are
    /// short, so the buffer shrinks to the usual length.
    pub fn release(&mut self) {
        self.usual_body = self.body.len().min(KEPT_BODY).max(self.usual_body - self.usual_body / 64);
        self.body.clear();
        if self.body.capacity() > 2 * self.usual_body {
            self.body.shrink_to(self.usual_body);
        }
        (self.response, self.permit) = (None, None);
    }

    /// Closes the connection, so that the next request opens a new one.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    /// What has arrived of the last body, even if its request failed or was dropped.
    pub(super) fn received(&self) -> &[u8] {
        &self.body
    }

    async fn connect(&self, uri: &Uri) -> Result<ServerConnection, SourceError> {
        let failed = |error: &(dyn Error + 'static)| SourceError::Connect {
            target: self.server.target.clone(),
            cause: root_cause(error),
        };
        let stream = self.connector.clone().oneshot(uri.clone()).await.map_err(|error| failed(&error))?;
        let stream = match &self.server.tls {
            None => Either::Left(stream.into_inner()),
            Some(config) => {
                let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
                let name = ServerName::try_from(host).map_err(|error| failed(&error))?;
                let connecting = TlsConnector::from(Arc::clone(config)).connect(name, stream.into_inner());
                Either::Right(connecting.await.map_err(|error| handshake_error(&self.server.target, &error))?)
            }
        };
        let stream = TokioIo::new(stream);
        let handshake = http1::Builder::new().max_buf_size(READ_BUFFER).handshake(stream).await;
        let (requests, io) = handshake.map_err(|error| failed(&error))?;
        Ok(ServerConnection { requests, io: Some(io) })
    }
}

fn io_error(url: &str, error: &(dyn Error + 'static)) -> SourceError {
    SourceError::Io { target: url.to_owned(), cause: root_cause(error) }
}

/// The beginning of an address without user, password and query, which may be secret.
fn without_secrets(address: &str) -> String {
    let address = address.split(['?', '#']).next().unwrap_or_default();
    let begin = address.find("//").map_or(0, |at| at + 2);
    let host = address.rfind('@').map_or(begin, |at| begin.max(at + 1));
    [&address[..begin], &address[host..]].concat().chars().filter(|letter| !letter.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use std::io;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_server_without_tls_is_opened_without_a_thread() {
        let access =
            crate::server::Access { target: "http://engine:1".to_owned(), ca_file: None, bearer_token_file: None };
        // A thread would need a runtime.
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(pin!(TargetServer::new(access)).poll(&mut context).is_ready());
    }

    #[tokio::test]
    async fn an_ip_address_needs_no_look_up() {
        for (host, expected) in [("engine", true), ("127.0.0.1", false), ("[::1]", false)] {
            let resolver = resolver(|_| Err(io::Error::other("a name was looked up")));
            let mut client = HttpClient::with_resolver(TargetServer::plain(format!("http://{host}:1")), resolver);
            let error = client.read("/metrics").await.unwrap_err();
            assert!(matches!(error, SourceError::Connect { .. }));
            assert_eq!(error.to_string().contains("a name was looked up"), expected, "{error}");
        }
    }

    /// Serves `connections` connections, each with `requests` requests, and then closes it.
    async fn server(connections: usize, requests: usize) -> (String, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = format!("http://{}", listener.local_addr().unwrap());
        let serving = async move {
            for _ in 0..connections {
                let (mut stream, _) = listener.accept().await.unwrap();
                for _ in 0..requests {
                    head(&mut stream).await;
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]").await.unwrap();
                }
            }
        };
        (target, tokio::spawn(serving))
    }

    /// A listener, and a client that sends a token to it.
    async fn listener() -> (TcpListener, HttpClient, tempfile::NamedTempFile) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = format!("http://{}", listener.local_addr().unwrap());
        let token = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(token.path(), "hunter2").unwrap();
        let server = TargetServer { token_file: Some(token.path().to_owned()), ..TargetServer::plain(target) };
        (listener, HttpClient::new(server), token)
    }

    async fn head(stream: &mut TcpStream) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        String::from_utf8(head).unwrap()
    }

    /// Accepts a connection, and answers its first request. Returns the head of the request.
    async fn answer(listener: &TcpListener, text: &str) -> (String, TcpStream) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = head(&mut stream).await;
        stream.write_all(text.as_bytes()).await.unwrap();
        (head, stream)
    }

    #[tokio::test]
    async fn a_server_that_loads_or_starts_is_not_a_frontend_that_lost_its_engine() {
        // The answer of upstream's serve/multi_frontend.py.
        let gone = r#"{"error":"The launcher frontend that serves /metrics is unavailable: ClientConnectorError()"}"#;
        for (header, body, not_ready, starting) in [
            ("", gone, false, false),
            ("", "", true, false),
            ("", r#"{"error":"LLM is unavailable"}"#, true, false),
            ("x-trtllm-server-state: starting\r\n", "", true, true),
        ] {
            let (listener, mut client, _token) = listener().await;
            let length = body.len();
            let text = format!("HTTP/1.1 503 Unavailable\r\n{header}content-length: {length}\r\n\r\n{body}");
            let (Err(error), _) = tokio::join!(client.read("/metrics"), answer(&listener, &text)) else { panic!() };
            let found = (error.is_not_ready(), error.is_starting(), error.status());
            assert_eq!(found, (not_ready, starting, Some(503)), "{error}");
            assert_eq!(error.kind(), trtllm_records::ErrorKind::HttpStatus);
        }
    }

    #[tokio::test]
    async fn what_a_request_has_taken_is_unanswered_until_its_answer_has_ended() {
        // What the server sends, whether the client waits for more, and whether statistics may be lost.
        let cases = [
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]", false),
            ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n[{}", true),
            ("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n[", true),
            ("", true),
            ("HTTP/1.1 503 Busy\r\ncontent-length: 9\r\n\r\n", false),
        ];
        for (text, lost) in cases {
            let (listener, client, _token) = listener().await;
            let mut client = client.with_max_body(50);
            let answered = async { drop(answer(&listener, text).await) };
            let (_, ()) = tokio::join!(client.read("/metrics"), answered);
            assert_eq!(client.is_unanswered(), lost, "{text}");
            // Nobody listens there, and no other test can get the port, so no request is sent.
            let closed = tokio::net::TcpSocket::new_v4().unwrap();
            closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            client.server = TargetServer::plain(format!("http://{}", closed.local_addr().unwrap()));
            client.disconnect();
            assert!(client.read("/metrics").await.is_err());
            assert!(!client.is_unanswered(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_redirect_is_told_with_its_target_and_gets_no_token() {
        let limit = std::time::Duration::from_secs(5);
        for status in [301, 302, 303, 307, 308] {
            let (other, ..) = listener().await;
            let (asked, mut client, _token) = listener().await;
            let address = other.local_addr().unwrap();
            let to = format!("http://user:hunter4@{address}/metrics?token=hunter3");
            let text = format!("HTTP/1.1 {status} X\r\nlocation: {to}\r\ncontent-length: 5\r\n\r\nmoved");
            let read = tokio::time::timeout(limit, client.read("/metrics"));
            let (read, (head, mut stream)) = tokio::join!(read, answer(&asked, &text));
            let error = read.expect("the redirect was followed").unwrap_err();
            assert_eq!((error.kind(), error.status()), (trtllm_records::ErrorKind::HttpStatus, Some(status)));
            let text = error.to_string();
            assert!(text.contains(&format!("redirects to http://{address}/metrics (status {status})")), "{text}");
            assert!(!text.contains("hunter"), "{text}");
            assert!(head.starts_with("GET /metrics ") && head.contains("authorization: Bearer hunter2"), "{head}");
            for listener in [&other, &asked] {
                let again = tokio::time::timeout(std::time::Duration::ZERO, listener.accept()).await;
                assert!(again.is_err(), "the redirect was followed");
            }
            let next = tokio::time::timeout(limit, stream.read(&mut [0])).await.expect("the connection stays open");
            assert_eq!(next.unwrap_or(0), 0, "it was followed on the same connection");
        }
    }

    #[test]
    fn the_remedy_of_a_status_fits_the_status() {
        let text = |status| SourceError::HttpStatus { target: "http://h:1/metrics".to_owned(), status }.to_string();
        for status in [404, 405, 410] {
            assert!(text(status).contains("check that --source names the port"), "{}", text(status));
        }
        assert!(text(429).contains("limit of requests") && text(502).contains("look at the log"));
        let is_missing = |status| SourceError::HttpStatus { target: String::new(), status }.is_missing();
        assert!([404, 405, 410].into_iter().all(is_missing));
        assert!(![301, 400, 401, 403, 408, 418, 425, 429, 451, 500, 501, 502, 503, 504].into_iter().any(is_missing));
    }

    #[test]
    fn the_buffer_of_a_long_first_answer_is_freed_while_the_others_are_short() {
        let mut client = HttpClient::new(TargetServer::plain("http://engine:1".to_owned()));
        let mut read = |length| {
            client.body.extend(std::iter::repeat_n(b'x', length));
            client.release();
            client.body.capacity()
        };
        assert_eq!(read(1 << 20), KEPT_BODY);
        for _ in 0..400 {
            read(2000);
        }
        assert!(read(2000) <= 4000, "{} bytes", client.body.capacity());
    }

    #[test]
    fn the_buffer_stays_while_long_and_short_answers_alternate() {
        let mut client = HttpClient::new(TargetServer::plain("http://engine:1".to_owned()));
        for _ in 0..100 {
            for length in [100_000, 2, 0, 2, 0] {
                client.body.extend(std::iter::repeat_n(b'x', length));
                client.release();
                assert!(client.body.capacity() >= 90_000);
            }
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn requests_in_a_row_share_one_connection() {
        let (target, serving) = server(1, 100).await;
        let mut client = HttpClient::new(TargetServer::plain(target));
        for _ in 0..100 {
            // A second connection would never be accepted.
            assert_eq!(client.read("/metrics").await.unwrap(), b"[]");
        }
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_the_server_closed_is_replaced() {
        let (target, serving) = server(3, 1).await;
        let mut client = HttpClient::new(TargetServer::plain(target));
        for _ in 0..3 {
            assert_eq!(client.read("/metrics").await.unwrap(), b"[]");
        }
        serving.await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_the_server_reset_between_two_requests_is_replaced() {
        let (listener, mut client, _token) = listener().await;
        for _ in 0..3 {
            let text = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]";
            let (read, (_, stream)) = tokio::join!(client.read("/metrics"), answer(&listener, text));
            assert_eq!(read.unwrap(), b"[]");
            // Closing a socket without lingering resets its connection.
            stream.set_zero_linger().unwrap();
            drop(stream);
            // Gives the client's runtime time to notice the reset, as between two polls.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}
