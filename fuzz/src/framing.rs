//! Sends lines through a real ingest socket, in chunks of any length. The socket must deliver the same lines as a
//! simple split of the bytes.

use std::cell::RefCell;
use std::path::PathBuf;

use arbitrary::{Result, Unstructured};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use trtllm_records::Message;
use trtllm_records::{RefusedPublishers, RejectReason};
use trtllm_service::unix_socket::Activated;
use trtllm_sources::socket::{Admission, Ingest, Publishers};
use trtllm_sources::trtllm_json::{PublisherLine, parse_line};
use trtllm_sources::{Batch, Source};

/// Lines are made near these lengths: the limit of the socket, and a length that needs the budget for long lines.
const MAX_LINE: usize = 1 << 20;
const SHORT_LINE: usize = 64 << 10;
/// Limits of the pieces, long lines and writes of one stream. More would only take longer.
const MAX_PIECES: usize = 32;
const MAX_LONG: usize = 3;
const MAX_WRITES: usize = 256;

const LINES: [&str; 6] = [
    r#"{"iter": 7, "numActiveRequests": 1}"#,
    r#"{"hello": {"model": "m", "pid": 5}}"#,
    r#"{"hello": {"model": "m", "config": {"dtype": "float16", "x": [1]}}}"#,
    r#"{"request_id": 3, "perf_metrics": {"first_iter": 1, "timing_metrics": {"arrival_time": 1.5}}}"#,
    r#"{"iter": 7, "requestStats": [{"id": 1}]}"#,
    " \r",
];

/// A bound socket that all inputs use, because binding a socket takes longer than everything else.
struct Socket {
    runtime: Runtime,
    source: Source,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Socket {
    fn bind() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let everybody = Admission { uids: Vec::new(), limit: 1, refused: RefusedPublishers::default() };
        let (activated, publishers) = (Activated::default(), Publishers::new(everybody));
        let ingest = Ingest::bind(&path, &activated, &publishers);
        let source = Source::Socket(runtime.block_on(ingest).unwrap());
        Self { runtime, source, path, _folder: folder }
    }
}

pub fn run(data: &[u8]) {
    thread_local! {
        static SOCKET: RefCell<Option<Socket>> = const { RefCell::new(None) };
    }
    let Ok((text, chunks)) = stream(&mut Unstructured::new(data)) else { return };
    let mut wanted = Batch::default();
    split(&text, &mut wanted);
    SOCKET.with_borrow_mut(|socket| {
        let Socket { runtime, source, path, .. } = socket.get_or_insert_with(Socket::bind);
        let found = runtime.block_on(send(source, path, &text, &chunks));
        assert_eq!(found.rejected, wanted.rejected);
        assert_eq!(found.messages, wanted.messages);
    });
}

/// The bytes that a publisher sends, and the lengths of its writes, which are used in turn.
fn stream(data: &mut Unstructured<'_>) -> Result<(Vec<u8>, Vec<usize>)> {
    let mut chunks = vec![data.int_in_range(1..=4096)?];
    for _ in 0..data.int_in_range(0..=3)? {
        chunks.push(data.int_in_range(1..=64)?);
    }
    let (mut text, mut long) = (Vec::new(), 0);
    for _ in 0..MAX_PIECES {
        if data.is_empty() {
            break;
        }
        match data.arbitrary::<u8>()? % 8 {
            0..=3 => text.extend_from_slice(data.choose(&LINES)?.as_bytes()),
            4 if long < MAX_LONG => {
                // A piece that is near a limit itself, or that brings its line near the limit.
                long += 1;
                let limit = *data.choose(&[SHORT_LINE, MAX_LINE])?;
                let begun = text.iter().rev().take_while(|byte| **byte != b'\n').count() * data.int_in_range(0..=1)?;
                let length = (limit + data.int_in_range(0..=4)?).saturating_sub(begun + 2);
                text.resize(text.len() + length, *data.choose(b" x")?);
            }
            5 => {
                let length = usize::from(data.arbitrary::<u8>()?).min(data.len());
                text.extend_from_slice(data.bytes(length)?);
            }
            _ => text.push(b'\n'),
        }
    }
    // Limit the number of writes, because a million writes of one byte would take seconds.
    let least = text.len() / MAX_WRITES;
    chunks.iter_mut().for_each(|chunk| *chunk += least);
    Ok((text, chunks))
}

/// The lines that the socket must deliver.
fn split(text: &[u8], batch: &mut Batch) {
    let mut first = true;
    for line in text.strip_suffix(b"\n").unwrap_or(text).split(|byte| *byte == b'\n') {
        if line.len() > MAX_LINE {
            batch.reject(RejectReason::TooLong);
        } else if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        } else {
            match parse_line(line) {
                Ok(PublisherLine::Message(item)) => batch.push(item),
                Ok(PublisherLine::Hello(hello)) if first => {
                    hello.pid.map(Message::Process).into_iter().for_each(|process| batch.push(process));
                }
                Ok(PublisherLine::Hello(_)) => batch.reject(RejectReason::NotARecord),
                Err(reason) => batch.reject(reason),
            }
        }
        first = false;
    }
}

async fn send(source: &mut Source, path: &PathBuf, text: &[u8], chunks: &[usize]) -> Batch {
    let mut batch = Batch::default();
    let mut stream = UnixStream::connect(path).await.unwrap();
    poll_until(source, &mut batch, 1).await;
    let (mut rest, mut lengths) = (text, chunks.iter().cycle());
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(rest.len().min(*lengths.next().unwrap()));
        // The socket's buffer may stay full until the lines are polled.
        let mut sent = 0;
        while sent < chunk.len() {
            match stream.try_write(&chunk[sent..]) {
                Ok(written) => sent += written,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => panic!("{error}"),
            }
            // Let the socket read this chunk before the next one is written.
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            source.poll(&mut batch).await.unwrap();
        }
        rest = after;
    }
    stream.shutdown().await.unwrap();
    poll_until(source, &mut batch, 0).await;
    batch
}

/// Polls until this many publishers are connected.
async fn poll_until(source: &mut Source, batch: &mut Batch, publishers: u64) {
    loop {
        source.poll(batch).await.unwrap();
        if batch.connections == Some(publishers) {
            // Poll once more for lines that arrived just before the number of publishers changed.
            source.poll(batch).await.unwrap();
            return;
        }
        tokio::task::yield_now().await;
    }
}
