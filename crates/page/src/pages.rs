//! The metrics pages of this exporter, in every format. A page is made from the state when a reader asks for it, and cached until
//! something changes.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::exposition;
use crate::exposition::cache::{self, Form, RenderedPages};
use crate::exposition::compress;
use crate::exposition::negotiate::{Encoding, Format};
use crate::metrics::catalog::Group;
use crate::metrics::compat::CompatSets;
use crate::metrics::own::HttpMetrics;
use crate::metrics::page_builder::{PageBuilder, Section, Selection};
use crate::state::State;

/// What the exporter reads of its own page: all but the names of other exporters.
fn own_selection() -> Selection {
    Selection::of(&[Group::Triton, Group::Engine, Group::Gpu, Group::Exporter])
}

/// A page of an earlier time, a tenth of its size as text.
#[derive(Debug)]
pub struct KeptPage {
    compressed: Box<[u8]>,
    length: usize,
}

impl KeptPage {
    #[must_use]
    pub fn new(text: &[u8]) -> Self {
        Self { compressed: compress::zstd(text).into_boxed_slice(), length: text.len() }
    }

    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        compress::unzstd(&self.compressed, self.length)
    }
}

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
        Self { builder: PageBuilder::new(compat), state, metrics, cache: RenderedPages::new() }
    }

    /// The page for a scraper. It is counted and timed.
    #[must_use]
    pub fn scrape(&self, form: Form<Selection>) -> Bytes {
        let started = Instant::now();
        let page = self.get(form);
        self.metrics.scraped(started.elapsed());
        page
    }

    /// The same page as [`Pages::text`], to be read later. It is not cached: nobody else needs it.
    #[must_use]
    pub fn keep(&self) -> KeptPage {
        let mut text = Vec::new();
        for section in self.sections(own_selection(), Format::Text) {
            (section.write)(&mut text);
        }
        KeptPage::new(&text)
    }

    fn get(&self, form: Form<Selection>) -> Bytes {
        self.cache.get(form, self.state.generation(), || self.sections(form.selection, form.format))
    }

    /// The page as text, for the exporter itself. The page for people reads the same one.
    #[must_use]
    pub fn text(&self) -> Bytes {
        self.get(Form { selection: own_selection(), format: Format::Text, encoding: Encoding::Identity })
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
