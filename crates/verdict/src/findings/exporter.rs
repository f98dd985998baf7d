//! Findings about the exporter itself.

use trtllm_records::source::PublisherRefusal;

use super::finding::{Finding, Rule, TEXTS};
use crate::finding_rules;
use crate::verdict::Unit;

finding_rules! {
    TEXTS;
    TASK_RESTARTED = "exporter-task-restarted", Exporter, Warning;
    LOG_LINES_DROPPED = "log-lines-dropped", Exporter, Warning;
    RECORDING_INCOMPLETE = "recording-incomplete", Exporter, Warning;
    PUBLISHERS_REFUSED = "publishers-refused", Exporter, Warning;
    CONFIG_NOT_RELOADED = "config-not-reloaded", Exporter, Warning;
}

/// The exporter's counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExporterMark {
    pub log_lines_dropped: u64,
    pub items_not_recorded: u64,
    /// In the order of [`PublisherRefusal::ALL`].
    pub publishers_refused: [u64; PublisherRefusal::ALL.len()],
}

/// All findings about the exporter. `before` is from a minute ago. `task_restarts` counts since the start. `was_reloaded` says whether the
/// last reload succeeded, if there is a configuration file.
pub fn findings(
    exporter: &str,
    before: &ExporterMark,
    now: &ExporterMark,
    task_restarts: u64,
    was_reloaded: Option<bool>,
) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut counted = |rule: &Rule, name, count: u64, detail: &str| {
        if count > 0 {
            let finding = rule.about(exporter).with(name, count as f64, Unit::Count, None);
            found.push(if detail.is_empty() { finding } else { finding.detail(detail) });
        }
    };
    counted(&TASK_RESTARTED, "restarts of tasks", task_restarts, "");
    let grew = |of: fn(&ExporterMark) -> u64| of(now).saturating_sub(of(before));
    counted(&LOG_LINES_DROPPED, "log lines dropped", grew(|mark| mark.log_lines_dropped), "");
    counted(&RECORDING_INCOMPLETE, "messages not recorded", grew(|mark| mark.items_not_recorded), "");
    let counts = now.publishers_refused.iter().zip(before.publishers_refused).map(|(now, old)| now.saturating_sub(old));
    let refused: Vec<_> = PublisherRefusal::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect();
    let reasons: Vec<&str> = refused.iter().map(|(reason, _)| reason.name()).collect();
    let count = refused.iter().map(|(_, count)| count).sum();
    counted(&PUBLISHERS_REFUSED, "publishers refused", count, &reasons.join(", "));
    if was_reloaded == Some(false) {
        found.push(CONFIG_NOT_RELOADED.about(exporter));
    }
    found
}
