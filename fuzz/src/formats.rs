//! Renders a session of an engine whose labels may contain any text, in both text formats.

use arbitrary::{Result, Unstructured};
use trtllm_page::exposition::negotiate::Format;
use trtllm_records::EngineName;

use super::fold::{Fold, engine};
use super::page_text;
use super::session::polls;

pub fn run(data: &[u8]) {
    let mut data = Unstructured::new(data);
    let Ok((name, whole)) = start(&mut data) else { return };
    let mut fold = Fold::new(name);
    polls(&mut data).iter().for_each(|poll| fold.poll(poll));
    for page in [if whole { fold.whole_page() } else { fold.page() }, fold.gateway_page()] {
        for format in [Format::Text, Format::OpenMetrics] {
            page_text::check(&page, format);
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
