//! Baselines of engines: their costs and best hours so far, to compare with later. One small file per engine in the
//! directory of the flight recorder, so that they survive a restart of the exporter.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;
use trtllm_model::{EngineName, RecorderCounts};
use trtllm_service::small_file;
use trtllm_what_if::baselines::{Baselines, Snapshot};
use trtllm_what_if::output::Best;

const PREFIX: &str = "baselines-";
/// Maximum number of files, of all engines together. The oldest is deleted to make room for another one.
const MOST_FILES: usize = 256;
/// Longest name of a file in bytes. File systems allow 255, and the name of the temporary file is longer.
const MAX_NAME: usize = 200;
/// Maximum size of a file's text in bytes. A file has at most 32 states of about 10 KB.
const MAX_TEXT: u64 = 4 << 20;
/// Maximum number of files that are read at the same time to answer requests.
const READERS: usize = 2;

/// The files of all engines.
#[derive(Debug)]
pub struct BaselineFiles {
    /// The directory of the recorder, which has locked it.
    pub directory: PathBuf,
    counts: RecorderCounts,
    is_failing: AtomicBool,
    is_writing: AtomicBool,
    /// Limits the reads that answer requests, so that a disk that hangs blocks few threads.
    pub readers: Arc<Semaphore>,
}

/// Permission to write a file. Another file can be written once the `Writing` is dropped.
#[derive(Debug)]
pub struct Writing(Arc<BaselineFiles>);

impl Writing {
    /// Adds a state of an engine to its file, and returns the best hours of the engine so far.
    #[must_use]
    pub fn add(self, engine: &EngineName, snapshot: Option<Snapshot>, mut best: Best, now: f64) -> Best {
        let files = &self.0;
        let mut kept = files.read(engine);
        best.merge(&kept.best, now);
        if let Some(snapshot) = snapshot {
            kept.push(snapshot);
            kept.best = best;
            files.note(files.write(engine, &kept));
        }
        best
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.is_writing.store(false, Ordering::Release);
    }
}

impl BaselineFiles {
    #[must_use]
    pub fn new(directory: PathBuf, counts: RecorderCounts) -> Arc<Self> {
        let (is_failing, is_writing) = (AtomicBool::default(), AtomicBool::default());
        Arc::new(Self { directory, counts, is_failing, is_writing, readers: Arc::new(Semaphore::new(READERS)) })
    }

    /// The baselines of an engine. Empty if its file is missing or broken.
    #[must_use]
    pub fn read(&self, engine: &EngineName) -> Baselines {
        self.path(engine).and_then(|path| read(&path)).unwrap_or_default()
    }

    /// Starts to write a file. One file is written at a time, because a disk may hang. `None` if another file is being written.
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> Option<Writing> {
        (!self.is_writing.swap(true, Ordering::Acquire)).then(|| Writing(Arc::clone(self)))
    }

    fn write(&self, engine: &EngineName, kept: &Baselines) -> io::Result<()> {
        let path = self.path(engine)?;
        if !path.exists() {
            self.make_room()?;
        }
        small_file::replace(&path, &zstd::encode_all(&*serde_json::to_vec(kept)?, 0)?, 0o600)
    }

    fn note(&self, written: io::Result<()>) {
        let was_failing = self.is_failing.swap(written.is_err(), Ordering::Relaxed);
        match written {
            Ok(()) if was_failing => tracing::info!("baselines of engines are written again"),
            Ok(()) => {}
            Err(error) => {
                self.counts.failed();
                if !was_failing {
                    tracing::warn!(%error, "the baseline of an engine was not written; free space on the disk, or change --record.dir");
                }
            }
        }
    }

    fn path(&self, engine: &EngineName) -> io::Result<PathBuf> {
        let mut name = PREFIX.to_owned();
        for letter in format!("{}:{}", engine.model, engine.version).bytes() {
            match letter {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' => name.push(letter.into()),
                other => name += &format!("_{other:02x}"),
            }
        }
        if name.len() > MAX_NAME {
            return Err(io::Error::new(
                io::ErrorKind::InvalidFilename,
                "the name of the engine is too long for a file",
            ));
        }
        Ok(self.directory.join(name + ".json.zst"))
    }

