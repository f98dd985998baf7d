//! Keeps rendered pages. Each form of a page is rendered once per generation of the data, and all readers share the
//! result while it is kept.
//!
//! A cached body is returned without a lock. On a miss a reader waits at most for another reader that is rendering, never
//! for a poller.

use std::ops::Range;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;

use super::compress;
use super::negotiate::{Encoding, Format};

/// The key of a body: the families on the page (`S`, any small key), the format and the content encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Form<S> {
    pub selection: S,
    pub format: Format,
    pub encoding: Encoding,
}

/// One part of a page. Parts change independently of each other.
#[derive(Debug)]
pub struct RenderedSection<W> {
    /// As long as the version stays the same, so do the bytes. With `None`, they may differ each time.
    pub version: Option<u64>,
    /// Appends the bytes of the section.
    pub write: W,
}

#[derive(Debug)]
struct Body {
    generation: u64,
    bytes: Bytes,
    /// Version and position of each section; empty for a compressed body.
    sections: Vec<(Option<u64>, Range<usize>)>,
}

impl Body {
    /// Writes the sections that have changed and copies the others. GPUs change less often than engines, and copying a section of
    /// 8 GPUs (150 KB) takes 4 µs.
    fn render<W: FnOnce(&mut Vec<u8>)>(generation: u64, sections: Vec<RenderedSection<W>>, earlier: Earlier) -> Self {
        // A little more than for the previous body, because numbers gain digits.
        let capacity = earlier.length + earlier.length / 64;
        let (mut bytes, mut written) = (Vec::with_capacity(capacity), Vec::with_capacity(sections.len()));
        for (RenderedSection { version, write }, unchanged) in sections.into_iter().zip(earlier.unchanged) {
            let start = bytes.len();
            match unchanged {
                Some(unchanged) => bytes.extend_from_slice(&unchanged),
                None => write(&mut bytes),
            }
            written.push((version, start..bytes.len()));
        }
        // A boxed slice holds no spare capacity while the body is cached.
        Self { generation, bytes: bytes.into_boxed_slice().into(), sections: written }
    }

    fn compressed(&self, encoding: Encoding) -> Self {
        let bytes = match encoding {
            Encoding::Identity => self.bytes.clone(),
            Encoding::Gzip => compress::gzip(&self.bytes).into_boxed_slice().into(),
            Encoding::Zstd => compress::zstd(&self.bytes).into_boxed_slice().into(),
        };
        Self { generation: self.generation, bytes, sections: Vec::new() }
    }

    /// The bytes of the section at `index` if it has this version.
    fn section(&self, index: usize, version: Option<u64>) -> Option<&[u8]> {
        let (_, range) = self.sections.get(index).filter(|(found, _)| version.is_some() && *found == version)?;
        self.bytes.get(range.clone())
    }
}

/// The parts of the previous body that the next one needs. The body itself is freed before the next one is written, because both
/// may be long.
struct Earlier {
    length: usize,
    /// For each section, its bytes if they have not changed.
    unchanged: Vec<Option<Vec<u8>>>,
}

impl Earlier {
    fn of<W>(body: Option<&Body>, sections: &[RenderedSection<W>]) -> Self {
        let unchanged = |(index, section): (usize, &RenderedSection<W>)| {
            body.and_then(|body| body.section(index, section.version)).map(<[u8]>::to_vec)
        };
        Self {
            length: body.map_or(0, |body| body.bytes.len()),
            unchanged: sections.iter().enumerate().map(unchanged).collect(),
        }
    }
}

/// Maximum size in bytes of the bodies that are kept for further readers. Above it, the oldest bodies are dropped.
const KEPT: usize = 2 << 20;

/// The kept bodies, oldest first.
#[derive(Debug, Clone)]
struct Bodies<S>(Vec<(Form<S>, Arc<Body>)>);

