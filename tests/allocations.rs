//! What a page costs the allocator: text is written without one allocation for a sample, and the page it is written from is
//! made with few.
// A test stops at its first surprise.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::time::{Duration, Instant};

use allocation_counter::measure;
use trtllm_exporter::engine::Engine;
use trtllm_exporter::exposition::{openmetrics, protobuf, text};
use trtllm_exporter::metrics::compat::CompatSets;
use trtllm_exporter::metrics::exporter::PageCounts;
use trtllm_exporter::metrics::page::Page;
use trtllm_exporter::metrics::page_builder::{PageBuilder, Selection};
use trtllm_exporter::model::IterationStats;
use trtllm_exporter::state::{EngineName, State};

/// This many engines that have said something, and a builder that has made a page of them before.
fn warm(engines: usize) -> (State, PageBuilder, PageCounts) {
    let name = |index| EngineName {
        model: format!("model-{index}"),
        version: "1".to_owned(),
        labels: Vec::new(),
        source: "replay",
        implicit: false,
    };
    let state = State::new((0..engines).map(name).collect());
    let now = Instant::now();
    let mut engine = Engine::new(now, Duration::from_secs(15));
    let records = std::fs::read_to_string("tests/fixtures/session.ndjson").unwrap();
    for record in records.lines().filter_map(|line| serde_json::from_str::<IterationStats>(line).ok()) {
        engine.absorb(&record, now, 1_753_462_475_000_000);
    }
    for index in 0..engines {
        state.update_engine(index, |snapshot| {
            snapshot.state = engine.health.state(now);
            snapshot.latest = engine.latest().copied();
            snapshot.totals.clone_from(&engine.totals);
            snapshot.requests.clone_from(&engine.requests.totals);
        });
    }
    let (builder, counts) = (PageBuilder::new(&state, CompatSets::default()), PageCounts::new());
    let _ = builder.page(&state, &counts, Selection::All);
    (state, builder, counts)
}

fn text_of(page: &Page) -> String {
    let mut out = String::new();
    text::render(page, &mut out);
    out
}

#[test]
fn text_and_openmetrics_are_written_without_an_allocation() {
    let (state, builder, counts) = warm(8);
    let page = builder.page(&state, &counts, Selection::All);
    // OpenMetrics says a little more than text.
    let room = text_of(&page).len() * 2;
    let (mut plain, mut open) = (String::with_capacity(room), String::with_capacity(room));
    assert_eq!(measure(|| text::render(&page, &mut plain)).count_total, 0);
    assert_eq!(measure(|| openmetrics::render(&page, &mut open)).count_total, 0);
    assert!(plain.lines().count() > 3000 && open.lines().count() > 3000, "{} lines", plain.lines().count());
    assert!(plain.len() < room && open.len() < room);
}

#[test]
fn a_page_is_made_with_few_allocations_for_its_samples() {
    let cost = |engines| {
        let (state, builder, counts) = warm(engines);
        let made = measure(|| drop(builder.page(&state, &counts, Selection::All))).count_total;
        let text = text_of(&builder.page(&state, &counts, Selection::All));
        (made, text.lines().filter(|line| !line.starts_with('#')).count() as u64)
    };
    let ((one, few), (nine, many)) = (cost(1), cost(9));
    println!("pages of {few} and {many} samples are made with {one} and {nine} allocations");
    assert!(many - few > 3000, "{few}, {many}");
    // What an engine adds, by its samples: labels are made once, not for each page; a histogram is copied as it is.
    assert!((nine - one) * 5 < many - few, "{one} allocations for {few} samples, {nine} for {many}");
}

/// Stated, not demanded: a message for each sample is what `prost` is given.
#[test]
fn protobuf_allocates_for_each_sample_and_not_much_more() {
    let (state, builder, counts) = warm(1);
    let page = builder.page(&state, &counts, Selection::All);
    let mut out = Vec::with_capacity(1 << 20);
    let made = measure(|| protobuf::render(&page, &mut out).unwrap()).count_total;
    let samples = page.samples().len() as u64;
    println!("protobuf: {made} allocations for {samples} samples");
    assert!(made < samples * 40, "{made} allocations for {samples} samples");
}
