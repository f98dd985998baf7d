//! OpenMetrics 1.0.0 through prometheus-client, fed from the page by a collector: its own registry keeps no order.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, LabelSetEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::metrics::catalog::{Kind, Metric};
use crate::metrics::page::{Labels, Page, Value};

/// `Content-Type` of this format.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Appends the page to `out`.
///
/// # Errors
/// Never in practice: writing to a `String` cannot fail.
pub fn render(page: &Page, out: &mut String) -> fmt::Result {
    let mut registry = Registry::default();
    // The registry wants a collector of its own; the page is cloned only here, once per rendering.
    registry.register_collector(Box::new(PageCollector(page.clone())));
    prometheus_client::encoding::text::encode(out, &registry)
}

#[derive(Debug)]
struct PageCollector(Page);

impl Collector for PageCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (metric, samples) in self.0.families() {
            let announced = announce(metric);
            let mut family =
                encoder.encode_descriptor(announced.name, metric.help, announced.unit.as_ref(), announced.kind)?;
            for sample in samples {
                let labels = LabelPairs(&sample.labels);
                let mut series = family.encode_family(&labels)?;
                match (&sample.value, metric.kind) {
                    (Value::Histogram(histogram), _) => {
                        let buckets: Vec<(f64, u64)> = histogram.buckets().collect();
                        series.encode_histogram::<NoLabelSet>(histogram.sum(), histogram.count(), &buckets, None)?;
                    }
                    (Value::Count(value), Kind::Counter) => series.encode_counter::<NoLabelSet, _, u64>(value, None)?,
                    (Value::Integer(value), Kind::Counter) => {
                        series.encode_counter::<NoLabelSet, _, u64>(&value.unsigned_abs(), None)?;
                    }
                    (Value::Float(value), Kind::Counter) => series.encode_counter::<NoLabelSet, _, u64>(value, None)?,
                    (Value::Count(value), _) => series.encode_gauge(value)?,
                    (Value::Integer(value), _) => series.encode_gauge(value)?,
                    (Value::Float(value), _) => series.encode_gauge(value)?,
                }
            }
        }
        Ok(())
    }
}

struct Announced {
    name: &'static str,
    unit: Option<Unit>,
    kind: MetricType,
}

/// The encoder appends the unit and, to counters, `_total` itself: it must get the name without them. A legacy counter is
/// `unknown`, the one type that strict parsers let keep a bare name.
fn announce(metric: &Metric) -> Announced {
    let kind = match metric.kind {
        Kind::Gauge => MetricType::Gauge,
        Kind::Counter => MetricType::Counter,
        Kind::LegacyCounter => MetricType::Unknown,
        Kind::Histogram => MetricType::Histogram,
    };
    let mut name = metric.name;
    if metric.kind == Kind::Counter {
        name = name.strip_suffix("_total").unwrap_or(name);
    }
    let unit = metric.unit.filter(|unit| {
        name.strip_suffix(unit).and_then(|name| name.strip_suffix('_')).is_some_and(|stem| !stem.is_empty())
    });
    if let Some(unit) = unit {
        name = &name[..name.len() - unit.len() - 1];
    }
    Announced { name, unit: unit.map(|unit| Unit::Other(unit.to_owned())), kind }
}

#[derive(Debug)]
struct LabelPairs<'a>(&'a Labels);

impl EncodeLabelSet for LabelPairs<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        use prometheus_client::encoding::EncodeLabel as _;
        for (name, value) in self.0.pairs() {
            (name.as_str(), value.as_str()).encode(encoder.encode_label())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::histogram::{Histogram, TOKEN_LENGTH};
    use crate::metrics::catalog::Id;

    fn rendered(metric: Id, value: impl Into<Value>) -> String {
        let mut page = Page::default();
        page.push(metric, &Arc::new(Labels::new([("model", "a\"b"), ("version", "1")])), value);
        let mut out = String::new();
        render(&page, &mut out).unwrap();
        out
    }

    #[test]
    fn a_legacy_counter_keeps_its_bare_name_as_unknown() {
        let text = rendered(Id::EnergyConsumption, 12.5);
        assert!(text.contains("# TYPE nv_energy_consumption unknown\n"), "{text}");
        assert!(text.contains("nv_energy_consumption{model=\"a\\\"b\",version=\"1\"} 12.5\n"), "{text}");
        assert!(!text.contains("_total"), "{text}");
    }

    #[test]
    fn a_counter_has_one_total_and_no_created_series() {
        let text = rendered(Id::Iterations, 7_u64);
        assert!(text.contains("# TYPE nv_trt_llm_iterations counter\n"), "{text}");
        assert!(text.contains("nv_trt_llm_iterations_total{model=\"a\\\"b\",version=\"1\"} 7\n"), "{text}");
        assert!(!text.contains("_total_total") && !text.contains("_created"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn a_unit_is_announced_once_and_only_where_the_name_ends_in_it() {
        let text = rendered(Id::ProcessCpu, 1.5);
        assert!(text.contains("# UNIT process_cpu_seconds seconds\n"), "{text}");
        assert!(text.contains("process_cpu_seconds_total{"), "{text}");
        let text = rendered(Id::GpuPowerUsage, 1.5);
        assert!(!text.contains("# UNIT"), "{text}");
    }

    #[test]
    fn a_histogram_ends_in_infinity() {
        let mut histogram = Histogram::new(TOKEN_LENGTH);
        histogram.observe(3.0);
        let text = rendered(Id::InputTokenLen, &histogram);
        assert!(text.contains("le=\"+Inf\""), "{text}");
        assert!(text.contains("nv_llm_input_token_len_count{model=\"a\\\"b\",version=\"1\"} 1\n"), "{text}");
    }
}
