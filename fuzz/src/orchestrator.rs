//! Reads answers of an orchestrator of disaggregated serving: pages and bodies of `/cluster_info`, separated by form
//! feeds. They are read one after the other, as if one server had sent them.

use trtllm_page::exposition::negotiate::Format;
use trtllm_records::Message;
use trtllm_records::OrchestratorReading;
use trtllm_sources::orchestrator_page::{parse_cluster_info, parse_orchestrator_page};

use super::fold::{Fold, engine};
use super::page_text;

const MAX_PAGES: usize = 16;

pub fn run(data: &[u8]) {
    let mut fold = Fold::new(engine());
    let mut reading = OrchestratorReading::default();
    for answer in data.split(|byte| *byte == b'\x0c').take(MAX_PAGES) {
        if let Some(info) = parse_cluster_info(answer) {
            (reading.workers, reading.minimal_workers) = (info.workers, info.minimal);
        }
        let Ok(counts) = parse_orchestrator_page(answer) else { continue };
        reading.counts = counts;
        fold.poll_with(|batch| {
            batch.push(Message::Orchestrator(Box::new(reading.clone())));
            true
        });
    }
    page_text::check(&fold.page(), Format::Text);
}
