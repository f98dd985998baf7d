//! What a source says about its options when it is asked directly.

use super::super::finding::{Check, Facts, Rule, Severity, count, text};
use super::super::observation::{Reached, SourceAnswer};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "source-unanswered",
        severity: Severity::Warning,
        check: Check::Source(unanswered),
        says: "The server does not answer.",
        when: "The connection fails, or /version is not answered within 5 s or only in part. Not while an engine of an exporter is \
               starting.",
        guideline: "A server that loads its model does not listen yet. One that accepts connections and does not answer hangs.",
        change: "Check that the server runs (its log, its exit code), that --source names its address, http or https as the server \
                 does, and that no firewall is between.",
        alerts: &[],
    },
    Rule {
        name: "source-not-asked",
        severity: Severity::Warning,
        check: Check::Source(not_asked),
        says: "The server was not asked, because a certificate or token for it cannot be read.",
        when: "The file in ca_file or bearer_token_file of the source cannot be read, or has no certificate or token; or the system \
               has no certificates for https.",
        guideline: "The exporter reads the same files, maybe as another user.",
        change: "Correct ca_file or bearer_token_file in --source, or run doctor as the exporter's user.",
        alerts: &[],
    },
    Rule {
        name: "source-refused",
        severity: Severity::Warning,
        check: Check::Source(refused),
        says: "The server refuses the token, or wants one.",
        when: "The server answers with status 401 or 403.",
        guideline: "The exporter gets the same answer.",
        change: "bearer_token_file in --source.",
        alerts: &[],
    },
    Rule {
        name: "source-other",
        severity: Severity::Warning,
        check: Check::Source(other),
        says: "The address in --source is not that of a trtllm-serve.",
        when: "/version does not answer with a version of TensorRT-LLM.",
        guideline: "Other servers have other statistics.",
        change: "--source trtllm-serve:http://HOST:PORT with the port of trtllm-serve (8000 by default).",
        alerts: &[],
    },
    Rule {
        name: "source-unhealthy",
        severity: Severity::Critical,
        check: Check::Source(unhealthy),
        says: "The server says that its engine has failed.",
        when: "/health answers with a status of 500 or more.",
        guideline: "After a fatal error of the engine, trtllm-serve shuts itself down.",
        change: "Read the server's log, and restart it.",
        alerts: &[],
    },
    Rule {
        name: "iteration-statistics-off",
        severity: Severity::Warning,
        check: Check::Source(iteration_statistics_off),
        says: "The server finishes requests and records no iterations.",
        when: "/prometheus/metrics has finished requests and no family of the iterations, in a release that has these.",
        guideline: "The PyTorch engine records nothing unless this option is on.",
        change: "enable_iter_perf_stats: true",
        alerts: &[],
    },
    Rule {
        name: "perf-metrics-off",
        severity: Severity::Info,
        check: Check::Source(perf_metrics_off),
        says: "The server reports no finish reasons, no tokens and no latencies of requests.",
        when: "/prometheus/metrics is missing in release 1.1 or newer.",
        guideline: "The server's own page has the times and tokens of its requests, and why they ended.",
        change: "return_perf_metrics: true. For the latencies of single requests also perf_metrics_output_dir, or in releases up to 1.2 \
                 perf_metrics_max_requests above 0.",
        alerts: &[],
    },
    Rule {
        name: "block-reuse-off",
        severity: Severity::Info,
        check: Check::Source(block_reuse_off),
        says: "The server computes every prompt completely: it reuses no blocks of the KV cache.",
        when: "trtllm_kv_cache_config_info on /prometheus/metrics says enable_block_reuse=\"False\".",
        guideline: "Enable automatic prefix caching.",
        change: "kv_cache_config.enable_block_reuse: true",
        alerts: &[],
    },
    Rule {
        name: "socket-missing",
        severity: Severity::Warning,
        check: Check::Source(socket_missing),
        says: "The ingest socket does not exist, so no publisher can connect.",
        when: "The path of a socket: source does not exist.",
        guideline: "The exporter creates the socket when it starts.",
        change: "Start the exporter with this --source, or correct the path. In a pod, mount the folder into both containers.",
        alerts: &[],
    },
];

fn unanswered(source: &SourceAnswer) -> Facts {
    match &source.reached {
        Reached::No(why) if !source.starting => Some(vec![text("error", why)]),
        _ => None,
    }
}

fn not_asked(source: &SourceAnswer) -> Facts {
    match &source.reached {
        Reached::NotAsked(why) => Some(vec![text("error", why)]),
        _ => None,
    }
}

fn refused(source: &SourceAnswer) -> Facts {
    match source.reached {
        Reached::Refused(status) => Some(vec![count("status", f64::from(status))]),
        _ => None,
    }
}

fn other(source: &SourceAnswer) -> Facts {
    (source.reached == Reached::Other).then(|| vec![text("/version", "no version")])
}

fn unhealthy(source: &SourceAnswer) -> Facts {
    let status = source.health.filter(|status| *status >= 500)?;
    Some(vec![count("status of /health", f64::from(status))])
}

fn iteration_statistics_off(source: &SourceAnswer) -> Facts {
    let Some(Ok(page)) = &source.page else { return None };
    let finished = page.sum("trtllm_request_success_total", &[])?;
    // Releases with the configuration also have the families of the iterations, once there was one.
    let knows = page.sum("trtllm_model_config_info", &[]).is_some();
    let has = page.0.iter().any(|series| series.name == "trtllm_max_num_active_requests");
    (finished >= 1.0 && knows && !has)
        .then(|| vec![count("requests finished", finished), text("trtllm_max_num_active_requests", "absent")])
}

fn perf_metrics_off(source: &SourceAnswer) -> Facts {
    let version = source.version.as_deref()?;
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().ok());
    let release = (numbers.next()??, numbers.next()??);
    let applies = source.page == Some(Err(404)) && release >= (1, 1);
    applies.then(|| vec![text("version", version), count("status of /prometheus/metrics", 404.0)])
}

fn block_reuse_off(source: &SourceAnswer) -> Facts {
    let Some(Ok(page)) = &source.page else { return None };
    let reuse = page.label("trtllm_kv_cache_config_info", "enable_block_reuse")?;
    reuse.eq_ignore_ascii_case("false").then(|| vec![text("enable_block_reuse", reuse)])
}

fn socket_missing(source: &SourceAnswer) -> Facts {
    (source.reached == Reached::NoSocket).then(|| vec![text("path", source.target.trim_start_matches("socket:"))])
}
