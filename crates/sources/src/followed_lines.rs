//! Reads the lines that are added to one file, to the files of a directory or to the standard input, for each source
//! that follows them. Files may be renamed, deleted or truncated meanwhile.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{DirEntry, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use trtllm_records::RejectReason;
use trtllm_service::file_text::{self, FileText, LineRead};
use trtllm_service::small_file;

use super::batch::Batch;
use super::error::OpenError;

/// Limit of the bytes that one pass takes from all files.
const MAX_READ: u64 = 32 << 20;
/// Limit of the files that are watched. The server never deletes a file.
const MAX_FILES: usize = 16_384;
/// A file that grows stays open for this time, so that its end is read even if it is deleted.
const KEPT_OPEN: Duration = Duration::from_secs(600);

/// The path that means the standard input.
pub(crate) const STDIN: &str = "-";
/// Longest line of the standard input, in bytes. A line of an iteration log with the lengths of 2048 requests is shorter.
const MAX_STDIN_LINE: usize = 64 << 10;
/// Most lines of the standard input that one pass takes.
const MOST_LINES: usize = 8192;

/// A directory of files with JSON lines, as configured. The iteration log also has one file or the standard input here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinesDir {
    pub path: PathBuf,
    /// Whether the lines that were written before the exporter started count, too.
    pub from_start: bool,
}

impl LinesDir {
    /// Like [`Self::check`], but waits for the disk on a thread for blocking work.
    pub(super) async fn check_beside(&self) -> Result<(), OpenError> {
        let dir = self.clone();
        let checked = tokio::task::spawn_blocking(move || dir.check()).await;
        checked.unwrap_or_else(|error| Err(OpenError::Lines { path: self.path.clone(), cause: error.into() }))
    }

    /// Checks that the directory can be read, if it exists: the server may create it later. Fails if it exists and cannot be
    /// read.
    pub fn check(&self) -> Result<(), OpenError> {
        match std::fs::read_dir(&self.path) {
            Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
                Err(OpenError::Lines { path: self.path.clone(), cause })
            }
            _ => Ok(()),
        }
    }
}

/// What the lines of the files are.
pub(crate) trait FollowedLines {
    /// Whether a file of this name in the directory has such lines. A file that is named itself always has.
    fn are_in(&self, _name: &OsStr) -> bool {
        false
    }

    /// Adds to the batch what a line says.
    fn absorb(&mut self, line: &[u8], batch: &mut Batch);
}

#[derive(Debug)]
pub(crate) struct LineFiles<L> {
    pub(crate) dir: LinesDir,
    pub(crate) lines: L,
    /// The files by inode. `None` before the directory was listed for the first time.
    files: Option<HashMap<u64, LineFile>>,
    /// The beginning of a line of the standard input.
    stdin_line: Vec<u8>,
}

#[derive(Debug)]
struct LineFile {
    path: PathBuf,
    /// Where the first unread line begins.
    offset: u64,
    /// The rest of the line at `offset` is skipped, because its beginning was skipped.
    skips: bool,
    /// The size of the file at the last pass.
    size: u64,
    open: Option<(File, Instant)>,
    /// The file was missing when the directory was last listed.
    gone: bool,
    /// The last pass did not reach its end.
    more: bool,
}

impl<L: FollowedLines> LineFiles<L> {
    pub(crate) fn new(dir: LinesDir, lines: L) -> Self {
        Self { dir, lines, files: None, stdin_line: Vec::new() }
    }

    /// Adds the lines that were added to all files. A file that was renamed comes before the one that replaced it. Fails
    /// if the directory cannot be listed, or the file that is named cannot be read. Files that are open are read
    /// nevertheless.
    pub(crate) fn read(&mut self, batch: &mut Batch) -> io::Result<()> {
        if self.dir.path == Path::new(STDIN) {
            return self.read_stdin(batch);
        }
        let listed = self.list();
        let Self { lines, files, .. } = self;
        let mut files: Vec<_> = files.iter_mut().flat_map(HashMap::values_mut).collect();
        let has_lines = |file: &LineFile| file.path.file_name().is_some_and(|name| lines.are_in(name));
        files.sort_by_cached_key(|file| (!file.gone, has_lines(file)));
        let (mut pass, mut failed) = (ReadPass { lines, left: MAX_READ, batch }, None);
        for file in files {
            let read = if pass.has_room() { file.read(&mut pass) } else { Ok(true) };
            // A file that cannot be read is treated like one that has not grown, because the others may be readable.
            file.more = *read.as_ref().unwrap_or(&false);
            failed = read.err().or(failed);
            pass.batch.more |= file.more;
        }
        listed.and_then(|()| failed.filter(|_| self.dir.path.is_file()).map_or(Ok(()), Err))
    }

