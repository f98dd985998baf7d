//! Puts the exporter's own metrics on the page: one [`Collector`] encodes all of them, and the encoded messages become
//! samples.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::prometheus_protobuf::{self, prometheus_data_model as proto};
use prometheus_client::registry::Registry;

use super::catalog::table::exporter;
use super::labels::Labels;
use super::own::OwnMetrics;
use super::own::writer::OwnWriter;
use super::page::{Page, Value};

impl Collector for OwnMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut shown = exporter::WRITE.iter().filter(|(family, _)| family.metric().is_in(self.profile));
        shown.try_for_each(|(family, write)| {
            let mut writer = OwnWriter { encoder: &mut encoder, family: *family, result: Ok(()) };
            write(self, &mut writer);
            writer.result
        })
    }
}

/// Adds the exporter's own metrics, in the order of the catalog.
pub(super) fn own_page(metrics: OwnMetrics, page: &mut Page) {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics));
    // Fails only if the collector fails, and ours never does.
    let families = prometheus_protobuf::encode(&registry).unwrap_or_default();
    let unlabelled = Arc::new(Labels::default());
    // The collector encodes the families in this order, so each search goes on behind the family before.
    let mut ids = exporter::FAMILIES.iter().copied();
    for proto::MetricFamily { name, metric: series, .. } in families {
        let Some(id) = ids.find(|id| id.metric().name == name) else { continue };
        for proto::Metric { label, counter, gauge, histogram, .. } in series {
            let labels = match label.is_empty() {
                true => Arc::clone(&unlabelled),
                false => Arc::new(Labels::extend(&unlabelled, label.into_iter().map(|pair| (pair.name, pair.value)))),
            };
            if let Some(histogram) = histogram {
                // The start time is removed, because no other family has one.
                page.push(id, &labels, proto::Histogram { start_timestamp: None, ..histogram });
            } else if let Some(value) = counter.map(|counter| counter.value).or(gauge.map(|gauge| gauge.value)) {
                page.push(id, &labels, number(value));
            }
        }
    }
}

/// The messages contain only floats. Whole numbers become integers again, so that OpenMetrics writes them without a
/// point.
fn number(value: f64) -> Value {
    const EXACT: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
    if value.fract() == 0.0 && (0.0..EXACT).contains(&value) { Value::Count(value as u64) } else { Value::Float(value) }
}

#[cfg(test)]
mod tests;
