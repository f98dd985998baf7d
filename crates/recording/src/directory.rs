//! The files of a recording. `00000042-llama-3.rec.zst` is the 42nd segment; its first line has the exact name of the engine.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const ENDING: &str = ".rec.zst";
/// The lock file. The process that records holds its lock.
const LOCK: &str = "recorder.lock";
/// Maximum number of characters of an engine's name in a file name.
const MAX_NAME: usize = 60;

/// The file of one segment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    /// Number of the segment, counted over all engines.
    pub number: u64,
    pub path: PathBuf,
    pub bytes: u64,
    /// When it was last written.
    pub written: SystemTime,
}

/// All segments, oldest first. Other files and symbolic links are left out. Fails if the directory cannot be read.
pub fn segments(directory: &Path) -> io::Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(number) else { continue };
        match entry.metadata() {
            Ok(file) if file.is_file() => {
                segments.push(Segment { number, path: entry.path(), bytes: file.len(), written: file.modified()? });
            }
            Ok(_) => {}
            // The recorder may have deleted the oldest segment meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    segments.sort();
    Ok(segments)
}

fn number(name: &str) -> Option<u64> {
    let (number, _) = name.strip_suffix(ENDING)?.split_once('-')?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok()).flatten()
}

/// Creates the file of a segment. Never opens an existing file, and follows no symbolic link. Fails if the file exists
/// or cannot be created.
pub fn create(directory: &Path, number: u64, engine: &str) -> io::Result<(PathBuf, File)> {
    let path = directory.join(format!("{number:08}-{}{ENDING}", safe(engine)));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    Ok((path, file))
}

/// The name, with `_` for each character that is not a letter, digit, point or hyphen.
fn safe(engine: &str) -> String {
    let safe = |letter: char| if letter.is_ascii_alphanumeric() || ".-".contains(letter) { letter } else { '_' };
    engine.chars().take(MAX_NAME).map(safe).collect()
}

/// Creates the directory if it does not exist, and takes its lock. The lock ends with the process. Fails if the
/// directory cannot be written, or another process records into it ([`io::ErrorKind::WouldBlock`]).
pub fn lock(directory: &Path) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(no_link);
    let lock = options.open(directory.join(LOCK))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_becomes_a_plain_file_name() {
        for (name, expected) in [
            ("llama-3.1", "llama-3.1"),
            ("../../etc/passwd", ".._.._etc_passwd"),
            ("a\0b\nc\"d/é", "a_b_c_d__"),
            ("", ""),
        ] {
            assert_eq!(safe(name), expected);
        }
        assert_eq!(safe(&"x".repeat(1000)).len(), MAX_NAME);
        assert_eq!(number("00000042-.._.._x.rec.zst"), Some(42));
        for other in ["recorder.lock", "x-1.rec.zst", "00000001-a.rec.zst.part", "-a.rec.zst", "00000001.rec.zst"] {
            assert!(number(other).is_none_or(|_| other.starts_with('-')), "{other}");
        }
    }
}
