//! The tables in page order. To add a metric, add an entry to the table of its area; the order of the entries is their
//! order on the page.

pub(in crate::metrics) mod benchmark;
pub(in crate::metrics) mod dcgm;
pub(in crate::metrics) mod dynamo;
pub(in crate::metrics) mod engine_counters;
pub(in crate::metrics) mod engine_gauges;
pub(in crate::metrics) mod engine_gpus;
pub(in crate::metrics) mod engine_histograms;
pub(in crate::metrics) mod exporter;
pub(in crate::metrics) mod gpu;
pub(in crate::metrics) mod mig;
pub(in crate::metrics) mod orchestrator;
pub(in crate::metrics) mod triton;
pub(in crate::metrics) mod triton_core;
pub(in crate::metrics) mod trtllm;
pub(in crate::metrics) mod verdict;
pub(in crate::metrics) mod vllm;

use trtllm_fold::rank_totals::Rank;
use trtllm_records::schema::When;

use crate::metrics::engine_view::EngineView;
use crate::metrics::family::{Group, Id, InDefault, Metric, Stability};
use crate::metrics::value::{Value, increased, seen};
use crate::metrics::writer::FamilyWriter;

/// The area of the families that this exporter defines for an engine.
const ENGINE: Metric = Metric::area(Group::Engine, Stability::Experimental, &["model", "version"]);
const RANK: &[&str] = &["model", "rank", "version"];

/// The name of a rank in a label.
fn rank_name(rank: &Rank) -> String {
    rank.number().map_or("other".to_owned(), |number| number.to_string())
}

/// The value of a label that the engine does not report.
fn unknown() -> String {
    "unknown".to_owned()
}

/// Defines the families of one table, in page order:
///
/// ```text
/// families! {
///     EngineHistograms of EngineView<'_> => FamilyWriter<'_>;
///
///     HostStep(|engine| seen(&engine.totals.host_step)) = ENGINE.histogram("nv_trt_llm_host_step_seconds")
///         .unit("seconds").help("Duration of one host loop step in seconds.").feeds("hostStepTimeMS");
///     QueuedByPhase(|engine| let batch = engine.load?.inflight?; by phase {
///         context: batch.num_queued_context_requests, generation: batch.num_queued_gen_requests,
///     }) = …
///     Ranks(|engine, series| for rank in engine.ranks() { series.with([("rank", rank.name())], rank.load) }) = …
/// }
/// ```
///
/// `HostStep` becomes the constant `Id::HostStep`. The right side is an ordinary [`Metric`]. A closure returns the
/// value of the family's only series, which may be absent. With `by`, it has a label, and each label value with its
/// number. A closure with two arguments adds each series. In all of them, `?` leaves out the family if something is
/// absent. Other code writes a family without a closure.
macro_rules! families {
    ($table:ident of $of:ty => $writer:ty;
     $($id:ident $(($($read:tt)*))? = $metric:expr;)*) => {
        /// Index within this table.
        #[allow(clippy::enum_variant_names, reason = "the variants are named as the ids of one area")]
        enum Index { $($id),* }

        #[allow(non_upper_case_globals, reason = "Id::Name reads like the variant of an enum, and is used like one")]
        impl $crate::metrics::family::Id {
            $(pub const $id: Self = {
                static METRIC: $crate::metrics::family::Metric =
                    families!(@metric $metric $(, $($read)*)?);
                Self::new($crate::metrics::family::Table::$table, Index::$id as u8, &METRIC)
            };)*
        }

        pub(in crate::metrics) const FAMILIES: &[$crate::metrics::family::Id] =
            &[$($crate::metrics::family::Id::$id),*];

        /// Each family of this table that has a closure, with the function that writes it.
        pub(in crate::metrics) const WRITE: &[($crate::metrics::family::Id, fn(&$of, &mut $writer) -> Option<()>)] =
            &[$($(($crate::metrics::family::Id::$id, families!(@write $of, $writer, $($read)*)),)?)*];
    };
    (@metric $metric:expr,
     |$from:ident| $(let $part:ident = $of:expr;)? by $label:ident { $($value:ident: $number:expr),* $(,)? }) => {
        $metric.by(stringify!($label), &[$(stringify!($value)),*])
    };
    (@metric $metric:expr $(, $($read:tt)*)?) => { $metric };
    (@write $source:ty, $writer:ty,
     |$from:ident| $(let $part:ident = $of:expr;)? by $label:ident { $($value:ident: $number:expr),* $(,)? }) => {
        |$from: &$source, series: &mut $writer| {
            $(let $part = $of;)?
            series.all([$($crate::metrics::value::OrAbsent::or_absent($number)),*]);
            Some(())
        }
    };
    (@write $source:ty, $writer:ty, |$from:ident, $series:ident| $value:expr) => {
        |$from: &$source, $series: &mut $writer| { $value; Some(()) }
    };
    (@write $source:ty, $writer:ty, |$from:ident| $value:expr) => {
        |$from: &$source, series: &mut $writer| { series.one($value); Some(()) }
    };
}

use families;
