//! The command line of the flight recorder: the parsers of sizes and times, and the command that reads a recording.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};

/// Commands that read a recording.
#[derive(Debug, Clone, Subcommand)]
pub enum RecordCommand {
    /// Write a trace for Perfetto. (zstdcat DIR/*.rec.zst prints the lines of a recording.)
    Export(ExportArgs),
}

/// Arguments of `record export`.
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    /// Directory of the recording, as in --record.dir. Its exporter may run
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// trace: Chrome's JSON trace format
    #[arg(long, value_name = "FORMAT", default_value = "trace", value_parser = format)]
    pub format: TraceFormat,

    /// Engine to write: MODEL or MODEL:VERSION. Default: all, one after the other
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,

    /// Begin at this time: a duration before now such as 10m, or a time such as 2026-11-23T04:00:00Z
    #[arg(long = "from", value_name = "TIME", value_parser = time_us, allow_hyphen_values = true)]
    pub from_us: Option<i64>,

    /// End before this time
    #[arg(long = "until", value_name = "TIME", value_parser = time_us, allow_hyphen_values = true)]
    pub until_us: Option<i64>,

    /// File to write. Default: stdout
    #[arg(long, value_name = "PATH")]
    pub output: Option<PathBuf>,
}

/// The only format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceFormat;

fn format(text: &str) -> Result<TraceFormat, &'static str> {
    let only = "the only format is trace; for JSON lines, use zstdcat DIR/*.rec.zst";
    if text == "trace" { Ok(TraceFormat) } else { Err(only) }
}

/// A time, or a duration before now with or without a minus sign, in microseconds since 1970 UTC.
pub fn time_us(text: &str) -> Result<i64, String> {
    let ago = text.strip_prefix('-').unwrap_or(text);
    let before_now = || SystemTime::now().checked_sub(humantime::parse_duration(ago).ok()?);
    let time = humantime::parse_rfc3339_weak(text).ok().or_else(before_now).ok_or(
        "this is not a time; write a duration before now such as 10m or -10m, or a time such as 2026-11-23T04:00:00Z",
    )?;
    let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX))
}

/// Parses a size, a whole number and a unit such as 256MiB, into bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 8] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("KB", 1000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
    ];
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = text[digits.len()..].trim();
    let factor = match unit {
        "" | "B" => Some(1),
        unit => UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, factor)| *factor),
    };
    let number: Option<u64> = digits.trim().parse().ok();
    let bytes = number.zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    bytes.ok_or_else(|| "this is not a size; write a number and a unit such as 256MiB or 1GB".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::cli::Cli;
    use trtllm_recording::recorder::DEFAULT_MAX_SIZE;

    use super::*;

    #[test]
    fn a_time_is_iso_or_a_duration_before_now() {
        for text in ["1970-01-02T00:00:00Z", "1970-01-02 00:00:00"] {
            assert_eq!(time_us(text), Ok(86_400_000_000), "{text}");
        }
        let now = time_us("0s").unwrap();
        for (text, seconds) in [("10m", 600), ("-10m", 600), ("-2h", 7200), ("1h 30m", 5400)] {
            let ago = now - time_us(text).unwrap();
            assert!((seconds - 2..=seconds).contains(&((ago + 500_000) / 1_000_000)), "{text}: {ago}");
        }
        for text in ["", "-", "--2h", "+2h", "2", "-1", "noon", "-1970-01-02T00:00:00Z"] {
            assert!(time_us(text).unwrap_err().contains("10m"), "{text}");
        }
    }

    #[test]
    fn the_default_size_is_the_one_that_keeps_a_day() {
        let cli = Cli::parse_from(["trtllm-exporter"]);
        assert_eq!(cli.record_max_size, DEFAULT_MAX_SIZE);
    }

    #[test]
    fn a_size_is_a_number_and_a_unit() {
        for (text, bytes) in
            [("256MiB", 256 << 20), ("1gb", 1_000_000_000), ("2 GiB", 2 << 30), ("4194304", 4 << 20), ("7B", 7)]
        {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "1.5GiB", "-1MiB", "1XB", "99999999999TiB", "1é"] {
            assert!(size(text).unwrap_err().contains("256MiB"), "{text}");
        }
    }
}