    /// Reads the lines that are there, and does not wait for others.
    fn read_stdin(&mut self, batch: &mut Batch) -> io::Result<()> {
        let Self { lines, stdin_line: line, .. } = self;
        fcntl_setfl(io::stdin(), fcntl_getfl(io::stdin())? | OFlags::NONBLOCK)?;
        let mut reads = 0..MOST_LINES;
        while batch.has_room() && reads.next().is_some() {
            let left = (MAX_STDIN_LINE - line.len()) as u64;
            match io::stdin().lock().take(left).read_until(b'\n', line) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                read => batch.ended = read? == 0,
            }
            if batch.ended {
                return Ok(());
            }
            if line.ends_with(b"\n") || line.len() == MAX_STDIN_LINE {
                lines.absorb(line, batch);
                line.clear();
            }
        }
        batch.more = true;
        Ok(())
    }

    fn list(&mut self) -> io::Result<()> {
        let is_first = self.files.is_none();
        let found = self.find().inspect_err(|error| {
            // What appears later in place of a missing file or directory has only new lines.
            if error.kind() == io::ErrorKind::NotFound {
                self.files.get_or_insert_default();
            }
        })?;
        let files = self.files.get_or_insert_default();
        files.retain(|_, file| !std::mem::replace(&mut file.gone, true) || file.more);
        for (inode, path, has_lines) in found {
            if let Some(known) = files.get_mut(&inode) {
                (known.gone, known.path) = (false, path);
            } else if files.len() < MAX_FILES && has_lines {
                let is_old = is_first && !self.dir.from_start;
                if is_old
                    && self.dir.path.is_file()
                    && let Err(error) = open(&path)
                {
                    // The next listing is the first one of a file that can be read.
                    self.files = None;
                    return Err(error);
                }
                // The lines of a file that cannot be read are old, too, when it becomes readable. One that was deleted
                // meanwhile has none.
                let old_size = if is_old { path.symlink_metadata().map(|file| file.len()) } else { Ok(0) };
                if let Ok(size) = old_size {
                    files.insert(inode, LineFile::after(path, size));
                }
            }
        }
        Ok(())
    }

    /// The inodes and the paths of the files, and whether they have such lines.
    fn find(&self) -> io::Result<Vec<(u64, PathBuf, bool)>> {
        // The operator may name a link, such as those of Kubernetes to the log of a container.
        let path = self.dir.path.canonicalize()?;
        let found = path.metadata()?;
        if found.is_file() {
            return Ok(vec![(found.ino(), path, true)]);
        }
        let file = |entry: DirEntry| {
            let has_lines = is_regular(&entry) && self.lines.are_in(&entry.file_name());
            (entry.ino(), entry.path(), has_lines)
        };
        std::fs::read_dir(path)?.map(|entry| entry.map(file)).collect()
    }
}

/// Whether this is a regular file. A pipe would block, and a link could lead elsewhere.
fn is_regular(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_file())
}

/// Opens a regular file: it may have been replaced by something else since it was listed.
fn open(path: &Path) -> io::Result<File> {
    small_file::open_regular(path, OFlags::NOFOLLOW)
}

impl LineFile {
    /// A file whose first `size` bytes are left out. A line that begins in them is left out, too.
    fn after(path: PathBuf, size: u64) -> Self {
        // If the last byte ends a line, only this byte is skipped.
        let (offset, skips) = (size.saturating_sub(1), size > 0);
        Self { path, offset, skips, size, open: None, gone: false, more: false }
    }

