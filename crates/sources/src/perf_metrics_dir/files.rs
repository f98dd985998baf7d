//! The files of a directory: finds new ones, and reads what is added to each. They may be renamed, deleted or cut meanwhile.

use std::collections::HashMap;
use std::fs::{DirEntry, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirEntryExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use trtllm_model::{PerfMetricsEntry, RejectCounts, RejectReason};
use trtllm_recording::Item;

use super::super::Batch;
use super::{LinesDir, Owner};

/// Bytes of a line. A request has some 250 bytes for each of its tokens.
const MAX_LINE: u64 = 16 << 20;
/// Bytes that one reading takes from all files.
const MAX_READ: u64 = 32 << 20;
/// Files that are watched. The server never deletes any.
const MAX_FILES: usize = 16_384;
/// A file that grows stays open for this time, so that its end is read even if it is deleted.
const KEPT_OPEN: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(super) struct Files {
    dir: LinesDir,
    owner: Owner,
    /// By inode. `None` before the directory was listed for the first time.
    files: Option<HashMap<u64, Watched>>,
}

/// What one reading has found.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) items: Vec<Item>,
    pub(super) rejected: RejectCounts,
    /// There is more to read.
    pub(super) more: bool,
    /// Some lines were left out, because another program writes lines of the same requests.
    pub(super) left_out: bool,
}

#[derive(Debug)]
struct Watched {
    path: PathBuf,
    /// Where the first line that was not read begins.
    offset: u64,
    /// The rest of the line at `offset` is skipped, because its beginning was.
    skips: bool,
    /// The size when it was last read.
    size: u64,
    open: Option<(File, Instant)>,
    /// It was missing when the directory was last listed.
    gone: bool,
}

impl Files {
    pub(super) fn new(dir: LinesDir, owner: Owner) -> Self {
        Self { dir, owner, files: None }
    }

    /// Reads the lines that were added to all files.
    pub(super) fn read(&mut self) -> io::Result<Reading> {
        self.list()?;
        let (mut batch, mut reading, mut left) = (Batch::default(), Reading::default(), MAX_READ);
        let files = self.files.get_or_insert_default();
        for file in files.values_mut() {
            if left == 0 || !batch.has_room() {
                reading.more = true;
                break;
            }
            // One file that cannot be read is like one that has not grown: others may be readable.
            reading.more |= file.read(self.owner, &mut left, &mut batch, &mut reading.left_out).unwrap_or(false);
        }
        (reading.items, reading.rejected) = (batch.items, batch.rejected);
        Ok(reading)
    }

    fn list(&mut self) -> io::Result<()> {
        let listed = std::fs::read_dir(&self.dir.path).inspect_err(|error| {
            // Whatever it contains once it exists is written from now on.
            if error.kind() == io::ErrorKind::NotFound {
                self.files.get_or_insert_default();
            }
        });
        let entries: Vec<DirEntry> = listed?.collect::<io::Result<_>>()?;
        let is_first = self.files.is_none();
        let files = self.files.get_or_insert_default();
        files.retain(|_, file| !std::mem::replace(&mut file.gone, true));
        for entry in entries {
            if let Some(known) = files.get_mut(&entry.ino()) {
                (known.gone, known.path) = (false, entry.path());
            } else if files.len() < MAX_FILES && is_of_requests(&entry) {
                let file = match is_first && !self.dir.from_start {
                    true => Watched::at_end(entry.path()),
                    false => Ok(Watched::new(entry.path())),
                };
                // Deleted since it was listed, or not readable: the next listing tries again.
                if let Ok(file) = file {
                    files.insert(entry.ino(), file);
                }
            }
        }
        Ok(())
    }
}

/// The name that the server gives to its files. Anything but a file would block or lead elsewhere.
fn is_of_requests(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    let is_named = name.starts_with("perf_metrics-") || name.starts_with("perf-metrics-");
    is_named && name.ends_with(".jsonl") && entry.file_type().is_ok_and(|kind| kind.is_file())
}

