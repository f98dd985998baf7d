//! Whether the numbers of an engine arrive, are complete and are current.

use super::super::about::About;
use super::super::finding::{Check, Fact, Facts, Rule, Severity, count, seconds, share, text};
use super::super::observation::Engine;
use super::super::thresholds::{ANSWERS_BY, LOADED_BY};
use trtllm_model::server_metrics::SEVERAL_FRONTENDS;

/// Records per poll at which a ring of the default size (1000) may overflow: half of it.
const NEAR_OVERFLOW: f64 = 500.0;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "engine-unreachable",
        severity: Severity::Warning,
        check: Check::Engine(engine_unreachable),
        says: "The engine has answered before and does not answer any more.",
        when: "nv_trt_llm_engine_state is unreachable.",
        guideline: "A server that was stopped on purpose, or loads its model again, does not answer either. Its load gauges are \
                    absent.",
        change: "Check that the server runs (its log, its exit code), and restart it. If it serves requests, check the address in \
                 --source.",
        alerts: &["TrtllmEngineUnreachable"],
    },
    Rule {
        name: "engine-stalled",
        severity: Severity::Critical,
        check: Check::Engine(engine_stalled),
        says: "The engine has requests and runs no batch.",
        when: "nv_trt_llm_engine_state is stalled: for --stale-after, requests were active and no record had a batch.",
        guideline: "The loop hangs, another reader takes the statistics, or no request can get KV cache blocks: transfers that \
                    were cancelled may have kept theirs.",
        change: "Take a stack dump (py-spy dump, gdb), look for Xid errors in dmesg, then restart the engine.",
        alerts: &["TrtllmEngineStalled", "TrtllmNoIterations"],
    },
    Rule {
        name: "engine-restarted",
        severity: Severity::Warning,
        check: Check::Engine(engine_restarted),
        says: "The engine restarted while it was watched.",
        when: "nv_trt_llm_engine_restarts_total grew in the window.",
        guideline: "Its requests were lost, and its KV cache is empty again.",
        change: "Read the engine's log: out of memory, a failed probe, an assertion.",
        alerts: &["TrtllmEngineRestarted", "TrtllmEngineRestartLoop"],
    },
    Rule {
        name: "source-never-answered",
        severity: Severity::Warning,
        check: Check::Engine(source_never_answered),
        says: "The source of this engine has never answered with statistics.",
        when: "The engine is starting and no poll has succeeded for 2 minutes; or its model loads for 60 minutes.",
        guideline: "A server may load its model before it listens. The exporter cannot tell this from a wrong address.",
        change: "Check that the server runs (its log), and that --source names its address. If the model still loads, wait.",
        alerts: &["TrtllmSourceDown"],
    },
    Rule {
        name: "engine-starting",
        severity: Severity::Info,
        check: Check::Engine(engine_starting),
        says: "The engine is not ready yet.",
        when: "The engine is starting, and its source has not answered yet, or says that the model is being loaded.",
        guideline: "After 2 minutes without an answer, or 60 minutes of loading, it is a warning: source-never-answered.",
        change: "Wait until the model is loaded. If the server has loaded it, check the address in --source.",
        alerts: &[],
    },
    Rule {
        name: "source-without-statistics",
        severity: Severity::Warning,
        check: Check::Engine(source_without_statistics),
        says: "The address in --source answers, but not with statistics of an engine.",
        when: "The engine is starting, and polls fail with the kind not_json.",
        guideline: "A server that loads its model refuses connections, or answers with an error status.",
        change: "--source trtllm-serve:http://HOST:PORT with the port of trtllm-serve. A page for Prometheus, such as that of a worker \
                 of Dynamo, has no records: use --source socket:PATH and the Python package.",
        alerts: &["TrtllmSourceDown"],
    },
    Rule {
        name: "source-failing",
        severity: Severity::Warning,
        check: Check::Engine(source_failing),
        says: "Some polls of this engine fail, so its numbers have gaps.",
        when: "At least 10 % of the polls in the window failed, and the engine has answered before.",
        guideline: "Each poll that fails delays records, and a full ring loses them.",
        change: "Look at trtllm_exporter_poll_errors_total by kind and at the exporter's log. With the kind timeout, raise \
                 --poll.timeout; releases up to 1.2 answer after 2 s.",
        alerts: &[],
    },
    Rule {
        name: "statistics-off",
        severity: Severity::Warning,
        check: Check::Engine(statistics_off),
        says: "Requests end, but the engine sends no iteration statistics.",
        when: "trtllm_exporter_source_records_missing is 1, or requests finish in the window and no record has ever arrived.",
        guideline: "The PyTorch engine records nothing unless this option is on.",
        change: "enable_iter_perf_stats: true (C++ Executor: iterStatsMaxIterations above 0). If it is on, another program reads \
                 /metrics of the engine: each record is given once.",
        alerts: &["TrtllmStatisticsMissing"],
    },
    Rule {
        name: "statistics-sampled",
        severity: Severity::Info,
        check: Check::Engine(statistics_sampled),
        says: "The engine reports only some of its iterations.",
        when: "nv_trt_llm_statistics_interval_iterations is above 1.",
        guideline: "Token counters are absent then, and histograms have one observation per record.",
        change: "iter_perf_stats_interval: 1",
        alerts: &[],
    },
    Rule {
        name: "statistics-lost",
        severity: Severity::Warning,
        check: Check::Engine(statistics_lost),
        says: "The engine's ring of records overflows between polls, so rates and histograms are too low.",
        when: "Iterations were lost in the window, and the engine dropped frames itself or runs more than 500 iterations per poll.",
        guideline: "A ring keeps the newest iter_stats_max_iterations records (default 1000) and drops the oldest silently.",
        change: "Raise iter_stats_max_iterations (C++ Executor: iterStatsMaxIterations), or lower --poll.interval of the exporter.",
        alerts: &["TrtllmStatisticsLost"],
    },
    Rule {
        name: "second-reader",
        severity: Severity::Warning,
        check: Check::Engine(second_reader),
        says: "Another program takes records of this engine.",
        when: "Iterations were lost in the window although the ring cannot have overflowed; or at least 20 % of the iterations of \
               an engine that is not sampled have no record. Not if it waits for KV cache transfers.",
        guideline: "Reading the statistics removes them: each engine needs exactly one reader.",
        change: "Find the other reader of GET /metrics, getLatestIterationStats() or get_stats(): another exporter, a script, a \
                 second replica. Let it read the exporter instead.",
        alerts: &["TrtllmStatisticsLost", "TrtllmStatisticsReadTwice"],
    },
    Rule {
        name: "several-frontends",
        severity: Severity::Warning,
        check: Check::Engine(several_frontends),
        says: "Several frontends answer for this engine, so its server's own numbers are unknown and records can be lost.",
        when: "Counts of /prometheus/metrics fall again and again, while the server answers all the time.",
        guideline: "Each frontend of trtllm-serve (--num_serve_frontends) counts its own requests, and no answer says whose it is. \
                    What came from that page is absent. Up to TensorRT-LLM #19394 each frontend takes records, too.",
        change: "Start the server with one frontend, or set PROMETHEUS_MULTIPROC_DIR for it (an empty directory). For lost records: \
                 one frontend, or a release with TensorRT-LLM #19394. The lines of perf_metrics_dir are complete in any case.",
        alerts: &[],
    },
    Rule {
        name: "records-rejected",
        severity: Severity::Warning,
        check: Check::Engine(records_rejected),
        says: "The exporter rejects records of this engine, because they are not valid.",
        when: "trtllm_exporter_records_rejected_total grew in the window.",
        guideline: "A record with an impossible value is rejected as a whole.",
        change: "Compare the publisher with docs/sources.md; for trtllm-serve, report the release with doctor --bundle.",
        alerts: &["TrtllmRecordsRejected"],
    },
    Rule {
        name: "engine-newer",
        severity: Severity::Info,
        check: Check::Engine(engine_newer),
        says: "The engine is newer than this exporter.",
        when: "The engine uses names that the exporter does not know (trtllm_exporter_source_unread_keys): keys, families, or paths whose \
               answers have another shape.",
        guideline: "What the exporter does not know is not on its page. What it knows is still right.",
        change: "Update the exporter. If you have its newest release, report these keys to the project.",
        alerts: &[],
    },
    Rule {
        name: "request-latencies-missing",
        severity: Severity::Info,
        check: Check::Engine(request_latencies_missing),
        says: "The engine reports no times of requests, so there are no latency histograms.",
        when: "Requests complete, and nv_trt_llm_request_latency_info says none.",
        guideline: "trtllm-serve has the times of requests on /prometheus/metrics with return_perf_metrics, and in files with \
                    perf_metrics_output_dir; releases up to 1.2 have them on /perf_metrics. Rows of requests \
                    (enable_iter_req_stats) give them with an accuracy of one iteration.",
        change: "return_perf_metrics: true; up to release 1.2 also perf_metrics_max_requests above 0. Or, in newer releases, \
                 perf_metrics_output_dir: DIR, and --source trtllm-serve:…?perf_metrics_dir=DIR. C++ Executor: \
                 OutputConfig.returnPerfMetrics, or requestStatsMaxIterations above 0.",
        alerts: &[],
    },
    Rule {
        name: "objectives-unknown",
        severity: Severity::Info,
        check: Check::Engine(objectives_unknown),
        says: "Nothing tells whether the requests of this engine meet their objectives.",
        when: "Objectives are set, and nv_trt_llm_objective_requests_total grew in the window with the outcome unknown only.",
        guideline: "Each request is judged by its own times. Releases of trtllm-serve without /perf_metrics have the times of single \
                    requests in the files of perf_metrics_output_dir, and in rows of requests.",
        change: "perf_metrics_output_dir: DIR on the server, and --source trtllm-serve:…?perf_metrics_dir=DIR. Or \
                 enable_iter_req_stats: true, beside enable_iter_perf_stats: true. Or limits that are bounds of the server's buckets.",
        alerts: &[],
    },
];

