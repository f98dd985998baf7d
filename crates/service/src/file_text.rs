//! Text of files. One long text is in memory at a time, so a reader may wait for another reader.

use std::io::{self, BufRead, Read};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::permits::{Permit, Permits};

/// Maximum bytes of a line, frame or document. It is limited, because a device may have no end.
pub const MAX: usize = 12 << 20;
/// Each reader may have this many bytes without a permit.
const SHORT: usize = 256 << 10;

/// How long a reader waits for another reader.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(2);

static LONG_TEXTS: Permits = Permits::new(1);

/// The last text that was read of a file.
#[derive(Debug, Default)]
pub struct FileText {
    text: Vec<u8>,
    permit: Option<Permit>,
}

impl FileText {
    /// Replaces the text by the next line without its line feed, or by its first [`MAX`] bytes. Fails if reading fails, or
    /// if other readers use the budget for more than 2 s.
    pub fn read_line(&mut self, from: &mut impl BufRead) -> io::Result<LineRead> {
        let bytes = self.read(from, Some(b'\n'), |mut from, text| from.read_until(b'\n', text))?;
        Ok(LineRead { bytes, is_complete: self.text.pop_if(|last| *last == b'\n').is_some() })
    }

    /// Replaces the text by all that follows, or by the first [`MAX`] bytes. Returns whether that is all. Fails like
    /// [`Self::read_line`].
    pub fn read_all(&mut self, from: &mut impl Read) -> io::Result<bool> {
        Ok(self.read(from, None, |mut from, text| from.read_to_end(text))? < MAX)
    }

    /// Reads in two steps: first as many bytes as need no permit, then the rest.
    fn read<R: Read>(
        &mut self,
        from: &mut R,
        end: Option<u8>,
        part: impl Fn(io::Take<&mut R>, &mut Vec<u8>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.clear();
        let start = part(from.take(SHORT as u64), &mut self.text)?;
        if start < SHORT || end.is_some() && self.text.last().copied() == end {
            return Ok(start);
        }
        // Blocks this thread until a permit is free, and panics on a thread of async tasks: call it from `spawn_blocking`.
        // Commands run without tokio. They need no permit, because no other reader runs in their process.
        if let Ok(runtime) = Handle::try_current() {
            let taken = async { tokio::time::timeout(PERMIT_TIMEOUT, LONG_TEXTS.take()).await };
            self.permit = Some(runtime.block_on(taken)?);
        }
        self.text.reserve_exact(MAX - SHORT);
        let rest = part(from.take((MAX - SHORT) as u64), &mut self.text)?;
        self.text.shrink_to_fit();
        Ok(start + rest)
    }

    /// Frees a long text. Call this as soon as the text is parsed, because other readers may wait.
    pub fn clear(&mut self) {
        self.text.clear();
        self.text.shrink_to(SHORT);
        self.permit = None;
    }

    pub fn bytes(&self) -> &[u8] {
        &self.text
    }

    /// Takes the text and releases the permit. The caller must bound these bytes itself.
    pub fn into_bytes(self) -> Vec<u8> {
        self.text
    }
}

/// The result of [`FileText::read_line`].
#[derive(Debug, Clone, Copy)]
pub struct LineRead {
    /// Bytes with the line feed. 0 at the end of the file.
    pub bytes: usize,
    /// There was a line feed.
    pub is_complete: bool,
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn short_and_long_lines_are_read_to_their_line_feed() {
        let lines: Vec<usize> = vec![0, 5, SHORT - 1, SHORT, SHORT + 1, MAX - 1, 3];
        let text = lines.iter().flat_map(|length| [vec![b'x'; *length], vec![b'\n']].concat()).collect::<Vec<_>>();
        let (mut from, mut line) = (Cursor::new(text), FileText::default());
        for length in lines {
            let read = line.read_line(&mut from).unwrap();
            assert_eq!((read.bytes, read.is_complete, line.bytes().len()), (length + 1, true, length));
        }
        assert_eq!(line.read_line(&mut from).unwrap().bytes, 0);
        assert!(line.text.capacity() <= SHORT);
    }

    #[test]
    fn a_text_without_an_end_is_cut() {
        let (mut line, mut from) = (FileText::default(), io::BufReader::new(io::repeat(b'x')));
        let read = line.read_line(&mut from).unwrap();
        assert_eq!((read.bytes, read.is_complete, line.bytes().len()), (MAX, false, MAX));
        assert!(!line.read_all(&mut from).unwrap());
        // A line feed at the end of the first part does not end the text.
        assert!(line.read_all(&mut Cursor::new(vec![b'\n'; SHORT + 9])).unwrap());
        assert_eq!(line.bytes().len(), SHORT + 9);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_long_text_waits_for_another_one_and_not_for_ever() {
        let read = || {
            let read = || FileText::default().read_all(&mut Cursor::new(vec![b'x'; SHORT + 9]));
            tokio::task::spawn_blocking(read)
        };
        let other = LONG_TEXTS.take().await;
        assert_eq!(read().await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(other);
        assert!(read().await.unwrap().unwrap());
        assert_eq!(LONG_TEXTS.free(), 1);
    }
}
