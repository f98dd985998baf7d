//! Compares the formats: renders a session as text, OpenMetrics and protobuf, and parses each of them. The results must
//! agree with each other and with the page: names, types, help texts, labels, values and exemplars.

use arbitrary::{Result, Unstructured};
use trtllm_page::exposition::negotiate::Format;
use trtllm_page::exposition::render;
use trtllm_page::metrics::page::Page;
use trtllm_records::EngineName;

use super::fold::{Fold, engine};
use super::parsed_page::{self, ParsedPage};
use super::session::polls;
use super::text_page;

pub fn run(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let Ok((name, whole)) = start(&mut data) else { return };
    let mut fold = Fold::new(name);
    polls(&mut data).iter().for_each(|poll| fold.poll(poll));
    for page in [if whole { fold.whole_page() } else { fold.page() }, fold.gateway_page()] {
        for format in [Format::Text, Format::OpenMetrics, Format::Protobuf] {
            check(&page, format);
        }
    }
}

/// The labels of the engine, which may contain any text, and whether the page has the exporter's own families.
fn start(data: &mut Unstructured<'_>) -> Result<(EngineName, bool)> {
    let whole = data.ratio(1, 16)?;
    if data.ratio(3, 4)? {
        return Ok((engine(), whole));
    }
    let label = |data: &mut Unstructured<'_>| Ok::<_, arbitrary::Error>(data.arbitrary::<&str>()?.to_owned());
    let labels = vec![("zone".to_owned(), label(data)?), ("a".to_owned(), label(data)?)];
    Ok((EngineName { model: label(data)?, version: label(data)?, labels, ..engine() }, whole))
}

/// Renders the page, parses it, and compares the result with the page.
pub fn check(page: &Page, format: Format) {
    let mut bytes = Vec::new();
    render(page, format, &mut bytes);
    let mut wanted = ParsedPage::from(page);
    let found = match format {
        Format::Protobuf => parsed_page::protobuf(&bytes),
        Format::Text | Format::OpenMetrics => text_page::parse(std::str::from_utf8(&bytes).unwrap(), format),
    };
    if format == Format::Text {
        // The text format has no exemplars.
        wanted.exemplars.clear();
    }
    assert_eq!(found.families, wanted.families, "{format:?}");
    let differing = || found.samples.iter().find(|(series, value)| wanted.samples.get(*series) != Some(*value));
    assert!(found.samples == wanted.samples, "{format:?}: {:?}", differing());
    assert_eq!(found.exemplars, wanted.exemplars, "{format:?}");
}

/// Only renders and parses the text. The target `formats` also compares the result.
pub fn parses(page: &Page) {
    let mut bytes = Vec::new();
    render(page, Format::Text, &mut bytes);
    text_page::parse(std::str::from_utf8(&bytes).unwrap(), Format::Text);
}