    /// Deletes the oldest files, because the engines of a socket may have any number of names.
    fn make_room(&self) -> io::Result<()> {
        let files = fs::read_dir(&self.directory)?.filter_map(Result::ok);
        let mut known: Vec<_> = files
            .filter(|file| file.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()))
            .filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file.path())))
            .collect();
        known.sort();
        let too_many = (known.len() + 1).saturating_sub(MOST_FILES);
        known.into_iter().take(too_many).try_for_each(|(_, path)| fs::remove_file(path))
    }
}

fn read(path: &Path) -> io::Result<Baselines> {
    if small_file::is_stream(path) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a pipe or a device"));
    }
    let mut text = Vec::new();
    zstd::Decoder::new(File::open(path)?)?.take(MAX_TEXT).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trtllm_what_if::Present;
    use trtllm_what_if::baselines::Run;

    fn add(files: &Arc<BaselineFiles>, model: &str, at: f64) {
        let snapshot = Snapshot::of(Present::default(), Run::default(), at);
        let writing = files.begin().unwrap();
        assert!(files.begin().is_none());
        let _best = writing.add(&EngineName::new(model, "1", "test"), Some(snapshot), Best::default(), at);
    }

    #[test]
    fn baselines_survive_restarts_and_a_broken_file_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let counts = RecorderCounts::default();
        let files = || BaselineFiles::new(directory.path().to_owned(), counts.clone());
        let times = |model: &str| -> Vec<f64> {
            let kept = files().read(&EngineName::new(model, "1", "test"));
            kept.snapshots.iter().map(|snapshot| snapshot.at).collect()
        };
        let hostile = "../../etc/passwd:é\0";
        for at in [1.0, 7200.0] {
            add(&files(), "llama", at);
            add(&files(), hostile, at);
        }
        assert_eq!((times("llama"), times(hostile)), (vec![1.0, 7200.0], vec![1.0, 7200.0]));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "no part is left");
        let path = files().path(&EngineName::new("llama", "1", "test")).unwrap();
        let content = fs::read(&path).unwrap();
        fs::write(&path, &content[..content.len() / 2]).unwrap();
        assert_eq!(times("llama"), Vec::<f64>::new());
        add(&files(), "llama", 9000.0);
        assert_eq!((times("llama"), counts.errors()), (vec![9000.0], 0));
        // Reading a pipe would wait for ever. A write replaces it.
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert_eq!(times("llama"), Vec::<f64>::new());
        add(&files(), "llama", 9500.0);
        assert_eq!((times("llama"), counts.errors()), (vec![9500.0], 0));
    }

    #[test]
    fn a_write_that_panics_or_never_runs_does_not_stop_later_ones() {
        let directory = tempfile::tempdir().unwrap();
        let files = BaselineFiles::new(directory.path().to_owned(), RecorderCounts::default());
        let writing = files.begin();
        assert!(writing.is_some() && files.begin().is_none());
        let panicked = std::thread::spawn(move || {
            let _writing = writing;
            panic!("planted");
        });
        assert!(panicked.join().is_err());
        drop(files.begin().unwrap());
        add(&files, "m", 1.0);
        add(&files, "m", 2.0);
    }

    #[test]
    fn the_number_of_files_is_bounded_and_a_failed_write_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let counts = RecorderCounts::default();
        let files = BaselineFiles::new(directory.path().to_owned(), counts.clone());
        (0..MOST_FILES + 5).for_each(|engine| add(&files, &format!("m{engine}"), 1.0));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), MOST_FILES);
        add(&files, &"x".repeat(500), 1.0);
        directory.close().unwrap();
        add(&files, "m1", 2.0);
        assert_eq!(counts.errors(), 2);
    }
}
