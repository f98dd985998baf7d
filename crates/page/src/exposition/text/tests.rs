use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::*;
use crate::exposition::parsed::parse;
use crate::metrics::catalog::CATALOG;
use crate::metrics::family::Id;
use crate::metrics::page::Labels;
use trtllm_fold::histogram::{Histogram, RATIO, TOKEN_LENGTH, TRANSFER_BYTES};

fn text(page: &Page, format: Format) -> String {
    let mut out = Vec::new();
    render(page, format, &mut out);
    String::from_utf8(out).unwrap()
}

fn openmetrics(metric: Id, value: impl Into<Value>) -> String {
    let mut page = Page::default();
    page.push(metric, &Arc::new(Labels::new([("model", "a\"b"), ("version", "1")])), value);
    text(&page, Format::OpenMetrics)
}

#[test]
fn an_empty_page_has_only_the_end_that_openmetrics_wants() {
    assert_eq!(text(&Page::default(), Format::Text), "");
    assert_eq!(text(&Page::default(), Format::OpenMetrics), "# EOF\n");
}

#[test]
fn floats_have_no_exponent_and_no_needless_point() {
    let spelled = [0.4875, 1e-7, 1e21, 3.0, 0.1 + 0.2].map(|value| {
        let mut out = Vec::new();
        TextWriter { is_openmetrics: false, out: &mut out, digits: itoa::Buffer::new() }.float(value);
        String::from_utf8(out).unwrap()
    });
    assert_eq!(spelled, ["0.4875", "0.0000001", "1000000000000000000000", "3", "0.30000000000000004"]);
}

#[test]
fn openmetrics_spells_bounds_as_go_does_with_and_without_a_known_text() {
    let spelled = |value: f64| {
        [Some(value.to_string()), None].map(|text| {
            let mut out = Vec::new();
            let mut writer = TextWriter { is_openmetrics: true, out: &mut out, digits: itoa::Buffer::new() };
            writer.bound(value, text.as_deref());
            String::from_utf8(out).unwrap()
        })
    };
    for (value, wanted) in [
        (0.0, "0.0"),
        (1e-5, "1e-05"),
        (2.5e-5, "2.5e-05"),
        (1e-4, "0.0001"),
        (5e5, "500000.0"),
        (1e6, "1e+06"),
        (1048576.0, "1.048576e+06"),
        (17179869184.0, "1.7179869184e+10"),
        (1e100, "1e+100"),
        (f64::INFINITY, "+Inf"),
    ] {
        assert_eq!(spelled(value), [wanted, wanted]);
    }
}

#[test]
fn an_openmetrics_bucket_has_its_last_request_as_exemplar() {
    let mut histogram = Histogram::new(TOKEN_LENGTH);
    histogram.observe_request(3.0, Some(u64::MAX));
    histogram.observe_request(70.0, None);
    histogram.observe_request(1e4, Some(5));
    let text = openmetrics(Id::InputTokenLen, &histogram);
    let buckets: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("nv_llm_input_token_len_bucket{model=\"a\\\"b\",version=\"1\",le=\""))
        .collect();
    assert_eq!(
        buckets,
        [
            "10.0\"} 1 # {request_id=\"18446744073709551615\"} 3.0",
            "50.0\"} 1",
            "100.0\"} 2",
            "500.0\"} 2",
            "1000.0\"} 2",
            "+Inf\"} 3 # {request_id=\"5\"} 10000.0",
        ]
    );
    assert!(text.contains("nv_llm_input_token_len_sum{model=\"a\\\"b\",version=\"1\"} 10073.0\n"), "{text}");
    assert!(text.contains("nv_llm_input_token_len_count{model=\"a\\\"b\",version=\"1\"} 3\n"), "{text}");
}

/// The labels and the value of one series.
type Series = (Labels, Value);

