//! Renders a page as text, which must be valid whatever a peer has sent.

use trtllm_page::exposition::negotiate::Format;
use trtllm_page::exposition::render;
use trtllm_page::metrics::page::Page;

use super::parsed::parse;

/// Panics if a line cannot be read, if a series or a label appears twice, or if a number is not finite.
pub fn check(page: &Page, format: Format) {
    let mut bytes = Vec::new();
    render(page, format, &mut bytes);
    let parsed = parse(std::str::from_utf8(&bytes).unwrap());
    for ((name, labels), value) in &parsed.samples {
        assert!(value.parse::<f64>().unwrap().is_finite(), "{name} {labels:?} is {value}");
    }
}
