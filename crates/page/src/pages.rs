//! The metrics pages of this exporter, in every format. A page is rendered when a reader asks for it, and cached until the state
//! changes.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::exposition;
use crate::exposition::cache::{self, Form, RenderedPages};
use crate::exposition::negotiate::Format;
use crate::metrics::compat::CompatSets;
use crate::metrics::own::HttpMetrics;
use crate::metrics::page_builder::{PageBuilder, Section, Selection};
use trtllm_engines::State;

/// Renders pages of metrics and caches them.
#[derive(Debug)]
pub struct Pages {
    state: Arc<State>,
    builder: PageBuilder,
    metrics: Arc<HttpMetrics>,
    cache: RenderedPages<Selection>,
}

impl Pages {
    #[must_use]
    pub fn new(state: Arc<State>, compat: CompatSets, metrics: Arc<HttpMetrics>) -> Self {
        Self { builder: PageBuilder::new(compat), state, metrics, cache: RenderedPages::default() }
    }

    /// Returns the page for a scraper, and counts and times the scrape.
    #[must_use]
    pub fn scrape(&self, form: Form<Selection>) -> Bytes {
        let started = Instant::now();
        let sections = || self.sections(form.selection, form.format);
        let page = self.cache.get(form, self.state.generation(), sections);
        self.metrics.scraped(started.elapsed());
        page
    }

    fn sections(&self, selection: Selection, format: Format) -> Vec<cache::RenderedSection<impl FnOnce(&mut Vec<u8>)>> {
        let part = |section, version| cache::RenderedSection {
            version,
            write: move |out: &mut Vec<u8>| {
                let page = self.builder.section(section, &self.state, &self.metrics, selection);
                exposition::render(&page, format, out);
                // The last section is rendered each time, so the end is never copied into the middle of a page.
                if section == Section::Exporter {
                    out.extend_from_slice(exposition::end(format).as_bytes());
                }
            },
        };
        // Each version is read before the data it stands for, so a section is never older than its version.
        vec![
            part(Section::Engines, Some(self.state.engine_changes())),
            part(Section::Gpus, Some(self.state.gpu_changes())),
            part(Section::Exporter, None),
        ]
    }
}
