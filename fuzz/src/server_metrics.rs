//! Reads answers of trtllm-serve to `GET /prometheus/metrics`: pages that are separated by form feeds. They are read
//! one after the other, as if one server had sent them.

use trtllm_page::exposition::negotiate::Format;
use trtllm_records::Message;
use trtllm_sources::prometheus_text::parse_server_metrics;
use trtllm_sources::trtllm_json::parse_records;

use super::fold::{Fold, engine};
use super::page_text;

const MAX_PAGES: usize = 16;

pub fn run(data: &[u8]) {
    let mut fold = Fold::new(engine());
    // The engine appears on the page only after a record.
    fold.poll_with(|batch| parse_records(br#"[{"iter": 1, "numActiveRequests": 1}]"#, batch).is_ok());
    for page in data.split(|byte| *byte == b'\x0c').take(MAX_PAGES) {
        let Ok(metrics) = parse_server_metrics(page) else { continue };
        fold.poll_with(|batch| {
            batch.push(Message::ServerMetrics(Box::new(metrics)));
            true
        });
    }
    page_text::check(&fold.page(), Format::Text);
}
