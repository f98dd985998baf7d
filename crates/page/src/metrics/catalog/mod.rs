//! Defines every metric of the page once, in page order: name, type, unit, labels and their values, stability, help,
//! the fields that feed it, and the closure that reads it. The page, the renderers, the metrics reference and the tests
//! all read this table. Few other texts of the code spell a metric's name, and a test checks these names.

pub mod feeds;
pub mod not_read;
pub(super) mod table;

use std::sync::LazyLock;

use table::{
    benchmark, dcgm, dynamo, engine_counters, engine_gauges, engine_gpus, engine_histograms, exporter, gpu, mig,
    orchestrator, triton, triton_core, trtllm, verdict, vllm,
};

pub use super::family::{Group, Id, InDefault, Metric, MetricKind, Profile, Stability, Variant};

/// The families of each table, in page order.
const TABLES: [&[Id]; 16] = [
    triton::FAMILIES,
    engine_counters::FAMILIES,
    engine_histograms::FAMILIES,
    engine_gauges::FAMILIES,
    benchmark::FAMILIES,
    engine_gpus::FAMILIES,
    verdict::FAMILIES,
    trtllm::FAMILIES,
    dynamo::FAMILIES,
    vllm::FAMILIES,
    triton_core::FAMILIES,
    orchestrator::FAMILIES,
    dcgm::FAMILIES,
    gpu::FAMILIES,
    mig::FAMILIES,
    exporter::FAMILIES,
];

/// All families in page order.
pub static CATALOG: LazyLock<Vec<Metric>> = LazyLock::new(|| TABLES.concat().iter().map(|id| *id.metric()).collect());

#[cfg(test)]
mod tests;
