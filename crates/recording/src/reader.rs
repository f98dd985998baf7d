//! Reads recordings: which engines a directory has, and the lines of one engine, oldest first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use memchr::{memchr, memmem};

use trtllm_records::RecordTime;

use super::directory::{self, Segment};
use super::frame::{self, Read};
use super::line::{Entry, FORMAT, Line};

/// A recording that cannot be read. The text names the engines that can be chosen.
#[derive(Debug, thiserror::Error)]
pub enum OpenRecordingError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it contains no recording; --record.dir writes one")]
    Empty,
    #[error("{0}")]
    OtherFormats(OtherFormats),
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
pub fn utc(micros: i64) -> String {
    let time = serde_json::to_value(RecordTime { micros, zoned: true });
    time.ok().and_then(|time| time.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The segments that this version cannot read: another version wrote them, or their beginning is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherFormats {
    pub segments: u64,
    /// The format of a damaged segment is unknown.
    pub formats: BTreeSet<String>,
    /// When the first of them begins and the last of them ends, in microseconds since 1970 UTC.
    pub from_us: i64,
    pub until_us: i64,
}

impl OtherFormats {
    fn add(this: &mut Option<Self>, other: Self) {
        let Some(this) = this else { return *this = Some(other) };
        this.segments += other.segments;
        this.formats.extend(other.formats);
        this.from_us = this.from_us.min(other.from_us);
        this.until_us = this.until_us.max(other.until_us);
    }
}

impl std::fmt::Display for OtherFormats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { segments, formats, from_us, until_us } = self;
        let formats: Vec<&str> = formats.iter().map(String::as_str).collect();
        write!(
            f,
            "segments of the recording that are left out: {segments}, from {} to {}. They have format {}, and this version \
             reads format {FORMAT}; read them with the version that wrote them, or delete them",
            utc(*from_us),
            utc(*until_us),
            formats.join(" and "),
        )
    }
}

/// A directory of segments. Each segment belongs to one engine.
#[derive(Debug)]
pub struct Recording {
    /// The segments of each engine, oldest first. The key is its [`Header::engine`](super::line::Header::engine).
    engines: BTreeMap<String, EngineSegments>,
    pub other_formats: Option<OtherFormats>,
}

#[derive(Debug, Default)]
struct EngineSegments {
    model: String,
    /// MODEL:VERSION, which several engines may have.
    model_version: String,
    /// Each segment with its start in microseconds since 1970 UTC.
    segments: Vec<(PathBuf, i64)>,
}

impl Recording {
    /// Reads the first line of each segment. Fails if the directory cannot be read, or has no segment that this version
    /// can read.
    pub fn open(directory: &Path) -> Result<Self, OpenRecordingError> {
        let mut recording = Self { engines: BTreeMap::new(), other_formats: None };
        for segment in directory::segments(directory)? {
            recording.add(segment)?;
        }
        match (recording.engines.is_empty(), recording.other_formats.take()) {
            (true, Some(other)) => Err(OpenRecordingError::OtherFormats(other)),
            (true, None) => Err(OpenRecordingError::Empty),
            (false, other_formats) => Ok(Self { other_formats, ..recording }),
        }
    }

    /// Adds a segment, unless it is empty or was deleted meanwhile.
    fn add(&mut self, Segment { path, written, .. }: Segment) -> io::Result<()> {
        let mut frame = Vec::new();
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        if frame::read(&mut BufReader::new(file), &mut frame)? == Read::End {
            return Ok(());
        }
        let first = &frame[..memchr(b'\n', &frame).unwrap_or(frame.len())];
        match Line::parse(first) {
            Ok(Line { at, entry: Entry::Header(header) }) if header.format == FORMAT => {
                let engine = self.engines.entry(header.engine()).or_default();
                engine.model_version = format!("{}:{}", header.model, header.version);
                engine.model = header.model;
                engine.segments.push((path, at.us));
            }
            _ => OtherFormats::add(&mut self.other_formats, other_format(&frame, written)),
        }
        Ok(())
    }

