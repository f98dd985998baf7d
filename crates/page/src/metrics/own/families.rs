//! Encodes one family: the catalog describes it, and the caller provides its series.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::metrics::catalog::{Id, MetricKind};

/// Writes families with the name, type, unit and HELP of the catalog.
pub(super) struct Families<'a>(DescriptorEncoder<'a>);

impl<'a> Families<'a> {
    pub(super) fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Self(encoder)
    }

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
        self.0.encode_descriptor(name, metric.help, unit, kind)
    }
}

/// Pairs each value with the family's own label. The values must have the order of the catalog's label values.
pub(super) fn by_variant<V>(
    id: Id,
    values: impl IntoIterator<Item = V>,
) -> impl Iterator<Item = ((&'static str, &'static str), V)> {
    let variant = id.metric().variant;
    let labels =
        variant.into_iter().flat_map(|variant| variant.values.iter().map(move |value| (variant.label, *value)));
    labels.zip(values)
}
