use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::text::encode_registry;

use super::*;
use crate::exposition::negotiate::Format;
use crate::exposition::parsed::parse;
use crate::metrics::catalog::CATALOG;
use crate::metrics::family::{Group, Id, Profile};
use crate::metrics::own::{HttpMetrics, HttpRefusal, process};
use trtllm_engines::SourceStatus;
use trtllm_fold::native::NativeBuckets;
use trtllm_records::gpu::{GpuInventory, NvmlState, ReadError};
use trtllm_records::{ForwardedSpans, RecorderCounts, RefusedPublishers};

/// Durations of polls in seconds.
const POLLS: [f64; 2] = [0.012, 7.5];

/// The metrics of an exporter with two sources and a working NVML, after some scrapes and errors.
fn metrics() -> OwnMetrics {
    let http = HttpMetrics::new();
    for micros in [7, 30, 200_000] {
        http.scraped(Duration::from_micros(micros));
    }
    http.refused(HttpRefusal::Timeout);
    let source = |model: &str, polls| {
        let mut status = SourceStatus { up: true, ..SourceStatus::default() };
        status.metrics.polls.inc_by(polls);
        status.metrics.errors[1].inc_by(3);
        status.metrics.rejected[2].inc_by(4);
        status.values_rejected = Arc::new([("usedNumBlocks", 5)].into());
        POLLS.iter().for_each(|seconds| status.metrics.poll_duration.observe(*seconds));
        status.last_success_us = Some(1_753_462_475_123_456);
        status.connections = Some(2);
        status.spans_dropped = Some([6, 7]);
        status.spans_forwarded = Some(ForwardedSpans { sent: 8, lost: [9, 10] });
        status.unread_keys = Some(Arc::new([]));
        (Arc::new(Labels::new([("model", model), ("source", "socket"), ("version", "1")])), status)
    };
    let gpus = GpuInventory {
        nvml: NvmlState::Up,
        init_errors: 1,
        expected: 8,
        read_errors: vec![ReadError { call: "nvmlDeviceGetPowerUsage", error: "timeout", count: 5 }],
        ..GpuInventory::default()
    };
    OwnMetrics {
        sources: vec![source("llama \"3\"", 10), source("qwen", 11)],
        gpus: Arc::new(gpus),
        http,
        recorder: Some(RecorderCounts::default()),
        refused_publishers: RefusedPublishers::default(),
        config_reload: Some(true),
        process: process::read(),
        profile: Profile::Full,
    }
}

fn page(metrics: OwnMetrics) -> Page {
    let mut page = Page::default();
    own_page(metrics, &mut page);
    page
}

fn value(page: &Page, id: Id) -> Option<Value> {
    page.samples().iter().find(|sample| sample.metric == id).map(|sample| sample.value.clone())
}

#[test]
fn every_own_family_of_the_catalog_is_on_the_page_in_its_order() {
    let wanted: Vec<&str> =
        CATALOG.iter().filter(|metric| metric.group == Group::Exporter).map(|metric| metric.name).collect();
    let page = page(metrics());
    let shown: Vec<&str> = page.families().map(|(metric, _)| metric.name).collect();
    assert_eq!(shown, wanted);
}

#[test]
fn every_encoded_family_is_in_the_catalog_with_its_type_unit_and_help() {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics()));
    for family in prometheus_protobuf::encode(&registry).unwrap() {
        let metric = CATALOG.iter().find(|metric| metric.name == family.name);
        let metric = metric.unwrap_or_else(|| panic!("{} is not in the catalog", family.name));
        assert_eq!(family.help, metric.help);
        assert_eq!(family.unit, metric.unit.unwrap_or_default());
        assert_eq!(family.r#type().as_str_name().to_lowercase(), metric.kind.name());
    }
}

#[test]
fn our_openmetrics_page_means_the_same_as_prometheus_clients() {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(metrics()));
    let (mut theirs, mut ours) = (String::new(), Vec::new());
    encode_registry(&mut theirs, &registry).unwrap();
    crate::exposition::render(&page(metrics()), Format::OpenMetrics, &mut ours);
    let (mut ours, mut theirs) = (parse(std::str::from_utf8(&ours).unwrap()), parse(&theirs));
    // The values of /proc change between the two pages.
    for page in [&mut ours, &mut theirs] {
        page.samples.retain(|(name, _), _| !name.starts_with("process_"));
    }
    assert_eq!(ours.families, theirs.families);
    assert_eq!(ours.samples, theirs.samples);
    assert!(ours.samples.len() > 80, "{}", ours.samples.len());
}

#[test]
fn a_source_has_the_native_buckets_of_an_engine() {
    let mut folded = NativeBuckets::new();
    POLLS.iter().for_each(|seconds| folded.observe(*seconds, 1));
    let Some(Value::ClientHistogram(shown)) = value(&page(metrics()), Id::PollDuration) else {
        panic!("no poll duration");
    };
    let (spans, deltas) = folded.runs();
    assert_eq!(shown.positive_delta, deltas);
    let shown_spans: Vec<(i32, u32)> = shown.positive_span.iter().map(|span| (span.offset, span.length)).collect();
    assert_eq!(shown_spans, spans.iter().map(|span| (span.offset, span.length)).collect::<Vec<_>>());
    assert_eq!((shown.schema, shown.sample_count, shown.sample_sum), (folded.schema(), 2, 7.512));
}

#[test]
fn a_clone_counts_into_the_same_metrics() {
    let metrics = metrics();
    let http = metrics.http.clone();
    http.scraped(Duration::ZERO);
    http.refused(HttpRefusal::Timeout);
    let page = page(metrics);
    assert_eq!(value(&page, Id::Scrapes), Some(Value::Count(4)));
    let refused = page.samples().iter().filter(|sample| sample.metric == Id::HttpRefused);
    let refused: Vec<_> = refused.map(|sample| (sample.labels.series(), sample.value.clone())).collect();
    assert_eq!(refused.len(), HttpRefusal::ALL.len());
    assert!(refused.contains(&("{reason=\"timeout\"} ", Value::Count(2))), "{refused:?}");
}

#[test]
fn the_start_time_of_the_process_does_not_change() {
    let start = || match value(&page(metrics()), Id::ProcessStartTime) {
        Some(Value::Float(seconds)) => seconds,
        Some(Value::Count(seconds)) => seconds as f64,
        other => panic!("no start time but {other:?}"),
    };
    let first = start();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    assert!(first < now + 0.1 && first > now - 3600.0, "{first} at {now}");
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(start().to_bits(), first.to_bits());
}
