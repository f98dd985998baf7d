//! The metrics pages of this exporter, in every format. A page is rendered when a reader asks for it.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::exposition;
use crate::exposition::negotiate::{Encoding, Format};
use crate::metrics::compat::CompatSets;
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
    pub fn new(state: Arc<State>, compat: CompatSets, metrics: Arc<HttpMetrics>) -> Self {
        Self { builder: PageBuilder::new(compat), state, metrics, length: Mutex::default() }
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