fn open(path: &Path) -> io::Result<File> {
    // The file may have been replaced by a pipe since it was listed.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

impl Watched {
    fn new(path: PathBuf) -> Self {
        Self { path, offset: 0, skips: false, size: 0, open: None, gone: false }
    }

    /// Only what is written from now on is read.
    fn at_end(path: PathBuf) -> io::Result<Self> {
        let file = open(&path)?;
        let size = file.metadata()?.len();
        let mut last = [b'\n'];
        if size > 0 {
            file.read_exact_at(&mut last, size - 1)?;
        }
        Ok(Self { offset: size, skips: last != [b'\n'], size, ..Self::new(path) })
    }

    /// Reads the complete lines that were added. Returns whether there are more.
    fn read(&mut self, owner: Owner, left: &mut u64, batch: &mut Batch, left_out: &mut bool) -> io::Result<bool> {
        let size = match &self.open {
            Some((file, _)) => file.metadata()?.len(),
            None => self.path.symlink_metadata()?.len(),
        };
        if size < self.offset {
            // It was cut, and is written anew.
            (self.offset, self.skips) = (0, false);
        } else if size == self.size {
            if self.gone && size > self.offset && !self.skips {
                batch.reject(RejectReason::Truncated);
            }
            self.open.take_if(|(_, grew)| grew.elapsed() >= KEPT_OPEN);
            return Ok(false);
        }
        let (file, grew) = match &mut self.open {
            Some(open) => open,
            closed => closed.insert((open(&self.path)?, Instant::now())),
        };
        *grew = Instant::now();
        let mut lines = BufReader::with_capacity(64 << 10, &*file);
        lines.seek(SeekFrom::Start(self.offset))?;
        let mut line = Vec::new();
        loop {
            if *left == 0 || !batch.has_room() {
                return Ok(true);
            }
            line.clear();
            let read = lines.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? as u64;
            *left = left.saturating_sub(read);
            let complete = line.pop_if(|last| *last == b'\n').is_some();
            if !complete && read < MAX_LINE {
                if self.skips {
                    self.offset += read;
                }
                // The rest of the line may follow.
                self.size = self.offset.max(size);
                return Ok(false);
            }
            self.offset += read;
            match (std::mem::replace(&mut self.skips, !complete), complete) {
                (true, _) => {}
                (false, true) => parse(&line, owner, batch, left_out),
                (false, false) => batch.reject(RejectReason::TooLong),
            }
        }
    }
}

fn parse(line: &[u8], owner: Owner, batch: &mut Batch, left_out: &mut bool) {
    /// Whether another program writes a line of the same request. The ids themselves are not kept.
    #[derive(serde::Deserialize)]
    struct Pair {
        ctx_request_id: Option<serde::de::IgnoredAny>,
        disagg_request_id: Option<serde::de::IgnoredAny>,
    }
    if line.iter().all(u8::is_ascii_whitespace) {
        return;
    }
    let entry: PerfMetricsEntry = match serde_json::from_slice(line) {
        Ok(entry) => entry,
        Err(error) if error.is_data() => return batch.reject(RejectReason::NotARecord),
        Err(_) => return batch.reject(RejectReason::NotJson),
    };
    let is_whole = entry.ctx_perf_metrics.is_some()
        || entry.gen_perf_metrics.is_some()
        || entry.disagg_server_arrival_time.is_some();
    let is_part = || {
        let pair = serde_json::from_slice::<Pair>(line);
        pair.is_ok_and(|pair| pair.ctx_request_id.is_some() || pair.disagg_request_id.is_some())
    };
    match owner {
        _ if !is_whole && entry.perf_metrics.is_none() => batch.reject(RejectReason::NotARecord),
        Owner::Server if is_whole => *left_out = true,
        Owner::Deployment if !is_whole && is_part() => *left_out = true,
        Owner::Server | Owner::Deployment => batch.push(Item::FinishedRequest(Box::new(entry))),
    }
}
