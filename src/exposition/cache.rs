//! Rendered pages, each form at most once per change of data and shared by all readers. A reader waits for another reader
//! that is rendering the same form, never for a poller.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

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
    bodies: Mutex<HashMap<Form<S>, (u64, Bytes)>>,
}

impl<S: Copy + Eq + std::hash::Hash> Cache<S> {
    #[must_use]
    pub fn new() -> Self {
        Self { bodies: Mutex::new(HashMap::new()) }
    }

    /// The body of `form` at `generation`, rendered by `render` (uncompressed) unless it is there.
    pub fn get(&self, form: Form<S>, generation: u64, render: impl FnOnce() -> String) -> Bytes {
        // A panic while rendering leaves a whole older body: safe to go on with.
        let mut bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, body)) = bodies.get(&form).filter(|(of, _)| *of == generation) {
            return body.clone();
        }
        // Forms that nobody asks for any more must not keep their bodies.
        bodies.retain(|_, (of, _)| *of == generation);
        let plain = Form { encoding: Encoding::Identity, ..form };
        let text = match bodies.get(&plain).filter(|(of, _)| *of == generation) {
            Some((_, body)) => body.clone(),
            None => {
                let body = Bytes::from(render());
                bodies.insert(plain, (generation, body.clone()));
                body
            }
        };
        if form.encoding == Encoding::Identity {
            return text;
        }
        let packed = gzip(&text);
        bodies.insert(form, (generation, packed.clone()));
        packed
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
                String::from("page")
            });
        }
        assert_eq!(rendered, 2);
    }

    #[test]
    fn the_packed_form_is_made_of_the_plain_one() {
        use std::io::Read as _;
        let cache = Cache::new();
        let packed = cache.get(Form { encoding: Encoding::Gzip, ..TEXT }, 1, || String::from("page\n"));
        let mut text = String::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "page\n");
        assert_eq!(cache.get(TEXT, 1, || String::from("another")), "page\n");
    }
}
