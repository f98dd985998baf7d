//! Deserializes values whose size a peer chooses. Arrays are cut at a limit, and long texts are dropped. A limit on the
//! bytes of the JSON does not bound memory: `{}` has 2 bytes in JSON and hundreds in memory.

use serde::de::{Deserialize, DeserializeSeed as _, Deserializer, IgnoredAny, SeqAccess};

use super::lenient::{self, Any, Lenient, Number, Scalar};

/// Limit of the KV cache levels in a list.
const MAX_LEVELS: usize = 64;
/// Longest id or name in bytes.
const MAX_TEXT: usize = 64;

/// Reads a list with one number for each cache level. Null becomes `None`. A value of a wrong type becomes one unreadable
/// number.
pub(super) fn levels<'de, D: Deserializer<'de>>(array: D) -> Result<Option<Vec<i64>>, D::Error> {
    let sentinel: fn() -> _ = || Some(vec![Count(i64::UNREADABLE)]);
    let counts: Option<Vec<Count>> = self::array(array, MAX_LEVELS, sentinel)?;
    Ok(counts.map(|counts| counts.into_iter().map(|Count(count)| count).collect()))
}

/// Names of cache levels. A name that is too long becomes empty. It is not removed, because its position in the list is
/// the number of the level.
pub(super) fn level_names<'de, D: Deserializer<'de>>(array: D) -> Result<Option<Vec<String>>, D::Error> {
    let names: Option<Vec<ShortText>> = self::array(array, MAX_LEVELS, || None)?;
    Ok(names.map(|names| names.into_iter().map(|ShortText(name)| name.unwrap_or_default().into()).collect()))
}

/// Reads one number, or the sum of a list of numbers. Null and an empty list become `None`.
pub(super) fn sum<'de, D: Deserializer<'de>>(numbers: D) -> Result<Option<i64>, D::Error> {
    struct Sum;
    impl<'de> Lenient<'de> for Sum {
        type Value = i64;

        fn scalar(self, value: Scalar<'_>) -> Option<i64> {
            Some(i64::of(value))
        }

        fn array<A: SeqAccess<'de>>(self, mut numbers: A) -> Result<Option<i64>, A::Error> {
            let mut sum = None;
            while let Some(Count(number)) = numbers.next_element()? {
                // One unreadable number makes the sum unreadable.
                let add = |sum: i64| if number < 0 || sum < 0 { i64::UNREADABLE } else { sum.saturating_add(number) };
                sum = Some(sum.map_or(number, add));
            }
            Ok(sum)
        }
    }
    Any(Sum).deserialize(numbers)
}

/// A number in a list.
struct Count(i64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(count: D) -> Result<Self, D::Error> {
        Ok(Self(lenient::number(count)?.unwrap_or(i64::UNREADABLE)))
    }
}

/// A text of at most 64 bytes. A longer text becomes `None` and is not copied.
#[derive(Debug)]
pub struct ShortText(pub Option<Box<str>>);

impl<'de> Deserialize<'de> for ShortText {
    fn deserialize<D: Deserializer<'de>>(text: D) -> Result<Self, D::Error> {
        let read = |value: Scalar<'_>| match value {
            Scalar::Text(text) if text.len() <= MAX_TEXT => Some(text.into()),
            _ => None,
        };
        Any(read).deserialize(text).map(Self)
    }
}

/// Reads an array. The result of `sentinel` replaces the elements beyond `limit`, and a value of another type. Null becomes `None`.
pub(super) fn array<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    array: D,
    limit: usize,
    sentinel: fn() -> Option<Vec<T>>,
) -> Result<Option<Vec<T>>, D::Error> {
    Any(Bounded(limit, sentinel)).deserialize(array)
}

struct Bounded<T>(usize, fn() -> Option<Vec<T>>);

impl<'de, T: Deserialize<'de>> Lenient<'de> for Bounded<T> {
    type Value = Vec<T>;

    fn scalar(self, _: Scalar<'_>) -> Option<Vec<T>> {
        self.1()
    }

    fn array<A: SeqAccess<'de>>(self, mut array: A) -> Result<Option<Vec<T>>, A::Error> {
        let mut elements = Vec::new();
        while elements.len() < self.0 {
            let Some(element) = array.next_element()? else { return Ok(Some(elements)) };
            elements.push(element);
        }
        let mut is_skipped = false;
        while array.next_element::<IgnoredAny>()?.is_some() {
            is_skipped = true;
        }
        elements.extend(is_skipped.then(self.1).flatten().into_iter().flatten());
        Ok(Some(elements))
    }
}
