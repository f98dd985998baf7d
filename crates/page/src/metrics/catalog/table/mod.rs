//! The tables, joined in page order. To add a metric, add an entry to the table of its area; the order of the entries is
//! their order on the page.

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

use std::fmt;
use std::ops::Range;

use trtllm_records::schema::When;

use super::id::{Id, families};
use super::metric::{Area, Group, Metric, Stability};
use crate::metrics::engine_readings::EngineReadings;
use crate::metrics::value::{Value, increased, seen};

/// The area of the families that this exporter defines for an engine.
const ENGINE: Area = Area::new(Group::Engine, Stability::Experimental, &["model", "version"]);
const RANK: &[&str] = &["model", "rank", "version"];

static TABLE: [Metric; exporter::END] = join([
    (triton::FIRST, triton::FAMILIES),
    (engine_counters::FIRST, engine_counters::FAMILIES),
    (engine_histograms::FIRST, engine_histograms::FAMILIES),
    (engine_gauges::FIRST, engine_gauges::FAMILIES),
    (benchmark::FIRST, benchmark::FAMILIES),
    (engine_gpus::FIRST, engine_gpus::FAMILIES),
    (verdict::FIRST, verdict::FAMILIES),
    (trtllm::FIRST, trtllm::FAMILIES),
    (dynamo::FIRST, dynamo::FAMILIES),
    (vllm::FIRST, vllm::FAMILIES),
    (triton_core::FIRST, triton_core::FAMILIES),
    (orchestrator::FIRST, orchestrator::FAMILIES),
    (dcgm::FIRST, dcgm::FAMILIES),
    (gpu::FIRST, gpu::FAMILIES),
    (mig::FIRST, mig::FAMILIES),
    (exporter::FIRST, exporter::FAMILIES),
]);

/// All families in page order.
pub static CATALOG: &[Metric] = &TABLE;

/// Indices of the families of an engine.
pub const OF_ENGINES: Range<usize> = triton::FIRST..triton_core::END;
/// Indices of the families that only an orchestrator has.
pub const OF_ORCHESTRATORS: Range<usize> = orchestrator::FIRST..orchestrator::END;
/// Indices of trtllm-serve's families.
pub const OF_TRTLLM: Range<usize> = trtllm::FIRST..trtllm::END;
/// Indices of the families that Dynamo's worker adds.
pub const OF_DYNAMO: Range<usize> = dynamo::FIRST..dynamo::END;
/// Indices of vLLM's families.
pub const OF_VLLM: Range<usize> = vllm::FIRST..vllm::END;
/// Indices of the families of a GPU, without dcgm-exporter's.
pub const OF_GPUS: Range<usize> = gpu::FIRST..gpu::END;
/// Indices of the families of a MIG instance.
pub const OF_MIG_INSTANCES: Range<usize> = mig::FIRST..mig::END;
/// Indices of the families of the exporter itself.
pub const OF_EXPORTER: Range<usize> = exporter::FIRST..exporter::END;

pub(in crate::metrics) use dcgm::{DcgmReadings, VALUES as VALUES_OF_DCGM};
pub(in crate::metrics) use dynamo::VALUES as VALUES_OF_DYNAMO;
pub(in crate::metrics) use gpu::VALUES as VALUES_OF_GPUS;
pub(in crate::metrics) use mig::VALUES as VALUES_OF_MIG_INSTANCES;
pub(in crate::metrics) use orchestrator::VALUES as VALUES_OF_ORCHESTRATORS;
pub(in crate::metrics) use triton_core::VALUES as VALUES_OF_TRITON_CORE;
pub(in crate::metrics) use trtllm::VALUES as VALUES_OF_TRTLLM;
pub(in crate::metrics) use vllm::VALUES as VALUES_OF_VLLM;

/// Families of an engine, each with its value.
type EngineValues = [(Id, for<'r, 'e> fn(&'r EngineReadings<'e>) -> Option<Value>)];

/// The families that every engine has, but no orchestrator.
pub(in crate::metrics) const VALUES_OF_ENGINES: [&EngineValues; 5] =
    [triton::VALUES, engine_counters::VALUES, engine_histograms::VALUES, engine_gauges::VALUES, benchmark::VALUES];
/// The families that engines and orchestrators have.
pub(in crate::metrics) const VALUES_OF_ALL: [&EngineValues; 2] = [engine_gpus::VALUES, verdict::VALUES];

/// Fails to compile unless each table starts where the one before it ends.
const fn join<const TABLES: usize>(tables: [(usize, &[Metric]); TABLES]) -> [Metric; exporter::END] {
    let mut joined = [triton::FAMILIES[0]; exporter::END];
    let (mut table, mut at) = (0, 0);
    while table < TABLES {
        let (first, families) = tables[table];
        assert!(first == at, "a table's `first` is not the end of the table before it");
        let mut family = 0;
        while family < families.len() {
            joined[at] = families[family];
            (at, family) = (at + 1, family + 1);
        }
        table += 1;
    }
    assert!(at == exporter::END, "a table is missing");
    joined
}

impl Id {
    #[must_use]
    pub fn metric(self) -> &'static Metric {
        &TABLE[self.index()]
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.metric().name)
    }
}
