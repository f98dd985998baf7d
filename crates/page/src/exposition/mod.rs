//! Renders a [`Page`] to bytes, in the formats that readers ask for. Knows formats, not the meaning of a metric.

pub(crate) mod compress;
pub mod negotiate;
#[cfg(test)]
pub(crate) mod parsed;
pub mod protobuf;
pub mod text;

use crate::metrics::page::Page;

use negotiate::Format;

/// Appends the page to `out`.
pub fn render(page: &Page, format: Format, out: &mut Vec<u8>) {
    match format {
        Format::Text | Format::OpenMetrics => text::render(page, format, out),
        Format::Protobuf => protobuf::render(page, out),
    }
}
