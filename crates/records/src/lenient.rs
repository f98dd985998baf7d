//! Reads values of any type, so that one odd value never makes a whole record unreadable. A whole number may be written as
//! `2.0`. A value of a wrong type becomes a value that no engine can have. `trtllm-fold` leaves that value out and counts it,
//! and a recording keeps it.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::schema::Schema;
use super::timestamp::parse_timestamp;

/// A number in JSON. Each conversion returns [`Number::UNREADABLE`] for a number that the type cannot have.
pub(super) trait Number: Copy {
    /// Stands for a value of a wrong type. It is rejected like any other impossible value.
    const UNREADABLE: Self;

    fn from_u64(number: u64) -> Self;
    fn from_i64(number: i64) -> Self;
    fn from_f64(number: f64) -> Self;
}

/// 2^63 and 2^64: the first whole numbers that are too large.
const END_OF_I64: f64 = 9_223_372_036_854_775_808.0;
const END_OF_U64: f64 = 18_446_744_073_709_551_616.0;

impl Number for i64 {
    const UNREADABLE: Self = Self::MIN;

    fn from_u64(number: u64) -> Self {
        number.try_into().unwrap_or(Self::UNREADABLE)
    }

    fn from_i64(number: i64) -> Self {
        number
    }

    fn from_f64(number: f64) -> Self {
        let fits = number.fract() == 0.0 && number.abs() < END_OF_I64;
        if fits { number as Self } else { Self::UNREADABLE }
    }
}

impl Number for u64 {
    const UNREADABLE: Self = Self::MAX;

    fn from_u64(number: u64) -> Self {
        number
    }

    fn from_i64(number: i64) -> Self {
        number.try_into().unwrap_or(Self::UNREADABLE)
    }

    fn from_f64(number: f64) -> Self {
        let fits = number.fract() == 0.0 && (0.0..END_OF_U64).contains(&number);
        if fits { number as Self } else { Self::UNREADABLE }
    }
}

impl Number for f64 {
    /// Not NaN, because JSON cannot express it.
    const UNREADABLE: Self = Self::MAX;

    fn from_u64(number: u64) -> Self {
        number as Self
    }

    fn from_i64(number: i64) -> Self {
        number as Self
    }

    fn from_f64(number: f64) -> Self {
        number
    }
}

/// Methods of a visitor for the types of JSON that it does not want. Each returns `$sentinel`, in which `$this` is the visitor.
macro_rules! otherwise {
    ($this:pat => $sentinel:expr; $($kind:ident),*) => { $(otherwise!(@$kind $this, $sentinel);)* };
    (@bool $this:pat, $sentinel:expr) => {
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            let $this = self;
            Ok($sentinel)
        }
    };
    (@number $this:pat, $sentinel:expr) => {
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
            let $this = self;
            Ok($sentinel)
        }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
            let $this = self;
            Ok($sentinel)
        }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
            let $this = self;
            Ok($sentinel)
        }
    };
    (@text $this:pat, $sentinel:expr) => {
        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
            let $this = self;
            Ok($sentinel)
        }
    };
    (@array $this:pat, $sentinel:expr) => {
        fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
            while array.next_element::<serde::de::IgnoredAny>()?.is_some() {}
            let $this = self;
            Ok($sentinel)
        }
    };
    (@object $this:pat, $sentinel:expr) => {
        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
            while object.next_entry::<serde::de::IgnoredAny, serde::de::IgnoredAny>()?.is_some() {}
            let $this = self;
            Ok($sentinel)
        }
    };
    (@null $this:pat, $sentinel:expr) => {
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            let $this = self;
            Ok($sentinel)
        }
    };
}
pub(super) use otherwise;

/// Reads a number. Null becomes `None`.
pub(super) fn number<'de, D: Deserializer<'de>, N: Number>(number: D) -> Result<Option<N>, D::Error> {
    number_or_text(number, |_| N::UNREADABLE)
}

/// Reads a number of seconds, or a time in ISO 8601. Null becomes `None`.
pub(super) fn seconds<'de, D: Deserializer<'de>>(seconds: D) -> Result<Option<f64>, D::Error> {
    number_or_text(seconds, |text| parse_timestamp(text).map_or(f64::UNREADABLE, |time| time.micros as f64 / 1e6))
}

/// Reads an id that is only matched with others. Null and a value of a wrong type become `None`.
pub(super) fn id<'de, D: Deserializer<'de>>(id: D) -> Result<Option<u64>, D::Error> {
    Ok(number(id)?.filter(|id| *id != u64::UNREADABLE))
}

/// `Some(true)` if the value is not null.
pub(super) fn presence<'de, D: Deserializer<'de>>(value: D) -> Result<Option<bool>, D::Error> {
    Ok(Option::<IgnoredAny>::deserialize(value)?.map(|_| true))
}

fn number_or_text<'de, D: Deserializer<'de>, N: Number>(number: D, text: fn(&str) -> N) -> Result<Option<N>, D::Error> {
    struct AnyNumber<N>(fn(&str) -> N);
    impl<'de, N: Number> Visitor<'de> for AnyNumber<N> {
        type Value = Option<N>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a value")
        }
        fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
            Ok(Some(N::from_u64(number)))
        }
        fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
            Ok(Some(N::from_i64(number)))
        }
        fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
            Ok(Some(N::from_f64(number)))
        }
        fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
            Ok(Some(self.0(text)))
        }
        otherwise!(_ => None; null);
        otherwise!(_ => Some(N::UNREADABLE); bool, array, object);
    }
    number.deserialize_any(AnyNumber(text))
}

/// Reads an object. Null becomes `None`, and a value of another type the result of `sentinel`.
pub(super) fn object<'de, D, T>(object: D, sentinel: fn() -> Option<T>) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Object<T>(fn() -> Option<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
        type Value = Option<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a value")
        }
        fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Self::Value, A::Error> {
            T::deserialize(MapAccessDeserializer::new(object)).map(Some)
        }
        otherwise!(_ => None; null);
        otherwise!(this => this.0(); bool, number, text, array);
    }
    object.deserialize_any(Object(sentinel))
}

/// An object in an array or in another object.
pub(super) struct Element<T>(pub T);

impl<'de, T: Schema + Deserialize<'de>> Deserialize<'de> for Element<T> {
    fn deserialize<D: Deserializer<'de>>(element: D) -> Result<Self, D::Error> {
        Ok(Self(object(element, || Some(T::wrong_type_sentinel()))?.unwrap_or_else(T::wrong_type_sentinel)))
    }
}

/// Reads a name of a fixed set, or a boolean. A value of another type becomes `None`.
pub(super) fn name<'de, D, T>(name: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Name<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Name<T> {
        type Value = Option<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a value")
        }
        fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
            let name: serde::de::value::StrDeserializer<'_, E> = serde::de::IntoDeserializer::into_deserializer(name);
            Ok(T::deserialize(name).ok())
        }
        fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
            let value: serde::de::value::BoolDeserializer<E> = serde::de::IntoDeserializer::into_deserializer(value);
            Ok(T::deserialize(value).ok())
        }
        otherwise!(_ => None; null, number, array, object);
    }
    name.deserialize_any(Name(PhantomData))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::IterationStats;
    use crate::iteration::KvCacheStats;

    use super::*;

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