impl<S: Copy + Eq> Bodies<S> {
    fn get(&self, form: Form<S>) -> Option<&Arc<Body>> {
        self.0.iter().find(|(known, _)| *known == form).map(|(_, body)| body)
    }

    fn insert(&mut self, form: Form<S>, body: Arc<Body>) {
        self.0.retain(|(known, _)| *known != form);
        self.0.push((form, body));
        let mut bytes: usize = self.0.iter().map(|(_, body)| body.bytes.len()).sum();
        // The newest body stays, however long it is.
        while bytes > KEPT && self.0.len() > 1 {
            bytes -= self.0.remove(0).1.bytes.len();
        }
    }
}

/// Caches the last rendered bodies.
#[derive(Debug)]
pub struct RenderedPages<S> {
    bodies: ArcSwap<Bodies<S>>,
    rendering: Mutex<()>,
}

impl<S: Copy + Eq> RenderedPages<S> {
    /// The body of `form` at `generation`. On a miss it is rendered from `sections`, which must have the same order in
    /// every call: a section is compared with the previous one at the same index.
    pub fn get<W: FnOnce(&mut Vec<u8>)>(
        &self,
        form: Form<S>,
        generation: u64,
        sections: impl FnOnce() -> Vec<RenderedSection<W>>,
    ) -> Bytes {
        let find = |bodies: &Bodies<S>, form| bodies.get(form).filter(|body| body.generation == generation).cloned();
        if let Some(body) = find(&self.bodies.load(), form) {
            return body.bytes.clone();
        }
        // A panic while rendering leaves the kept bodies unchanged, so a mutex without poisoning is enough.
        let _rendering = self.rendering.lock();
        let previous = self.bodies.load_full();
        if let Some(body) = find(&previous, form) {
            return body.bytes.clone();
        }
        // Drops the bodies of older generations, so a form that is no longer requested does not keep its memory.
        let mut bodies = Bodies::clone(&previous);
        bodies.0.retain(|(_, body)| body.generation >= generation);
        let plain_form = Form { encoding: Encoding::Identity, ..form };
        let plain = find(&previous, plain_form).unwrap_or_else(|| {
            let sections = sections();
            let earlier = Earlier::of(previous.get(plain_form).map(|body| &**body), &sections);
            self.bodies.store(Arc::new(bodies.clone()));
            drop(previous);
            Arc::new(Body::render(generation, sections, earlier))
        });
        bodies.insert(plain_form, Arc::clone(&plain));
        let body = match form.encoding {
            Encoding::Identity => plain,
            encoding => Arc::new(plain.compressed(encoding)),
        };
        let bytes = body.bytes.clone();
        bodies.insert(form, body);
        self.bodies.store(Arc::new(bodies));
        bytes
    }
}

