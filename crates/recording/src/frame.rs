//! Frames of zstd, each of which has a checksum and can be read on its own. A frame that was cut because the process ended is
//! detected.

use std::io::{self, BufRead};

use trtllm_service::file_text::{self, FileText};
use zstd::bulk::Compressor;
use zstd::stream::raw::CParameter;
use zstd::stream::read::Decoder;

/// A frame is written after this many bytes of lines. So it is usually one block of zstd (128 KiB), and zstdcat prints only whole
/// lines of a file that was cut.
pub const TARGET: usize = 120 << 10;
/// Maximum memory that the decoder may allocate, as a power of two. The window of a frame is the whole frame.
const MAX_WINDOW: u32 = file_text::MAX.next_power_of_two().ilog2();
/// The fastest regular level. Lines repeat their keys, so higher levels save little.
const LEVEL: i32 = 1;

/// Compresses frames, reusing the memory of zstd.
#[derive(Default)]
pub struct Encoder(Option<Compressor<'static>>);

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

impl Encoder {
    /// Fails if memory runs out.
    pub fn encode(&mut self, lines: &[u8]) -> io::Result<Vec<u8>> {
        let compressor = match &mut self.0 {
            Some(compressor) => compressor,
            none => {
                let mut compressor = Compressor::new(LEVEL)?;
                compressor.set_parameter(CParameter::ChecksumFlag(true))?;
                none.insert(compressor)
            }
        };
        compressor.compress(lines)
    }
}

/// The result of reading a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    Frame,
    End,
    /// Not a whole frame. Nothing after it can be read.
    Torn,
}

/// Replaces `lines` by the next frame. Fails if reading fails.
pub fn read(file: &mut impl BufRead, lines: &mut Vec<u8>) -> io::Result<Read> {
    lines.clear();
    if file.fill_buf()?.is_empty() {
        return Ok(Read::End);
    }
    let mut decoder = Decoder::with_buffer(file)?.single_frame();
    decoder.window_log_max(MAX_WINDOW)?;
    let mut text = FileText::default();
    match text.read_all(&mut decoder) {
        Ok(true) => {
            *lines = text.into_bytes();
            Ok(Read::Frame)
        }
        // No recorder writes such a long frame.
        Ok(false) => Ok(Read::Torn),
        // Errors of the disk have an OS error number, and `TimedOut` means that other readers used the memory budget. All other errors
        // come from the decoder.
        Err(error) if error.raw_os_error().is_some() || error.kind() == io::ErrorKind::TimedOut => Err(error),
        Err(_) => Ok(Read::Torn),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &[u8] = b"{\"record\":{\"iter\":5}}\n";

    #[test]
    fn a_frame_that_is_cut_or_changed_anywhere_is_torn() {
        let mut encoder = Encoder::default();
        let first = encoder.encode(b"{\"process\":1}\n").unwrap();
        let second = encoder.encode(&RECORD.repeat(20)).unwrap();
        let both = [first.clone(), second].concat();
        let mut lines = Vec::new();
        for length in 0..both.len() {
            let mut cut = &both[..length];
            let mut expected = if length >= first.len() { vec![Read::Frame] } else { vec![] };
            expected.push(if length == 0 || length == first.len() { Read::End } else { Read::Torn });
            for wanted in expected {
                assert_eq!(read(&mut cut, &mut lines).unwrap(), wanted, "cut at {length}");
            }
        }
        for at in first.len()..both.len() {
            let mut changed = both.clone();
            changed[at] ^= 0x10;
            let mut changed = changed.as_slice();
            assert_eq!(read(&mut changed, &mut lines).unwrap(), Read::Frame);
            // A changed bit may mean nothing to the decoder.
            let right = read(&mut changed, &mut lines).unwrap() == Read::Frame;
            assert!(!right || lines == RECORD.repeat(20), "changed at {at}");
        }
        let mut whole = both.as_slice();
        assert_eq!(read(&mut whole, &mut lines).unwrap(), Read::Frame);
        assert_eq!(lines, b"{\"process\":1}\n");
        assert_eq!(read(&mut whole, &mut lines).unwrap(), Read::Frame);
        assert_eq!(read(&mut whole, &mut lines).unwrap(), Read::End);
    }
}
