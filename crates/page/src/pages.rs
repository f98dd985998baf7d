//! The metrics pages of this exporter, in every format. A page is rendered when a reader asks for it.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::exposition;
use crate::exposition::negotiate::{Encoding, Format};
use crate::metrics::compat::CompatSets;
use crate::metrics::family::Profile;
use crate::metrics::own::HttpMetrics;
use crate::metrics::page_builder::{PageBuilder, Selection};
use trtllm_engines::State;

/// Renders pages of metrics.
#[derive(Debug)]
pub struct Pages {
    state: Arc<State>,
    builder: PageBuilder,
    metrics: Arc<HttpMetrics>,
    /// Bytes of the last page. Pages are rendered one after the other, so many readers at once need the memory of one
    /// page. A panic leaves the number unchanged, so a mutex without poisoning is enough.
    length: Mutex<usize>,
}

impl Pages {
    #[must_use]
    pub fn new(state: Arc<State>, compat: CompatSets, profile: Profile, metrics: Arc<HttpMetrics>) -> Self {
        Self { builder: PageBuilder::new(compat, profile), state, metrics, length: Mutex::default() }
    }

    /// Returns the page for a scraper, and counts and times the scrape.
    #[must_use]
    pub fn scrape(&self, selection: Selection, format: Format, encoding: Encoding) -> Bytes {
        let started = Instant::now();
        let page = self.render(selection, format, encoding);
        self.metrics.scraped(started.elapsed());
        page
    }

    fn render(&self, selection: Selection, format: Format, encoding: Encoding) -> Bytes {
        let mut length = self.length.lock();
        // A little more than for the page before, because numbers gain digits.
        let mut page = Vec::with_capacity(*length + *length / 64);
        exposition::render(&self.builder.page(&self.state, &self.metrics, selection), format, &mut page);
        *length = page.len();
        encoding.encode(page).into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicBool, Ordering};

    use trtllm_records::{EngineName, IterationStats};

    use super::*;
    use crate::exposition::parsed::parse;
    use crate::metrics::family::Group;

    /// Threads that poll, each 16 engines.
    const POLLERS: usize = 4;
    const PAGES: usize = 6;

    /// Returns the number of records.
    fn poll(state: &State, poller: usize, ended: &AtomicBool) -> u64 {
        let mut record: IterationStats = serde_json::from_value(serde_json::json!({
            "iterLatencyMS": 8.0, "numActiveRequests": 3, "inflightBatchingStats": {"numScheduledRequests": 2}}))
        .unwrap();
        for iter in 0.. {
            if ended.load(Ordering::Relaxed) {
                return iter * 64 / POLLERS as u64;
            }
            record.iter = Some(iter);
            for slot in state.slots().iter().skip(poller).step_by(POLLERS) {
                slot.lock().observed.absorb(&record, Instant::now(), 0).unwrap();
            }
        }
        unreachable!("the pages end")
    }

    /// Checks each histogram of the page. Returns the iterations of all engines.
    fn check(page: &str) -> u64 {
        let page = parse(page);
        let mut buckets: BTreeMap<String, Vec<(f64, u64)>> = BTreeMap::new();
        let mut counts = BTreeMap::new();
        let (mut iterations, mut scheduled) = (BTreeMap::new(), BTreeMap::new());
        for ((name, labels), value) in &page.samples {
            let (is_bucket, is_count) = (name.strip_suffix("_bucket"), name.strip_suffix("_count"));
            if let Some(name) = is_bucket {
                let bound = labels.iter().find(|(label, _)| *label == "le").unwrap().1.parse().unwrap();
                let others: Vec<_> = labels.iter().filter(|(label, _)| *label != "le").collect();
                buckets.entry(format!("{name}{others:?}")).or_default().push((bound, value.parse().unwrap()));
            } else if let Some(name) = is_count {
                counts.insert(format!("{name}{:?}", labels.iter().collect::<Vec<_>>()), value.parse::<u64>().unwrap());
            }
            match name.as_str() {
                "nv_trt_llm_iterations_total" => drop(iterations.insert(labels.clone(), value.clone())),
                "nv_trt_llm_iteration_scheduled_requests_count" => {
                    drop(scheduled.insert(labels.clone(), value.clone()))
                }
                _ => {}
            }
        }
        assert!(buckets.len() >= 64 && buckets.len() == counts.len());
        for (series, mut buckets) in buckets {
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(buckets.is_sorted_by_key(|(_, count)| *count), "{series}: {buckets:?}");
            assert_eq!(buckets.last(), Some(&(f64::INFINITY, counts[&series])), "{series}");
        }
        // Families of one engine are copied under one hold of its lock, so they agree as well.
        assert_eq!(iterations, scheduled);
        iterations.values().map(|count| count.parse::<u64>().unwrap()).sum()
    }

    #[test]
    fn histograms_agree_with_their_counts_while_64_engines_are_polled() {
        let names = (0..64).map(|number| EngineName::new(&format!("model-{number}"), "1", "test"));
        let state = Arc::new(State::new(names.collect()));
        let pages = Pages::new(Arc::clone(&state), CompatSets::default(), Profile::Full, Arc::new(HttpMetrics::new()));
        let engines = Selection::of(&[Group::Engine]);
        let scrape = || pages.scrape(engines, Format::Text, Encoding::Identity);
        let ended = AtomicBool::new(false);
        let (mut pages, records) = std::thread::scope(|scope| {
            let (state, ended) = (&state, &ended);
            let pollers: Vec<_> = (0..POLLERS).map(|poller| scope.spawn(move || poll(state, poller, ended))).collect();
            let pages: Vec<Bytes> = (0..PAGES).map(|_| scrape()).collect();
            ended.store(true, Ordering::Relaxed);
            (pages, pollers.into_iter().map(|poller| poller.join().unwrap()).sum::<u64>())
        });
        pages.push(scrape());
        let iterations: Vec<u64> = pages.iter().map(|page| check(std::str::from_utf8(page).unwrap())).collect();
        assert!(iterations.is_sorted());
        assert_eq!(iterations.last(), Some(&records));
    }
}