impl<S> Default for RenderedPages<S> {
    fn default() -> Self {
        Self { bodies: ArcSwap::from_pointee(Bodies(Vec::new())), rendering: Mutex::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(version: Option<u64>, text: &str) -> RenderedSection<impl FnOnce(&mut Vec<u8>)> {
        RenderedSection { version, write: move |out: &mut Vec<u8>| out.extend_from_slice(text.as_bytes()) }
    }

    const TEXT: Form<u8> = Form { selection: 0, format: Format::Text, encoding: Encoding::Identity };

    #[test]
    fn a_form_is_rendered_once_per_generation() {
        let cache = RenderedPages::default();
        let mut rendered = 0;
        for generation in [1, 1, 1, 2, 2] {
            cache.get(TEXT, generation, || {
                rendered += 1;
                vec![section(None, "page")]
            });
        }
        assert_eq!(rendered, 2);
    }

    #[test]
    fn a_section_is_rendered_again_only_when_its_version_changes() {
        let cache = RenderedPages::default();
        let page = |generation, parts: [(Option<u64>, &'static str); 3]| {
            cache.get(TEXT, generation, || parts.map(|(version, text)| section(version, text)).into())
        };
        assert_eq!(page(1, [(Some(1), "a"), (Some(1), "b"), (None, "c")]), "abc");
        assert_eq!(page(2, [(Some(2), "AA"), (Some(1), "not used"), (None, "C")]), "AAbC");
        assert_eq!(page(3, [(Some(2), "not used"), (Some(2), ""), (None, "")]), "AA");
    }

    #[test]
    fn compressed_forms_are_made_from_the_plain_form() {
        use std::io::Read as _;
        let cache = RenderedPages::default();
        let gzip = cache.get(Form { encoding: Encoding::Gzip, ..TEXT }, 1, || vec![section(None, "page\n")]);
        let mut text = String::new();
        flate2::read::GzDecoder::new(&gzip[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "page\n");
        let zstd = cache.get(Form { encoding: Encoding::Zstd, ..TEXT }, 1, || vec![section(None, "another")]);
        assert_eq!(zstd::bulk::decompress(&zstd, 100).unwrap(), b"page\n");
        assert_eq!(cache.get(TEXT, 1, || vec![section(None, "another")]), "page\n");
    }

    #[test]
    fn a_compressed_page_follows_its_sections() {
        use std::io::Read as _;
        let cache = RenderedPages::default();
        for (generation, versions, texts) in [
            (1, [Some(1), Some(1), None], ["head\n", "body\n", "tail\n"]),
            (2, [Some(2), Some(1), None], ["another head\n", "body\n", "another tail\n"]),
            (3, [Some(2), Some(2), None], ["another head\n", "", "tail\n"]),
        ] {
            let sections = || versions.into_iter().zip(texts).map(|(version, text)| section(version, text)).collect();
            let gzip = cache.get(Form { encoding: Encoding::Gzip, ..TEXT }, generation, sections);
            let mut text = String::new();
            flate2::read::GzDecoder::new(&gzip[..]).read_to_string(&mut text).unwrap();
            assert_eq!(text, texts.concat());
        }
    }

    #[test]
    fn forms_of_an_older_generation_are_dropped() {
        let cache = RenderedPages::default();
        for selection in 0..5 {
            cache.get(Form { selection, ..TEXT }, 1, || vec![section(None, "")]);
        }
        cache.get(TEXT, 2, || vec![section(None, "")]);
        assert_eq!(cache.bodies.load().0.len(), 1);
    }

    #[test]
    fn a_page_is_freed_before_the_next_one_is_written() {
        let cache = RenderedPages::default();
        cache.get(TEXT, 1, || vec![section(None, "old")]);
        let mut kept = None;
        let write = |out: &mut Vec<u8>| {
            kept = Some(cache.bodies.load().0.len());
            out.extend_from_slice(b"new");
        };
        assert_eq!(cache.get(TEXT, 2, || vec![RenderedSection { version: None, write }]), "new");
        assert_eq!(kept, Some(0));
    }

    #[test]
    fn the_newest_pages_are_kept_up_to_the_size_limit() {
        let (cache, text) = (RenderedPages::default(), "x".repeat(KEPT / 3));
        for selection in 0..20 {
            cache.get(Form { selection, ..TEXT }, 1, || vec![section(None, &text)]);
        }
        let kept = |selection| cache.bodies.load().get(Form { selection, ..TEXT }).is_some();
        assert_eq!((0..20).filter(|selection| kept(*selection)).collect::<Vec<_>>(), [17, 18, 19]);
        // A body that is longer than the limit is kept alone, so that its readers share it.
        let text = "x".repeat(2 * KEPT);
        cache.get(TEXT, 1, || vec![section(None, &text)]);
        assert_eq!(cache.bodies.load().0.len(), 1);
        assert!(kept(0));
    }

    #[test]
    fn concurrent_readers_render_once() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let (cache, rendered) = (RenderedPages::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    cache.get(TEXT, 7, || {
                        rendered.fetch_add(1, Ordering::Relaxed);
                        vec![section(None, "page")]
                    })
                });
            }
        });
        assert_eq!(rendered.into_inner(), 1);
    }
}
