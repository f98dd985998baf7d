//! Rendered pages, each form at most once per change of data and shared by all readers. A body that is there is handed out
//! without waiting for anybody; whoever finds none waits for another reader that is rendering, never for a poller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;

use super::negotiate::{Encoding, Format};
use super::pack::{Body, Section};

/// Which bytes: what is on the page, and how it is written. `Selection` is any small key of what is on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Form<S> {
    pub selection: S,
    pub format: Format,
    pub encoding: Encoding,
}

/// A body per form, with its generation.
type Bodies<S> = HashMap<Form<S>, (u64, Arc<Body>)>;

/// A body of one generation per form.
#[derive(Debug)]
pub struct Cache<S> {
    bodies: ArcSwap<Bodies<S>>,
    rendering: Mutex<()>,
}

impl<S: Copy + Eq + std::hash::Hash> Cache<S> {
    #[must_use]
    pub fn new() -> Self {
        Self { bodies: ArcSwap::default(), rendering: Mutex::new(()) }
    }

    /// The body of `form` at `generation`, of `sections` (not compressed) unless it is there. Always the same sections in the
    /// same order, or those with a version may be taken for each other.
    pub fn get<W: FnOnce(&mut Vec<u8>)>(
        &self,
        form: Form<S>,
        generation: u64,
        sections: impl FnOnce() -> Vec<Section<W>>,
    ) -> Bytes {
        if let Some(body) = find(&self.bodies.load(), form, generation) {
            return body.bytes.clone();
        }
        // A panic while rendering leaves whole older bodies: safe to go on with.
        let _turn = self.rendering.lock().unwrap_or_else(PoisonError::into_inner);
        let older = self.bodies.load_full();
        if let Some(body) = find(&older, form, generation) {
            return body.bytes.clone();
        }
        // Forms that nobody asks for any more must not keep their bodies.
        let mut bodies = Bodies::clone(&older);
        bodies.retain(|_, (of, _)| *of >= generation);
        let before = |form| older.get(&form).map(|(_, body)| &**body);
        let plain = Form { encoding: Encoding::Identity, ..form };
        let text = find(&older, plain, generation).cloned();
        let text = text.unwrap_or_else(|| Arc::new(Body::text(sections(), before(plain))));
        bodies.insert(plain, (generation, Arc::clone(&text)));
        let body = match form.encoding {
            Encoding::Identity => text,
            Encoding::Gzip => Arc::new(Body::gzip(&text, before(form))),
            Encoding::Zstd => Arc::new(Body::zstd(&text)),
        };
        let bytes = body.bytes.clone();
        bodies.insert(form, (generation, body));
        self.bodies.store(Arc::new(bodies));
        bytes
    }
}

fn find<S: Copy + Eq + std::hash::Hash>(bodies: &Bodies<S>, form: Form<S>, generation: u64) -> Option<&Arc<Body>> {
    bodies.get(&form).filter(|(of, _)| *of == generation).map(|(_, body)| body)
}

impl<S: Copy + Eq + std::hash::Hash> Default for Cache<S> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> Vec<Section<impl FnOnce(&mut Vec<u8>)>> {
        vec![Section { version: None, write: |out: &mut Vec<u8>| out.extend_from_slice(text.as_bytes()) }]
    }

    const TEXT: Form<u8> = Form { selection: 0, format: Format::Text, encoding: Encoding::Identity };

    #[test]
    fn a_form_is_rendered_once_per_generation() {
        let cache = Cache::new();
        let mut rendered = 0;
        for generation in [1, 1, 1, 2, 2] {
            cache.get(TEXT, generation, || {
                rendered += 1;
                written("page")
            });
        }
        assert_eq!(rendered, 2);
    }

    #[test]
    fn the_packed_forms_are_made_of_the_plain_one() {
        use std::io::Read as _;
        let cache = Cache::new();
        let gzip = cache.get(Form { encoding: Encoding::Gzip, ..TEXT }, 1, || written("page\n"));
        let mut text = String::new();
        flate2::read::GzDecoder::new(&gzip[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "page\n");
        let zstd = cache.get(Form { encoding: Encoding::Zstd, ..TEXT }, 1, || written("another"));
        assert_eq!(zstd::bulk::decompress(&zstd, 100).unwrap(), b"page\n");
        assert_eq!(cache.get(TEXT, 1, || written("another")), "page\n");
    }

    #[test]
    fn forms_of_an_older_generation_are_let_go() {
        let cache = Cache::new();
        for selection in 0..5 {
            cache.get(Form { selection, ..TEXT }, 1, || written(""));
        }
        cache.get(TEXT, 2, || written(""));
        assert_eq!(cache.bodies.load().len(), 1);
    }

    #[test]
    fn many_readers_at_once_render_once() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let (cache, rendered) = (Cache::new(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    cache.get(TEXT, 7, || {
                        rendered.fetch_add(1, Ordering::Relaxed);
                        written("page")
                    })
                });
            }
        });
        assert_eq!(rendered.into_inner(), 1);
    }
}
