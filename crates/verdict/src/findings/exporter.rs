//! Findings about the exporter itself.

use trtllm_records::source::PublisherRefusal;

use super::Finding;
use crate::finding_rules;
use crate::verdict::Unit;

finding_rules! {
    TASK_RESTARTED = "exporter-task-restarted", Exporter, Warning:
        "A task of the exporter has failed and was restarted.",
        "trtllm_exporter_task_restarts_total is above 0: the exporter has met a bug, or the system had no more threads or memory.",
        "The log has a line \"panic\" with the place. Please report it with trtllm-doctor diagnose --bundle.";
    LOG_LINES_DROPPED = "log-lines-dropped", Exporter, Warning:
        "The exporter drops log lines. Metrics are not affected.",
        "trtllm_exporter_log_lines_dropped_total grew in the last minute: the program that reads the exporter's stderr is too slow or has \
         stopped.",
        "Check the log collector.";
    RECORDING_INCOMPLETE = "recording-incomplete", Exporter, Warning:
        "The flight recorder drops records. Metrics are not affected.",
        "trtllm_exporter_recorder_dropped_total grew in the last minute: the recorder's queue was full, or writes to --record.dir failed \
         (trtllm_exporter_recorder_errors_total).",
        "If writes failed, free space on the disk or choose another directory; the log has the cause. Otherwise give the exporter more CPU time, \
         or use a faster disk.";
    PUBLISHERS_REFUSED = "publishers-refused", Exporter, Warning:
        "An ingest socket refuses publishers, so the statistics of their engines are missing",
        "trtllm_exporter_publishers_refused_total grew in the last minute. By reason: uid is not in --ingest.allow-uid; silent and full: too \
         many programs are connected; name: two publishers say the same model and version; engines: 64 engines are named already.",
        "Find out who is connected (ss -xp). Give each engine its own name, or set --ingest.allow-uid.";
    CONFIG_NOT_RELOADED = "config-not-reloaded", Exporter, Warning:
        "The last reload of the exporter's configuration failed. The configuration before it is in use.",
        "trtllm_exporter_config_last_reload_successful is 0. An invalid file changes nothing.",
        "trtllm-exporter check-config FILE names the line. Correct the file and send SIGHUP again.";
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
#[must_use]
pub fn findings(
    exporter: &str,
    before: &ExporterMark,
    now: &ExporterMark,
    task_restarts: u64,
    was_reloaded: Option<bool>,
) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut counted = |rule: &super::Rule, name, count: u64, detail: &str| {
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
