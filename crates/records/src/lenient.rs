//! Reads values of any type, so that one odd value never makes a whole record unreadable. A whole number may be written as
//! `2.0`. A value of a wrong type becomes a value that no engine can have. `trtllm-fold` leaves that value out and counts it,
//! and a recording keeps it.

use std::fmt;

use serde::de::value::{Error as Mismatch, MapAccessDeserializer};
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};

use super::timestamp::{RecordTime, parse_timestamp};

/// A value in JSON that is not null.
#[derive(Debug, Clone, Copy)]
pub enum Scalar<'v> {
    Flag(bool),
    Whole(i128),
    Float(f64),
    Text(&'v str),
    /// An array or an object, which was skipped.
    Skipped,
}

/// What a value becomes, unless it is null. A closure reads values that are not arrays or objects.
pub trait Lenient<'de>: Sized {
    type Value;

    fn scalar(self, value: Scalar<'_>) -> Option<Self::Value>;

    /// # Errors
    /// If the JSON is invalid.
    fn array<A: SeqAccess<'de>>(self, mut array: A) -> Result<Option<Self::Value>, A::Error> {
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self.scalar(Scalar::Skipped))
    }

    /// # Errors
    /// If the JSON is invalid.
    fn object<A: MapAccess<'de>>(self, mut object: A) -> Result<Option<Self::Value>, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(self.scalar(Scalar::Skipped))
    }
}

