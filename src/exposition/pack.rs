//! Bodies in sections: what is the same as before is copied as it is, text and packed bytes alike. Each section is packed
//! without a look at those before it, so that it can stand behind any other.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress};

/// One part of a page, which changes by itself.
#[derive(Debug)]
pub struct Section<W> {
    /// As long as this is the same, so are its bytes. `None`: it may be another each time.
    pub version: Option<u64>,
    /// Appends it.
    pub write: W,
}

/// A body, and where its sections stand in it.
#[derive(Debug, Default)]
pub(super) struct Body {
    pub(super) bytes: Bytes,
    spans: Vec<Span>,
}

#[derive(Debug)]
struct Span {
    version: Option<u64>,
    range: Range<usize>,
    /// Of a packed section's text.
    sum: Option<Arc<Crc>>,
}

impl Body {
    /// The section at `index`, if it is there and the same.
    fn same(&self, index: usize, version: Option<u64>) -> Option<(&[u8], Option<&Arc<Crc>>)> {
        let span = self.spans.get(index).filter(|span| version.is_some() && span.version == version)?;
        Some((self.bytes.get(span.range.clone())?, span.sum.as_ref()))
    }

    /// Empty, with room for what `before` was: a number grows by a digit now and then.
    fn room(before: Option<&Self>) -> Vec<u8> {
        Vec::with_capacity(before.map_or(0, |before| before.bytes.len() + before.bytes.len() / 64))
    }

    fn of(mut bytes: Vec<u8>, spans: Vec<Span>) -> Self {
        // Kept while it is new, and what it does not fill with it.
        if bytes.capacity() - bytes.len() > bytes.len() / 16 {
            bytes.shrink_to_fit();
        }
        Self { bytes: bytes.into(), spans }
    }

    /// Writes the sections that are not as in `before`.
    pub(super) fn text<W: FnOnce(&mut Vec<u8>)>(sections: Vec<Section<W>>, before: Option<&Self>) -> Self {
        let (mut bytes, mut spans) = (Self::room(before), Vec::with_capacity(sections.len()));
        for (index, Section { version, write }) in sections.into_iter().enumerate() {
            let begin = bytes.len();
            match before.and_then(|before| before.same(index, version)) {
                Some((same, _)) => bytes.extend_from_slice(same),
                None => write(&mut bytes),
            }
            spans.push(Span { version, range: begin..bytes.len(), sum: None });
        }
        Self::of(bytes, spans)
    }

    /// `text` as gzip, level 1: a page compresses tenfold there already, the last tenth of size costs five times the time.
    pub(super) fn gzip(text: &Self, before: Option<&Self>) -> Self {
        let (mut bytes, mut spans) = (Self::room(before), Vec::with_capacity(text.spans.len()));
        // Deflate, no flags, no time, fastest, by nobody in particular.
        bytes.extend_from_slice(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255]);
        let (mut deflate, mut total) = (Compress::new(Compression::fast(), false), Crc::new());
        for (index, span) in text.spans.iter().enumerate() {
            let begin = bytes.len();
            let sum = match before.and_then(|before| before.same(index, span.version)) {
                Some((same, Some(sum))) => {
                    bytes.extend_from_slice(same);
                    Arc::clone(sum)
                }
                _ => {
                    let section = &text.bytes[span.range.clone()];
                    deflate_section(&mut deflate, section, &mut bytes);
                    let mut sum = Crc::new();
                    sum.update(section);
                    Arc::new(sum)
                }
            };
            total.combine(&sum);
            spans.push(Span { version: span.version, range: begin..bytes.len(), sum: Some(sum) });
        }
        // A last block with nothing in it.
        bytes.extend_from_slice(&[3, 0]);
        bytes.extend_from_slice(&total.sum().to_le_bytes());
        bytes.extend_from_slice(&total.amount().to_le_bytes());
        Self::of(bytes, spans)
    }

    /// `text` as zstd, level 1 for the same reason. As a whole: not every reader goes on after a frame's end.
    pub(super) fn zstd(text: &Self) -> Self {
        // The bound of what it may grow to is what it is given: it cannot fail.
        let bytes = zstd::bulk::compress(&text.bytes, 1).unwrap_or_default();
        Self { bytes: bytes.into(), spans: Vec::new() }
    }
}

/// Up to a byte's border, after which nothing refers to what stands before it.
fn deflate_section(deflate: &mut Compress, section: &[u8], into: &mut Vec<u8>) {
    let (begin, mut done) = (deflate.total_in(), 0);
    loop {
        into.reserve(section.len() / 8 + 64);
        // Fails only on a stream that is not in order, which this one is.
        let Ok(_) = deflate.compress_vec(&section[done..], into, FlushCompress::Full) else { return };
        done = (deflate.total_in() - begin) as usize;
        // Room left over: the flush is complete.
        if done == section.len() && into.len() < into.capacity() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn sections(parts: &[(Option<u64>, &str)]) -> Vec<Section<impl FnOnce(&mut Vec<u8>)>> {
        let section = |&(version, text): &(Option<u64>, &str)| {
            let text = text.to_owned();
            Section { version, write: move |out: &mut Vec<u8>| out.extend_from_slice(text.as_bytes()) }
        };
        parts.iter().map(section).collect()
    }

    fn unpacked(body: &Body) -> String {
        let mut text = String::new();
        flate2::read::GzDecoder::new(&body.bytes[..]).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_section_is_written_again_only_when_it_is_another() {
        let first = Body::text(sections(&[(Some(1), "a"), (Some(1), "b"), (None, "c")]), None);
        assert_eq!(first.bytes, "abc");
        let second = Body::text(sections(&[(Some(2), "AA"), (Some(1), "not asked"), (None, "C")]), Some(&first));
        assert_eq!(second.bytes, "AAbC");
        let third = Body::text(sections(&[(Some(2), "not asked"), (Some(2), ""), (None, "")]), Some(&second));
        assert_eq!(third.bytes, "AA");
    }

    #[test]
    fn packed_sections_are_one_stream_whichever_of_them_are_old() {
        let long: String = (0..20_000).map(|line| format!("series{{number=\"{line}\"}} {}\n", line * 7919)).collect();
        let (mut text, mut packed) = (Body::default(), Body::default());
        for (versions, words) in [
            ([Some(1), Some(1), None], ["head\n", &long, "tail\n"]),
            ([Some(2), Some(1), None], ["another head\n", &long, "another tail\n"]),
            ([Some(2), Some(2), None], ["another head\n", "", "tail\n"]),
            ([Some(3), Some(2), None], [&long, "", ""]),
            ([Some(3), Some(3), None], [&long, &long, &long]),
        ] {
            let parts: Vec<_> = versions.into_iter().zip(words).collect();
            text = Body::text(sections(&parts), Some(&text));
            packed = Body::gzip(&text, Some(&packed));
            assert_eq!(unpacked(&packed), words.concat());
        }
        assert_eq!(unpacked(&Body::gzip(&Body::default(), None)), "");
    }

    #[test]
    fn what_does_not_compress_is_packed_all_the_same() {
        let mut state = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        })
        .take(100_000)
        .collect();
        let write = |out: &mut Vec<u8>| out.extend_from_slice(&noise);
        let text = Body::text(vec![Section { version: None, write }], None);
        let mut back = Vec::new();
        flate2::read::GzDecoder::new(&Body::gzip(&text, None).bytes[..]).read_to_end(&mut back).unwrap();
        assert_eq!(back, noise);
    }
}
