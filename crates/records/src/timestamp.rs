//! The `timestamp` of a record: a wall clock time, often without a time zone.

use std::time::{Duration, UNIX_EPOCH};

use serde::ser::{Serialize, Serializer};

/// A record's wall-clock time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordTime {
    /// Microseconds since 1970-01-01 UTC. A time without a zone is read as if it were UTC.
    pub micros: i64,
    /// Whether the text has a time zone. TensorRT-LLM's own format (`%m-%d-%Y %H:%M:%S.%f`) has none.
    pub zoned: bool,
}

/// The last microsecond that can be written, at the end of the year 9999.
const LAST: i64 = 253_402_300_799_999_999;

/// Parses `07-25-2025 16:54:34.140189` (local time) and `2025-10-04T12:34:56.789Z` (ISO 8601, with its offset). Any other
/// text is None, e.g. the `""` of the PyTorch backend.
#[must_use]
pub fn parse_timestamp(text: &str) -> Option<RecordTime> {
    let (time, zone) = match text.get(19..)?.find(['Z', 'z', '+', '-']) {
        Some(at) => text.split_at(19 + at),
        None => (text, ""),
    };
    let since_1970 = match time.as_bytes()[2] {
        b'-' => humantime::parse_rfc3339_weak(&[time.get(6..10)?, "-", time.get(..5)?, time.get(10..)?].concat()),
        _ => humantime::parse_rfc3339_weak(time),
    };
    let micros = since_1970.ok()?.duration_since(UNIX_EPOCH).ok()?.as_micros();
    let offset = if matches!(zone, "" | "Z" | "z") { 0 } else { offset_seconds(zone)? };
    Some(RecordTime { micros: i64::try_from(micros).ok()? - offset * 1_000_000, zoned: !zone.is_empty() })
}

/// Parses `+02:00`, `-0530` or `+02`.
fn offset_seconds(zone: &str) -> Option<i64> {
    let digits = zone[1..].replace(':', "");
    let number: i64 = digits.parse().ok().filter(|_| matches!(digits.len(), 2 | 4))?;
    let minutes = if digits.len() == 4 { number / 100 * 60 + number % 100 } else { number * 60 };
    Some(if zone.starts_with('-') { -60 * minutes } else { 60 * minutes })
}

/// Writes TensorRT-LLM's format, or ISO 8601 if the time zone is known.
impl Serialize for RecordTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let micros = self.micros.clamp(0, LAST).cast_unsigned();
        let utc = humantime::format_rfc3339_micros(UNIX_EPOCH + Duration::from_micros(micros)).to_string();
        match self.zoned {
            true => serializer.serialize_str(&utc),
            // `2025-07-25T16:54:34.140189Z` without its zone, and with the year behind the day.
            false => serializer.collect_str(&format_args!("{}-{} {}", &utc[5..10], &utc[..4], &utc[11..26])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_time_of_the_executor_has_no_zone() {
        let time = parse_timestamp("07-25-2025 16:54:34.140189").unwrap();
        assert_eq!(time, RecordTime { micros: 1_753_462_474_140_189, zoned: false });
    }

    #[test]
    fn an_iso_8601_time_is_converted_to_utc() {
        let utc = parse_timestamp("2025-10-04T12:34:56.789Z").unwrap();
        assert_eq!(utc, RecordTime { micros: 1_759_581_296_789_000, zoned: true });
        assert_eq!(parse_timestamp("2025-10-04T14:34:56.789+02:00"), Some(utc));
        assert_eq!(parse_timestamp("2025-10-04T07:04:56.789-0530"), Some(utc));
    }

    #[test]
    fn leap_days_and_the_epoch_are_converted_correctly() {
        assert_eq!(parse_timestamp("01-01-1970 00:00:00.000000").unwrap().micros, 0);
        assert_eq!(parse_timestamp("02-29-2024 00:00:00").unwrap().micros, 1_709_164_800_000_000);
        assert_eq!(parse_timestamp("03-01-2100 00:00:00").unwrap().micros, 4_107_542_400_000_000);
    }

    #[test]
    fn a_time_is_written_as_it_was_read() {
        for text in ["07-25-2025 16:54:34.140189", "02-29-2024 23:59:59.999999", "12-31-1999 00:00:00.000001"] {
            assert_eq!(serde_json::to_value(parse_timestamp(text)).unwrap(), text);
        }
        let utc = parse_timestamp("2025-10-04T14:34:56.789+02:00");
        assert_eq!(serde_json::to_value(utc).unwrap(), "2025-10-04T12:34:56.789000Z");
        for micros in [i64::MIN, i64::MAX] {
            assert!(serde_json::to_string(&RecordTime { micros, zoned: false }).is_ok(), "{micros}");
        }
    }

    #[test]
    fn an_invalid_time_is_absent() {
        for text in [
            "",
            "now",
            "13-40-2025 00:00:00",
            "2025-10-04",
            "07-25-2025 16:54:3x",
            "é7-25-2025 16:54:34",
            "2025-10-04T12:34:56+999999999999",
            "07-25-202é 16:54:34é",
        ] {
            assert_eq!(parse_timestamp(text), None, "{text:?}");
        }
    }
}