impl<T, F: FnOnce(Scalar<'_>) -> Option<T>> Lenient<'_> for F {
    type Value = T;

    fn scalar(self, value: Scalar<'_>) -> Option<T> {
        self(value)
    }
}

/// Reads a value, or a key.
#[derive(Debug)]
pub struct Any<L>(pub L);

impl<'de, L: Lenient<'de>> DeserializeSeed<'de> for Any<L> {
    type Value = Option<L::Value>;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<Self::Value, D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de, L: Lenient<'de>> Visitor<'de> for Any<L> {
    type Value = Option<L::Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(self.0.scalar(Scalar::Flag(value)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(self.0.scalar(Scalar::Whole(number.into())))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(self.0.scalar(Scalar::Whole(number.into())))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(self.0.scalar(Scalar::Float(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(self.0.scalar(Scalar::Text(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, array: A) -> Result<Self::Value, A::Error> {
        self.0.array(array)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
        self.0.object(object)
    }
}

/// A number in JSON. The conversions return [`Number::UNREADABLE`] for a number that the type cannot have.
pub(super) trait Number: Copy {
    /// Stands for a value of a wrong type. It is rejected like any other impossible value.
    const UNREADABLE: Self;
    /// The number in a struct that stands for a value of a wrong type. It is impossible, too.
    const IN_WRONG_STRUCT: Self;

    fn of_whole(number: i128) -> Self;

    fn of(value: Scalar<'_>) -> Self {
        match value {
            Scalar::Whole(number) => Self::of_whole(number),
            Scalar::Float(number) => Self::of_float(number),
            Scalar::Flag(_) | Scalar::Text(_) | Scalar::Skipped => Self::UNREADABLE,
        }
    }

    fn of_float(number: f64) -> Self {
        // 2^65 is above all that the types can have.
        let is_whole = number.fract() == 0.0 && number.abs() < 36_893_488_147_419_103_232.0;
        if is_whole { Self::of_whole(number as i128) } else { Self::UNREADABLE }
    }
}

impl Number for i64 {
    const UNREADABLE: Self = Self::MIN;
    const IN_WRONG_STRUCT: Self = Self::MIN + 1;

    fn of_whole(number: i128) -> Self {
        number.try_into().unwrap_or(Self::UNREADABLE)
    }
}

impl Number for u64 {
    const UNREADABLE: Self = Self::MAX;
    const IN_WRONG_STRUCT: Self = Self::MAX - 1;

    fn of_whole(number: i128) -> Self {
        number.try_into().unwrap_or(Self::UNREADABLE)
    }
}

impl Number for f64 {
    /// Not NaN, because JSON cannot express it.
    const UNREADABLE: Self = Self::MAX;
    const IN_WRONG_STRUCT: Self = Self::MIN;

    fn of_whole(number: i128) -> Self {
        number as Self
    }

    fn of_float(number: f64) -> Self {
        number
    }
}

/// Reads a number. Null becomes `None`.
pub(super) fn number<'de, D: Deserializer<'de>, N: Number>(number: D) -> Result<Option<N>, D::Error> {
    Any(|value: Scalar<'_>| Some(N::of(value))).deserialize(number)
}

/// Reads a number of seconds, or a time in ISO 8601. Null becomes `None`.
pub(super) fn seconds<'de, D: Deserializer<'de>>(seconds: D) -> Result<Option<f64>, D::Error> {
    let read = |value: Scalar<'_>| match value {
        Scalar::Text(text) => Some(parse_timestamp(text).map_or(f64::UNREADABLE, |time| time.micros as f64 / 1e6)),
        other => Some(f64::of(other)),
    };
    Any(read).deserialize(seconds)
}

/// Reads a wall-clock time. An invalid time and a value of another type become `None`, as null does.
pub(super) fn timestamp<'de, D: Deserializer<'de>>(time: D) -> Result<Option<RecordTime>, D::Error> {
    let read = |value: Scalar<'_>| if let Scalar::Text(text) = value { parse_timestamp(text) } else { None };
    Any(read).deserialize(time)
}

/// Reads an id that is only matched with others. Null and a value of a wrong type become `None`.
pub(super) fn id<'de, D: Deserializer<'de>>(id: D) -> Result<Option<u64>, D::Error> {
    Ok(number(id)?.filter(|id| *id != u64::UNREADABLE))
}

/// `Some(true)` if the value is not null.
pub(super) fn presence<'de, D: Deserializer<'de>>(value: D) -> Result<Option<bool>, D::Error> {
    Ok(Option::<IgnoredAny>::deserialize(value)?.map(|_| true))
}

/// Reads a name of a fixed set, or a boolean. A value of another type becomes `None`.
pub(super) fn name<'de, D, T>(name: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: for<'n> Deserialize<'n>,
{
    let read = |value: Scalar<'_>| match value {
        Scalar::Text(name) => T::deserialize(IntoDeserializer::<Mismatch>::into_deserializer(name)).ok(),
        Scalar::Flag(flag) => T::deserialize(IntoDeserializer::<Mismatch>::into_deserializer(flag)).ok(),
        Scalar::Whole(_) | Scalar::Float(_) | Scalar::Skipped => None,
    };
    Any(read).deserialize(name)
}

/// Reads an object. The function says what a value of another type becomes.
struct Object<T>(fn() -> Option<T>);

impl<'de, T: Deserialize<'de>> Lenient<'de> for Object<T> {
    type Value = T;

    fn scalar(self, _: Scalar<'_>) -> Option<T> {
        self.0()
    }

    fn object<A: MapAccess<'de>>(self, object: A) -> Result<Option<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(object)).map(Some)
    }
}

/// Reads an object. Null becomes `None`, and a value of another type the result of `sentinel`.
pub(super) fn object<'de, D, T>(object: D, sentinel: fn() -> Option<T>) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Any(Object(sentinel)).deserialize(object)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::IterationStats;
    use crate::iteration::KvCacheStats;
    use crate::schema::Schema as _;

    #[test]
    fn a_whole_number_may_have_a_point_or_an_exponent() {
        for (text, value) in [("2.0", 2), ("7e+10", 70_000_000_000), ("-3.0E0", -3), ("-0.0", 0), ("12", 12)] {
            let record: IterationStats = serde_json::from_str(&format!("{{\"numActiveRequests\":{text}}}")).unwrap();
            assert_eq!(record.num_active_requests, Some(value), "{text}");
        }
        let record: IterationStats = serde_json::from_value(json!({"iter": 5.0, "statsSequence": 7e3})).unwrap();
        assert_eq!((record.iter, record.stats_sequence), (Some(5), Some(7000)));
    }

    #[test]
    fn a_name_of_a_wrong_type_leaves_its_place_in_a_list() {
        let record: IterationStats =
            serde_json::from_value(json!({"iter": 1, "kvCacheLevelTiers": ["gpu", 7, {}, "disk"]})).unwrap();
        assert_eq!(record.kv_cache_level_tiers.unwrap(), ["gpu", "", "", "disk"]);
    }

    #[test]
    fn a_value_of_a_wrong_type_is_unreadable_and_null_is_absent() {
        for odd in [json!("1"), json!(true), json!([1]), json!({"x": 1}), json!(1.5), json!(1e300)] {
            let record: IterationStats =
                serde_json::from_value(json!({"iter": odd, "gpuMemUsage": odd, "timestamp": [odd]})).unwrap();
            assert_eq!((record.iter, record.gpu_mem_usage), (Some(u64::MAX), Some(i64::MIN)), "{odd}");
        }
        for odd in [json!("1"), json!(true), json!([1]), json!({"x": 1})] {
            let record: IterationStats = serde_json::from_value(json!({"iterLatencyMS": odd})).unwrap();
            assert_eq!(record.iter_latency_ms, Some(f64::MAX), "{odd}");
        }
        for odd in [json!("1"), json!(true), json!([1]), json!(7)] {
            let record: IterationStats = serde_json::from_value(json!({"kvCacheStats": odd})).unwrap();
            assert_eq!(record.kv_cache_stats, Some(KvCacheStats::wrong_type_sentinel()), "{odd}");
        }
        let record: IterationStats =
            serde_json::from_value(json!({"iter": null, "kvCacheStats": null, "gpuMemUsage": null})).unwrap();
        assert_eq!(record, IterationStats::default());
    }
}
