//! Adds what hyper lacks: a deadline for each phase of a connection, and limits on connections and unsent responses.
//! [`Timed`] wraps a connection's stream and reports progress. [`Connections`] is the table of all connections; its sweep
//! aborts those that are past a deadline. hyper's `header_read_timeout` is no replacement: it also runs between requests.
//! hyper has no limit for writing, and tower-http's timeouts end when hyper has taken the body.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use trtllm_page::metrics::own::{HttpMetrics, HttpRefusal};

/// Most bytes of all responses that are not sent yet.
const MAX_UNSENT_BYTES: usize = 2 << 20;
/// Deadline of a TLS handshake, and of a request's head from its first byte. Also the limit for a peer that accepts no bytes.
const STALL: Duration = Duration::from_secs(10);
/// Deadline of a whole response. A shorter timeout that the scraper announces replaces it.
pub(super) const RESPONSE: Duration = Duration::from_secs(30);
/// Longest time between requests. Prometheus closes an idle connection earlier, after five minutes.
const IDLE: Duration = Duration::from_secs(330);

/// What a connection waits for, and since when.
pub(super) struct Progress {
    /// Since when the peer has sent and accepted no bytes that are due. `None` while a request is handled.
    peer_awaited_since: Option<Instant>,
    /// The peer may send another request. Otherwise a head or a TLS handshake has begun, or a request is being answered.
    is_idle: bool,
    response: Option<PendingResponse>,
    /// Bytes of responses that are not sent yet.
    unsent_bytes: usize,
}

/// A request that is not answered yet.
struct PendingResponse {
    since: Instant,
    limit: Duration,
    /// The response is ready and is being sent.
    is_ready: bool,
}

pub(super) type ConnectionProgress = Mutex<Progress>;

impl Progress {
    fn new() -> Self {
        Self { peer_awaited_since: Some(Instant::now()), is_idle: false, response: None, unsent_bytes: 0 }
    }

    /// Called when a request's head is complete. The response must be sent within `limit`.
    pub(super) fn request_started(&mut self, limit: Duration) {
        (self.peer_awaited_since, self.is_idle) = (None, false);
        self.response = Some(PendingResponse { since: Instant::now(), limit, is_ready: false });
    }

    pub(super) fn response_ready(&mut self, bytes: usize) {
        self.response.iter_mut().for_each(|response| response.is_ready = true);
        self.unsent_bytes += bytes;
    }

    fn bytes_read(&mut self) {
        if std::mem::take(&mut self.is_idle) {
            self.peer_awaited_since = Some(Instant::now());
        }
    }

    fn bytes_written(&mut self, bytes: usize) {
        self.peer_awaited_since = None;
        self.unsent_bytes = self.unsent_bytes.saturating_sub(bytes);
    }

    /// The peer accepts no bytes.
    fn blocked(&mut self) {
        self.peer_awaited_since.get_or_insert_with(Instant::now);
    }

    /// Called when hyper has written everything that it had to write.
    fn flushed(&mut self) {
        if self.response.take_if(|response| response.is_ready).is_some() {
            (self.peer_awaited_since, self.is_idle, self.unsent_bytes) = (Some(Instant::now()), true, 0);
        }
    }

    fn reads_head(&self) -> bool {
        self.response.is_none() && !self.is_idle
    }

    fn is_overdue(&self, now: Instant) -> bool {
        let limit = if self.is_idle { IDLE } else { STALL };
        self.peer_awaited_since.is_some_and(|since| now > since + limit)
            || self.response.as_ref().is_some_and(|response| now > response.since + response.limit)
    }
}

