//! `export`, and functions with which other commands read a recording.

mod trace;

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use crate::cli::ExportArgs;
use crate::exporters::api::Model;
use trtllm_config::ConfigError;
use trtllm_intake::past::{PastEngine, engines_at};
use trtllm_recording::{Line, OpenRecordingError, Recording};

/// The engines of a recording at a time in µs since 1970 UTC (default: its end). Fails if the recording has nothing of this time.
pub(super) fn past(directory: &Path, at_us: Option<i64>, engine: Option<&str>) -> Result<Vec<PastEngine>, ConfigError> {
    let recording = open(directory)?;
    let engines = engines_at(&recording, engine, at_us).map_err(|error| unreadable(directory, error))?;
    say_damaged(engines.iter().map(|past| past.damaged_segments).sum());
    Ok(engines)
}

/// Opens a recording, and says on stderr if a part of it is left out.
fn open(directory: &Path) -> Result<Recording, ConfigError> {
    let recording = Recording::open(directory).map_err(|error| unreadable(directory, error))?;
    if let Some(note) = &recording.other_formats {
        let _ = writeln!(io::stderr(), "trtllm-doctor: {note}");
    }
    Ok(recording)
}

/// Says on stderr that this number of segments is damaged, unless it is 0.
fn say_damaged(segments: u64) {
    if segments > 0 {
        let _ = writeln!(
            io::stderr(),
            "trtllm-doctor: damaged segments: {segments}. What follows the damage in a segment is left out"
        );
    }
}

/// The costs and requests of one engine as the exporter knew them at this time. Fails if [`past`] fails, or if the recording
/// has several engines and `engine` is absent.
pub(super) fn model(directory: &Path, at_us: Option<i64>, engine: Option<&str>) -> Result<Model, ConfigError> {
    let mut engines = past(directory, at_us, engine)?;
    if engines.len() > 1 {
        let names: Vec<String> = engines.iter().map(|past| past.slot().name.full()).collect();
        return Err(unreadable(
            directory,
            OpenRecordingError::Several { option: "--engine", engines: names.join(", ") },
        ));
    }
    let past = engines.pop().ok_or_else(|| unreadable(directory, OpenRecordingError::Empty))?;
    Ok(Model::of(&past.slot(), Some(past.at_us as f64 / 1e6)))
}

fn unreadable(directory: &Path, error: OpenRecordingError) -> ConfigError {
    let why = match error {
        OpenRecordingError::Io(error) => format!("{error}; name a directory that --record.dir wrote"),
        error => error.to_string(),
    };
    ConfigError::Recording { path: directory.to_owned(), why }
}

/// Why an export stopped.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error(transparent)]
    Read(#[from] OpenRecordingError),
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// The lines of some engines in a span of time, one engine after the other.
struct Selection {
    recording: Recording,
    engines: Vec<String>,
    from_us: i64,
    until_us: i64,
    /// Number of segments (files) of the recording that are damaged.
    torn: u64,
}

impl Selection {
    /// Calls `each` with the engine and each line, until it fails. Lines that describe an engine are included even if they are
    /// older than the span of time.
    fn each(&mut self, mut each: impl FnMut(&str, &Line) -> io::Result<()>) -> Result<(), ExportError> {
        self.torn = 0;
        for engine in &self.engines {
            let mut reader = self.recording.read(Some(engine), "--engine", |_| self.from_us)?;
            while let Some(text) = reader.next_line().map_err(OpenRecordingError::from)? {
                let Ok(line) = Line::parse(text) else { continue };
                if line.at.us >= self.until_us {
                    break;
                }
                if line.at.us >= self.from_us || line.entry.is_about() {
                    each(engine, &line)?;
                }
            }
            self.torn += reader.torn();
        }
        Ok(())
    }
}

/// Runs `export`. Fails if the recording cannot be read or the output cannot be written.
pub(crate) fn export(arguments: &ExportArgs) -> Result<(), ConfigError> {
    let ExportArgs { directory, engine, from_us, until_us, output } = arguments;
    let (from_us, until_us) = (from_us.unwrap_or(i64::MIN), until_us.unwrap_or(i64::MAX));
    let recording = open(directory)?;
    let engines = match engine {
        // An engine that is not in the recording must not leave an empty file.
        Some(name) => match recording.read(Some(name), "--engine", |_| from_us) {
            Ok(_) => vec![name.clone()],
            Err(error) => return Err(unreadable(directory, error)),
        },
        None => recording.engines().map(str::to_owned).collect(),
    };
    let mut lines = Selection { recording, engines, from_us, until_us, torn: 0 };
    let failed = |error| {
        ConfigError::Output(match output {
            Some(path) => format!("cannot write {}: {error}; choose another --output", path.display()),
            None => format!("cannot write to stdout: {error}; check the disk, or the program that reads it"),
        })
    };
    let mut out: Box<dyn Write> = match output {
        Some(path) => Box::new(io::BufWriter::new(File::create(path).map_err(failed)?)),
        None => Box::new(io::BufWriter::new(io::stdout().lock())),
    };
    let written = match trace::write(&mut lines, &mut out) {
        Ok(()) => out.flush(),
        Err(ExportError::Write(error)) => Err(error),
        Err(ExportError::Read(error)) => return Err(unreadable(directory, error)),
    };
    say_damaged(lines.torn);
    match written {
        // A reader that stops early, such as head, is not an error.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(failed(error)),
        _ => Ok(()),
    }
}
