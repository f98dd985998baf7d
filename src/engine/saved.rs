//! How the parts of a fold are saved that serde cannot derive: moments, maps without text keys, long arrays.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment, saved as nanoseconds since a moment of the process. A fold uses only differences of moments, so all of them may be
/// moved together: another process reads them as nanoseconds since a moment of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp(pub Instant);

impl Stamp {
    fn origin() -> Instant {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        *ORIGIN.get_or_init(Instant::now)
    }

    /// Nanoseconds since the moment of the process; negative before it.
    #[must_use]
    pub fn nanos(self) -> i64 {
        let origin = Self::origin();
        let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
        match self.0.checked_duration_since(origin) {
            Some(after) => nanos(after),
            None => -nanos(origin.saturating_duration_since(self.0)),
        }
    }

    /// The moment of [`Stamp::nanos`]. A time of centuries becomes the moment of the process.
    #[must_use]
    pub fn from_nanos(nanos: i64) -> Self {
        let (origin, distance) = (Self::origin(), Duration::from_nanos(nanos.unsigned_abs()));
        let moment = if nanos < 0 { origin.checked_sub(distance) } else { origin.checked_add(distance) };
        Self(moment.unwrap_or(origin))
    }
}

impl Serialize for Stamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.nanos())
    }
}

impl<'de> Deserialize<'de> for Stamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from_nanos(i64::deserialize(deserializer)?))
    }
}

/// A map whose keys are not text, as an array of pairs.
pub(super) mod pairs {
    use std::collections::HashMap;
    use std::hash::Hash;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &HashMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(crate) fn deserialize<'de, K, V, D>(deserializer: D) -> Result<HashMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Eq + Hash,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Ok(Vec::<(K, V)>::deserialize(deserializer)?.into_iter().collect())
    }
}

/// Like [`pairs`], for a map that may be absent.
pub(super) mod optional_pairs {
    use std::collections::HashMap;
    use std::hash::Hash;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &Option<HashMap<K, V>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        map.as_ref().map(|map| map.iter().collect::<Vec<_>>()).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, K, V, D>(deserializer: D) -> Result<Option<HashMap<K, V>>, D::Error>
    where
        K: Deserialize<'de> + Eq + Hash,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Ok(Option::<Vec<(K, V)>>::deserialize(deserializer)?.map(|pairs| pairs.into_iter().collect()))
    }
}

/// An array that is longer than serde's own support.
pub(super) mod long_array {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "serde gives a reference to the field")]
    pub(crate) fn serialize<const N: usize, S: Serializer>(
        array: &Option<Box<[u64; N]>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        array.as_ref().map(|array| array.as_slice()).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, const N: usize, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Box<[u64; N]>>, D::Error> {
        let Some(numbers) = Option::<Box<[u64]>>::deserialize(deserializer)? else { return Ok(None) };
        let length = numbers.len();
        numbers.try_into().map(Some).map_err(|_| D::Error::invalid_length(length, &"the buckets of this version"))
    }
}

/// A value that may be absent inside one that may be absent: an array of one value, so that the two cases differ.
pub(super) mod nested {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "serde gives a reference to the field")]
    pub(crate) fn serialize<T: Serialize + Copy, S: Serializer>(
        value: &Option<Option<T>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(|inner| [inner]).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Option<T>>, D::Error> {
        Ok(Option::<[Option<T>; 1]>::deserialize(deserializer)?.map(|[inner]| inner))
    }
}
