//! Memory allocations of a scrape. Writing the page as text allocates nothing per sample, and building the page takes
//! few allocations.

use std::time::{Duration, Instant};

use allocation_counter::measure;
use trtllm_analysis::ObservedEngine;
use trtllm_engines::State;
use trtllm_page::exposition::negotiate::Format;
use trtllm_page::exposition::render;
use trtllm_page::metrics::catalog::{Group, Profile};
use trtllm_page::metrics::compat::CompatSets;
use trtllm_page::metrics::own::HttpMetrics;
use trtllm_page::metrics::page::Page;
use trtllm_page::metrics::page_builder::{PageBuilder, Selection};
use trtllm_records::Objectives;
use trtllm_records::{EngineName, IterationStats};

/// Engines that have absorbed a recorded session, and a builder that has already built one page.
fn warm(engines: usize) -> (State, PageBuilder, HttpMetrics) {
    let name = |index| EngineName {
        model: format!("model-{index}"),
        version: "1".to_owned(),
        labels: Vec::new(),
        source: "replay",
        objectives: Objectives::default(),
    };
    let state = State::new((0..engines).map(name).collect());
    let now = Instant::now();
    let mut engine = ObservedEngine::new(Duration::from_secs(15));
    let records = std::fs::read_to_string("tests/fixtures/session.ndjson").unwrap();
    for record in records.lines().filter_map(|line| serde_json::from_str::<IterationStats>(line).ok()) {
        engine.absorb(&record, now, 1_753_462_475_000_000).unwrap();
    }
    for index in 0..engines {
        let slots = state.slots();
        let mut slot = slots[index].lock();
        (slot.state, slot.observed) = (engine.fold.health.state(now), engine.clone());
    }
    let (builder, http) = (PageBuilder::new(CompatSets::default(), Profile::Full), HttpMetrics::new());
    let _ = builder.page(&state, &http, Selection::All);
    (state, builder, http)
}

/// Number of allocations for absorbing further iterations of an engine with this many ranks.
fn fold_cost(ranks: i64) -> u64 {
    let now = Instant::now();
    let mut engine = ObservedEngine::new(Duration::from_secs(15));
    let mut record: IterationStats = serde_json::from_str(
        r#"{"iterLatencyMS": 10.0, "numActiveRequests": 4,
            "inflightBatchingStats": {"numScheduledRequests": 4, "numGenRequests": 4, "numCtxTokens": 64}}"#,
    )
    .unwrap();
    let mut absorb = |iterations: std::ops::Range<u64>| {
        for iter in iterations {
            for rank in 0..ranks {
                (record.iter, record.attention_dp_rank) = (Some(iter), Some(rank));
                engine.absorb(&record, now, 1_753_462_475_000_000).unwrap();
            }
        }
    };
    // Fill the ring with the times of the last iterations first, because it grows until it is full.
    absorb(1..5000);
    measure(|| absorb(5000..6000)).count_total
}

#[test]
fn a_fold_allocates_nothing_whatever_the_number_of_ranks() {
    assert_eq!([1, 2, 8, 100].map(fold_cost), [0; 4]);
}

/// Number of allocations for building the page, and the number of its samples.
fn cost(engines: usize, selection: Selection) -> (u64, u64) {
    let (state, builder, http) = warm(engines);
    let allocations = measure(|| drop(builder.page(&state, &http, selection))).count_total;
    let mut text = Vec::new();
    render(&builder.page(&state, &http, selection), Format::Text, &mut text);
    let text = String::from_utf8(text).unwrap();
    (allocations, text.lines().filter(|line| !line.starts_with('#')).count() as u64)
}

fn whole_page(engines: usize) -> Page {
    let (state, builder, http) = warm(engines);
    builder.page(&state, &http, Selection::All)
}

#[test]
fn text_and_openmetrics_are_written_without_an_allocation() {
    let page = whole_page(8);
    let mut text = Vec::new();
    render(&page, Format::Text, &mut text);
    // Reserve twice the length of the text, because OpenMetrics is a little longer.
    let capacity = text.len() * 2;
    let (mut text, mut openmetrics) = (Vec::with_capacity(capacity), Vec::with_capacity(capacity));
    assert_eq!(measure(|| render(&page, Format::Text, &mut text)).count_total, 0);
    assert_eq!(measure(|| render(&page, Format::OpenMetrics, &mut openmetrics)).count_total, 0);
    let lines = |page: &[u8]| page.iter().filter(|byte| **byte == b'\n').count();
    assert!(lines(&text) > 3000 && lines(&openmetrics) > 3000, "{} lines", lines(&text));
    assert!(text.len() < capacity && openmetrics.len() < capacity);
}

#[test]
fn an_engine_adds_five_samples_per_allocation() {
    let engines = Selection::of(&[Group::Triton, Group::Engine]);
    let ((one, few), (ten, many)) = (cost(1, engines), cost(10, engines));
    println!("pages of {few} and {many} samples take {one} and {ten} allocations");
    assert!(many - few > 3000, "{few}, {many}");
    // Few allocations are enough, because labels are not created for each page, and a histogram is copied as a whole.
    assert!((ten - one) * 5 < many - few, "{one} allocations for {few} samples, {ten} for {many}");
}

/// The labels of each own series are sorted, and prometheus-client copies them twice. Each source has 15 to 17 such series.
#[test]
fn own_metrics_take_at_most_26_allocations_per_series() {
    let own = Selection::of(&[Group::Exporter]);
    let cost = |engines| {
        let (state, builder, http) = warm(engines);
        let allocations = measure(|| drop(builder.page(&state, &http, own))).count_total;
        (allocations, builder.page(&state, &http, own).samples().len() as u64)
    };
    let ((one, few), (nine, many)) = (cost(1), cost(9));
    println!("own pages of {few} and {many} series take {one} and {nine} allocations");
    assert!(many - few >= 8 * 15, "{few}, {many}");
    assert!(nine - one < (many - few) * 26, "{one} allocations for {few} series, {nine} for {many}");
}

/// prometheus-client's messages contain a copy of each label, so the limit is per sample.
#[test]
fn protobuf_takes_at_most_40_allocations_per_sample() {
    let page = whole_page(1);
    let mut out = Vec::with_capacity(1 << 20);
    let allocations = measure(|| render(&page, Format::Protobuf, &mut out)).count_total;
    let samples = page.samples().len() as u64;
    println!("protobuf: {allocations} allocations for {samples} samples");
    assert!(allocations < samples * 40, "{allocations} allocations for {samples} samples");
}