/// Encodes each family with prometheus-client.
#[derive(Debug)]
struct AllFamilies(Vec<(&'static Metric, Vec<Series>)>);

impl Collector for AllFamilies {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (metric, series) in &self.0 {
            let (name, kind) = match metric.kind {
                MetricKind::Gauge => (metric.name, MetricType::Gauge),
                MetricKind::Counter => (metric.name.strip_suffix("_total").unwrap(), MetricType::Counter),
                MetricKind::LegacyCounter => (metric.name, MetricType::Unknown),
                MetricKind::Histogram => (metric.name, MetricType::Histogram),
            };
            let unit = metric.unit.map(|unit| Unit::Other(unit.to_owned()));
            let name = metric.unit.map_or(name, |unit| name.strip_suffix(unit).unwrap().trim_end_matches('_'));
            let mut family = encoder.encode_descriptor(name, metric.help, unit.as_ref(), kind)?;
            for (labels, value) in series {
                let labels = labels.pairs();
                let mut encoder = family.encode_family(&labels)?;
                match value {
                    Value::Histogram(histogram) => {
                        let mut below = 0;
                        let bounds = histogram.cumulative().map(|(bound, count)| (bound.value, count));
                        let buckets: Vec<(f64, u64)> = bounds
                            .chain([(f64::INFINITY, histogram.count())])
                            .map(|(bound, count)| (bound, count - std::mem::replace(&mut below, count)))
                            .collect();
                        encoder.encode_histogram::<NoLabelSet>(histogram.sum(), histogram.count(), &buckets, None)?;
                    }
                    Value::Count(value) if metric.kind == MetricKind::Counter => {
                        encoder.encode_counter::<NoLabelSet, u64, u64>(value, None)?;
                    }
                    Value::Float(value) if metric.kind == MetricKind::Counter => {
                        encoder.encode_counter::<NoLabelSet, f64, u64>(value, None)?;
                    }
                    Value::Integer(value) => encoder.encode_gauge(value)?,
                    Value::Count(value) => encoder.encode_gauge(value)?,
                    Value::Float(value) => encoder.encode_gauge(value)?,
                    Value::ClientHistogram(_) => unreachable!("not used here"),
                }
            }
        }
        Ok(())
    }
}

/// Every family of the catalog with every value of its label, and values that are hard to format.
fn all_families() -> Vec<(&'static Metric, Vec<Series>)> {
    let mut histograms = [Histogram::new(TOKEN_LENGTH), Histogram::new(TRANSFER_BYTES), Histogram::new(RATIO)];
    for (histogram, value) in histograms.iter_mut().zip([70.0, 3e6, 0.25]) {
        histogram.observe_request(value, Some(7));
        histogram.observe(value / 3.0);
    }
    let mut values = (0..).map(|n: usize| match n % 5 {
        0 => Value::Count(u64::MAX >> 12),
        1 => Value::Float(0.1 + 0.2),
        2 => Value::Float(1e-7),
        3 => Value::Float(1e21),
        _ => Value::Count(n as u64),
    });
    let mut shown = HashSet::new();
    // A set of names (`--metrics.compat`) may contain a family of another set. A page contains it once.
    let metrics = CATALOG.iter().filter(|metric| shown.insert(metric.name));
    let family = |metric: &'static Metric| {
        let base = Labels::new(metric.labels.iter().map(|label| (*label, r#"odd "name" \ é {a=1}, # b"#)));
        let labels = match metric.variant {
            Some(variant) => variant.values.iter().map(|value| base.with(variant.label, value)).collect(),
            None => vec![base],
        };
        let series = labels.into_iter().enumerate().map(|(at, labels)| match metric.kind {
            MetricKind::Histogram => (labels, Value::from(&histograms[at % histograms.len()])),
            _ => (labels, values.next().unwrap()),
        });
        (metric, series.collect())
    };
    metrics.map(family).collect()
}

#[test]
fn every_family_means_the_same_as_when_prometheus_client_writes_it() {
    let families = all_families();
    let mut ours = Vec::new();
    let mut writer = TextWriter { is_openmetrics: true, out: &mut ours, digits: itoa::Buffer::new() };
    for (metric, series) in &families {
        writer.header(metric, metric.help);
        for (labels, value) in series {
            // The writer takes the name from the family, not from the sample.
            let sample = Sample { metric: Id::BuildInfo, labels: Arc::new(labels.clone()), value: value.clone() };
            writer.sample(metric.name, &sample);
        }
    }
    let count = families.len();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(AllFamilies(families)));
    let mut theirs = String::new();
    prometheus_client::encoding::text::encode_registry(&mut theirs, &registry).unwrap();
    let (ours, theirs) = (parse(std::str::from_utf8(&ours).unwrap()), parse(&theirs));
    assert_eq!(ours.families.len(), count);
    assert_eq!(ours.families, theirs.families);
    assert_eq!(ours.samples, theirs.samples);
    assert!(count > 300 && ours.samples.len() > 700, "{count} families, {} samples", ours.samples.len());
}