    /// The names of the engines, in the form that [`Self::read`] accepts.
    pub fn engines(&self) -> impl Iterator<Item = &str> {
        self.engines.keys().map(String::as_str)
    }

    /// Reads the lines of `engine`: MODEL, MODEL:VERSION or its full name, or `None` for the only one. Errors tell the
    /// user to set `option`. Reading begins with the segment that contains the time that `since_us` returns. Its
    /// argument is the time when the last segment begins. Both are in microseconds since 1970 UTC. Fails if the
    /// recording does not have the engine, or has several engines and none is named.
    pub fn read(
        &self,
        engine: Option<&str>,
        option: &'static str,
        since_us: impl FnOnce(i64) -> i64,
    ) -> Result<Reader, OpenRecordingError> {
        let is_chosen = |(_, of): &(&String, &EngineSegments)| {
            engine.is_none_or(|chosen| of.model == chosen || of.model_version == chosen)
        };
        let chosen: Vec<(&String, &EngineSegments)> = match engine.and_then(|name| self.engines.get_key_value(name)) {
            Some(one) => vec![one],
            None => self.engines.iter().filter(is_chosen).collect(),
        };
        let [(_, EngineSegments { segments, .. })] = &chosen[..] else {
            return Err(match engine.filter(|_| chosen.is_empty()) {
                Some(name) => {
                    let engines = self.engines().collect::<Vec<_>>().join(", ");
                    OpenRecordingError::Unknown { name: name.to_owned(), engines }
                }
                None => {
                    let engines = chosen.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
                    OpenRecordingError::Several { option, engines }
                }
            });
        };
        let since = since_us(segments.last().map_or(i64::MIN, |(_, began_us)| *began_us));
        let later = segments.iter().position(|(_, began_us)| *began_us > since).unwrap_or(segments.len());
        let waiting = segments[later.saturating_sub(1)..].iter().map(|(path, _)| path.clone()).collect();
        Ok(Reader { waiting, segment: None, frame: Vec::new(), at: 0, torn: 0 })
    }
}

/// Describes a segment that is not in [`FORMAT`]. All formats have the text of their header in the first frame.
fn other_format(frame: &[u8], written: SystemTime) -> OtherFormats {
    let number_after = |key: &[u8]| {
        let rest = &frame[memmem::find(frame, key)? + key.len()..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&rest[..digits]).ok()?.parse::<u64>().ok()
    };
    let format = number_after(b"\"recording\":{\"format\":").filter(|format| *format != u64::from(FORMAT));
    let format = format.map_or_else(|| "unknown".to_owned(), |format| format.to_string());
    let written = written.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let until_us = i64::try_from(written).unwrap_or(i64::MAX);
    let from_us = number_after(b"{\"us\":").and_then(|us| i64::try_from(us).ok()).unwrap_or(until_us);
    OtherFormats { segments: 1, formats: BTreeSet::from([format]), from_us, until_us }
}

/// The lines of one engine.
#[derive(Debug)]
pub struct Reader {
    waiting: VecDeque<PathBuf>,
    segment: Option<BufReader<File>>,
    frame: Vec<u8>,
    /// How many bytes of the frame have been returned as lines.
    at: usize,
    torn: u64,
}

