//! The identifier of a family, and the macro with which each table defines its families.

use std::ops::Range;

/// A family of the catalog: its index in [`super::CATALOG`], and so its place on the page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub(super) u16);

impl Id {
    /// The families at these indices.
    pub fn all(indices: Range<usize>) -> impl Iterator<Item = Self> {
        indices.map(|index| Self(index as u16))
    }

    /// Index in [`super::CATALOG`].
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Defines the families of one table, in page order:
///
/// ```text
/// families! {
///     first: super::engine_counters::END;      // the table before this one on the page
///     of: EngineReadings<'_>;                  // what the values are read from
///
///     HostStep(|engine| seen(&engine.totals.host_step)) = ENGINE.histogram("nv_trt_llm_host_step_seconds").unit("seconds")
///         .help("Duration of one host loop step in seconds.")
///         .origin("hostStepTimeMS");
/// }
/// ```
///
/// The right side is an ordinary [`super::Metric`]. `HostStep` becomes the constant `Id::HostStep`, numbered from `first`. The closure
/// returns the value of the family's only series, which may be absent. Families with several series have no closure.
macro_rules! families {
    (first: $first:expr; of: $of:ty; $($id:ident $((|$from:ident| $value:expr))? = $metric:expr;)*) => {
        pub(in crate::metrics::catalog) const FAMILIES: &[crate::metrics::catalog::Metric] = &[$($metric),*];
        /// Index of this table's first family in the catalog.
        pub(in crate::metrics::catalog) const FIRST: usize = $first;
        /// Index after this table's last family.
        pub(in crate::metrics::catalog) const END: usize = FIRST + FAMILIES.len();

        /// Position within this table.
        #[allow(clippy::enum_variant_names, reason = "the variants are named as the ids of one area")]
        enum Position { $($id),* }

        #[allow(non_upper_case_globals, reason = "Id::Name reads like the variant of an enum, and is used like one")]
        impl crate::metrics::catalog::Id {
            $(pub const $id: Self = Self(FIRST as u16 + Position::$id as u16);)*
        }

        /// Each family of this table that has a closure, with the function that reads its value.
        #[allow(dead_code, reason = "no family of the exporter itself states its value")]
        pub(in crate::metrics) const VALUES:
            &[(crate::metrics::catalog::Id, fn(&$of) -> Option<crate::metrics::value::Value>)] = &[$($((
                crate::metrics::catalog::Id::$id,
                |$from: &$of| crate::metrics::value::OrAbsent::or_absent($value),
            ),)?)*];
    };
}

pub(super) use families;
