//! The exporter itself.

use super::super::finding::{Check, Facts, Rule, Severity, count, text};
use super::super::observation::Exporter;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "exporter-unreadable",
        severity: Severity::Critical,
        check: Check::Exporter(unreadable),
        says: "The exporter cannot be read.",
        when: "A page or the API does not answer, or answers with another status than 200.",
        guideline: "Without it, the engines have no metrics.",
        change: "Check the URL. Check the process: systemctl status trtllm-exporter, or kubectl logs POD -c trtllm-exporter. With \
                 status 401, use --user-file or --bearer-token-file; with an unknown certificate, --ca-file.",
        alerts: &["TrtllmExporterDown"],
    },
    Rule {
        name: "exporter-task-restarted",
        severity: Severity::Warning,
        check: Check::Exporter(task_restarted),
        says: "A task of the exporter has failed and was restarted.",
        when: "trtllm_exporter_task_restarts_total is above 0.",
        guideline: "The exporter has met a bug, or the system had no more threads or memory.",
        change: "The log has a line \"panic\" with the place. Please report it with doctor --bundle.",
        alerts: &["TrtllmExporterTaskRestarted"],
    },
    Rule {
        name: "log-lines-dropped",
        severity: Severity::Warning,
        check: Check::Exporter(log_lines_dropped),
        says: "The exporter drops log lines. Metrics are not affected.",
        when: "trtllm_exporter_log_lines_dropped_total grew in the window.",
        guideline: "The program that reads the exporter's stderr is too slow or has stopped.",
        change: "Check the log collector.",
        alerts: &["TrtllmExporterLogLinesDropped"],
    },
    Rule {
        name: "recording-incomplete",
        severity: Severity::Warning,
        check: Check::Exporter(recording_incomplete),
        says: "The flight recorder drops records. Metrics are not affected.",
        when: "trtllm_exporter_recorder_dropped_total grew in the window.",
        guideline: "The disk of --record.dir is full, too slow or failing.",
        change: "Free space on the disk, or choose another directory. The log has the cause.",
        alerts: &["TrtllmExporterRecordingIncomplete"],
    },
    Rule {
        name: "publishers-refused",
        severity: Severity::Warning,
        check: Check::Exporter(publishers_refused),
        says: "An ingest socket refuses publishers, so the statistics of their engines are missing.",
        when: "trtllm_exporter_publishers_refused_total grew in the window.",
        guideline: "By reason: uid is not in --ingest.allow-uid; silent and full: too many programs are connected; name: two \
                    publishers say the same model and version; engines: 64 engines are named already.",
        change: "Find out who is connected (ss -xp). Give each engine its own name, or set --ingest.allow-uid.",
        alerts: &["TrtllmExporterPublishersRefused"],
    },
    Rule {
        name: "config-not-reloaded",
        severity: Severity::Warning,
        check: Check::Exporter(config_not_reloaded),
        says: "The last reload of the exporter's configuration failed. The configuration before it is in use.",
        when: "trtllm_exporter_config_last_reload_successful is 0.",
        guideline: "An invalid file changes nothing.",
        change: "trtllm-exporter check-config FILE names the line. Correct the file and send SIGHUP again.",
        alerts: &["TrtllmExporterConfigNotReloaded"],
    },
    Rule {
        name: "gpus-unread",
        severity: Severity::Info,
        check: Check::Exporter(gpus_unread),
        says: "The exporter cannot read the GPUs of its host.",
        when: "trtllm_exporter_nvml_state is driver_not_loaded, version_mismatch, no_permission or failed.",
        guideline: "Without GPU readings, throttling and lost GPUs stay unseen.",
        change: "Check nvidia-smi on the host; in a container, NVIDIA_VISIBLE_DEVICES and NVIDIA_DRIVER_CAPABILITIES=utility; or \
                 set --gpu off.",
        alerts: &[],
    },
];

fn unreadable(exporter: &Exporter) -> Facts {
    exporter.error.as_ref().map(|error| vec![text("error", error)])
}

fn task_restarted(exporter: &Exporter) -> Facts {
    let restarts = exporter.page.after.sum("trtllm_exporter_task_restarts_total", &[])?;
    (restarts > 0.0).then(|| vec![count("restarts of tasks", restarts)])
}

fn log_lines_dropped(exporter: &Exporter) -> Facts {
    let dropped = exporter.page.grew("trtllm_exporter_log_lines_dropped_total", &[]);
    (dropped > 0.0).then(|| vec![count("log lines dropped", dropped)])
}

fn recording_incomplete(exporter: &Exporter) -> Facts {
    let dropped = exporter.page.grew("trtllm_exporter_recorder_dropped_total", &[]);
    (dropped > 0.0).then(|| vec![count("messages not recorded", dropped)])
}

fn publishers_refused(exporter: &Exporter) -> Facts {
    let refused = exporter.page.grew("trtllm_exporter_publishers_refused_total", &[]);
    let by_reason = ["silent", "full", "uid", "name", "engines"]
        .into_iter()
        .filter(|reason| exporter.page.grew("trtllm_exporter_publishers_refused_total", &[("reason", reason)]) > 0.0);
    (refused > 0.0)
        .then(|| vec![count("publishers refused", refused), text("reasons", by_reason.collect::<Vec<_>>().join(", "))])
}

fn config_not_reloaded(exporter: &Exporter) -> Facts {
    let value = exporter.page.now("trtllm_exporter_config_last_reload_successful", &[]);
    (value == Some(0.0)).then(|| vec![count("trtllm_exporter_config_last_reload_successful", 0.0)])
}

fn gpus_unread(exporter: &Exporter) -> Facts {
    let state = exporter.page.after.current("trtllm_exporter_nvml_state", "state")?;
    let applies = matches!(state, "driver_not_loaded" | "version_mismatch" | "no_permission" | "failed");
    applies.then(|| vec![text("trtllm_exporter_nvml_state", state)])
}
