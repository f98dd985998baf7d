//! The kinds of values: how each is read, and which of its values no engine can have.

use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeSeed as _, Deserializer};

use super::bounded;
use super::by_id::{self, ById};
use super::lenient::{self, Any, Number as _};
use super::saturating::{self, SaturatingAdd as _};
use super::schema::{Element, Ranks, Rejected, Schema};
use super::timestamp::RecordTime;

/// A kind of values of type `T`.
pub trait Kind<T> {
    /// The value cannot be left out.
    const IS_KEY: bool = false;

    /// Reads a value. Null becomes `None`, and a value of a wrong type one that is impossible.
    ///
    /// # Errors
    /// If the JSON is invalid.
    fn read<'de, D: Deserializer<'de>>(value: D) -> Result<Option<T>, D::Error>;

    /// Whether the engine can have this value. An absent value is possible.
    fn is_possible(_: &Option<T>) -> bool {
        true
    }

    /// Removes an impossible value.
    fn repair(value: &mut Option<T>, key: &'static str, rejected: &mut Rejected) {
        if !Self::is_possible(value) {
            *value = None;
            rejected.value(key);
        }
    }

    /// What the value is in an object of a wrong type. It differs from a value of a wrong type.
    fn wrong_type_sentinel() -> Option<T> {
        None
    }

    /// Adds the value of another rank or pool.
    fn add(_: &mut Option<T>, _: &Option<T>, _: Ranks) {}

    /// Sets a known value to 0.
    fn clear(_: &mut Option<T>) {}

    /// The value, if it is a count since the start of the engine.
    fn cumulative(_: &mut Option<T>) -> Option<&mut Option<i64>> {
        None
    }

    /// Bytes on the heap.
    fn weight(_: &Option<T>) -> usize {
        0
    }
}

