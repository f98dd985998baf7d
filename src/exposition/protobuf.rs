//! Prometheus protobuf: `io.prometheus.client.MetricFamily`, each with its length before it; the one format with native
//! histograms. The messages have only the fields that a page has, under the numbers that Prometheus gave them.

use prost::Message as _;

use crate::engine::histogram::{Exemplar, Histogram};
use crate::metrics::catalog::{Kind, Metric};
use crate::metrics::page::{Page, Sample, Value};

use super::openmetrics::EXEMPLAR_LABEL;
use crate::engine::native::ZERO_THRESHOLD;

/// Messages and fields of the format. Optional ones are written even where they are 0: 0 is said, not left out.
mod message {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct MetricFamily {
        #[prost(string, optional, tag = "1")]
        pub(super) name: Option<String>,
        #[prost(string, optional, tag = "2")]
        pub(super) help: Option<String>,
        #[prost(enumeration = "MetricType", optional, tag = "3")]
        pub(super) kind: Option<i32>,
        #[prost(message, repeated, tag = "4")]
        pub(super) metric: Vec<Metric>,
        #[prost(string, optional, tag = "5")]
        pub(super) unit: Option<String>,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
    #[repr(i32)]
    pub(super) enum MetricType {
        Counter = 0,
        Gauge = 1,
        Histogram = 4,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Metric {
        #[prost(message, repeated, tag = "1")]
        pub(super) label: Vec<LabelPair>,
        #[prost(message, optional, tag = "2")]
        pub(super) gauge: Option<Number>,
        #[prost(message, optional, tag = "3")]
        pub(super) counter: Option<Number>,
        #[prost(message, optional, tag = "7")]
        pub(super) histogram: Option<Histogram>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct LabelPair {
        #[prost(string, optional, tag = "1")]
        pub(super) name: Option<String>,
        #[prost(string, optional, tag = "2")]
        pub(super) value: Option<String>,
    }

    /// Gauge and Counter, which begin alike.
    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(super) struct Number {
        #[prost(double, optional, tag = "1")]
        pub(super) value: Option<f64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Histogram {
        #[prost(uint64, optional, tag = "1")]
        pub(super) sample_count: Option<u64>,
        #[prost(double, optional, tag = "2")]
        pub(super) sample_sum: Option<f64>,
        #[prost(message, repeated, tag = "3")]
        pub(super) bucket: Vec<Bucket>,
        #[prost(sint32, optional, tag = "5")]
        pub(super) schema: Option<i32>,
        #[prost(double, optional, tag = "6")]
        pub(super) zero_threshold: Option<f64>,
        #[prost(uint64, optional, tag = "7")]
        pub(super) zero_count: Option<u64>,
        #[prost(message, repeated, tag = "12")]
        pub(super) positive_span: Vec<BucketSpan>,
        #[prost(sint64, repeated, tag = "13")]
        pub(super) positive_delta: Vec<i64>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Bucket {
        #[prost(uint64, optional, tag = "1")]
        pub(super) cumulative_count: Option<u64>,
        #[prost(double, optional, tag = "2")]
        pub(super) upper_bound: Option<f64>,
        #[prost(message, optional, tag = "3")]
        pub(super) exemplar: Option<Exemplar>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Exemplar {
        #[prost(message, repeated, tag = "1")]
        pub(super) label: Vec<LabelPair>,
        #[prost(double, optional, tag = "2")]
        pub(super) value: Option<f64>,
    }

    #[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
    pub(super) struct BucketSpan {
        #[prost(sint32, optional, tag = "1")]
        pub(super) offset: Option<i32>,
        #[prost(uint32, optional, tag = "2")]
        pub(super) length: Option<u32>,
    }
}

/// Appends the page to `out`.
///
/// # Errors
/// Never in practice: a `Vec` has room.
pub fn render(page: &Page, out: &mut Vec<u8>) -> Result<(), prost::EncodeError> {
    page.families().try_for_each(|(metric, samples)| family(metric, samples).encode_length_delimited(out))
}

/// The name is the page's own in every case: this format has no rule of endings.
fn family(metric: &Metric, samples: &[Sample]) -> message::MetricFamily {
    let kind = match metric.kind {
        Kind::Gauge => message::MetricType::Gauge,
        Kind::Counter | Kind::LegacyCounter => message::MetricType::Counter,
        Kind::Histogram => message::MetricType::Histogram,
    };
    message::MetricFamily {
        name: Some(metric.name.to_owned()),
        help: Some(metric.help.to_owned()),
        kind: Some(kind.into()),
        metric: samples.iter().map(|sample| series(metric, sample)).collect(),
        unit: metric.unit.map(str::to_owned),
    }
}

fn series(metric: &Metric, sample: &Sample) -> message::Metric {
    let label = sample.labels.pairs().iter().map(|(name, value)| pair(name, value.clone())).collect();
    let number = match &sample.value {
        Value::Histogram(found) => {
            let histogram = Some(histogram(found, metric.has_native_buckets()));
            return message::Metric { label, histogram, ..message::Metric::default() };
        }
        Value::Integer(value) => *value as f64,
        Value::Count(value) => *value as f64,
        Value::Float(value) => *value,
    };
    let number = Some(message::Number { value: Some(number) });
    match metric.kind {
        Kind::Counter | Kind::LegacyCounter => message::Metric { label, counter: number, ..message::Metric::default() },
        Kind::Gauge | Kind::Histogram => message::Metric { label, gauge: number, ..message::Metric::default() },
    }
}

fn pair(name: &str, value: String) -> message::LabelPair {
    message::LabelPair { name: Some(name.to_owned()), value: Some(value) }
}

fn histogram(histogram: &Histogram, with_native: bool) -> message::Histogram {
    let bounds = histogram.cumulative().map(|(bound, count)| (bound.value, count));
    let bounds = bounds.chain([(f64::INFINITY, histogram.count())]);
    let bucket = |((bound, count), exemplar): ((f64, u64), Option<Exemplar>)| message::Bucket {
        cumulative_count: Some(count),
        upper_bound: Some(bound),
        exemplar: exemplar.map(|exemplar| message::Exemplar {
            label: vec![pair(EXEMPLAR_LABEL, exemplar.request.to_string())],
            value: Some(exemplar.value),
        }),
    };
    let classic = message::Histogram {
        sample_count: Some(histogram.count()),
        sample_sum: Some(histogram.sum()),
        bucket: bounds.zip(histogram.exemplars()).map(bucket).collect(),
        ..message::Histogram::default()
    };
    if !with_native {
        return classic;
    }
    let native = histogram.native();
    let (spans, positive_delta) = native.runs();
    let span = |span: crate::engine::native::Span| message::BucketSpan {
        offset: Some(span.offset),
        length: Some(span.length),
    };
    message::Histogram {
        schema: Some(native.schema()),
        // By this, too, readers know that it is a native histogram before anything was observed.
        zero_threshold: Some(ZERO_THRESHOLD),
        zero_count: Some(native.zero()),
        positive_span: spans.into_iter().map(span).collect(),
        positive_delta,
        ..classic
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::histogram::{ITERATION_SECONDS, TOKEN_LENGTH};
    use crate::metrics::catalog::Id;
    use crate::metrics::page::Labels;

    fn families(page: &Page) -> Vec<message::MetricFamily> {
        let mut bytes = Vec::new();
        render(page, &mut bytes).unwrap();
        let (mut rest, mut families) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            families.push(message::MetricFamily::decode_length_delimited(&mut rest).unwrap());
        }
        families
    }

    #[test]
    fn the_bytes_are_those_of_prometheuss_own_definition() {
        let mut page = Page::default();
        page.push(Id::EnergyConsumption, &Arc::new(Labels::new([("gpu_uuid", "G")])), 0_u64);
        let mut bytes = Vec::new();
        render(&page, &mut bytes).unwrap();
        let help = Id::EnergyConsumption.metric().help;
        let mut wanted = vec![0x0a, 21];
        wanted.extend(b"nv_energy_consumption");
        wanted.extend([0x12, help.len() as u8]);
        wanted.extend(help.as_bytes());
        // type: COUNTER. metric: label {gpu_uuid, G}, counter {value 0.0}
        wanted.extend([0x18, 0, 0x22, 26, 0x0a, 13, 0x0a, 8]);
        wanted.extend(b"gpu_uuid");
        wanted.extend([0x12, 1, b'G', 0x1a, 9, 0x09, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[0] as usize, wanted.len());
        assert_eq!(bytes[1..], wanted);
    }

    #[test]
    fn native_buckets_stand_beside_the_classic_ones_of_our_own_histograms_only() {
        let (mut ours, mut triton) = (Histogram::new(ITERATION_SECONDS), Histogram::new(TOKEN_LENGTH));
        ours.observe(0.25);
        ours.observe(0.0);
        triton.observe_request(20.0, Some(9));
        let mut page = Page::default();
        page.push(Id::InputTokenLen, &Arc::default(), &triton);
        page.push(Id::IterationLatency, &Arc::default(), &ours);
        let found = families(&page);
        let of = |at: usize| found[at].metric[0].histogram.as_ref().unwrap();
        let (triton, ours) = (of(0), of(1));
        assert_eq!((triton.schema, triton.zero_threshold, triton.positive_span.len()), (None, None, 0));
        assert_eq!(triton.bucket.len(), TOKEN_LENGTH.len() + 1);
        assert_eq!(triton.bucket[1].exemplar.as_ref().unwrap().label[0].value.as_deref(), Some("9"));
        assert_eq!(ours.bucket.len(), ITERATION_SECONDS.len() + 1);
        assert_eq!((ours.schema, ours.zero_count, ours.sample_count), (Some(3), Some(1), Some(2)));
        // 0.25 is the upper bound of bucket -16.
        assert_eq!(ours.positive_span, [message::BucketSpan { offset: Some(-16), length: Some(1) }]);
        assert_eq!(ours.positive_delta, [1]);
        assert_eq!(found[1].unit.as_deref(), Some("seconds"));
    }

    #[test]
    fn every_counter_has_its_name_on_the_page() {
        let mut page = Page::default();
        page.push(Id::EnergyConsumption, &Arc::default(), 1_u64);
        page.push(Id::Iterations, &Arc::default(), 2_u64);
        let page = Page::join([page]);
        for family in families(&page) {
            assert_eq!(family.kind, Some(message::MetricType::Counter.into()));
            assert!(family.metric[0].counter.is_some() && family.metric[0].gauge.is_none());
            let bare = family.name.as_deref() == Some("nv_energy_consumption");
            assert_eq!(family.name.unwrap().ends_with("_total"), !bare);
        }
    }
}
