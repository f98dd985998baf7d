//! The Prometheus protobuf format: delimited `io.prometheus.client.MetricFamily` messages. It is the only format with
//! native histograms. prometheus-client provides the types of the messages.

use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model as proto;
use prost::Message as _;

use crate::metrics::family::{Metric, MetricKind};
use crate::metrics::page::{Page, Sample, Value};
use trtllm_fold::histogram::{Exemplar, Histogram};
use trtllm_fold::native::{BucketSpan, ZERO_THRESHOLD};

use super::text::{Bucket, EXEMPLAR_LABEL, buckets};

/// Appends the page to `out`.
pub fn render(page: &Page, out: &mut Vec<u8>) {
    for (metric, samples) in page.families() {
        out.extend_from_slice(&family(metric, page.help(metric), samples).encode_length_delimited_to_vec());
    }
}

/// A family keeps its full name: unlike OpenMetrics, this format has no rules about suffixes.
fn family(metric: &Metric, help: &str, samples: &[Sample]) -> proto::MetricFamily {
    let r#type = match metric.kind {
        MetricKind::Gauge => proto::MetricType::Gauge,
        MetricKind::Counter | MetricKind::LegacyCounter => proto::MetricType::Counter,
        MetricKind::Histogram => proto::MetricType::Histogram,
    };
    proto::MetricFamily {
        name: metric.name.to_owned(),
        help: help.to_owned(),
        r#type: r#type.into(),
        metric: samples.iter().map(|sample| series(metric, sample)).collect(),
        unit: metric.unit.unwrap_or_default().to_owned(),
    }
}

fn series(metric: &Metric, sample: &Sample) -> proto::Metric {
    let label = sample.labels.pairs().iter().map(proto::LabelPair::from).collect();
    let series = proto::Metric { label, ..Default::default() };
    let value = match &sample.value {
        Value::Histogram(found) => {
            let histogram = Some(histogram(found, metric.has_native_buckets()));
            return proto::Metric { histogram, ..series };
        }
        Value::ClientHistogram(histogram) => return proto::Metric { histogram: Some((**histogram).clone()), ..series },
        Value::Integer(value) => *value as f64,
        Value::Count(value) => *value as f64,
        Value::Float(value) => *value,
    };
    match metric.kind {
        MetricKind::Counter | MetricKind::LegacyCounter => {
            proto::Metric { counter: Some(proto::Counter { value, ..Default::default() }), ..series }
        }
        MetricKind::Gauge | MetricKind::Histogram => proto::Metric { gauge: Some(proto::Gauge { value }), ..series },
    }
}

fn histogram(histogram: &Histogram, with_native: bool) -> proto::Histogram {
    let bucket = |Bucket { upper_bound, cumulative_count, exemplar, .. }| proto::Bucket {
        upper_bound,
        cumulative_count,
        exemplar: exemplar.map(|exemplar: Exemplar| proto::Exemplar {
            label: vec![(&(EXEMPLAR_LABEL, exemplar.request)).into()],
            value: exemplar.value,
            timestamp: None,
        }),
        ..Default::default()
    };
    let classic = proto::Histogram {
        sample_count: histogram.count(),
        sample_sum: histogram.sum(),
        bucket: buckets(histogram).map(bucket).collect(),
        ..Default::default()
    };
    if !with_native {
        return classic;
    }
    let native = histogram.native();
    let (spans, positive_delta) = native.runs();
    proto::Histogram {
        schema: native.schema(),
        // Marks the histogram as native even before the first observation.
        zero_threshold: ZERO_THRESHOLD,
        zero_count: native.zero(),
        positive_span: spans
            .into_iter()
            .map(|BucketSpan { offset, length }| proto::BucketSpan { offset, length })
            .collect(),
        positive_delta,
        ..classic
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::metrics::family::Id;
    use crate::metrics::page::Labels;
    use trtllm_fold::histogram::{ITERATION_SECONDS, TOKEN_LENGTH};

    fn families(page: &Page) -> Vec<proto::MetricFamily> {
        let mut bytes = Vec::new();
        render(page, &mut bytes);
        let (mut rest, mut families) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            families.push(proto::MetricFamily::decode_length_delimited(&mut rest).unwrap());
        }
        families
    }

    #[test]
    fn the_bytes_follow_the_definition_of_prometheus() {
        let mut page = Page::default();
        page.push(Id::EnergyConsumption, &Arc::new(Labels::new([("gpu_uuid", "G")])), 1.0);
        let mut bytes = Vec::new();
        render(&page, &mut bytes);
        let help = Id::EnergyConsumption.metric().help;
        let mut wanted = vec![0x0a, 21];
        wanted.extend(b"nv_energy_consumption");
        wanted.extend([0x12, help.len() as u8]);
        wanted.extend(help.as_bytes());
        // The type COUNTER is 0, so it is not encoded. The rest is the metric: label {gpu_uuid, G}, counter {value
        // 1.0}.
        wanted.extend([0x22, 26, 0x0a, 13, 0x0a, 8]);
        wanted.extend(b"gpu_uuid");
        wanted.extend([0x12, 1, b'G', 0x1a, 9, 0x09]);
        wanted.extend(1_f64.to_le_bytes());
        assert_eq!(bytes[0] as usize, wanted.len());
        assert_eq!(bytes[1..], wanted);
    }

    #[test]
    fn only_our_own_histograms_have_native_buckets_beside_the_classic_ones() {
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
        assert_eq!((triton.schema, triton.zero_threshold, triton.positive_span.len()), (0, 0.0, 0));
        assert_eq!(triton.bucket.len(), TOKEN_LENGTH.len() + 1);
        assert_eq!(triton.bucket[1].exemplar.as_ref().unwrap().label[0].value, "9");
        assert_eq!(ours.bucket.len(), ITERATION_SECONDS.len() + 1);
        assert_eq!((ours.schema, ours.zero_count, ours.sample_count), (3, 1, 2));
        // 0.25 is the upper bound of bucket -16.
        assert_eq!(ours.positive_span, [proto::BucketSpan { offset: -16, length: 1 }]);
        assert_eq!(ours.positive_delta, [1]);
        assert_eq!(found[1].unit, "seconds");
    }

    #[test]
    fn every_counter_keeps_its_name() {
        let mut page = Page::default();
        page.push(Id::EnergyConsumption, &Arc::default(), 1_u64);
        page.push(Id::Iterations, &Arc::default(), 2_u64);
        page.sort();
        let found: Vec<_> = families(&page).into_iter().map(|family| (family.r#type(), family.name)).collect();
        let counter = |name: &str| (proto::MetricType::Counter, name.to_owned());
        assert_eq!(found, [counter("nv_trt_llm_iterations_total"), counter("nv_energy_consumption")]);
        assert!(families(&page).iter().all(|family| family.metric[0].counter.is_some()));
    }
}
