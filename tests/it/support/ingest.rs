//! An ingest socket in a folder of its own, and publishers that connect to it.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use super::daemon::Daemon;
use super::until;

#[derive(Debug)]
pub(crate) struct Ingest {
    folder: tempfile::TempDir,
}

impl Ingest {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("ingest.sock")
    }

    /// The value of `--source`.
    pub(crate) fn source(&self) -> String {
        format!("socket:{}", self.path().display())
    }

    /// Starts a daemon that reads this socket.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Daemon {
        Daemon::start(&[&["--source", &self.source()], arguments].concat())
    }

    /// Connects as soon as the daemon listens.
    pub(crate) fn connect(&self) -> UnixStream {
        until(|| UnixStream::connect(self.path()).map_err(|error| error.to_string()))
    }

    /// Connects, and sends this as the hello of the engine.
    pub(crate) fn publisher(&self, hello: &str) -> UnixStream {
        let mut stream = self.connect();
        writeln!(stream, "{{\"hello\":{hello}}}").unwrap();
        stream
    }
}

/// Sends a record of each of these iterations. Each completes a request.
pub(crate) fn send(stream: &mut UnixStream, iterations: std::ops::RangeInclusive<u64>) {
    for iter in iterations {
        let kv =
            "\"kvCacheStats\":{\"maxNumBlocks\":100,\"usedNumBlocks\":1,\"freeNumBlocks\":99,\"tokensPerBlock\":32}";
        writeln!(stream, "{{\"iter\":{iter},\"numActiveRequests\":1,\"numCompletedRequests\":1,{kv}}}").unwrap();
    }
}
