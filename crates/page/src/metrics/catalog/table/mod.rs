//! The tables in page order. To add a metric, add an entry to the table of its area; the order of the entries is their
//! order on the page.

mod benchmark;
mod dcgm;
mod dynamo;
mod engine_counters;
mod engine_gauges;
mod engine_gpus;
mod engine_histograms;
mod exporter;
mod gpu;
mod mig;
mod orchestrator;
mod triton;
mod triton_core;
mod trtllm;
mod verdict;
mod vllm;

use std::sync::LazyLock;

use trtllm_fold::rank_totals::Rank;
use trtllm_records::schema::When;

use super::id::{Id, families};
use super::metric::{Area, Group, InDefault, Metric, Stability};
use crate::metrics::engine_readings::EngineReadings;
use crate::metrics::value::{Value, increased, seen};
use crate::metrics::writer::FamilyWriter;

/// The area of the families that this exporter defines for an engine.
const ENGINE: Area = Area::new(Group::Engine, Stability::Experimental, &["model", "version"]);
const RANK: &[&str] = &["model", "rank", "version"];

/// The name of a rank in a label.
fn rank_name(rank: &Rank) -> String {
    rank.number().map_or("other".to_owned(), |number| number.to_string())
}

/// The value of a label that the engine does not report.
fn unknown() -> String {
    "unknown".to_owned()
}

macro_rules! tables {
    ($($table:ident = $module:ident),* $(,)?) => {
        /// The tables, in page order.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Table { $($table),* }

        /// The families of each table.
        pub(super) static TABLES: [&[Metric]; Table::ALL.len()] = [$($module::FAMILIES),*];

        impl Table {
            pub const ALL: [Self; [$(stringify!($module)),*].len()] = [$(Self::$table),*];
        }
    };
}

tables! {
    Triton = triton,
    EngineCounters = engine_counters,
    EngineHistograms = engine_histograms,
    EngineGauges = engine_gauges,
    Benchmark = benchmark,
    EngineGpus = engine_gpus,
    Verdict = verdict,
    Trtllm = trtllm,
    Dynamo = dynamo,
    Vllm = vllm,
    TritonCore = triton_core,
    Orchestrator = orchestrator,
    Dcgm = dcgm,
    Gpu = gpu,
    Mig = mig,
    Exporter = exporter,
}

/// All families in page order.
pub static CATALOG: LazyLock<Vec<Metric>> = LazyLock::new(|| TABLES.concat());

impl Table {
    /// The tables of an engine under its own names.
    pub const OF_ENGINES: [Self; 8] = [
        Self::Triton,
        Self::EngineCounters,
        Self::EngineHistograms,
        Self::EngineGauges,
        Self::Benchmark,
        Self::EngineGpus,
        Self::Verdict,
        Self::TritonCore,
    ];
}

pub(in crate::metrics) use dcgm::{DcgmReadings, WRITE as DCGM};
pub(in crate::metrics) use dynamo::WRITE as DYNAMO;
pub(in crate::metrics) use exporter::WRITE as EXPORTER;
pub(in crate::metrics) use gpu::{OneGpu, WRITE as GPUS, text};
pub(in crate::metrics) use mig::WRITE as MIG_INSTANCES;
pub(in crate::metrics) use orchestrator::WRITE as ORCHESTRATORS;
pub(in crate::metrics) use triton::{WRITE as TRITON, kv_cache_blocks};
pub(in crate::metrics) use triton_core::WRITE as TRITON_CORE;
pub(in crate::metrics) use trtllm::WRITE as TRTLLM;
pub(in crate::metrics) use vllm::WRITE as VLLM;

/// Families of an engine, and the function that writes each.
type EngineFamilies = [(Id, fn(&EngineReadings<'_>, &mut FamilyWriter<'_>) -> Option<()>)];

/// The families that engines have, but no orchestrator.
pub(in crate::metrics) const ENGINES: [&EngineFamilies; 4] =
    [engine_counters::WRITE, engine_histograms::WRITE, engine_gauges::WRITE, benchmark::WRITE];
/// The families that engines and orchestrators have.
pub(in crate::metrics) const ALL: [&EngineFamilies; 2] = [engine_gpus::WRITE, verdict::WRITE];
