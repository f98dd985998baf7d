//! Structured logs on stderr, as logfmt or JSON. Logging never blocks: a thread writes the lines, and lines that do not fit in
//! its queue are dropped and counted. A log collector that stops reading its pipe must not stop the exporter.

mod limit;

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

pub use limit::LogLimit;

/// Maximum number of lines that wait for the thread.
const QUEUE: usize = 1024;
/// Maximum bytes of a line. Longer lines are cut.
const MAX_LINE: usize = 4096;
/// How long the end of the process waits for the last lines.
const LAST_LINES: Duration = Duration::from_millis(100);

static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();
/// Lines that stderr refused, because it is a file on a full disk or a pipe without a reader.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// `--log.format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Logfmt,
    Json,
}

impl LogFormat {
    /// Each format, with its name on the command line.
    pub const ALL: [(&str, Self); 2] = [("logfmt", Self::Logfmt), ("json", Self::Json)];
}

/// Writes the last lines when it is dropped.
#[derive(Debug)]
pub struct LogGuard(Option<WorkerGuard>);

/// Installs the subscriber and logs panics. A second call changes nothing.
#[must_use]
pub fn init(level: tracing::Level, format: LogFormat) -> LogGuard {
    let (queue, guard) =
        NonBlockingBuilder::default().lossy(true).buffered_lines_limit(QUEUE).thread_name("log").finish(Stderr);
    let dropped = queue.error_counter();
    let writer = Lines(queue);
    let registry = tracing_subscriber::registry().with(LevelFilter::from_level(level));
    let installed = match format {
        LogFormat::Logfmt => {
            let layer = tracing_logfmt::builder().with_target(false).with_span_name(false).layer();
            registry.with(layer.with_writer(writer)).try_init()
        }
        LogFormat::Json => {
            let layer = tracing_subscriber::fmt::layer().json().flatten_event(true).with_target(false);
            registry.with(layer.with_writer(writer)).try_init()
        }
    };
    if installed.is_ok() {
        let _ = DROPPED.set(dropped);
        let limit = Mutex::new(LogLimit::default());
        std::panic::set_hook(Box::new(move |panic| {
            // Limited, because each DNS look-up panics while no thread can be started. Uses `try_lock`, because a panic
            // hook must not wait.
            let Some(left_out) = limit.try_lock().and_then(|mut limit| limit.allow(Instant::now())) else { return };
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            let (text, owned) = (panic.payload().downcast_ref::<&str>(), panic.payload().downcast_ref::<String>());
            let cause = text.copied().or(owned.map(String::as_str)).unwrap_or("unknown");
            tracing::error!(place, cause, left_out, "panic; please report this line");
        }));
    }
    LogGuard(Some(guard))
}

/// Log lines that were dropped because stderr did not take them.
pub fn dropped_lines() -> u64 {
    DROPPED.get().map_or(0, |dropped| dropped.dropped_lines() as u64) + REFUSED.load(Relaxed)
}

/// Counts the lines that cannot be written. The thread that writes ignores the error and continues with the next line.
#[derive(Debug)]
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let written = io::stderr().write(line);
        // The caller repeats an interrupted write, so only other errors lose the line.
        if written.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
            REFUSED.fetch_add(1, Relaxed);
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Writes a message to stderr, but does not wait for a full pipe.
pub fn last_words(message: String) {
    within(LAST_LINES, move || {
        let _ = writeln!(io::stderr(), "{message}");
    });
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        let guard = self.0.take();
        within(LAST_LINES, move || drop(guard));
    }
}

/// Runs `work` on a thread, and stops waiting for it after `time`. If no thread can be started, runs `work` directly.
fn within(time: Duration, work: impl FnOnce() + Send + 'static) {
    let work = Arc::new(Mutex::new(Some(work)));
    let waiting = Arc::clone(&work);
    let (done, finished) = mpsc::channel();
    let started = std::thread::Builder::new().spawn(move || {
        let taken = waiting.lock().take();
        let _ = done.send(());
        taken.into_iter().for_each(|work| work());
        let _ = done.send(());
    });
    if started.is_ok() {
        // The time begins when the thread runs: on a busy machine, that may be late.
        let _ = finished.recv();
        let _ = finished.recv_timeout(time);
    } else {
        let taken = work.lock().take();
        taken.into_iter().for_each(|work| work());
    }
}

/// Cuts long lines, so that the queue is bounded in bytes.
#[derive(Debug, Clone)]
struct Lines(NonBlocking);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if line.len() <= MAX_LINE {
            self.0.write_all(line)?;
        } else {
            const CUT: &[u8] = b"...\n";
            self.0.write_all(&[&line[..MAX_LINE - CUT.len()], CUT].concat())?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A pipe whose reader has stopped until the lock is released.
    #[derive(Clone, Default)]
    struct Pipe(Arc<Mutex<Vec<u8>>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_a_stopped_reader_does_not_take_are_dropped_and_counted_and_long_ones_are_cut() {
        let pipe = Pipe::default();
        let (queue, guard) = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(QUEUE).finish(pipe.clone());
        let dropped = queue.error_counter();
        let mut lines = Lines(queue);
        let reader = pipe.0.lock().unwrap();
        for _ in 0..2000 {
            lines.write_all(&[b'x'; 2 * MAX_LINE]).unwrap();
        }
        // The thread holds one more line than the queue.
        assert!((2000 - QUEUE - 1..=2000 - QUEUE).contains(&dropped.dropped_lines()), "{}", dropped.dropped_lines());
        drop(reader);
        drop(guard);
        let written = pipe.0.lock().unwrap();
        assert_eq!(written.len(), (2000 - dropped.dropped_lines()) * MAX_LINE);
        assert!(written.ends_with(b"x...\n"));
    }
}
