//! A JSON object of rows of one kind, whose keys are ids that the engine chooses.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// Rows by id, in the engine's order. No map: a `BTreeMap` takes 5 KB for a single row of KV cache statistics, and a record has
/// up to four such objects.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows<R>(Vec<(Box<str>, R)>);

impl<R> Rows<R> {
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn values(&self) -> impl Iterator<Item = &R> {
        self.0.iter().map(|(_, row)| row)
    }
}

impl<R: Serialize> Serialize for Rows<R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(id, row)| (id, row)))
    }
}

impl<'de, R: Deserialize<'de>> Deserialize<'de> for Rows<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<R>(PhantomData<R>);
        impl<'de, R: Deserialize<'de>> Visitor<'de> for Object<R> {
            type Value = Rows<R>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of statistics")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Rows<R>, A::Error> {
                let mut rows = Vec::new();
                while let Some(row) = object.next_entry()? {
                    rows.push(row);
                }
                Ok(Rows(rows))
            }
        }
        deserializer.deserialize_map(Object(PhantomData))
    }
}
