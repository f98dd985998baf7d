//! What limits an engine, as a state set, and how far it is from its limits.

use trtllm_model::BenchReport;
use trtllm_verdict::cause::Cause;

use crate::state::Judged;

use super::catalog::Id;
use super::page::Page;
use super::series_labels::SeriesLabels;
use super::writer::SampleWriter;

pub(super) fn verdict_page(labels: &SeriesLabels, judged: &Judged, bench: Option<&BenchReport>) -> Page {
    let mut page = SampleWriter::new(labels);
    if let Some(verdict) = judged.verdict.verdict() {
        page.in_order(Id::LimitedBy, Cause::ALL.map(|cause| Some(u64::from(cause == verdict.cause))));
        page.one(Id::LimitedBySince, verdict.since);
        page.one(Id::LimitedBySeverity, verdict.severity as u64);
    }
    page.put(Id::IterationSlowdown, judged.slowdown);
    let headroom = judged.headroom();
    page.put(Id::Capacity, headroom.map(|headroom| headroom.capacity));
    page.put(Id::Headroom, headroom.map(|headroom| headroom.free));
    let outputs = judged.output_ratios(bench);
    page.in_order(Id::ThroughputOfReference, outputs.map(|of| of.throughput));
    page.in_order(Id::EfficiencyOfReference, outputs.map(|of| of.efficiency));
    page.page
}
