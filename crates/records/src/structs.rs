//! Makes the structs of the schema from the list of their fields.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::kind::Kind;
use super::lenient::{Any, Scalar};
use super::schema::Schema;

/// Makes the structs from their fields. For example,
///
/// ```text
/// TABLE: pub struct InflightBatchingStats: Iterations {
///     /// Requests that gave up their blocks.
///     @cpp num_paused_requests: i64 = "numPausedRequests" [Count sum load];
/// }
/// ```
///
/// becomes a struct with the member `pub num_paused_requests: Option<i64>`, which is read from `numPausedRequests` or
/// `num_paused_requests` and written as `numPausedRequests`, and
///
/// ```text
/// Field::new("InflightBatchingStats", "numPausedRequests", "num_paused_requests", When::Iterations).cpp().sum().load()
/// ```
///
/// in [`Schema::FIELDS`]. The first word in the brackets is the [`Kind`] of the value: how it is read, and which values are
/// possible. The other words are methods of [`Field`]. `[Share = hit_ratio]`: the method `hit_ratio` has the value of several ranks,
/// because quotients do not add up. A second key is another spelling. `@cpp` marks what the struct of the C++ Executor has.
/// `free <= max` after the kind of statistics: a value of `free` above that of `max` is impossible.
macro_rules! schema {
    ($TABLE:ident: $(
        $(#[$about:meta])*
        pub struct $Struct:ident: $when:ident $(, $part:ident <= $whole:ident)* { $(
            $(#[$doc:meta])*
            $(@$cpp:ident)? $member:ident: $type:ty = $key:literal $(| $also:literal)?
                [$Kind:ident $(= $quotient:ident)? $($property:ident $(($value:expr))?)*];
        )* }
    )*) => {
        /// The fields of each struct.
        pub static $TABLE: &[&[crate::schema::Field]] = &[$(<$Struct as crate::schema::Schema>::FIELDS),*];
        $(
        $(#[$about])*
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
        pub struct $Struct { $(
            $(#[$doc])*
            #[serde(rename = $key, skip_serializing_if = "Option::is_none")]
            pub $member: Option<$type>,
        )* }

        const _: () = {
            #[allow(unused_imports, reason = "not every table uses each property")]
            use crate::{kind::*, schema::{Field, Ranks, Rejected, Schema, When::{self, *}}};

            #[allow(non_camel_case_types, reason = "the variants are the names of the members")]
            enum Position { $($member),* }

            impl Schema for $Struct {
                const FIELDS: &'static [Field] = &[$(
                    Field::new(stringify!($Struct), $key, stringify!($member), When::$when)
                        $(.$cpp())? $(.$property($($value)?))*
                ),*];

                #[allow(unreachable_patterns, reason = "some keys are the same in both spellings")]
                fn find(key: &str) -> Option<usize> {
                    Some(match key {
                        $($key | stringify!($member) $(| $also)? => Position::$member as usize,)*
                        _ => return None,
                    })
                }

                fn read<'de, A: serde::de::MapAccess<'de>>(&mut self, field: usize, object: &mut A) -> Result<(), A::Error> {
                    $(if field == Position::$member as usize {
                        self.$member = object.next_value_seed(crate::structs::Value::<$Kind, $type>(std::marker::PhantomData))?;
                        return Ok(());
                    })*
                    Ok(())
                }

                fn is_plausible(&self) -> bool {
                    true $(& <$Kind as Kind<$type>>::is_possible(&self.$member))*
                        $(& (self.$whole.is_none() | (self.$part <= self.$whole)))*
                }

                fn has_keys(&self) -> bool {
                    true $(& (!<$Kind as Kind<$type>>::IS_KEY || <$Kind as Kind<$type>>::is_possible(&self.$member)))*
                }

                fn repair(&mut self, rejected: &mut Rejected) {
                    $(if !<$Kind as Kind<$type>>::IS_KEY {
                        <$Kind as Kind<$type>>::repair(&mut self.$member, $key, rejected);
                    })*
                    $(if self.$whole.is_some() && self.$part > self.$whole {
                        self.$part = None;
                        rejected.value(Self::FIELDS[Position::$part as usize].key);
                    })*
                }

                fn add(&mut self, other: &Self) {
                    $(<$Kind as Kind<$type>>::add(&mut self.$member, &other.$member, const {
                        Self::FIELDS[Position::$member as usize].ranks
                    });)*
                    $($(self.$member = self.$quotient().or(self.$member);)?)*
                }

                fn add_events(&mut self, record: &Self) {
                    $(if const { matches!(Self::FIELDS[Position::$member as usize].ranks, Ranks::Events) } {
                        <$Kind as Kind<$type>>::add(&mut self.$member, &record.$member, Ranks::Sum);
                    })*
                }

                fn each_cumulative(&mut self, other: &mut Self, mut each: impl FnMut(&mut Option<i64>, &mut Option<i64>)) {
                    $(if let (Some(count), Some(other)) = (
                        <$Kind as Kind<$type>>::cumulative(&mut self.$member),
                        <$Kind as Kind<$type>>::cumulative(&mut other.$member),
                    ) {
                        each(count, other);
                    })*
                }

                fn make_idle(&mut self) {
                    $(if const { Self::FIELDS[Position::$member as usize].is_load } {
                        <$Kind as Kind<$type>>::clear(&mut self.$member);
                    })*
                }

                fn weight(&self) -> usize {
                    0 $(+ <$Kind as Kind<$type>>::weight(&self.$member))*
                }

                fn wrong_type_sentinel() -> Self {
                    Self { $($member: <$Kind as Kind<$type>>::wrong_type_sentinel()),* }
                }
            }

            impl<'de> serde::Deserialize<'de> for $Struct {
                fn deserialize<D: serde::Deserializer<'de>>(object: D) -> Result<Self, D::Error> {
                    crate::structs::read_object(object)
                }
            }
        };
    )*
    };
}
pub(crate) use schema;

/// Reads an object. Unknown keys are skipped. If a key occurs twice, its last value counts.
pub(crate) fn read_object<'de, D: Deserializer<'de>, S: Schema>(object: D) -> Result<S, D::Error> {
    struct Object<S>(PhantomData<S>);
    impl<'de, S: Schema> Visitor<'de> for Object<S> {
        type Value = S;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object of statistics")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<S, A::Error> {
            let mut read = S::default();
            let find = |key: Scalar<'_>| if let Scalar::Text(key) = key { S::find(key) } else { None };
            while let Some(field) = object.next_key_seed(Any(find))? {
                match field {
                    Some(field) => read.read(field, &mut object)?,
                    None => _ = object.next_value::<IgnoredAny>()?,
                }
            }
            Ok(read)
        }
    }
    object.deserialize_map(Object(PhantomData))
}

/// Reads a value of this kind.
#[allow(unnameable_types, reason = "only the macro names it")]
pub(crate) struct Value<K, T>(pub PhantomData<(K, T)>);

impl<'de, K: Kind<T>, T> DeserializeSeed<'de> for Value<K, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<Option<T>, D::Error> {
        K::read(value)
    }
}

#[cfg(test)]
mod tests;
