//! Reads the lines of one engine from all segments, oldest first.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use trtllm_model::RecordTime;

use super::directory::{self, Segment};
use super::frame::{self, Read};
use super::item::{FORMAT, Header, Item, Line};
use super::pack::Unpacker;

/// A recording that cannot be read. The text names the engines that can be chosen.
#[derive(Debug, thiserror::Error)]
pub enum OpenRecordingError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it contains no recording; --record.dir writes one")]
    Empty,
    #[error("the recording has format {0}, and this version reads format {FORMAT}; use the version that wrote it")]
    Format(u64),
    #[error("the recording contains several engines; choose one with {option}: {engines}")]
    Several { option: &'static str, engines: String },
    #[error("the recording has no engine {name:?}; choose one of {engines}")]
    Unknown { name: String, engines: String },
    #[error("the recording has nothing of this time; it begins at {0}; choose a later time")]
    Begins(String),
    #[error("the recording has nothing of this time; it ends at {0}; choose an earlier time")]
    Ends(String),
    #[error("the recording has nothing of this time; nothing was recorded from {0} to {1}; choose another time")]
    Pauses(String, String),
}

/// A time as text, in a form that `--at` accepts.
#[must_use]
pub fn utc(micros: i64) -> String {
    let time = serde_json::to_value(RecordTime { micros, zoned: true });
    time.ok().and_then(|time| time.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The segments of one engine.
#[derive(Debug)]
pub struct Reader {
    waiting: VecDeque<PathBuf>,
    segment: Option<BufReader<File>>,
    unpacker: Unpacker,
    frame: Vec<u8>,
    /// How many bytes of the frame have been returned as lines.
    at: usize,
    line: Vec<u8>,
    torn: u64,
}

/// The names of the engines in a recording, in the form that [`Reader::open`] accepts.
///
/// # Errors
/// If the directory cannot be read or has no recording.
pub fn engines(directory: &Path) -> Result<Vec<String>, OpenRecordingError> {
    let all: BTreeSet<String> = headers(directory)?.into_iter().map(|(_, _, header)| header.engine()).collect();
    Ok(all.into_iter().collect())
}

/// Says how many segments of a recording this version cannot read, because another version wrote them in another format.
/// `None` if there are none.
///
/// # Errors
/// If the directory cannot be read.
pub fn other_formats(directory: &Path) -> io::Result<Option<String>> {
    let (mut segments, mut formats) = (0, BTreeSet::new());
    for Segment { path, .. } in directory::segments(directory)? {
        if let Some(Err(format)) = header(&path)? {
            segments += 1;
            formats.insert(format.to_string());
        }
    }
    let formats: Vec<_> = formats.into_iter().collect();
    Ok((segments > 0).then(|| {
        format!(
            "segments of the recording that are left out: {segments}. They have format {}, and this version reads format {FORMAT}; \
             read them with the version that wrote them",
            formats.join(", ")
        )
    }))
}

impl Reader {
    /// Opens the recording of `engine`: MODEL or MODEL:VERSION, or `None` for the only one. Errors tell the user to set `option`.
    /// With `since_us`, begins with the segment that contains this time in microseconds since 1970 UTC.
    ///
    /// # Errors
    /// If the directory cannot be read, has no recording of the engine, or has several engines and none is named.
    pub fn open(
        directory: &Path,
        engine: Option<&str>,
        option: &'static str,
        since_us: Option<i64>,
    ) -> Result<Self, OpenRecordingError> {
        let mut found = headers(directory)?;
        let all: BTreeSet<String> = found.iter().map(|(_, _, header)| header.engine()).collect();
        let names = |engines: &BTreeSet<String>| engines.iter().cloned().collect::<Vec<_>>().join(", ");
        found.retain(|(_, _, header)| engine.is_none_or(|name| header.is_engine(name)));
        let chosen: BTreeSet<String> = found.iter().map(|(_, _, header)| header.engine()).collect();
        match (chosen.len(), engine) {
            (0, Some(name)) => {
                return Err(OpenRecordingError::Unknown { name: name.to_owned(), engines: names(&all) });
            }
            (1, _) => {}
            _ => return Err(OpenRecordingError::Several { option, engines: names(&chosen) }),
        }
        if let Some(since) = since_us {
            let later = found.iter().position(|(_, began_us, _)| *began_us > since).unwrap_or(found.len());
            found.drain(..later.saturating_sub(1));
        }
        let waiting = found.into_iter().map(|(path, ..)| path).collect();
        let (frame, line) = (Vec::new(), Vec::new());
        Ok(Self { waiting, segment: None, unpacker: Unpacker::default(), frame, at: 0, line, torn: 0 })
    }

    /// The next line, without its line feed. `None` after the last one.
    ///
    /// # Errors
    /// If reading fails.
    pub fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        while self.at >= self.frame.len() {
            let Some(segment) = &mut self.segment else {
                let Some(path) = self.waiting.pop_front() else { return Ok(None) };
                match File::open(path) {
                    Ok(file) => (self.segment, self.unpacker) = (Some(BufReader::new(file)), Unpacker::default()),
                    // A recorder that still runs may have deleted the segment.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
                continue;
            };
            self.at = 0;
            match frame::read(segment, &mut self.frame)? {
                Read::Frame => {}
                Read::End => self.segment = None,
                Read::Torn => {
                    self.torn += 1;
                    self.segment = None;
                }
            }
        }
        let mut rest = &self.frame[self.at..];
        self.unpacker.unpack(&mut rest, &mut self.line)?;
        self.at = self.frame.len() - rest.len();
        Ok(Some(&self.line))
    }

    /// Number of segments so far that end in the middle of a frame, as after kill -9. That frame is left out.
    #[must_use]
    pub fn torn(&self) -> u64 {
        self.torn
    }
}

/// The segments that can be read, oldest first, each with its start in microseconds since 1970 UTC.
fn headers(directory: &Path) -> Result<Vec<(PathBuf, i64, Header)>, OpenRecordingError> {
    let (mut found, mut other_format) = (Vec::new(), None);
    for Segment { path, .. } in directory::segments(directory)? {
        match header(&path)? {
            Some(Ok((began_us, header))) => found.push((path, began_us, header)),
            Some(Err(format)) => other_format = Some(format),
            None => {}
        }
    }
    if found.is_empty() {
        return Err(other_format.map_or(OpenRecordingError::Empty, OpenRecordingError::Format));
    }
    Ok(found)
}

/// The first line of a segment, or the number of its format if this version cannot read it. `None` if it was cut or deleted.
fn header(path: &Path) -> io::Result<Option<Result<(i64, Header), u64>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let (mut frame, mut first) = (Vec::new(), Vec::new());
    if frame::read(&mut BufReader::new(file), &mut frame)? != Read::Frame
        || Unpacker::default().unpack(&mut frame.as_slice(), &mut first).is_err()
    {
        return Ok(None);
    }
    Ok(match Item::parse(&first) {
        Ok(Line { at, item: Item::Recording(header) }) if header.format == FORMAT => Some(Ok((at.us, *header))),
        _ => other_format(&first).map(Err),
    })
}

/// The format of a segment that another version wrote. Its header may have other fields.
fn other_format(first: &[u8]) -> Option<u64> {
    #[derive(serde::Deserialize)]
    struct Line {
        recording: Format,
    }
    #[derive(serde::Deserialize)]
    struct Format {
        format: u64,
    }
    let line: Line = serde_json::from_slice(first).ok()?;
    Some(line.recording.format).filter(|format| *format != u64::from(FORMAT))
}

#[cfg(test)]
mod tests {
    use super::super::pack::Packer;
    use super::*;

    #[test]
    fn a_recording_of_another_format_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let mut encoder = frame::Encoder::default();
        let mut packed = Vec::new();
        Packer::default().pack(b"{\"recording\":{\"format\":99,\"something\":{\"new\":1}}}", &mut packed);
        let frame = encoder.encode(&packed).unwrap();
        let (path, _) = directory::create(directory.path(), 1, "m").unwrap();
        std::fs::write(path, frame).unwrap();
        let error = Reader::open(directory.path(), None, "engine=", None).unwrap_err();
        assert!(matches!(error, OpenRecordingError::Format(99)), "{error}");
        assert!(error.to_string().contains("format 99"), "{error}");
        let note = other_formats(directory.path()).unwrap().unwrap();
        assert!(note.contains("left out: 1.") && note.contains("format 99"), "{note}");
        assert_eq!(other_formats(tempfile::tempdir().unwrap().path()).unwrap(), None);
    }
}