    /// Reads the complete lines that were added. Returns whether there are more.
    fn read(&mut self, into: &mut ReadPass<'_, impl FollowedLines>) -> io::Result<bool> {
        let size = match &self.open {
            Some((file, _)) => file.metadata()?.len(),
            // Another file may have its path now.
            None if self.gone => return Ok(false),
            None => self.path.symlink_metadata()?.len(),
        };
        if size == self.size && size >= self.offset {
            if self.gone && size > self.offset && !self.skips {
                into.batch.reject(RejectReason::Truncated);
            }
            self.open.take_if(|(_, grew)| grew.elapsed() >= KEPT_OPEN);
            return Ok(false);
        }
        let file = match self.open.take() {
            Some((file, _)) => file,
            None => open(&self.path)?,
        };
        if size < self.size.max(self.offset) {
            // The file was truncated. What was added between the last pass and that moment counts as one loss, because nobody knows
            // how many lines it had.
            into.batch.reject(RejectReason::Truncated);
            (self.offset, self.skips, self.size) = (0, false, 0);
        }
        let more = self.read_lines(&file, into);
        self.open = Some((file, Instant::now()));
        more
    }

    /// Reads the complete lines from `offset` on. Returns whether there are more.
    fn read_lines(&mut self, file: &File, into: &mut ReadPass<'_, impl FollowedLines>) -> io::Result<bool> {
        let size = file.metadata()?.len();
        let mut lines = BufReader::with_capacity(64 << 10, file);
        lines.seek(SeekFrom::Start(self.offset))?;
        // The line of a request has some 250 bytes for each token, so it can be long.
        let mut line = FileText::default();
        loop {
            if !into.has_room() {
                return Ok(true);
            }
            let LineRead { bytes, is_complete: complete } = line.read_line(&mut lines)?;
            let read = bytes as u64;
            into.left = into.left.saturating_sub(read);
            if !complete && bytes < file_text::MAX {
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
                (false, true) => into.lines.absorb(line.bytes(), into.batch),
                (false, false) => into.batch.reject(RejectReason::TooLong),
            }
        }
    }
}

/// The messages of one pass.
struct ReadPass<'l, L> {
    lines: &'l mut L,
    /// Number of bytes that may still be read.
    left: u64,
    batch: &'l mut Batch,
}

