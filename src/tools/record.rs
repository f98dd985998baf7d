//! `record export`: prints a recording as NDJSON.

use std::io::{self, ErrorKind, Write as _};
use std::time::UNIX_EPOCH;

use crate::cli::{ExportArgs, RecordCommand};
use crate::config::ConfigError;
use trtllm_recording::{OpenRecordingError, Reader};
use trtllm_service::printable;

/// Runs the command.
///
/// # Errors
/// If the recording cannot be read.
pub fn run(command: &RecordCommand) -> Result<(), ConfigError> {
    let RecordCommand::Export(arguments) = command;
    export(arguments).map_err(|why| ConfigError::Recording { path: arguments.directory.clone(), why })
}

fn export(ExportArgs { directory, engine, since }: &ExportArgs) -> Result<(), String> {
    let since = since.map(|time| time.duration_since(UNIX_EPOCH).unwrap_or_default());
    let since_us = since.map(|since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX));
    let unreadable = |error| match error {
        OpenRecordingError::Io(error) => format!("{error}; name a directory that --record.dir wrote"),
        error => error.to_string(),
    };
    let mut reader = Reader::open(directory, engine.as_deref(), "--engine", since_us).map_err(unreadable)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = loop {
        let Some(line) = reader.next_line().map_err(|error| unreadable(error.into()))? else { break out.flush() };
        if let Err(error) = writeln!(out, "{}", printable::json(&String::from_utf8_lossy(line))) {
            break Err(error);
        }
    };
    if reader.torn() > 0 {
        let torn = reader.torn();
        let _ = writeln!(
            io::stderr(),
            "trtllm-exporter: segments that end in the middle of a frame: {torn}. The rest of these frames is left out"
        );
    }
    match written {
        // A reader that stops early, such as head.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("cannot write to stdout: {error}; check the disk, or the program that reads it"))
        }
        _ => Ok(()),
    }
}
