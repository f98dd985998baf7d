//! Encodes the exporter's own families in the order of the catalog.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::{HttpMetrics, process};
use crate::metrics::catalog::{Id, Kind};
use crate::metrics::gpu::NVML_STATES;
use crate::metrics::page::Labels;
use crate::model::gpu::{GpuInventory, GpuState, NvmlState};
use crate::state::{EngineSnapshot, SourceStatus};

/// The data of all own families at one moment.
#[derive(Debug)]
pub(in crate::metrics) struct OwnMetrics {
    /// The engines on the page, each with the labels of its source's series.
    pub(in crate::metrics) sources: Vec<(Arc<Labels>, Arc<EngineSnapshot>)>,
    pub(in crate::metrics) gpus: Arc<GpuInventory>,
    pub(in crate::metrics) http: HttpMetrics,
}

impl Collector for OwnMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families(encoder);
        let build = [
            ("rustversion", option_env!("TRTLLM_EXPORTER_RUSTC").unwrap_or("unknown")),
            ("version", env!("CARGO_PKG_VERSION")),
        ];
        families.series(Id::BuildInfo, [(build, ConstGauge::new(1_u64))])?;
        self.sources(&mut families)?;
        self.nvml(&mut families)?;
        families.single(Id::Scrapes, &self.http.scrapes)?;
        let refused = by_variant(Id::HttpRefused, self.http.refused.iter().cloned());
        families.series(Id::HttpRefused, refused.map(|(reason, count)| ([reason], count)))?;
        families.single(Id::ScrapeDuration, &self.http.scrape_duration)?;
        process::encode(&mut families)
    }
}

impl OwnMetrics {
    fn sources(&self, families: &mut Families<'_>) -> fmt::Result {
        let sources = || self.sources.iter().map(|(labels, engine)| (labels.pairs(), &engine.source));
        let gauge = |value: fn(&SourceStatus) -> Option<u64>| {
            sources().filter_map(move |(labels, source)| Some((labels, ConstGauge::new(value(source)?))))
        };
        families.series(Id::SourceUp, gauge(|source| Some(source.up.into())))?;
        families.series(Id::Polls, sources().map(|(labels, source)| (labels, source.metrics.polls.clone())))?;
        let errors = sources().flat_map(|(labels, source)| {
            let by_kind = by_variant(Id::PollErrors, source.metrics.errors.iter().cloned());
            by_kind.map(move |(kind, count)| ((labels, [kind]), count))
        });
        families.series(Id::PollErrors, errors)?;
        let durations = sources().map(|(labels, source)| (labels, source.metrics.poll_duration.clone()));
        families.series(Id::PollDuration, durations)?;
        let last_success = sources().filter_map(|(labels, source)| {
            let seconds = source.last_success_us? as f64 / 1e6;
            Some((labels, ConstGauge::new(seconds)))
        });
        families.series(Id::LastSuccess, last_success)?;
        let rejected = sources().flat_map(|(labels, source)| {
            let by_reason = by_variant(Id::RecordsRejected, source.metrics.rejected.iter().cloned());
            by_reason.map(move |(reason, count)| ((labels, [reason]), count))
        });
        families.series(Id::RecordsRejected, rejected)?;
        families.series(Id::IngestConnections, gauge(|source| source.connections))
    }

    /// The GPU supervisor alone counts NVML's errors, and any pair of call and error can appear. Its inventory therefore
    /// has plain counts instead of a fixed set of counters.
    fn nvml(&self, families: &mut Families<'_>) -> fmt::Result {
        let gpus = &*self.gpus;
        families.single(Id::NvmlUp, &ConstGauge::new(u64::from(gpus.nvml == NvmlState::Up)))?;
        let states = NVML_STATES.map(|(_, state)| ConstGauge::new(u64::from(state == gpus.nvml)));
        families.series(Id::NvmlState, by_variant(Id::NvmlState, states).map(|(state, gauge)| ([state], gauge)))?;
        let on = gpus.nvml != NvmlState::Off;
        if on {
            families.single(Id::NvmlInitErrors, &ConstCounter::new(gpus.init_errors))?;
        }
        let errors = gpus.read_errors.iter().map(|error| {
            let labels = [("call", error.call), ("error", error.error)];
            (labels, ConstCounter::new(error.count))
        });
        families.series(Id::NvmlReadErrors, errors)?;
        if on {
            let seen = gpus.gpus.iter().filter(|gpu| gpu.state != GpuState::Lost).count();
            families.single(Id::NvmlGpus, &ConstGauge::new(seen as u64))?;
            families.single(Id::NvmlGpusExpected, &ConstGauge::new(u64::from(gpus.expected)))?;
        }
        Ok(())
    }
}

/// Writes families with the name, type, unit and HELP of the catalog.
pub(super) struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    /// A family of one series without labels.
    pub(super) fn single(&mut self, id: Id, metric: &impl EncodeMetric) -> fmt::Result {
        metric.encode(self.start(id)?)
    }

    /// A family of any number of series; without any it is left out.
    pub(super) fn series<L: EncodeLabelSet, M: EncodeMetric>(
        &mut self,
        id: Id,
        series: impl IntoIterator<Item = (L, M)>,
    ) -> fmt::Result {
        let mut series = series.into_iter().peekable();
        if series.peek().is_none() {
            return Ok(());
        }
        let mut family = self.start(id)?;
        series.try_for_each(|(labels, metric)| metric.encode(family.encode_family(&labels)?))
    }

    /// The encoder appends the unit and a counter's `_total`, so both are removed from the catalog's name.
    fn start(&mut self, id: Id) -> Result<MetricEncoder<'_>, fmt::Error> {
        static SECONDS: Unit = Unit::Seconds;
        static BYTES: Unit = Unit::Bytes;
        let metric = id.metric();
        let (name, kind) = match metric.kind {
            Kind::Gauge => (metric.name, MetricType::Gauge),
            Kind::Counter => (metric.name.strip_suffix("_total").unwrap_or(metric.name), MetricType::Counter),
            Kind::LegacyCounter => (metric.name, MetricType::Unknown),
            Kind::Histogram => (metric.name, MetricType::Histogram),
        };
        let (name, unit) = match (name.strip_suffix("_seconds"), name.strip_suffix("_bytes")) {
            (Some(stem), _) => (stem, Some(&SECONDS)),
            (_, Some(stem)) => (stem, Some(&BYTES)),
            _ => (name, None),
        };
        self.0.encode_descriptor(name, metric.help, unit, kind)
    }
}

/// Pairs each value with the family's own label: the catalog lists its values in the same order.
fn by_variant<V>(
    id: Id,
    values: impl IntoIterator<Item = V>,
) -> impl Iterator<Item = ((&'static str, &'static str), V)> {
    let variant = id.metric().variant;
    let labels =
        variant.into_iter().flat_map(|variant| variant.values.iter().map(move |value| (variant.label, *value)));
    labels.zip(values)
}
