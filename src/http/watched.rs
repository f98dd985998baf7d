//! A stream that tells its connection when something was read, when there is no room to write, and when everything
//! written has left.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connections::Connection;

#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    connection: Arc<Connection>,
    /// The last bytes read.
    tail: [u8; HEAD_END.len()],
}

/// What a request without a body ends with.
const HEAD_END: [u8; 4] = *b"\r\n\r\n";

impl<S> Watched<S> {
    pub(super) const fn new(stream: S, connection: Arc<Connection>) -> Self {
        Self { stream, connection, tail: [0; HEAD_END.len()] }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, into);
        let fresh = &into.filled()[before..];
        if !fresh.is_empty() {
            let last = &fresh[fresh.len().saturating_sub(HEAD_END.len())..];
            this.tail.rotate_left(last.len());
            this.tail[HEAD_END.len() - last.len()..].copy_from_slice(last);
            this.connection.heard(this.tail == HEAD_END);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.connection.wrote(written.is_pending());
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.connection.wrote(written.is_pending());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            this.connection.flushed();
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