/// Declares kinds of numbers: the type, how it is read, the test of a number (0 is possible), and what else the kind has.
macro_rules! numbers {
    ($($(#[$about:meta])* $Name:ident: $type:ty, $read:path, |$number:ident| $test:expr $(, { $($more:tt)* })?;)*) => { $(
        $(#[$about])*
        #[derive(Debug)]
        pub struct $Name;

        impl Kind<$type> for $Name {
            $($($more)*)?

            fn read<'de, D: Deserializer<'de>>(value: D) -> Result<Option<$type>, D::Error> {
                $read(value)
            }

            #[inline]
            fn is_possible(value: &Option<$type>) -> bool {
                let $number = value.unwrap_or_default();
                $test
            }

            fn wrong_type_sentinel() -> Option<$type> {
                Some(<$type>::IN_WRONG_STRUCT)
            }

            #[inline]
            fn add(total: &mut Option<$type>, more: &Option<$type>, ranks: Ranks) {
                match ranks {
                    Ranks::First => {}
                    Ranks::Sum | Ranks::Events => saturating::add_known(total, *more),
                    Ranks::Largest if *more > *total => *total = *more,
                    Ranks::Largest => {}
                    Ranks::All => *total = total.zip(*more).map(|(total, more)| total.plus(more)),
                }
            }

            #[inline]
            fn clear(value: &mut Option<$type>) {
                *value = value.map(|_| <$type>::default());
            }
        }
    )* };
}

numbers! {
    /// A number of requests, tokens, blocks or iterations. 2^40 iterations take 30 years at 1000 per second.
    Count: i64, lenient::number, |number| number.cast_unsigned() >> 40 == 0;
    /// Like [`Count`], for numbers that are never negative in TensorRT-LLM's struct.
    UnsignedCount: u64, lenient::number, |number| number >> 40 == 0;
    /// A count since the engine's start. The C++ Executor narrows it to 32 bits, so it can be negative.
    Cumulative: i64, lenient::number, |number| (-(1 << 31)..=1 << 53).contains(&number), {
        fn cumulative(count: &mut Option<i64>) -> Option<&mut Option<i64>> {
            Some(count)
        }
    };
    /// Tokens of one block. Blocks of a million tokens would share nothing.
    BlockTokens: i64, lenient::number, |number| number.cast_unsigned() >> 20 == 0;
    /// At most 1 EiB.
    Bytes: i64, lenient::number, |number| number.cast_unsigned() >> 60 == 0;
    /// Bytes in a struct where they are never negative.
    UnsignedBytes: u64, lenient::number, |number| number >> 60 == 0;
    /// Bytes of a block, summed over the pools of a group. TensorRT-LLM sends a list. Even large blocks have only some MiB.
    BlockBytes: i64, bounded::sum, |number| number.cast_unsigned() >> 40 == 0;
    /// A duration. A clock that was set back may make it negative; it is accepted here and not observed later.
    Milliseconds: f64, lenient::number, |number| is_a_time(number);
    /// A time on the engine's steady clock, or in ISO 8601 as in older documentation.
    Seconds: f64, lenient::seconds, |number| is_a_time(number);
    /// A mean of numbers.
    Mean: f64, lenient::number, |number| is_a_time(number);
    /// A part of a whole, 0..1. A little above 1 is a rounded 1.
    Share: f64, lenient::number, |number| (0.0..=1.000_01).contains(&number);
    /// The number of an iteration or record.
    Sequence: u64, lenient::number, |number| number >> 40 == 0, { const IS_KEY: bool = true; };
    Rank: i64, lenient::number, |number| number.cast_unsigned() >> 40 == 0, { const IS_KEY: bool = true; };
    /// The id of a request: any number but the highest two, which stand for a wrong type.
    RowId: u64, lenient::number, |number| number < u64::IN_WRONG_STRUCT, { const IS_KEY: bool = true; };
}

/// 1e12 seconds are 30,000 years. NaN is refused, too.
fn is_a_time(number: f64) -> bool {
    number.abs() <= 1e12
}

/// Declares kinds whose values are only read.
macro_rules! plain {
    ($($(#[$about:meta])* $Name:ident: $type:ty, $read:path $(, |$value:ident| $weight:expr)?;)*) => { $(
        $(#[$about])*
        #[derive(Debug)]
        pub struct $Name;

        impl Kind<$type> for $Name {
            fn read<'de, D: Deserializer<'de>>(value: D) -> Result<Option<$type>, D::Error> {
                $read(value)
            }

            $(fn weight($value: &Option<$type>) -> usize {
                $weight
            })?
        }
    )* };
}

plain! {
    /// A wall-clock time. Any other text counts as absent, e.g. the `""` of the PyTorch engine.
    WallClock: RecordTime, lenient::timestamp;
    /// An id of a request that is only matched. A value of a wrong type counts as absent.
    Id: u64, lenient::id;
    /// Whether the key has a value. The value is an id, which is not kept.
    Presence: bool, lenient::presence;
    /// The names of cache levels, GPU first.
    LevelNames: Vec<String>, bounded::level_names,
        |names| names.iter().flatten().map(|name| size_of::<String>() + name.capacity()).sum();
}

/// A name of a fixed set, or a boolean. Another value counts as absent.
#[derive(Debug)]
pub struct Name;

impl<T: for<'de> Deserialize<'de>> Kind<T> for Name {
    fn read<'de, D: Deserializer<'de>>(value: D) -> Result<Option<T>, D::Error> {
        lenient::name(value)
    }
}

/// A struct of the schema.
pub type Part = PartOr<true>;

/// A struct whose presence tells what the message is, so a value of a wrong type counts as absent.
pub type LenientPart = PartOr<false>;

/// `IS_COUNTED`: a value of a wrong type is counted.
#[derive(Debug)]
pub struct PartOr<const IS_COUNTED: bool>;

impl<T: Schema + PartialEq + for<'de> Deserialize<'de>, const IS_COUNTED: bool> Kind<T> for PartOr<IS_COUNTED> {
    fn read<'de, D: Deserializer<'de>>(value: D) -> Result<Option<T>, D::Error> {
        lenient::object(value, || IS_COUNTED.then(T::wrong_type_sentinel))
    }

    fn is_possible(part: &Option<T>) -> bool {
        part.as_ref().is_none_or(T::is_plausible)
    }

    fn repair(part: &mut Option<T>, key: &'static str, rejected: &mut Rejected) {
        match part {
            Some(sentinel) if *sentinel == T::wrong_type_sentinel() => {
                *part = None;
                rejected.value(key);
            }
            Some(part) => part.repair(rejected),
            None => {}
        }
    }

    fn weight(part: &Option<T>) -> usize {
        part.as_ref().map_or(0, T::weight)
    }
}

/// Structs of the schema by id, e.g. one for each pool.
#[derive(Debug)]
pub struct Parts;

impl<T: Schema + PartialEq + for<'de> Deserialize<'de>> Kind<ById<T>> for Parts {
    fn read<'de, D: Deserializer<'de>>(value: D) -> Result<Option<ById<T>>, D::Error> {
        Any(by_id::Values(PhantomData)).deserialize(value)
    }

    fn is_possible(parts: &Option<ById<T>>) -> bool {
        parts.iter().flat_map(ById::values).all(T::is_plausible)
    }

    /// A part that is not an object is counted under the key of them all.
    fn repair(parts: &mut Option<ById<T>>, key: &'static str, rejected: &mut Rejected) {
        let Some(parts) = parts else { return };
        parts.0.retain_mut(|(_, part)| {
            let mut repaired = Some(std::mem::take(part));
            Part::repair(&mut repaired, key, rejected);
            repaired.map(|repaired| *part = repaired).is_some()
        });
    }

    fn weight(parts: &Option<ById<T>>) -> usize {
        parts.as_ref().map_or(0, |parts| parts.weight() + parts.values().map(T::weight).sum::<usize>())
    }
}

/// Limit of the requests in one record. 8192 requests take 1.5 MB. Further requests count as one refused row.
const MAX_REQUESTS: usize = 8192;

/// The requests of a record. A row with an impossible id is refused, because it would belong to another request.
#[derive(Debug)]
pub struct Requests;

impl<R: Schema + for<'de> Deserialize<'de>> Kind<Vec<R>> for Requests {
    fn read<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Vec<R>>, D::Error> {
        let sentinel: fn() -> _ = || Some(vec![Element(R::wrong_type_sentinel())]);
        let requests: Option<Vec<Element<R>>> = bounded::array(value, MAX_REQUESTS, sentinel)?;
        Ok(requests.map(|requests| requests.into_iter().map(|Element(request)| request).collect()))
    }

    fn is_possible(requests: &Option<Vec<R>>) -> bool {
        requests.iter().flatten().all(R::is_plausible)
    }

    fn repair(requests: &mut Option<Vec<R>>, _: &'static str, rejected: &mut Rejected) {
        let Some(requests) = requests else { return };
        requests.retain_mut(|request| {
            let has_keys = request.has_keys();
            if has_keys {
                request.repair(rejected);
            } else {
                rejected.rows += 1;
            }
            has_keys
        });
    }

    fn weight(requests: &Option<Vec<R>>) -> usize {
        requests.as_ref().map_or(0, Vec::capacity) * size_of::<R>()
    }
}

/// A number for each cache level, GPU first. Without one of them the list is removed, because only the position tells the level.
#[derive(Debug)]
pub struct Levels;

impl Kind<Vec<i64>> for Levels {
    fn read<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Vec<i64>>, D::Error> {
        bounded::levels(value)
    }

    fn is_possible(levels: &Option<Vec<i64>>) -> bool {
        levels.iter().flatten().all(|count| Count::is_possible(&Some(*count)))
    }

    fn weight(levels: &Option<Vec<i64>>) -> usize {
        levels.as_ref().map_or(0, Vec::capacity) * size_of::<i64>()
    }
}
