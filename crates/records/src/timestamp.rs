//! The `timestamp` of a record: a wall clock time, often without a time zone.

use serde::ser::{Serialize, Serializer};

/// A record's wall-clock time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordTime {
    /// Microseconds since 1970-01-01 UTC. A time without a zone is read as if it were UTC.
    pub micros: i64,
    /// Whether the text has a time zone. TensorRT-LLM's own format (`%m-%d-%Y %H:%M:%S.%f`) has none.
    pub zoned: bool,
}

/// Parses `07-25-2025 16:54:34.140189` (local time) and `2025-10-04T12:34:56.789Z` (ISO 8601, with its offset). Any other
/// text is None, e.g. the `""` of the PyTorch backend.
#[must_use]
pub fn parse_timestamp(text: &str) -> Option<RecordTime> {
    let bytes = text.as_bytes();
    let (year, month, day) = match (bytes.get(2)?, bytes.get(4)?) {
        (b'-', _) => (digits(bytes, 6, 4)?, digits(bytes, 0, 2)?, digits(bytes, 3, 2)?),
        (_, b'-') => (digits(bytes, 0, 4)?, digits(bytes, 5, 2)?, digits(bytes, 8, 2)?),
        _ => return None,
    };
    let (hour, minute, second) = (digits(bytes, 11, 2)?, digits(bytes, 14, 2)?, digits(bytes, 17, 2)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut rest = &bytes[19..];
    let mut fraction = 0;
    if let [b'.' | b',', tail @ ..] = rest {
        let len = tail.iter().take_while(|byte| byte.is_ascii_digit()).count();
        // The fraction is truncated to microseconds, not rounded.
        for position in 0..6 {
            fraction = fraction * 10 + tail[..len].get(position).map_or(0, |byte| i64::from(byte - b'0'));
        }
        rest = &tail[len..];
    }
    let offset = match rest {
        [] => None,
        [b'Z' | b'z'] => Some(0),
        [sign @ (b'+' | b'-'), tail @ ..] => {
            let minutes = if tail.get(2) == Some(&b':') { 3 } else { 2 };
            let seconds = digits(tail, 0, 2)? * 3600 + digits(tail, minutes, 2).unwrap_or(0) * 60;
            Some(if *sign == b'-' { -seconds } else { seconds })
        }
        _ => return None,
    };
    let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    let micros = (seconds - offset.unwrap_or(0)) * 1_000_000 + fraction;
    Some(RecordTime { micros, zoned: offset.is_some() })
}

fn digits(bytes: &[u8], at: usize, len: usize) -> Option<i64> {
    bytes
        .get(at..at + len)?
        .iter()
        .try_fold(0, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))
}

/// Proleptic Gregorian calendar. Years begin in March, so that the leap day is the last day of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

/// Year, month and day.
fn date(days_since_1970: i64) -> (i64, i64, i64) {
    let days = days_since_1970 + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let march_based = (5 * day_of_year + 2) / 153;
    let month = if march_based < 10 { march_based + 3 } else { march_based - 9 };
    let day = day_of_year - (153 * march_based + 2) / 5 + 1;
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// Writes TensorRT-LLM's format, or ISO 8601 if the time zone is known.
impl Serialize for RecordTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (days, micros) = (self.micros.div_euclid(86_400_000_000), self.micros.rem_euclid(86_400_000_000));
        let ((year, month, day), seconds) = (date(days), micros / 1_000_000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let time = format_args!("{hour:02}:{minute:02}:{second:02}.{:06}", micros % 1_000_000).to_string();
        serializer.collect_str(&match self.zoned {
            true => format!("{year:04}-{month:02}-{day:02}T{time}Z"),
            false => format!("{month:02}-{day:02}-{year:04} {time}"),
        })
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
        for day in (-800_000..800_000).step_by(37) {
            let (year, month, of_month) = date(day);
            assert_eq!(days_since_1970(year, month, of_month), day);
        }
    }

    #[test]
    fn an_invalid_time_is_absent() {
        for text in ["", "now", "13-40-2025 00:00:00", "2025-10-04", "07-25-2025 16:54:3x", "é7-25-2025 16:54:34"] {
            assert_eq!(parse_timestamp(text), None, "{text:?}");
        }
    }
}
