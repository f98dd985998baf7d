//! Parses the values of flags.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser};
use trtllm_records::Objectives;

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

/// Parses one of the values by its name.
pub(super) fn one_of<T, const N: usize>(all: [(&'static str, T); N]) -> impl TypedValueParser<Value = T>
where
    T: Clone + Send + Sync + 'static,
{
    let names = PossibleValuesParser::new(all.each_ref().map(|(name, _)| *name));
    names.try_map(move |text| match all.iter().find(|(name, _)| *name == text) {
        Some((_, value)) => Ok(value.clone()),
        None => Err("unknown value"),
    })
}

/// Parses a path. Unlike clap's own parser, it accepts an empty value, which counts as not given.
pub(super) fn path_or_empty() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Helm charts pass an empty value for a flag that is not set.
pub(super) fn objectives(text: &str) -> Result<Objectives, String> {
    if text.is_empty() { Ok(Objectives::default()) } else { text.parse() }
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "this is not a duration; write 100ms, 5s or 1m".to_owned())
}

pub(super) fn integer<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "this is not a whole number; write a number such as 1000".to_owned())
}

pub(super) fn log_level(text: &str) -> Result<tracing::Level, String> {
    text.parse().map_err(|_| "unknown level; use one of error, warn, info, debug, trace".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::cli::Cli;
    use trtllm_recording::recorder::DEFAULT_MAX_SIZE;

    use super::*;

    #[test]
    fn the_default_size_is_the_one_that_keeps_a_day() {
        let cli = Cli::parse_from(["trtllm-exporter"]);
        assert_eq!(cli.record.max_size, DEFAULT_MAX_SIZE);
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
