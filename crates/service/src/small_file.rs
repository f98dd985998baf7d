//! Reads configuration files. Their length is limited: a device such as `/dev/zero` has no end. Knows which files are streams.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

/// More than any configuration or bundle of certificates has.
const MAX: u64 = 4 << 20;

/// The content of the file at `path`.
///
/// # Errors
/// If it cannot be read, or is longer than 4 MiB.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(MAX + 1).read_to_end(&mut content)?;
    match content.len() as u64 > MAX {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("longer than {} MiB", MAX >> 20))),
        false => Ok(content),
    }
}

/// Whether the file is a pipe or a device: opening or reading it may wait, and takes what another reader expects.
#[must_use]
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