impl<L> ReadPass<'_, L> {
    fn has_room(&self) -> bool {
        self.left > 0 && self.batch.has_room()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;
    use trtllm_records::{Message, RejectCounts};

    use super::super::perf_metrics_dir::{LineOwner, RequestLines};
    use super::*;

    const NAME: &str = "perf_metrics-server-gpu7-41-20261101T000000Z.jsonl";
    const NONE: [u64; 0] = [];
    const OTHER: &str = "perf-metrics-server-gpu7-42-20261101T000001Z.jsonl";

    fn line(id: u64) -> String {
        format!(
            "{{\"request_id\":{id},\"perf_metrics\":{{\"timing_metrics\":{{\"arrival_time\":1.5}}}},\"status\":\"complete\"}}\n"
        )
    }

    fn add(directory: &TempDir, name: &str, text: &str) {
        let file = OpenOptions::new().create(true).append(true).open(directory.path().join(name));
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn files(directory: &TempDir, from_start: bool, owner: LineOwner) -> LineFiles<RequestLines> {
        LineFiles::new(LinesDir { path: directory.path().to_owned(), from_start }, RequestLines::new(owner))
    }

    fn new_directory(from_start: bool) -> (TempDir, LineFiles<RequestLines>) {
        let directory = TempDir::new().unwrap();
        let files = files(&directory, from_start, LineOwner::Server);
        (directory, files)
    }

    fn ids(batch: &Batch) -> Vec<u64> {
        let id = |item: &Message| match item {
            Message::FinishedRequest(entry) => entry.request_id.unwrap(),
            item => panic!("{item:?}"),
        };
        let mut ids: Vec<u64> = batch.messages.iter().map(id).collect();
        ids.sort_unstable();
        ids
    }

    fn next_batch(files: &mut LineFiles<RequestLines>) -> Batch {
        let mut batch = Batch::default();
        files.read(&mut batch).unwrap();
        batch
    }

    fn read(files: &mut LineFiles<RequestLines>) -> Vec<u64> {
        ids(&next_batch(files))
    }

    fn rejected(batch: &Batch, reason: RejectReason) -> u64 {
        batch.rejected[reason as usize]
    }

    #[test]
    fn only_lines_written_from_now_on_are_read_and_each_once() {
        let directory = TempDir::new().unwrap();
        add(&directory, NAME, &(line(1) + &line(2)));
        let mut now = files(&directory, false, LineOwner::Server);
        assert_eq!(read(&mut now), NONE);
        assert_eq!(read(&mut files(&directory, true, LineOwner::Server)), [1, 2], "if asked");
        add(&directory, NAME, &line(3));
        add(&directory, OTHER, &(line(4) + &line(5)));
        add(&directory, "notes.jsonl", &line(6));
        assert_eq!(read(&mut now), [3, 4, 5], "a file that is new has only new lines");
        assert_eq!(read(&mut now), NONE);
    }

    #[test]
    fn the_keys_of_a_line_are_collected_even_if_it_is_rejected() {
        let (directory, mut files) = new_directory(true);
        add(&directory, NAME, "{\"dreams\":[{\"wish\":1}]}\n{\"later\":1}\n");
        let batch = next_batch(&mut files);
        assert_eq!(batch.keys.iter().collect::<Vec<_>>(), ["dreams", "wish"]);
        assert_eq!(rejected(&batch, RejectReason::NotARecord), 2);
        add(&directory, NAME, &line(1));
        assert!(next_batch(&mut files).keys.is_empty(), "once a minute is enough");
    }

    #[test]
    fn all_lines_of_a_directory_that_appears_later_are_new() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("lines");
        let dir = LinesDir { path: path.clone(), from_start: false };
        let mut files = LineFiles::new(dir, RequestLines::new(LineOwner::Server));
        assert_eq!(files.read(&mut Batch::default()).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::create_dir(&path).unwrap();
        fs::write(path.join(NAME), line(1)).unwrap();
        assert_eq!(read(&mut files), [1]);
    }

    #[test]
    fn a_line_is_read_when_it_is_complete() {
        let (directory, mut files) = new_directory(false);
        read(&mut files);
        let (begin, end) = (line(7)[..20].to_owned(), line(7)[20..].to_owned());
        add(&directory, NAME, &(line(6) + &begin));
        assert_eq!(read(&mut files), [6]);
        assert_eq!(read(&mut files), NONE);
        add(&directory, NAME, &end[..5]);
        assert_eq!(read(&mut files), NONE);
        add(&directory, NAME, &(end[5..].to_owned() + &line(8)));
        assert_eq!(read(&mut files), [7, 8]);
    }

    #[test]
    fn the_rest_of_a_line_that_began_earlier_is_skipped() {
        let directory = TempDir::new().unwrap();
        add(&directory, NAME, &line(1)[..30]);
        let mut files = files(&directory, false, LineOwner::Server);
        read(&mut files);
        add(&directory, NAME, &line(1)[30..40]);
        read(&mut files);
        add(&directory, NAME, &(line(1)[40..].to_owned() + &line(2)));
        let batch = next_batch(&mut files);
        assert_eq!((ids(&batch), batch.rejected), (vec![2], RejectCounts::default()));
    }

    #[test]
    fn lines_from_before_the_start_are_left_out_also_if_their_file_could_not_be_read_then() {
        let directory = TempDir::new().unwrap();
        for (old, read_later) in [(line(1), [2, 3]), (line(1) + &line(2)[..9], [3, 4])] {
            let path = directory.path().join(NAME);
            fs::write(&path, &old).unwrap();
            // As `list` does if the file cannot be opened.
            let mut of_now = files(&directory, false, LineOwner::Server);
            let file = LineFile::after(path.clone(), old.len() as u64);
            of_now.files = Some(HashMap::from([(path.metadata().unwrap().ino(), file)]));
            assert_eq!(read(&mut of_now), NONE);
            let rest: String = read_later.map(line).concat();
            add(&directory, NAME, &if old.ends_with('\n') { rest } else { line(2)[9..].to_owned() + &rest });
            assert_eq!(read(&mut of_now), read_later);
        }
    }

    #[test]
    fn a_renamed_file_is_read_to_its_end_and_not_again() {
        let (directory, mut files) = new_directory(false);
        add(&directory, NAME, &line(1));
        read(&mut files);
        read(&mut files);
        add(&directory, NAME, &line(2));
        assert_eq!(read(&mut files), [2]);
        add(&directory, NAME, &line(3));
        fs::rename(directory.path().join(NAME), directory.path().join("old.1")).unwrap();
        add(&directory, NAME, &line(4));
        assert_eq!(read(&mut files), [3, 4]);
        add(&directory, "old.1", &line(5));
        fs::rename(directory.path().join("old.1"), directory.path().join(OTHER)).unwrap();
        assert_eq!(read(&mut files), [5]);
        assert_eq!(read(&mut files), NONE);
    }

    #[test]
    fn a_deleted_file_is_read_to_its_end_and_a_line_that_never_ended_is_counted() {
        let (directory, mut files) = new_directory(false);
        read(&mut files);
        add(&directory, NAME, &line(1));
        assert_eq!(read(&mut files), [1]);
        add(&directory, NAME, &(line(2) + "{\"request_id\":3,"));
        fs::remove_file(directory.path().join(NAME)).unwrap();
        let batch = next_batch(&mut files);
        assert_eq!((ids(&batch), rejected(&batch, RejectReason::Truncated)), (vec![2], 0));
        add(&directory, NAME, &line(9));
        assert_eq!(read(&mut files), [9], "another file of the same name");

        add(&directory, NAME, "{\"request_id\":10,");
        assert_eq!(read(&mut files), NONE);
        fs::remove_file(directory.path().join(NAME)).unwrap();
        let batch = next_batch(&mut files);
        assert_eq!(rejected(&batch, RejectReason::Truncated), 1);
        assert_eq!(next_batch(&mut files).rejected, RejectCounts::default(), "once");
    }

    #[test]
    fn a_long_file_is_read_to_its_end_in_parts_of_bounded_memory_also_if_it_is_replaced() {
        let (directory, mut files) = new_directory(true);
        add(&directory, NAME, &(0..20_000).map(line).collect::<String>());
        let (mut found, mut parts) = (Vec::new(), 0);
        while found.len() <= 20_000 {
            let batch = next_batch(&mut files);
            let weight: usize = batch.messages.iter().map(Message::weight).sum();
            assert!(weight < 2 << 20 && parts < 1000, "{weight} in part {parts}");
            found.extend(ids(&batch));
            assert!(batch.more || found.len() >= 20_000, "{} lines", found.len());
            if parts == 0 {
                fs::remove_file(directory.path().join(NAME)).unwrap();
                add(&directory, NAME, &line(20_000));
            }
            parts += 1;
        }
        assert!(parts > 3, "{parts}");
        assert!(found.into_iter().eq(0..=20_000));
        assert_eq!(read(&mut files), NONE);
    }

    #[test]
    fn a_file_that_is_replaced_after_a_long_pause_is_not_read_twice() {
        let (directory, mut files) = new_directory(true);
        add(&directory, NAME, &line(1));
        assert_eq!(read(&mut files), [1]);
        files.files.as_mut().unwrap().values_mut().for_each(|file| file.open = None);
        let next = directory.path().join("next");
        fs::write(&next, line(2) + &line(3)).unwrap();
        fs::rename(next, directory.path().join(NAME)).unwrap();
        let batch = next_batch(&mut files);
        assert_eq!((ids(&batch), batch.rejected), (vec![2, 3], RejectCounts::default()));
    }

    #[test]
    fn a_file_that_was_cut_is_read_from_its_beginning_and_the_loss_is_counted() {
        let (directory, mut files) = new_directory(false);
        read(&mut files);
        add(&directory, NAME, &(line(1) + &line(2)));
        assert_eq!(read(&mut files), [1, 2]);
        add(&directory, NAME, &line(3));
        OpenOptions::new().write(true).open(directory.path().join(NAME)).unwrap().set_len(0).unwrap();
        add(&directory, NAME, &line(10));
        let batch = next_batch(&mut files);
        assert_eq!((ids(&batch), rejected(&batch, RejectReason::Truncated)), (vec![10], 1));
        assert_eq!(next_batch(&mut files).rejected, RejectCounts::default(), "once");
    }

    #[test]
    fn an_old_file_of_one_empty_line_that_was_cut_is_read_from_its_beginning() {
        let directory = TempDir::new().unwrap();
        add(&directory, NAME, "\n");
        let mut files = files(&directory, false, LineOwner::Server);
        assert_eq!(read(&mut files), NONE);
        File::create(directory.path().join(NAME)).unwrap();
        assert_eq!(rejected(&next_batch(&mut files), RejectReason::Truncated), 1);
        add(&directory, NAME, &line(1));
        assert_eq!(read(&mut files), [1]);
    }

    #[test]
    fn a_long_line_is_read_and_a_line_without_an_end_is_counted_once() {
        let (directory, mut files) = new_directory(false);
        read(&mut files);
        let steps = vec!["{\"token_time\":1.25,\"gpu_forward_time\":8.5,\"iter\":7}"; 25_000].join(",");
        let long = line(1)
            .replace("\"status\"", &format!("\"time_breakdown_metrics\":{{\"step_metrics\":[{steps}]}},\"status\""));
        assert!(long.len() > 1_000_000, "{}", long.len());
        add(&directory, NAME, &long);
        add(&directory, NAME, &"x".repeat(file_text::MAX + 5));
        let (mut found, mut too_long) = (Vec::new(), 0);
        for part in ["y", "\n", &line(2)] {
            add(&directory, NAME, part);
            let batch = next_batch(&mut files);
            too_long += rejected(&batch, RejectReason::TooLong);
            found.extend(ids(&batch));
        }
        assert_eq!((found, too_long), (vec![1, 2], 1));
    }

    #[test]
    fn a_malformed_line_is_counted_and_the_next_one_is_read() {
        let (directory, mut files) = new_directory(true);
        let malformed = "{\"request_id\":1,\n\u{0}\n[]\n{}\n7\n{\"perf_metrics\":3}\n\n";
        add(&directory, NAME, &(malformed.to_owned() + &line(2)));
        let batch = next_batch(&mut files);
        let count = |reason| rejected(&batch, reason);
        assert_eq!((ids(&batch), count(RejectReason::NotJson)), (vec![2], 2));
        assert_eq!(count(RejectReason::NotARecord), 4);
    }

    #[test]
    fn what_is_not_a_file_is_left_alone() {
        let directory = TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(format!("perf_metrics-{name}.jsonl"));
        fs::create_dir(path("directory")).unwrap();
        symlink("/dev/zero", path("device")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        let mut files = files(&directory, true, LineOwner::Server);
        add(&directory, NAME, &line(1));
        assert_eq!(read(&mut files), [1]);
        // The file is replaced by a directory after the listing.
        fs::remove_file(directory.path().join(NAME)).unwrap();
        fs::create_dir(directory.path().join(NAME)).unwrap();
        assert_eq!(read(&mut files), NONE);
    }

    #[test]
    fn a_request_of_two_servers_is_read_once() {
        let directory = TempDir::new().unwrap();
        let part = |id: u64| line(id).replace("\"status\"", "\"ctx_request_id\":9,\"disagg_request_id\":5,\"status\"");
        let whole = "{\"ctx_server\":\"c\",\"gen_server\":\"g\",\"disagg_server_arrival_time\":1.0,\"status\":\"complete\",\
                     \"gen_perf_metrics\":{\"request_id\":5,\"perf_metrics\":{}}}\n";
        add(&directory, NAME, &(part(1) + &line(2)));
        add(&directory, OTHER, whole);
        let mut server = files(&directory, true, LineOwner::Server);
        let batch = next_batch(&mut server);
        assert_eq!((ids(&batch), server.lines.has_left_out), (vec![1, 2], true));
        let mut deployment = files(&directory, true, LineOwner::Deployment);
        let batch = next_batch(&mut deployment);
        let mut wholes = 0;
        for item in &batch.messages {
            let Message::FinishedRequest(entry) = item else { panic!("{item:?}") };
            match &entry.gen_perf_metrics {
                Some(_) => wholes += 1,
                None => assert_eq!(entry.request_id, Some(2)),
            }
        }
        assert_eq!((batch.messages.len(), wholes, deployment.lines.has_left_out), (2, 1, true));
    }
}
