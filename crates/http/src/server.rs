//! Serves a router on listeners: one task per connection, TLS where configured, HTTP/1.1 by hyper.
//!
//! HTTP/2 is not offered. hyper's HTTP/2 server takes a whole response from the router at once, whether or not the peer
//! reads it, so nothing outside hyper can tell an unread response from an idle connection. A scraper has one request at a
//! time and gains nothing from HTTP/2; with TLS, ALPN makes it use HTTP/1.1.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, HttpBody as _};
use exporter_web_config::TlsAcceptor;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;
use tokio_util::either::Either;
use tower::ServiceExt as _;

use crate::listen::{Listener, Stream};
use trtllm_page::metrics::own::{HttpMetrics, HttpRefusal};
use trtllm_service::log::LogLimit;
use trtllm_service::shutdown::Shutdown;
use trtllm_service::supervise::{self, Heartbeat, Task};

use super::connections::{ConnectionProgress, Connections, RESPONSE, Timed};

/// Limit of the connections of one server, if there are enough file descriptors.
pub const MAX_CONNECTIONS: usize = 256;

/// Limit of the requests that are handled at once, unless another one is configured.
pub const MAX_REQUESTS: usize = 40;

/// Limit of a request's head in bytes.
const MAX_HEAD: usize = 16 << 10;
/// Limit of hyper's buffer for a connection in bytes.
const MAX_BUFFER: usize = 64 << 10;
/// How often connections are checked against their deadlines.
const SWEEP: Duration = Duration::from_millis(500);

/// What to serve, and where.
#[derive(Debug)]
pub struct HttpServer {
    pub listeners: Vec<Listener>,
    pub router: Router,
    pub tls: Option<TlsAcceptor>,
    pub metrics: Arc<HttpMetrics>,
    pub heartbeat: Heartbeat,
    pub max_connections: usize,
}

impl HttpServer {
    /// Serves until shutdown. Responses that are not complete then get a moment to finish.
    pub async fn run(self, mut shutdown: Shutdown) {
        let Self { listeners, router, tls, metrics, heartbeat, max_connections } = self;
        let connections = Connections::new(max_connections, Arc::clone(&metrics));
        let service = Arc::new(Service { router, tls, metrics, connections });
        let mut accepting = JoinSet::new();
        for listener in listeners {
            let service = Arc::clone(&service);
            accepting.spawn(async move {
                supervise::restart_after_panic(Task::Accept, || accept(&listener, &service)).await;
            });
        }
        let mut sweep = tokio::time::interval(SWEEP);
        loop {
            tokio::select! {
                _ = sweep.tick() => {
                    heartbeat.beat();
                    service.connections.sweep();
                }
                () = shutdown.wait() => break,
            }
        }
        accepting.shutdown().await;
        service.connections.shut_down().await;
    }
}

struct Service {
    router: Router,
    tls: Option<TlsAcceptor>,
    metrics: Arc<HttpMetrics>,
    connections: Connections,
}

/// Accepts connections forever.
async fn accept(listener: &Listener, service: &Arc<Service>) {
    let mut log = LogLimit::default();
    loop {
        match listener.accept().await {
            Ok(stream) => {
                let serving = Arc::clone(service);
                service.connections.spawn(|connection| serving.serve(stream, connection));
            }
            // The peer disconnected before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                // With too few file descriptors, success and failure alternate, so the warnings are limited.
                if let Some(lines_left_out) = log.allow(Instant::now()) {
                    tracing::warn!(%error, lines_left_out, "cannot accept connections; raise the limit of open files (LimitNOFILE=, ulimit -n)");
                }
                // Most likely there are no file descriptors left; wait until a connection ends.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

impl Service {
    async fn serve(self: Arc<Self>, stream: Stream, connection: Arc<ConnectionProgress>) {
        let stream = match &self.tls {
            None => Either::Left(stream),
            Some(acceptor) => match acceptor.accept(stream).await {
                // Boxed: plain connections must not pay for the size of a TLS session.
                Ok(stream) => Either::Right(Box::new(stream)),
                // The acceptor counts this. Clients can cause it at any rate, so the log does not show it by default.
                Err(error) => return tracing::debug!(%error, "TLS handshake failed"),
            },
        };
        let timed = TokioIo::new(Timed { stream, connection: Arc::clone(&connection) });
        let service = hyper::service::service_fn(|request| self.respond(&connection, request));
        let mut http = http1::Builder::new();
        http.header_read_timeout(None).max_header_size(MAX_HEAD).max_buf_size(MAX_BUFFER);
        let ended = http.serve_connection(timed, service).await;
        if ended.is_err_and(|error| error.is_parse()) {
            self.metrics.refused(HttpRefusal::BadRequest);
        }
    }

    async fn respond(
        &self,
        connection: &ConnectionProgress,
        request: Request<Incoming>,
    ) -> Result<axum::response::Response, Infallible> {
        connection.lock().request_started(time_limit(request.headers()));
        let mut response = self.router.clone().oneshot(request.map(Body::new)).await?;
        protect(response.headers_mut());
        connection.lock().response_ready(response.body().size_hint().lower() as usize);
        self.connections.limit_unsent_bytes();
        Ok(response)
    }
}

/// Tells browsers and caches not to guess the type of any answer and not to keep it, refusals included. Headers of the
/// handlers and of the web configuration stay.
fn protect(headers: &mut HeaderMap) {
    headers.entry(header::X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// The time for a response. A response after the scraper's own timeout would be useless.
fn time_limit(headers: &HeaderMap) -> Duration {
    let given = headers.get("x-prometheus-scrape-timeout-seconds").and_then(|value| value.to_str().ok()?.parse().ok());
    let given = given.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    given.map_or(RESPONSE, |given| given.clamp(Duration::from_secs(1), RESPONSE))
}
