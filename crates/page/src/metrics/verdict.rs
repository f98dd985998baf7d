//! What limits an engine, as a state set.

use trtllm_verdict::cause::Cause;

use crate::state::Judged;

use super::catalog::Id;
use super::page::Page;
use super::series_labels::SeriesLabels;
use super::writer::SampleWriter;

pub(super) fn verdict_page(labels: &SeriesLabels, judged: &Judged) -> Page {
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
    page.page
}
