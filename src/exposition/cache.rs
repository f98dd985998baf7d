//! Rendered pages, each form at most once per change of data and shared by all readers. A body that is there is handed out
//! without waiting for anybody; whoever finds none waits for another reader that is rendering, never for a poller.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use bytes::Bytes;

use super::negotiate::{Encoding, Format};

/// Which bytes: what is on the page, and how it is written. `Selection` is any small key of what is on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Form<S> {
    pub selection: S,
    pub format: Format,
    pub encoding: Encoding,
}

/// A body of one generation per form.
#[derive(Debug)]
pub struct Cache<S> {
    bodies: ArcSwap<HashMap<Form<S>, (u64, Bytes)>>,
    rendering: Mutex<()>,
}

impl<S: Copy + Eq + std::hash::Hash> Cache<S> {
    #[must_use]
    pub fn new() -> Self {
        Self { bodies: ArcSwap::default(), rendering: Mutex::new(()) }
    }

    /// The body of `form` at `generation`, rendered by `render` (not compressed) unless it is there.
    pub fn get(&self, form: Form<S>, generation: u64, render: impl FnOnce() -> Vec<u8>) -> Bytes {
        if let Some(body) = self.find(form, generation) {
            return body;
        }
        // A panic while rendering leaves whole older bodies: safe to go on with.
        let _turn = self.rendering.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(body) = self.find(form, generation) {
            return body;
        }
        // Forms that nobody asks for any more must not keep their bodies.
        let mut bodies = HashMap::clone(&self.bodies.load());
        bodies.retain(|_, (of, _)| *of >= generation);
        let plain = Form { encoding: Encoding::Identity, ..form };
        let text = self.find(plain, generation).unwrap_or_else(|| Bytes::from(render()));
        bodies.insert(plain, (generation, text.clone()));
        let body = match form.encoding {
            Encoding::Identity => text,
            Encoding::Gzip => gzip(&text),
            Encoding::Zstd => zstd(&text),
        };
        bodies.insert(form, (generation, body.clone()));
        self.bodies.store(Arc::new(bodies));
        body
    }

    fn find(&self, form: Form<S>, generation: u64) -> Option<Bytes> {
        let bodies = self.bodies.load();
        bodies.get(&form).filter(|(of, _)| *of == generation).map(|(_, body)| body.clone())
    }
}

impl<S: Copy + Eq + std::hash::Hash> Default for Cache<S> {
    fn default() -> Self {
        Self::new()
    }
}

/// Level 1: a page compresses tenfold there already, the last tenth of size costs five times the time.
fn gzip(text: &[u8]) -> Bytes {
    let mut encoder = flate2::write::GzEncoder::new(Vec::with_capacity(text.len() / 8), flate2::Compression::fast());
    // Writing into a Vec cannot fail.
    let _ = encoder.write_all(text);
    encoder.finish().map(Bytes::from).unwrap_or_default()
}

/// Level 1, for the same reason.
fn zstd(text: &[u8]) -> Bytes {
    // The bound of what it may grow to is what it is given: it cannot fail.
    zstd::bulk::compress(text, 1).map(Bytes::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: Form<u8> = Form { selection: 0, format: Format::Text, encoding: Encoding::Identity };

    #[test]
    fn a_form_is_rendered_once_per_generation() {
        let cache = Cache::new();
        let mut rendered = 0;
        for generation in [1, 1, 1, 2, 2] {
            cache.get(TEXT, generation, || {
                rendered += 1;
                b"page".to_vec()
            });
        }
        assert_eq!(rendered, 2);
    }

    #[test]
    fn the_packed_forms_are_made_of_the_plain_one() {
        use std::io::Read as _;
        let cache = Cache::new();
        let gzip = cache.get(Form { encoding: Encoding::Gzip, ..TEXT }, 1, || b"page\n".to_vec());
        let mut text = String::new();
        flate2::read::GzDecoder::new(&gzip[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "page\n");
        let zstd = cache.get(Form { encoding: Encoding::Zstd, ..TEXT }, 1, || b"another".to_vec());
        assert_eq!(zstd::bulk::decompress(&zstd, 100).unwrap(), b"page\n");
        assert_eq!(cache.get(TEXT, 1, || b"another".to_vec()), "page\n");
    }

    #[test]
    fn forms_of_an_older_generation_are_let_go() {
        let cache = Cache::new();
        for selection in 0..5 {
            cache.get(Form { selection, ..TEXT }, 1, Vec::new);
        }
        cache.get(TEXT, 2, Vec::new);
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
                        b"page".to_vec()
                    })
                });
            }
        });
        assert_eq!(rendered.into_inner(), 1);
    }
}
