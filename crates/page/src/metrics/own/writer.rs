//! Encodes the exporter's own families with prometheus-client. The entry of each family provides its series.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, EncodeMetric, LabelSetEncoder,
    MetricEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::OwnMetrics;
use crate::metrics::family::{Id, MetricKind};
use crate::metrics::labels::Labels;
use trtllm_engines::SourceStatus;

impl EncodeLabelSet for &Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        self.pairs().encode(encoder)
    }
}

/// A number of type `u64` or `f64`.
pub(in crate::metrics) trait Number:
    EncodeCounterValue + EncodeGaugeValue + fmt::Debug + Send + Sync + 'static
{
}

impl<N: EncodeCounterValue + EncodeGaugeValue + fmt::Debug + Send + Sync + 'static> Number for N {}

/// Writes one family, with the name, type, unit and HELP of the catalog.
pub(in crate::metrics) struct OwnWriter<'w, 'e> {
    pub(in crate::metrics) encoder: &'w mut DescriptorEncoder<'e>,
    pub(in crate::metrics) family: Id,
    pub(in crate::metrics) result: fmt::Result,
}

impl OwnWriter<'_, '_> {
    /// Adds the only series of the family, without labels.
    pub(in crate::metrics) fn one(&mut self, value: impl Number) {
        self.all([([("", ""); 0], value)]);
    }

    /// Adds a series for each number. Without any, the family is left out.
    pub(in crate::metrics) fn all<L: EncodeLabelSet, N: Number>(&mut self, series: impl IntoIterator<Item = (L, N)>) {
        let series = series.into_iter();
        match self.family.metric().kind {
            MetricKind::Counter => self.metrics(series.map(|(labels, value)| (labels, ConstCounter::new(value)))),
            _ => self.metrics(series.map(|(labels, value)| (labels, ConstGauge::new(value)))),
        }
    }

    /// Adds a series for each value of the family's own label, in the order of the catalog.
    pub(in crate::metrics) fn by_variant<N: Number>(&mut self, values: impl IntoIterator<Item = N>) {
        self.all(variants(self.family, values).map(|(label, value)| ([label], value)));
    }

    /// Adds such series for each source.
    pub(in crate::metrics) fn by_source_and_variant<V: IntoIterator<Item = u64>>(
        &mut self,
        own: &OwnMetrics,
        values: impl Fn(&SourceStatus) -> V,
    ) {
        let family = self.family;
        self.all(own.by_source(|source| Some(values(source))).flat_map(|(labels, values)| {
            variants(family, values).map(move |(label, value)| ((labels, [label]), value))
        }));
    }

    /// Adds a series for each metric of prometheus-client.
    pub(in crate::metrics) fn metrics<L: EncodeLabelSet, M: EncodeMetric>(
        &mut self,
        series: impl IntoIterator<Item = (L, M)>,
    ) {
        let mut series = series.into_iter().peekable();
        if self.result.is_ok() && series.peek().is_some() {
            self.result = self.start().and_then(|mut family| {
                series.try_for_each(|(labels, metric)| metric.encode(family.encode_family(&labels)?))
            });
        }
    }

    /// The encoder appends the unit and a counter's `_total`, so both are removed from the catalog's name.
    fn start(&mut self) -> Result<MetricEncoder<'_>, fmt::Error> {
        static SECONDS: Unit = Unit::Seconds;
        static BYTES: Unit = Unit::Bytes;
        let metric = self.family.metric();
        let (name, kind) = match metric.kind {
            MetricKind::Gauge => (metric.name, MetricType::Gauge),
            MetricKind::Counter => (metric.name.strip_suffix("_total").unwrap_or(metric.name), MetricType::Counter),
            MetricKind::LegacyCounter => (metric.name, MetricType::Unknown),
            MetricKind::Histogram => (metric.name, MetricType::Histogram),
        };
        let (name, unit) = match (name.strip_suffix("_seconds"), name.strip_suffix("_bytes")) {
            (Some(stem), _) => (stem, Some(&SECONDS)),
            (_, Some(stem)) => (stem, Some(&BYTES)),
            _ => (name, None),
        };
        self.encoder.encode_descriptor(name, metric.help, unit, kind)
    }
}

/// Pairs each value with the family's own label.
fn variants<V>(
    family: Id,
    values: impl IntoIterator<Item = V>,
) -> impl Iterator<Item = ((&'static str, &'static str), V)> {
    let variant = family.metric().variant.into_iter();
    let labels = variant.flat_map(|variant| variant.values.iter().map(move |value| (variant.label, *value)));
    labels.zip(values)
}
