//! One connection: TLS where the gate asks for it, then HTTP/1.1 or HTTP/2, until its end or that of the daemon. Its time
//! limits are kept by `connections`, from what it tells them.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, rustls};
use tokio_util::either::Either;

use crate::metrics::exporter::Refusal;

use super::connections::{Connection, Place};
use super::layers::Gate;
use super::listen::Stream;
use super::watched::Watched;
use crate::web::reload::Broken;

/// A request's head, bytes.
const MAX_HEAD: usize = 16 << 10;
/// What is read and not parsed, or handed over and not sent, bytes.
const MAX_BUFFER: usize = 64 << 10;
/// The next piece of an HTTP/2 answer is asked for when less than this many bytes wait to be sent.
const NEXT_PIECE: usize = 1;
/// Requests of one HTTP/2 connection at once. A scraper has one; a tenth of `--web.max-requests` is for a peer that stalls.
const MAX_STREAMS: u32 = 4;
/// The first byte of TLS.
const HANDSHAKE: u8 = 22;
/// In the words of Go's server, so that people find what it means.
const NOT_TLS: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n\
    Client sent an HTTP request to an HTTPS server.\n";

/// Serves one peer, which has its place until then, to its end.
pub(super) async fn speak(stream: Stream, gate: Arc<Gate>, connection: Arc<Connection>, _place: Place) {
    let stream = match stream {
        Either::Left(stream) if gate.live.tls() => {
            let mut first = [0];
            match stream.peek(&mut first).await {
                // A look whether anybody listens.
                Ok(0) | Err(_) => return,
                Ok(_) if first[0] == HANDSHAKE => Either::Left(stream),
                Ok(_) => {
                    gate.counts.refused(Refusal::TlsHandshake);
                    return say_that_this_is_tls(stream).await;
                }
            }
        }
        stream => stream,
    };
    if !gate.live.tls() {
        return http1(Either::Left(stream), gate, connection).await;
    }
    match shake_hands(stream, &gate).await {
        Ok(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => http2(stream, gate, connection).await,
        Ok(stream) => http1(Either::Right(stream), gate, connection).await,
        Err(error) => {
            let broken = error.get_ref().is_some_and(|cause| cause.is::<Broken>());
            gate.counts.refused(if broken { Refusal::WebConfig } else { Refusal::TlsHandshake });
            // A peer's doing, as often as it likes: the count is for every day.
            tracing::debug!(%error, "TLS handshake failed");
        }
    }
}

/// By the configuration as it is when the client says hello.
async fn shake_hands(stream: Stream, gate: &Gate) -> io::Result<Box<TlsStream<Stream>>> {
    let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
    let settings = gate.live.settings().await.map_err(io::Error::other)?;
    let terms = settings.tls.clone().ok_or_else(|| io::Error::other(Broken))?;
    Ok(Box::new(hello.into_stream(terms).await?))
}

async fn say_that_this_is_tls(mut stream: TcpStream) {
    let _ = stream.write_all(NOT_TLS).await;
    let _ = stream.shutdown().await;
    // Closing with something unread would take the words back.
    let mut ignored = [0; 1024];
    let rest = async { while matches!(stream.read(&mut ignored).await, Ok(1..)) {} };
    let _ = tokio::time::timeout(Duration::from_secs(1), rest).await;
}

/// Runs a connection to its end; told to stop, it finishes what is under way. How a peer ends is its own affair.
/// The flag is looked at where a channel would be polled, which costs a lock that all connections share.
macro_rules! run {
    ($running:expr, $connection:expr, $gate:expr) => {{
        let (mut running, mut told) = (pin!($running), false);
        let ended: hyper::Result<()> = poll_fn(|context| {
            if !told && $connection.is_ending() {
                told = true;
                running.as_mut().graceful_shutdown();
            }
            running.as_mut().poll(context)
        })
        .await;
        if ended.is_err_and(|error| error.is_parse()) {
            $gate.counts.refused(Refusal::BadRequest);
        }
    }};
}

async fn own_waker() -> std::task::Waker {
    poll_fn(|context| Poll::Ready(context.waker().clone())).await
}

async fn http1(stream: Either<Stream, Box<TlsStream<Stream>>>, gate: Arc<Gate>, connection: Arc<Connection>) {
    connection.speaks(false, own_waker().await);
    let watched = TokioIo::new(Watched::new(stream, Arc::clone(&connection)));
    let service = service_fn(async |request| Ok::<_, Infallible>(gate.answer(&connection, request).await));
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(None).max_header_size(MAX_HEAD).max_buf_size(MAX_BUFFER);
    run!(builder.serve_connection(watched, service), connection, gate);
}

async fn http2(stream: Box<TlsStream<Stream>>, gate: Arc<Gate>, connection: Arc<Connection>) {
    connection.speaks(true, own_waker().await);
    let watched = TokioIo::new(Watched::new(stream, Arc::clone(&connection)));
    let asking = (Arc::clone(&gate), Arc::clone(&connection));
    let service = service_fn(move |request| {
        let (gate, connection) = asking.clone();
        async move { Ok::<_, Infallible>(gate.answer(&connection, request).await) }
    });
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD as u32)
        .max_send_buf_size(NEXT_PIECE);
    run!(builder.serve_connection(watched, service), connection, gate);
}
