//! The `timestamp` of a record: a wall clock whose zone the engine often does not say.

use serde::de::{Deserializer, Visitor};

/// A record's wall-clock time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordTime {
    /// Microseconds since 1970-01-01, the fields read as if they were UTC.
    pub micros: i64,
    /// Whether the text said which zone it is in. TensorRT-LLM's own format (`%m-%d-%Y %H:%M:%S.%f`) does not.
    pub zoned: bool,
}

/// Reads `07-25-2025 16:54:34.140189` (local, zone unknown) and `2025-10-04T12:34:56.789Z` (ISO 8601; offset honoured).
/// Anything else, the PyTorch backend's `""` above all, is no time.
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
        // Nanoseconds are cut, not rounded, to the microseconds the page speaks.
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

/// Proleptic Gregorian calendar: years are counted from March, so that the leap day is the last of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

/// serde: a string that is no time, a number or null is absent, not an error: the record's counts are worth more.
pub(super) fn timestamp<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RecordTime>, D::Error> {
    struct Time;
    impl<'de> Visitor<'de> for Time {
        type Value = Option<RecordTime>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a timestamp")
        }
        fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
            Ok(parse_timestamp(text))
        }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_none<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            deserializer.deserialize_any(Time)
        }
    }
    deserializer.deserialize_any(Time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executors_local_time_has_no_zone() {
        let time = parse_timestamp("07-25-2025 16:54:34.140189").unwrap();
        assert_eq!(time, RecordTime { micros: 1_753_462_474_140_189, zoned: false });
    }

    #[test]
    fn iso_8601_is_utc_after_its_offset() {
        let utc = parse_timestamp("2025-10-04T12:34:56.789Z").unwrap();
        assert_eq!(utc, RecordTime { micros: 1_759_581_296_789_000, zoned: true });
        assert_eq!(parse_timestamp("2025-10-04T14:34:56.789+02:00"), Some(utc));
        assert_eq!(parse_timestamp("2025-10-04T07:04:56.789-0530"), Some(utc));
    }

    #[test]
    fn leap_days_and_the_epoch_are_on_their_days() {
        assert_eq!(parse_timestamp("01-01-1970 00:00:00.000000").unwrap().micros, 0);
        assert_eq!(parse_timestamp("02-29-2024 00:00:00").unwrap().micros, 1_709_164_800_000_000);
        assert_eq!(parse_timestamp("03-01-2100 00:00:00").unwrap().micros, 4_107_542_400_000_000);
    }

    #[test]
    fn what_is_no_time_is_absent() {
        for text in ["", "now", "13-40-2025 00:00:00", "2025-10-04", "07-25-2025 16:54:3x", "é7-25-2025 16:54:34"] {
            assert_eq!(parse_timestamp(text), None, "{text:?}");
        }
    }
}
