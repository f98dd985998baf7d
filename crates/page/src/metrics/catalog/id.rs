//! The identifier of a family, and the macro with which each table defines its families.

use super::metric::Metric;
use super::table::{TABLES, Table};

/// A family of the catalog: its table and its position in that table. Sorted ids are in page order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u16);

impl Id {
    pub(super) const fn new(table: Table, position: u8) -> Self {
        Self((table as u16) << 8 | position as u16)
    }

    /// The families of a table, in page order.
    pub fn all(table: Table) -> impl Iterator<Item = Self> {
        (0..TABLES[table as usize].len()).map(move |position| Self::new(table, position as u8))
    }

    /// The number of the table, and the position in it.
    #[must_use]
    pub const fn place(self) -> (usize, usize) {
        ((self.0 >> 8) as usize, (self.0 & 0xff) as usize)
    }

    #[must_use]
    pub const fn metric(self) -> &'static Metric {
        let (table, position) = self.place();
        &TABLES[table][position]
    }
}

impl std::fmt::Debug for Id {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.metric().name)
    }
}

/// Defines the families of one table, in page order:
///
/// ```text
/// families! {
///     EngineHistograms of EngineReadings<'_> => FamilyWriter<'_>;
///
///     HostStep(|engine| seen(&engine.totals.host_step)) = ENGINE.histogram("nv_trt_llm_host_step_seconds")
///         .unit("seconds").help("Duration of one host loop step in seconds.").feeds("hostStepTimeMS");
///     Memory(|engine, series| series.all([engine.load?.cpu_memory, engine.load?.gpu_memory])) = …
/// }
/// ```
///
/// `HostStep` becomes the constant `Id::HostStep`. The right side is an ordinary [`super::Metric`]. A closure with one
/// argument returns the value of the family's only series, which may be absent. A closure with two arguments adds each
/// series. In both, `?` leaves out the family if something is absent. Other code writes a family without a closure.
macro_rules! families {
    ($table:ident of $of:ty => $writer:ty;
     $($id:ident $((|$from:ident $(, $series:ident)?| $value:expr))? = $metric:expr;)*) => {
        pub(in crate::metrics::catalog) const FAMILIES: &[crate::metrics::catalog::Metric] = &[$($metric),*];

        /// Position within this table.
        #[allow(clippy::enum_variant_names, reason = "the variants are named as the ids of one area")]
        enum Position { $($id),* }

        #[allow(non_upper_case_globals, reason = "Id::Name reads like the variant of an enum, and is used like one")]
        impl crate::metrics::catalog::Id {
            $(pub const $id: Self = Self::new(crate::metrics::catalog::table::Table::$table, Position::$id as u8);)*
        }

        /// Each family of this table that has a closure, with the function that writes it.
        pub(in crate::metrics) const WRITE: &[(crate::metrics::catalog::Id, fn(&$of, &mut $writer) -> Option<()>)] =
            &[$($((crate::metrics::catalog::Id::$id, families!(@write $of, $writer, $from, $($series,)? $value)),)?)*];
    };
    (@write $of:ty, $writer:ty, $from:ident, $series:ident, $value:expr) => {
        |$from: &$of, $series: &mut $writer| { $value; Some(()) }
    };
    (@write $of:ty, $writer:ty, $from:ident, $value:expr) => {
        |$from: &$of, series: &mut $writer| { series.one($value); Some(()) }
    };
}

pub(super) use families;