fn state_is(engine: &Engine, state: &str) -> Facts {
    (engine.state() == state).then(|| {
        let mut facts = vec![text("state", state)];
        facts.extend(engine.about.last_poll.error.as_deref().map(|error| text("last poll", error)));
        let iterations = engine.page.now("nv_trt_llm_iterations_total", &[]);
        facts.extend(iterations.map(|iterations| count("iterations so far", iterations)));
        facts
    })
}

fn engine_unreachable(engine: &Engine) -> Facts {
    state_is(engine, "unreachable")
}

fn engine_stalled(engine: &Engine) -> Facts {
    let mut facts = state_is(engine, "stalled")?;
    facts.push(text("cause", &engine.about.why));
    Some(facts)
}

fn engine_restarted(engine: &Engine) -> Facts {
    let restarts = engine.page.grew("nv_trt_llm_engine_restarts_total", &[]);
    (restarts > 0.0).then(|| vec![count("restarts", restarts)])
}

/// How long an engine has been starting without an answer, in seconds, and whether that is too long.
fn unanswered(engine: &Engine) -> Option<(f64, bool)> {
    let limit = match engine.about.start_phase.as_deref() {
        Some("never_answered") => ANSWERS_BY,
        Some("loading") => LOADED_BY,
        _ => return None,
    };
    let seconds = engine.unanswered.unwrap_or(0.0);
    let applies = engine.state() == "starting" && source_without_statistics(engine).is_none();
    applies.then_some((seconds, seconds >= limit))
}

