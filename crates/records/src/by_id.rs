//! A JSON object whose values all have the same fields, e.g. one for each pool. Its keys are ids that the engine chooses.

use std::marker::PhantomData;

use serde::de::{Deserialize, IgnoredAny, MapAccess};
use serde::ser::{Serialize, Serializer};

use super::bounded::ShortText;
use super::lenient::{Lenient, Scalar};
use super::schema::{Element, Schema};

/// Limit of the values of one object. Further values are skipped; engines have only a few.
const MAX_VALUES: usize = 1024;

/// Values by id, in the engine's order. A value with an id that is too long is skipped. This is not a map, because a
/// `BTreeMap` takes 5 KB for the KV cache statistics of a single pool, and a record has up to four such objects.
#[derive(Debug, Clone, PartialEq)]
pub struct ById<T>(pub Vec<(Box<str>, T)>);

impl<T> ById<T> {
    /// Approximate memory in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.0.capacity() * size_of::<(Box<str>, T)>() + self.0.iter().map(|(id, _)| id.len()).sum::<usize>()
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }
}

impl<T: Serialize> Serialize for ById<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(id, value)| (id, value)))
    }
}

/// Reads the values. What is not an object becomes one value that stands for a wrong type.
pub(super) struct Values<T>(pub PhantomData<T>);

impl<'de, T: Schema + Deserialize<'de>> Lenient<'de> for Values<T> {
    type Value = ById<T>;

    fn scalar(self, _: Scalar<'_>) -> Option<ById<T>> {
        Some(ById(vec![("".into(), T::wrong_type_sentinel())]))
    }

    fn object<A: MapAccess<'de>>(self, mut object: A) -> Result<Option<ById<T>>, A::Error> {
        let mut values = Vec::new();
        while let Some(ShortText(id)) = object.next_key()? {
            match id {
                Some(id) if values.len() < MAX_VALUES => {
                    let Element(value) = object.next_value()?;
                    values.push((id, value));
                }
                _ => _ = object.next_value::<IgnoredAny>()?,
            }
        }
        Ok(Some(ById(values)))
    }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeSeed as _;

    use super::*;
    use crate::iteration::SsmSnapshotStats;
    use crate::lenient::Any;

    #[test]
    fn a_value_whose_id_is_longer_than_any_window_id_is_skipped_and_ids_have_a_weight() {
        let (short, long) = ("4".repeat(64), "4".repeat(65));
        let text = format!("{{\"{short}\":{{}},\"{long}\":{{}},\"\\u0034\":3}}");
        let values = Any(Values::<SsmSnapshotStats>(PhantomData));
        let values = values.deserialize(&mut serde_json::Deserializer::from_str(&text)).unwrap().unwrap();
        let read = [(short.into(), SsmSnapshotStats::default()), ("4".into(), SsmSnapshotStats::wrong_type_sentinel())];
        assert_eq!(values.0, read);
        assert!(values.weight() >= 2 * size_of::<(Box<str>, SsmSnapshotStats)>() + 65, "{}", values.weight());
    }
}