/// A stream that reports progress to its [`ConnectionProgress`].
pub(super) struct Timed<S> {
    pub(super) stream: S,
    pub(super) connection: Arc<ConnectionProgress>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        if into.filled().len() > before {
            self.connection.lock().bytes_read();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.connection.lock().reads_head() {
            return self.poll_refuse(context, slices);
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        match &written {
            Poll::Pending => self.connection.lock().blocked(),
            Poll::Ready(bytes) => self.connection.lock().bytes_written(*bytes.as_ref().unwrap_or(&0)),
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        match &flushed {
            // TLS may have accepted bytes that the socket has not.
            Poll::Pending => self.connection.lock().blocked(),
            Poll::Ready(_) => self.connection.lock().flushed(),
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: AsyncWrite + Unpin> Timed<S> {
    /// Writes the answer to a head that hyper cannot read. hyper would answer by itself, and then closes the connection. Its answer lacks
    /// the headers of all others, so this one is written in its place. A part of it would be of no use.
    fn poll_refuse(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let is_too_large = slices.iter().any(|slice| slice.starts_with(b"HTTP/1.1 431"));
        let status = if is_too_large { "431 Request Header Fields Too Large" } else { "400 Bad Request" };
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\ncache-control: no-store\r\n\
             x-content-type-options: nosniff\r\n\r\n"
        );
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, answer.as_bytes()))?;
        Poll::Ready(if written < answer.len() {
            Err(io::ErrorKind::WriteZero.into())
        } else {
            Ok(slices.iter().map(|slice| slice.len()).sum())
        })
    }
}

type ConnectionTable = Vec<(Arc<ConnectionProgress>, AbortHandle)>;

/// All connections of one server.
pub(super) struct Connections {
    table: Mutex<ConnectionTable>,
    limit: usize,
    metrics: Arc<HttpMetrics>,
}

impl Connections {
    pub(super) fn new(limit: usize, metrics: Arc<HttpMetrics>) -> Self {
        Self { table: Mutex::default(), limit, metrics }
    }

    /// Returns the table after removing connections that have ended.
    fn table(&self) -> MutexGuard<'_, ConnectionTable> {
        let mut table = self.table.lock();
        table.retain(|(_, task)| !task.is_finished());
        table
    }

    /// Starts the task of a new connection. At the limit, the connection that has waited longest for its peer is
    /// aborted. If no connection waits for its peer, the new one is dropped.
    pub(super) fn spawn<F: Future<Output = ()> + Send + 'static>(
        &self,
        serve: impl FnOnce(Arc<ConnectionProgress>) -> F,
    ) {
        let mut table = self.table();
        if table.len() >= self.limit {
            self.metrics.refused(HttpRefusal::Overloaded);
            if !abort_first(&mut table, |progress| progress.peer_awaited_since) {
                return;
            }
        }
        let connection = Arc::new(Mutex::new(Progress::new()));
        let task = tokio::spawn(serve(Arc::clone(&connection)));
        table.push((connection, task.abort_handle()));
    }

    /// Keeps unsent responses below their limit: aborts the oldest response whose peer accepts no bytes.
    pub(super) fn limit_unsent_bytes(&self) {
        let mut table = self.table();
        let blocked = |progress: &Progress| {
            progress.response.as_ref().filter(|_| progress.peer_awaited_since.is_some()).map(|response| response.since)
        };
        if unsent_bytes(&table) > MAX_UNSENT_BYTES && abort_first(&mut table, blocked) {
            self.metrics.refused(HttpRefusal::Timeout);
        }
    }