fn unanswered_facts(engine: &Engine, time: f64) -> Vec<Fact> {
    let cause = match &engine.about.last_poll.error {
        Some(error) => text("error", error),
        None => text("cause", &engine.about.why),
    };
    vec![cause, seconds("time without an answer", time)]
}

fn source_never_answered(engine: &Engine) -> Facts {
    let (time, is_long) = unanswered(engine)?;
    is_long.then(|| unanswered_facts(engine, time))
}

fn engine_starting(engine: &Engine) -> Facts {
    let (time, is_long) = unanswered(engine)?;
    (!is_long).then(|| unanswered_facts(engine, time))
}

fn source_without_statistics(engine: &Engine) -> Facts {
    let polls = engine.page.grew("trtllm_exporter_poll_errors_total", &[("kind", "not_json")]);
    (engine.state() == "starting" && polls > 0.0).then(|| {
        let mut facts = vec![count("failed polls", polls)];
        facts.extend(engine.about.last_poll.error.as_deref().map(|error| text("last poll", error)));
        facts
    })
}

fn errors(engine: &Engine) -> f64 {
    engine.page.grew("trtllm_exporter_poll_errors_total", &[])
}

fn source_failing(engine: &Engine) -> Facts {
    let polls = engine.page.grew("trtllm_exporter_polls_total", &[]);
    let applies = matches!(engine.state(), "busy" | "idle") && errors(engine) >= 1.0 && errors(engine) >= 0.1 * polls;
    applies.then(|| vec![count("failed polls", errors(engine)), count("polls", polls)])
}

