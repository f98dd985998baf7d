//! Reads and replaces small files. Their length is limited, because a device such as `/dev/zero` has no end. Distinguishes
//! files from streams.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// Maximum bytes, more than any configuration or bundle of certificates has.
const MAX: u64 = 4 << 20;

/// The content of the file at `path`. Fails if it cannot be read, or is longer than 4 MiB.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(MAX + 1).read_to_end(&mut content)?;
    match content.len() as u64 > MAX {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {} MiB", MAX >> 20))),
        false => Ok(content),
    }
}

/// Opens a regular file for reading. Does not wait for the writer of a pipe that may be there instead. Fails if it cannot be
/// opened, or is not a regular file.
pub fn open_regular(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = (flags | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// Writes a file so that a reader never sees a partial one. The directory may be writable by others, so nothing that
/// already exists is opened. Fails if it cannot be written; the old file, if there is one, then stays.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    // A process with the same id, such as in another container, may have left this file.
    let _ = std::fs::remove_file(&part);
    let mut file = File::options().write(true).create_new(true).mode(mode).open(&part)?;
    let written = file.write_all(content).and_then(|()| std::fs::rename(&part, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written
}

/// Whether the file is a pipe or a device. Opening or reading it may wait, and takes data from other readers.
pub fn is_stream(path: &Path) -> bool {
    let kind = path.metadata().map(|found| found.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_char_device())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_an_end_is_an_error() {
        for device in ["/dev/zero", "/dev/urandom", "/dev/full"] {
            assert_eq!(read(Path::new(device)).unwrap_err().kind(), io::ErrorKind::FileTooLarge, "{device}");
        }
    }
}
