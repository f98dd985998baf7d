//! The bodies of the fuzz targets. `fuzz_targets/` runs them with libFuzzer's bytes. `tests/it/fuzz_targets.rs` of the exporter
//! runs them with the committed corpora and mutations of these. A finding is a panic.
// A test includes this file. It does not use every item and exports none.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, dead_code)]

pub mod bench_report;
pub mod fold;
pub mod formats;
pub mod framing;
pub mod negotiation;
pub mod orchestrator;
pub mod page_text;
#[path = "../../crates/page/src/exposition/parsed.rs"]
mod parsed;
pub mod pod_resources;
pub mod records;
pub mod server_metrics;
pub mod session;
pub mod web_config;

/// The name of a corpus, and the function that runs with each of its inputs.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: [Target; 9] = [
    ("records", records::run),
    ("framing", framing::run),
    ("server_metrics", server_metrics::run),
    ("orchestrator", orchestrator::run),
    ("web_config", web_config::run),
    ("negotiation", negotiation::run),
    ("pod_resources", pod_resources::run),
    ("formats", formats::run),
    ("bench_report", bench_report::run),
];