    /// Aborts connections that are past a deadline.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        for (connection, task) in self.table().iter() {
            let mut progress = connection.lock();
            if progress.is_overdue(now) {
                task.abort();
                if !progress.is_idle {
                    self.metrics.refused(HttpRefusal::Timeout);
                }
                // So the timeout is counted once, even if the task ends after the next sweep.
                (progress.is_idle, progress.response) = (true, None);
            }
        }
    }

    /// Aborts idle connections at once. The others get up to one second to finish.
    pub(super) async fn shut_down(&self) {
        let deadline = Instant::now() + Duration::from_secs(1);
        while !self.table().is_empty() {
            for (connection, task) in self.table().iter() {
                if Instant::now() > deadline || connection.lock().is_idle {
                    task.abort();
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn unsent_bytes(table: &ConnectionTable) -> usize {
    table.iter().map(|(connection, _)| connection.lock().unsent_bytes).sum()
}

/// Aborts the connection with the earliest `since`. Returns false if no connection has such a time.
fn abort_first(table: &mut ConnectionTable, since: impl Fn(&Progress) -> Option<Instant>) -> bool {
    let found = table.iter().enumerate().filter_map(|(at, (connection, _))| Some((since(&connection.lock())?, at)));
    let Some((_, at)) = found.min() else { return false };
    table.swap_remove(at).1.abort();
    true
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::body::Body;
    use hyper::server::conn::http1;
    use hyper::{Response, service};
    use hyper_util::rt::{TokioIo, TokioTimer};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const LIMIT: usize = 256;

    /// Connections whose tasks never end by themselves, in the order of their start.
    async fn table(size: usize) -> (Connections, Vec<Arc<ConnectionProgress>>) {
        let connections = Connections::new(LIMIT, Arc::default());
        let mut all = Vec::new();
        for _ in 0..size {
            connections.spawn(|connection| {
                all.push(connection);
                std::future::pending()
            });
            // Each connection starts later than the one before it.
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        (connections, all)
    }

    /// Indexes of the connections that still run.
    async fn running(connections: &Connections, all: &[Arc<ConnectionProgress>]) -> Vec<usize> {
        tokio::task::yield_now().await;
        let table = connections.table();
        let runs =
            |connection: &&Arc<ConnectionProgress>| table.iter().any(|(other, _)| Arc::ptr_eq(other, connection));
        all.iter().enumerate().filter(|(_, connection)| runs(connection)).map(|(index, _)| index).collect()
    }

    fn block(connection: &ConnectionProgress, bytes: usize) {
        let mut progress = connection.lock();
        progress.request_started(RESPONSE);
        progress.response_ready(bytes);
        progress.blocked();
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_the_cap_the_oldest_unsent_response_is_cut() {
        let (connections, all) = table(4).await;
        for (connection, bytes) in [(&all[2], MAX_UNSENT_BYTES / 2), (&all[1], MAX_UNSENT_BYTES / 2)] {
            block(connection, bytes);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        connections.limit_unsent_bytes();
        assert_eq!(running(&connections, &all).await, [0, 1, 2, 3], "exactly the cap is allowed");
        block(&all[3], 1);
        connections.limit_unsent_bytes();
        assert_eq!(running(&connections, &all).await, [0, 1, 3]);
        // Bytes that the peer has read, and connections that have ended, no longer count.
        drop((connections, all));
        let (connections, all) = table(1).await;
        block(&all[0], 100);
        all[0].lock().bytes_written(30);
        assert_eq!(unsent_bytes(&connections.table()), 70);
        all[0].lock().flushed();
        assert_eq!(unsent_bytes(&connections.table()), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_cap_the_connection_that_waits_longest_makes_room() {
        let (connections, all) = table(LIMIT).await;
        // The first connection is busy. The second is idle, but the third has waited for longer.
        all[0].lock().request_started(RESPONSE);
        all[1].lock().request_started(RESPONSE);
        all[1].lock().response_ready(1);
        all[1].lock().flushed();
        let accepted = |connections: &Connections| {
            let mut accepted = false;
            connections.spawn(|_| {
                accepted = true;
                std::future::pending()
            });
            accepted
        };
        assert!(accepted(&connections));
        let left = running(&connections, &all).await;
        assert_eq!(left[..3], [0, 1, 3]);
        // No connection waits for its peer, so the new one is dropped.
        for (connection, _) in connections.table().iter() {
            connection.lock().request_started(RESPONSE);
        }
        assert!(!accepted(&connections));
        assert_eq!(connections.table().len(), LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn each_phase_has_its_deadline() {
        let (connections, all) = table(5).await;
        let [_head, response, blocked, idle, next] = &all[..] else { panic!("five connections") };
        response.lock().request_started(Duration::from_secs(20));
        response.lock().response_ready(1);
        block(blocked, 1);
        for connection in [idle, next] {
            let mut progress = connection.lock();
            progress.bytes_read();
            progress.request_started(RESPONSE);
            progress.response_ready(1);
            progress.flushed();
        }
        // The peer has begun to send another request.
        next.lock().bytes_read();
        let mut ended = [0; 5];
        for seconds in 1..400 {
            tokio::time::advance(Duration::from_secs(1)).await;
            connections.sweep();
            let left = running(&connections, &all).await;
            for (index, ended) in ended.iter_mut().enumerate().filter(|(_, ended)| **ended == 0) {
                *ended = if left.contains(&index) { 0 } else { seconds };
            }
        }
        assert_eq!(ended, [10, 21, 11, 331, 11]);
    }

    #[tokio::test(start_paused = true)]
    async fn hypers_own_limit_for_a_head_would_close_idle_connections() {
        let (mut peer, stream) = tokio::io::duplex(1 << 10);
        let respond = service::service_fn(async |_| Ok::<_, Infallible>(Response::new(Body::empty())));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(STALL);
        peer.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let ended = tokio::time::timeout(IDLE, http.serve_connection(TokioIo::new(stream), respond)).await;
        assert!(
            ended.is_ok_and(|ended| ended.is_err_and(|error| error.is_timeout())),
            "hyper has other limits now; compare them with ours"
        );
        // The only request was answered.
        let mut response = [0; 15];
        peer.read_exact(&mut response).await.unwrap();
        assert_eq!(&response, b"HTTP/1.1 200 OK");
    }
}
