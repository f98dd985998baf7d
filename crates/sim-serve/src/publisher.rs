//! Publishes to the ingest socket of an exporter, as the process of a real engine does.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::live::{Live, published};

/// Reconnects whenever the connection ends.
pub(crate) fn run(live: &Mutex<Live>, path: &Path, hello: &Value) {
    loop {
        let _ = publish(live, path, hello);
        thread::sleep(Duration::from_millis(200));
    }
}

fn publish(live: &Mutex<Live>, path: &Path, hello: &Value) -> io::Result<()> {
    let mut stream = UnixStream::connect(path)?;
    let mut lines = json!({"hello": hello}).to_string() + "\n";
    loop {
        let mut guard = live.lock();
        guard.advance(Instant::now());
        let (records, entries) = (guard.take_records(0), guard.take_entries());
        let release = guard.engine().config().release;
        drop(guard);
        for line in records.iter().map(|record| record.text.as_str()) {
            let _ = writeln!(lines, "{line}");
        }
        for line in entries.iter().map(|entry| published(entry, release)) {
            let _ = writeln!(lines, "{line}");
        }
        let sent = stream.write_all(lines.as_bytes());
        lines.clear();
        live.lock().totals.answered(&records, sent.is_err().then_some(0));
        sent?;
        thread::sleep(Duration::from_millis(20));
    }
}