fn statistics_off(engine: &Engine) -> Facts {
    let page = &engine.page;
    let missing = page.now("trtllm_exporter_source_records_missing", &[]) == Some(1.0);
    let finished = page
        .grew("nv_trt_llm_requests_finished_total", &[])
        .max(page.grew("nv_trt_llm_e2e_request_latency_seconds_count", &[]));
    let never = page.now("nv_trt_llm_iterations_total", &[]).unwrap_or(0.0) == 0.0 && finished > 0.0;
    (missing || never).then(|| {
        vec![
            count("requests finished in the window", finished),
            count("iterations in the window", page.grew("nv_trt_llm_iterations_total", &[])),
        ]
    })
}

fn statistics_sampled(engine: &Engine) -> Facts {
    (engine.sampling() > 1.0).then(|| vec![count("iterations per record", engine.sampling())])
}

fn lost(engine: &Engine) -> f64 {
    engine.page.grew("nv_trt_llm_iterations_lost_total", &[])
}

/// Iterations per poll of the source, with those that were lost.
fn iterations_per_poll(engine: &Engine) -> f64 {
    let iterations = engine.page.grew("nv_trt_llm_iterations_total", &[]) + lost(engine);
    iterations / engine.page.grew("trtllm_exporter_polls_total", &[]).max(1.0)
}

fn overflows(engine: &Engine) -> bool {
    engine.batches.dropped > 0 || iterations_per_poll(engine) >= NEAR_OVERFLOW
}

fn statistics_lost(engine: &Engine) -> Facts {
    (lost(engine) > 0.0 && overflows(engine)).then(|| {
        vec![
            count("iterations lost", lost(engine)),
            count("frames dropped by the engine", engine.batches.dropped as f64),
            count("iterations per poll", iterations_per_poll(engine)),
        ]
    })
}

fn second_reader(engine: &Engine) -> Facts {
    let iterations = engine.page.grew("nv_trt_llm_iterations_total", &[]);
    let unreported = engine.page.grew("nv_trt_llm_iterations_unreported_total", &[]);
    let stolen = lost(engine) > 0.0 && !overflows(engine);
    // A loop pass without a batch has no record either. A busy engine has few of them, but one that waits for KV cache transfers
    // may have many.
    let waits = engine.page.grew("nv_trt_llm_kv_cache_transfer_seconds_count", &[]) > 0.0;
    let gaps =
        !waits && engine.sampling() == 1.0 && unreported >= 10.0 && unreported >= 0.2 * (iterations + unreported);
    // The other frontends are the reader.
    (!has_several_frontends(engine) && (stolen || gaps)).then(|| {
        vec![
            count("iterations lost", lost(engine)),
            count("iterations without a record", unreported),
            share("iterations with a record", iterations / (iterations + unreported + lost(engine)).max(1.0)),
        ]
    })
}

fn records_rejected(engine: &Engine) -> Facts {
    let rejected = engine.page.grew("trtllm_exporter_records_rejected_total", &[]);
    (rejected > 0.0).then(|| vec![count("records rejected", rejected)])
}

fn objectives_unknown(engine: &Engine) -> Facts {
    let grew = |outcome| {
        engine.page.grew("nv_trt_llm_objective_requests_total", &[("objective", "all"), ("outcome", outcome)])
    };
    let (known, unknown) = (grew("met") + grew("missed"), grew("unknown"));
    (known == 0.0 && unknown > 0.0).then(|| vec![count("requests with an unknown outcome", unknown)])
}

fn several_frontends(engine: &Engine) -> Facts {
    has_several_frontends(engine).then(|| vec![count("iterations lost", lost(engine))])
}

fn has_several_frontends(engine: &Engine) -> bool {
    engine.about.notice.as_deref() == Some(SEVERAL_FRONTENDS)
}

fn engine_newer(engine: &Engine) -> Facts {
    let About { unread_keys, missing_endpoints, .. } = &engine.about;
    let mut facts = vec![text("unread keys", unread_keys.join(", "))];
    if !missing_endpoints.is_empty() {
        facts.push(text("endpoints that are gone", missing_endpoints.join(", ")));
    }
    (!unread_keys.is_empty()).then_some(facts)
}

fn request_latencies_missing(engine: &Engine) -> Facts {
    let page = &engine.page;
    let none = [&page.before, &page.after]
        .iter()
        .all(|page| page.current("nv_trt_llm_request_latency_info", "from") == Some("none"));
    let completed = page.before.get("nv_trt_llm_requests_completed_total", &[]).unwrap_or(0.0);
    let now = page.grew("nv_trt_llm_requests_completed_total", &[]);
    (none && completed >= 20.0 && now > 0.0).then(|| vec![count("requests completed", completed + now)])
}