impl Reader {
    /// The next line, without its line feed. `None` after the last one. Fails if reading fails.
    pub fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        while self.at >= self.frame.len() {
            let Some(segment) = &mut self.segment else {
                let Some(path) = self.waiting.pop_front() else { return Ok(None) };
                match File::open(path) {
                    Ok(file) => self.segment = Some(BufReader::new(file)),
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
        let rest = &self.frame[self.at..];
        let line = &rest[..memchr(b'\n', rest).unwrap_or(rest.len())];
        self.at += line.len() + 1;
        Ok(Some(line))
    }

    /// Number of segments so far with a damaged frame, such as an unfinished one after kill -9. Nothing after it can be read.
    pub fn torn(&self) -> u64 {
        self.torn
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Writes a segment with this first line.
    fn write(directory: &Path, number: u64, first: &str) -> PathBuf {
        let frame = frame::Encoder::default().encode(first.as_bytes()).unwrap();
        let (path, file) = directory::create(directory, number, "m").unwrap();
        std::fs::write(&path, frame).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1000 * number)).unwrap();
        path
    }

    fn first_line(model: &str, us: u64) -> String {
        let engine = format!("\"model\":\"{model}\",\"version\":\"1\"");
        let header =
            format!("\"format\":{FORMAT},\"exporter\":\"x\",\"session\":1,{engine},\"labels\":[],\"source\":\"s\"");
        let settings = "\"objectives\":{},\"stale_after_ms\":15000";
        format!("{{\"us\":{us},\"clock_us\":1,{engine},\"recording\":{{{header},{settings}}}}}\n")
    }

    #[test]
    fn segments_of_other_formats_and_damaged_ones_are_named_with_their_times() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Recording::open(directory.path());
        assert!(matches!(open().unwrap_err(), OpenRecordingError::Empty));
        directory::create(directory.path(), 9, "m").unwrap();
        assert!(matches!(open().unwrap_err(), OpenRecordingError::Empty), "an empty segment has lost nothing");
        // Format 3 had two bytes before the text of the header.
        write(directory.path(), 1, "\0\u{1}{\"us\":60000000,\"recording\":{\"format\":3,\"exporter\":\"x\"}}");
        write(directory.path(), 2, "{\"us\":61000000,\"recording\":{\"format\":99,\"something\":{\"new\":1}}}");
        let error = open().unwrap_err().to_string();
        let times = "left out: 2, from 1970-01-01T00:01:00.000000Z to 1970-01-01T00:33:20.000000Z.";
        assert!(error.contains(times) && error.contains("format 3 and 99,"), "{error}");
        let readable = write(directory.path(), 3, &first_line("m", 1));
        assert_eq!(open().unwrap().other_formats.unwrap().to_string(), error);
        let whole = std::fs::read(&readable).unwrap();
        std::fs::write(readable, &whole[..whole.len() / 2]).unwrap();
        let error = open().unwrap_err().to_string();
        assert!(error.contains("left out: 3,") && error.contains("format 3 and 99 and unknown,"), "{error}");
    }

    /// A recording may have a thousand engines, each with segments of many hours.
    #[test]
    fn an_engine_is_read_from_its_own_segments_and_no_other_segment_is_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let segments: Vec<(String, PathBuf)> = (0..12)
            .map(|number| {
                let model = format!("m{}", number % 3);
                let path = write(directory.path(), number, &first_line(&model, number));
                (model, path)
            })
            .collect();
        let recording = Recording::open(directory.path()).unwrap();
        assert_eq!(recording.engines().collect::<Vec<_>>(), ["m0:1", "m1:1", "m2:1"]);
        // A directory cannot be read like a file, so each attempt to read one is an error.
        for (_, path) in segments.iter().filter(|(model, _)| model != "m1") {
            std::fs::remove_file(path).unwrap();
            std::fs::create_dir(path).unwrap();
        }
        let begins = |since_us: fn(i64) -> i64| {
            let (mut reader, mut begins) = (recording.read(Some("m1"), "--engine", since_us).unwrap(), Vec::new());
            while let Some(line) = reader.next_line().unwrap() {
                begins.push(Line::parse(line).unwrap().at.us);
            }
            begins
        };
        assert_eq!(begins(|_| i64::MIN), [1, 4, 7, 10]);
        assert_eq!(begins(|_| 5), [4, 7, 10]);
        assert_eq!(begins(|last| last - 1), [7, 10]);
        let mut other = recording.read(Some("m2"), "--engine", |_| i64::MIN).unwrap();
        assert!(other.next_line().is_err(), "the test detects a read");
    }
}
