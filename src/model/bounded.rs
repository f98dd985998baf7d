//! Deserializes arrays whose length a peer chooses: elements above a limit are skipped. `{}` has 2 bytes in JSON and hundreds
//! in memory, so a limit on bytes alone does not bound memory.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};

/// Request rows of one record: more than any engine has active and queued requests.
const MAX_REQUESTS: usize = 16_384;
/// Cache levels.
const MAX_LEVELS: usize = 64;
/// Blocks of one KV cache event.
const MAX_BLOCKS: usize = 65_536;

/// Null is absent.
pub(super) fn requests<'de, D: Deserializer<'de>, T: Deserialize<'de>>(array: D) -> Result<Option<Vec<T>>, D::Error> {
    array.deserialize_any(Bounded(MAX_REQUESTS, PhantomData))
}

/// Null is absent.
pub(super) fn levels<'de, D: Deserializer<'de>, T: Deserialize<'de>>(array: D) -> Result<Option<Vec<T>>, D::Error> {
    array.deserialize_any(Bounded(MAX_LEVELS, PhantomData))
}

/// Null is empty.
pub(super) fn blocks<'de, D: Deserializer<'de>, T: Deserialize<'de>>(array: D) -> Result<Vec<T>, D::Error> {
    Ok(array.deserialize_any(Bounded(MAX_BLOCKS, PhantomData))?.unwrap_or_default())
}

/// A negative number becomes the highest one, so that it is found implausible and not only malformed. Null is absent.
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
