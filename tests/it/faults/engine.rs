//! A server that imitates trtllm-serve: each poll gets one new record, until a fault is set.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// How the server handles a faulty request.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// Sends status 200 with this body.
    Body(Vec<u8>),
    /// Sends these bytes, including the status line and headers, and then does what `End` says.
    Raw(Vec<u8>, End),
}

#[derive(Debug, Clone)]
pub(crate) enum End {
    Close,
    /// Keeps the connection open and silent until the fault is over.
    Hang,
    /// Repeats these bytes until the peer closes the connection.
    Endless(Vec<u8>),
    /// Sends these bytes, one every 100 ms.
    Slow(Vec<u8>),
}

/// For [`Engine::set`] instead of a path: the server closes the connection without reading the request, and so resets
/// it.
pub(crate) const RESET: &str = "reset";

#[derive(Debug, Default)]
struct Shared {
    /// Number of records in answers without a fault.
    handed_out: u64,
    /// The iteration number of the last record.
    iter: u64,
    paused: bool,
    /// Paths, each with the faulty answer for its next request. Each answer is used once.
    faults: Vec<(&'static str, Answer)>,
    /// A fault that lasts until it is removed.
    broken: Option<(&'static str, Answer)>,
}

impl Shared {
    fn take(&mut self, path: &str) -> Option<Answer> {
        if let Some((broken, answer)) = &self.broken
            && *broken == path
        {
            return Some(answer.clone());
        }
        let first = self.faults.iter().position(|(wanted, _)| *wanted == path)?;
        Some(self.faults.remove(first).1)
    }
}

/// A running server. It ends with the test process.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
}

impl Engine {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let engine = Self { address: listener.local_addr().unwrap(), shared: Arc::default() };
        let serving = engine.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                thread::spawn(move || serving.serve(stream));
            }
        });
        engine
    }

    pub(crate) fn source(&self) -> String {
        format!("trtllm-serve:http://{}", self.address)
    }

    pub(crate) fn handed_out(&self) -> u64 {
        self.shared.lock().unwrap().handed_out
    }

    /// The iteration number for a record in a faulty answer.
    pub(crate) fn next_iter(&self) -> u64 {
        let mut shared = self.shared.lock().unwrap();
        shared.iter += 1;
        shared.iter
    }

    /// While the engine is paused, its answers are empty.
    pub(crate) fn pause(&self, paused: bool) {
        self.shared.lock().unwrap().paused = paused;
    }

    /// Answers the next request of `path` with `answer`.
    pub(crate) fn set(&self, path: &'static str, answer: Answer) {
        self.shared.lock().unwrap().faults.push((path, answer));
    }

    pub(crate) fn break_for_ever(&self, path: &'static str, answer: Answer) {
        self.shared.lock().unwrap().broken = Some((path, answer));
    }

    pub(crate) fn is_over(&self) -> bool {
        self.shared.lock().unwrap().faults.is_empty()
    }

    fn serve(&self, stream: TcpStream) {
        let Ok(mut writer) = stream.try_clone() else { return };
        let mut reader = BufReader::new(stream);
        loop {
            if self.shared.lock().unwrap().take(RESET).is_some() {
                // Closing a socket with unread bytes resets the connection, so wait for the request without reading it.
                let _ = reader.get_ref().peek(&mut [0]);
                return;
            }
            let mut request = String::new();
            while !request.ends_with("\r\n\r\n") {
                if !reader.read_line(&mut request).is_ok_and(|bytes| bytes > 0) {
                    return;
                }
            }
            let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
            let body = match self.answer(&path) {
                Answer::Body(body) => body,
                Answer::Raw(bytes, end) => {
                    if writer.write_all(&bytes).is_ok() {
                        finish(&mut writer, end);
                    }
                    return;
                }
            };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            if writer.write_all(&[head.as_bytes(), &body].concat()).is_err() {
                return;
            }
        }
    }

    fn answer(&self, path: &str) -> Answer {
        let mut shared = self.shared.lock().unwrap();
        if let Some(answer) = shared.take(path) {
            return answer;
        }
        Answer::Body(match path {
            "/metrics" if !shared.paused => {
                shared.handed_out += 1;
                shared.iter += 1;
                format!("[{}]", record(shared.iter)).into_bytes()
            }
            "/version" => br#"{"version":"1.2.0"}"#.to_vec(),
            "/metrics" | "/perf_metrics" => b"[]".to_vec(),
            _ => return Answer::Raw(refusal("404 Not Found"), End::Close),
        })
    }
}

/// An empty answer that announces the end of the connection, so that the daemon sends no other request over it.
pub(crate) fn refusal(status: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").into_bytes()
}

fn finish(stream: &mut TcpStream, end: End) {
    match end {
        End::Close => {}
        End::Hang => {
            // The peer closes the connection when its timeout expires.
            let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
            let _ = stream.read(&mut [0]);
        }
        End::Endless(bytes) => while stream.write_all(&bytes).is_ok() {},
        End::Slow(bytes) => {
            for byte in bytes {
                thread::sleep(Duration::from_millis(100));
                if stream.write_all(&[byte]).is_err() {
                    return;
                }
            }
        }
    }
}

/// A record of a busy engine with every value that the exporter reads.
pub(crate) fn record(iter: u64) -> String {
    format!(
        r#"{{"iter":{iter},"iterLatencyMS":2.5,"newActiveRequestsQueueLatencyMS":1.5,"gpuMemUsage":1000,"cpuMemUsage":0,"pinnedMemUsage":0,"numActiveRequests":1,"numQueuedRequests":0,"maxNumActiveRequests":8,"numNewActiveRequests":0,"numCompletedRequests":0,"maxBatchSizeStatic":8,"maxNumTokensStatic":100,"kvCacheStats":{{"maxNumBlocks":100,"freeNumBlocks":90,"usedNumBlocks":10,"tokensPerBlock":32,"allocTotalBlocks":10,"allocNewBlocks":10,"reusedBlocks":0,"missedBlocks":10,"cacheHitRate":0.0}},"inflightBatchingStats":{{"numScheduledRequests":1,"numContextRequests":0,"numGenRequests":1,"numPausedRequests":0,"numCtxTokens":0,"microBatchId":0,"avgNumDecodedTokensPerIter":1.0}},"specDecodingStats":{{"numDraftTokens":0,"numAcceptedTokens":0,"numRequestsWithDraftTokens":0,"acceptanceLength":1.0,"iterLatencyMS":0.0,"draftOverhead":0.0}}}}"#
    )
}
