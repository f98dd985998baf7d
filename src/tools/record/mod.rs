//! `record export`, and functions with which other commands read a recording.

mod trace;

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use super::exporters::api::Model;
use crate::cli::{ExportArgs, ExportFormat, RecordCommand};
use crate::config::ConfigError;
use trtllm_intake::past::{PastEngine, engines_at};
use trtllm_model::EngineName;
use trtllm_recording::{Item, Line, OpenRecordingError, Reader, engines, other_formats};
use trtllm_service::printable;
use trtllm_what_if::Present;

/// Runs the command. Fails if the recording cannot be read or the output cannot be written.
pub fn run(command: &RecordCommand) -> Result<(), ConfigError> {
    let RecordCommand::Export(arguments) = command;
    export(arguments)
}

/// The engines of a recording at a time in µs since 1970 UTC (default: its end). Fails if the recording has nothing of this time.
pub(super) fn past(directory: &Path, at_us: Option<i64>, engine: Option<&str>) -> Result<Vec<PastEngine>, ConfigError> {
    let failed = |error| ConfigError::Recording { path: directory.to_owned(), why: unreadable(error) };
    let found = engines_at(directory, engine, at_us).map_err(failed);
    note_other_formats(directory);
    found
}

/// Says on stderr that a part of the recording is left out.
fn note_other_formats(directory: &Path) {
    if let Ok(Some(note)) = other_formats(directory) {
        let _ = writeln!(io::stderr(), "trtllm-exporter: {note}");
    }
}

/// The costs and requests of one engine as the exporter knew them at this time. Fails if [`past`] fails, or if the recording
/// has several engines and `engine` is absent.
pub(super) fn model(directory: &Path, at_us: Option<i64>, engine: Option<&str>) -> Result<Model, ConfigError> {
    let mut engines = past(directory, at_us, engine)?;
    let (Some(past), true) = (engines.pop(), engines.is_empty()) else {
        let why = "it has several engines; choose one with --engine MODEL:VERSION".to_owned();
        return Err(ConfigError::Recording { path: directory.to_owned(), why });
    };
    let slot = past.slot();
    let EngineName { model, version, .. } = slot.name.clone();
    let present = slot.with_judged(|judged| Present::of(past.fold(), &judged.window));
    Ok(Model {
        model,
        version,
        at: Some(past.at_us as f64 / 1e6),
        configuration: slot.snapshot().configuration(),
        present,
    })
}

fn unreadable(error: OpenRecordingError) -> String {
    match error {
        OpenRecordingError::Io(error) => format!("{error}; name a directory that --record.dir wrote"),
        error => error.to_string(),
    }
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
struct Selection<'a> {
    directory: &'a Path,
    engines: Vec<String>,
    from_us: i64,
    until_us: i64,
    /// Number of segments (files) of the recording that end in the middle of a compressed frame.
    torn: u64,
}

impl Selection<'_> {
    /// Calls `each` with every line and its text, until it fails. Lines that describe an engine are included even if they are older
    /// than the span of time.
    fn each(&mut self, mut each: impl FnMut(&Line, &[u8]) -> io::Result<()>) -> Result<(), ExportError> {
        self.torn = 0;
        for engine in &self.engines {
            let mut reader = Reader::open(self.directory, Some(engine), "--engine", Some(self.from_us))?;
            while let Some(text) = reader.next_line().map_err(OpenRecordingError::from)? {
                let Ok(line) = Item::parse(text) else { continue };
                if line.at.us >= self.until_us {
                    break;
                }
                if line.at.us >= self.from_us || line.item.is_about() {
                    each(&line, text)?;
                }
            }
            self.torn += reader.torn();
        }
        Ok(())
    }
}

fn export(arguments: &ExportArgs) -> Result<(), ConfigError> {
    let ExportArgs { directory, format, engine, from_us, until_us, output } = arguments;
    let unread = |error| ConfigError::Recording { path: directory.clone(), why: unreadable(error) };
    let mut chosen = engines(directory).map_err(unread)?;
    note_other_formats(directory);
    if let Some(name) = engine {
        let is_chosen =
            |engine: &String| engine == name || engine.split_once('/').is_some_and(|(model, _)| model == name);
        let all = chosen.join(", ");
        chosen.retain(is_chosen);
        if chosen.is_empty() {
            return Err(unread(OpenRecordingError::Unknown { name: name.clone(), engines: all }));
        }
    }
    let (from_us, until_us) = (from_us.unwrap_or(i64::MIN), until_us.unwrap_or(i64::MAX));
    let mut lines = Selection { directory, engines: chosen, from_us, until_us, torn: 0 };
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
    let exported = match format {
        ExportFormat::Json => {
            lines.each(|_, text| writeln!(out, "{}", printable::json(&String::from_utf8_lossy(text))))
        }
        ExportFormat::Trace => trace::write(&mut lines, &mut out),
    };
    let written = match exported {
        Ok(()) => out.flush(),
        Err(ExportError::Write(error)) => Err(error),
        Err(ExportError::Read(error)) => return Err(unread(error)),
    };
    if lines.torn > 0 {
        let torn = lines.torn;
        let _ = writeln!(
            io::stderr(),
            "trtllm-exporter: segments that end in the middle of a frame: {torn}. The rest of these frames is left out"
        );
    }
    match written {
        // A reader that stops early, such as head, is not an error.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(failed(error)),
        _ => Ok(()),
    }
}
