//! A JSON object whose values ("rows") all have the same fields. Its keys are ids that the engine chooses.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use super::bounded::ShortText;
use super::lenient::Element;
use super::schema::Schema;

/// Limit of the rows of one object. Further rows are skipped; engines have only a few.
const MAX_ROWS: usize = 1024;

/// Rows by id, in the engine's order. A row with an id that is too long is skipped. This is not a map, because a
/// `BTreeMap` takes 5 KB for a single row of KV cache statistics, and a record has up to four such objects.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolRows<R>(pub Vec<(Box<str>, R)>);

impl<R> PoolRows<R> {
    /// Approximate memory in bytes.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.0.capacity() * size_of::<(Box<str>, R)>() + self.0.iter().map(|(id, _)| id.len()).sum::<usize>()
    }

    pub fn values(&self) -> impl Iterator<Item = &R> {
        self.0.iter().map(|(_, row)| row)
    }
}

impl<R: Serialize> Serialize for PoolRows<R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(id, row)| (id, row)))
    }
}

impl<'de, R: Schema + Deserialize<'de>> Deserialize<'de> for PoolRows<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<R>(PhantomData<R>);
        impl<'de, R: Schema + Deserialize<'de>> Visitor<'de> for Object<R> {
            type Value = PoolRows<R>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of statistics")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<PoolRows<R>, A::Error> {
                let mut rows = Vec::new();
                while let Some(ShortText(id)) = object.next_key()? {
                    match id {
                        Some(id) if rows.len() < MAX_ROWS => {
                            let Element(row) = object.next_value()?;
                            rows.push((id, row));
                        }
                        _ => _ = object.next_value::<IgnoredAny>()?,
                    }
                }
                Ok(PoolRows(rows))
            }
        }
        deserializer.deserialize_map(Object(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iteration::SsmSnapshotStats;

    #[test]
    fn a_row_whose_id_is_longer_than_any_window_id_is_skipped_and_ids_have_a_weight() {
        let (short, long) = ("4".repeat(64), "4".repeat(65));
        let rows: PoolRows<SsmSnapshotStats> =
            serde_json::from_str(&format!("{{\"{short}\":{{}},\"{long}\":{{}},\"\\u0034\":3}}")).unwrap();
        let read = [(short.into(), SsmSnapshotStats::default()), ("4".into(), SsmSnapshotStats::wrong_type_sentinel())];
        assert_eq!(rows.0, read);
        assert!(rows.weight() >= 2 * size_of::<(Box<str>, SsmSnapshotStats)>() + 65, "{}", rows.weight());
    }
}
