//! Deserializes values whose size a peer chooses. Arrays are cut at a limit, and long texts are dropped. A limit on the
//! bytes of the JSON does not bound memory: `{}` has 2 bytes in JSON and hundreds in memory.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, SeqAccess, Visitor};

/// Limit of the requests in one record. 8192 requests take 1.5 MB. Further requests are skipped.
const MAX_REQUESTS: usize = 8192;
/// Limit of the KV cache levels in a list.
const MAX_LEVELS: usize = 64;
/// Longest id or name in bytes.
const MAX_TEXT: usize = 64;
/// Limit of the blocks of one KV cache event.
const MAX_BLOCKS: usize = 65_536;

/// Reads the requests of a record. Null becomes `None`.
pub(super) fn requests<'de, D: Deserializer<'de>, T: Deserialize<'de>>(array: D) -> Result<Option<Vec<T>>, D::Error> {
    array.deserialize_any(Bounded(MAX_REQUESTS, PhantomData))
}

/// Reads a list with one element for each cache level. Null becomes `None`.
pub(super) fn levels<'de, D: Deserializer<'de>, T: Deserialize<'de>>(array: D) -> Result<Option<Vec<T>>, D::Error> {
    array.deserialize_any(Bounded(MAX_LEVELS, PhantomData))
}

/// Reads the number of blocks of each cache level. Null becomes an empty list.
pub(super) fn blocks_by_level<'de, D: Deserializer<'de>>(array: D) -> Result<Vec<i64>, D::Error> {
    Ok(levels(array)?.unwrap_or_default())
}

/// Names of cache levels. A name that is too long becomes empty. It is not removed, because its position in the list is
/// the number of the level.
pub(super) fn level_names<'de, D: Deserializer<'de>>(array: D) -> Result<Option<Vec<String>>, D::Error> {
    let names: Option<Vec<ShortText>> = levels(array)?;
    Ok(names.map(|names| names.into_iter().map(|ShortText(name)| name.unwrap_or_default().into()).collect()))
}

/// Reads the blocks of a KV cache event. Null becomes an empty list.
pub(super) fn blocks<'de, D: Deserializer<'de>, T: Deserialize<'de>>(array: D) -> Result<Vec<T>, D::Error> {
    Ok(array.deserialize_any(Bounded(MAX_BLOCKS, PhantomData))?.unwrap_or_default())
}

/// Reads one number, or the sum of a list of numbers. Null and an empty list become `None`.
pub(super) fn sum<'de, D: Deserializer<'de>>(numbers: D) -> Result<Option<i64>, D::Error> {
    struct Sum;
    impl<'de> Visitor<'de> for Sum {
        type Value = Option<i64>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list of numbers")
        }

        fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
            Ok(Some(number))
        }

        fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
            Ok(Some(i64::try_from(number).unwrap_or(i64::MAX)))
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<Self::Value, A::Error> {
            let mut sum = None;
            while let Some(number) = numbers.next_element::<i64>()? {
                sum = Some(sum.unwrap_or(0_i64).saturating_add(number));
            }
            Ok(sum)
        }
    }
    numbers.deserialize_any(Sum)
}

/// A negative number becomes the highest number, so that the record is rejected as implausible instead of malformed.
/// Null becomes `None`.
pub(super) fn number<'de, D: Deserializer<'de>>(number: D) -> Result<Option<u64>, D::Error> {
    struct Number;
    impl<'de> Visitor<'de> for Number {
        type Value = Option<u64>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a number")
        }

        fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
            Ok(Some(number))
        }

        fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
            Ok(Some(u64::try_from(number).unwrap_or(u64::MAX)))
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
    }
    number.deserialize_any(Number)
}

/// A text of at most 64 bytes. A longer text becomes `None` and is not copied.
#[derive(Debug)]
pub struct ShortText(pub Option<Box<str>>);

impl<'de> Deserialize<'de> for ShortText {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = ShortText;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<ShortText, E> {
                Ok(ShortText((text.len() <= MAX_TEXT).then(|| text.into())))
            }
        }
        text.deserialize_str(Text)
    }
}

struct Bounded<T>(usize, PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Bounded<T> {
    type Value = Option<Vec<T>>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an array")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while elements.len() < self.0 {
            let Some(element) = array.next_element()? else { return Ok(Some(elements)) };
            elements.push(element);
        }
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Some(elements))
    }
}
