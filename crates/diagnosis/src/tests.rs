//! Every rule finds its problem in a fabricated observation, and none finds one in a healthy engine.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};

use trtllm_model::IterationStats;

use trtllm_model::server_metrics::SEVERAL_FRONTENDS;

use super::about::About;
use super::batches::Batches;
use super::finding::Severity;
use super::judge::judge;
use super::observation::{Engine, Exporter, Observation, Reached, SourceAnswer, configured, gpus};
use super::page::{Change, Page};
use super::{report, rules};

mod benchmark;
mod orchestrator;
mod situations;

/// A series and its value on both pages.
type Line = (&'static str, f64, f64);

/// Ten seconds of a healthy engine, and of its GPU.
const HEALTHY: &[Line] = &[
    ("nv_trt_llm_engine_state{state=\"busy\"}", 1.0, 1.0),
    ("nv_trt_llm_iterations_total", 4000.0, 4500.0),
    ("nv_trt_llm_iterations_lost_total", 3.0, 3.0),
    ("nv_trt_llm_iterations_unreported_total", 7.0, 8.0),
    ("nv_trt_llm_engine_restarts_total", 1.0, 1.0),
    ("nv_trt_llm_requests_started_total", 900.0, 1000.0),
    ("nv_trt_llm_requests_completed_total", 890.0, 990.0),
    ("nv_trt_llm_requests_finished_total{reason=\"stop\"}", 890.0, 990.0),
    ("nv_trt_llm_context_tokens_total", 90e3, 100e3),
    ("nv_trt_llm_generation_tokens_total", 180e3, 200e3),
    ("nv_trt_llm_kv_cache_blocks_allocated_total", 5000.0, 6000.0),
    ("nv_trt_llm_kv_cache_blocks_reused_total", 4500.0, 5000.0),
    ("nv_trt_llm_kv_cache_blocks_missed_total", 500.0, 600.0),
    ("nv_trt_llm_request_pauses_total", 2.0, 2.0),
    ("nv_trt_llm_iteration_latency_seconds_sum", 64.0, 72.0),
    ("nv_trt_llm_iteration_latency_seconds_count", 4000.0, 4500.0),
    ("nv_trt_llm_iteration_scheduled_requests_sum", 60e3, 70e3),
    ("nv_trt_llm_new_request_queue_time_seconds_sum", 9.0, 10.0),
    ("nv_trt_llm_new_request_queue_time_seconds_count", 900.0, 1000.0),
    ("nv_trt_llm_time_to_first_token_seconds_sum", 90.0, 100.0),
    ("nv_trt_llm_time_to_first_token_seconds_count", 900.0, 1000.0),
    ("nv_trt_llm_e2e_request_latency_seconds_sum", 900.0, 1000.0),
    ("nv_trt_llm_e2e_request_latency_seconds_count", 900.0, 1000.0),
    ("nv_trt_llm_host_step_seconds_sum", 64.0, 72.0),
    ("nv_trt_llm_host_step_seconds_count", 4000.0, 4500.0),
    ("nv_trt_llm_device_step_seconds_sum", 60.0, 67.0),
    ("nv_trt_llm_device_step_seconds_count", 4000.0, 4500.0),
    ("nv_trt_llm_spec_decode_draft_tokens_total", 10e3, 20e3),
    ("nv_trt_llm_spec_decode_accepted_tokens_total", 8e3, 16e3),
    ("nv_trt_llm_spec_decode_drafted_requests_total", 3e3, 7e3),
    ("nv_trt_llm_kv_cache_transfer_seconds_sum", 9.0, 10.0),
    ("nv_trt_llm_kv_cache_transfer_seconds_count", 900.0, 1000.0),
    ("nv_trt_llm_request_latency_info{from=\"perf_metrics\"}", 1.0, 1.0),
    ("nv_trt_llm_statistics_interval_iterations", 1.0, 1.0),
    ("trtllm_exporter_source_up", 1.0, 1.0),
    ("trtllm_exporter_source_records_missing", 0.0, 0.0),
    ("trtllm_exporter_polls_total", 1000.0, 1100.0),
    ("trtllm_exporter_poll_errors_total{kind=\"timeout\"}", 2.0, 3.0),
    ("trtllm_exporter_records_rejected_total{reason=\"not_json\"}", 1.0, 1.0),
    ("trtllm_exporter_task_restarts_total{task=\"poll\"}", 0.0, 0.0),
    ("trtllm_exporter_log_lines_dropped_total", 5.0, 5.0),
    ("trtllm_exporter_publishers_refused_total{reason=\"uid\"}", 5.0, 5.0),
    ("trtllm_exporter_config_last_reload_successful", 1.0, 1.0),
    ("trtllm_exporter_nvml_state{state=\"up\"}", 1.0, 1.0),
    ("trtllm_exporter_nvml_gpus", 2.0, 2.0),
    ("trtllm_exporter_nvml_gpus_expected", 2.0, 2.0),
    ("nv_gpu_up{gpu_uuid=\"GPU-a\"}", 1.0, 1.0),
    ("nv_gpu_state{gpu_uuid=\"GPU-a\",state=\"ok\"}", 1.0, 1.0),
    ("nv_gpu_throttle_seconds_total{gpu_uuid=\"GPU-a\",policy=\"power\"}", 10.0, 11.0),
    ("nv_gpu_throttle_seconds_total{gpu_uuid=\"GPU-a\",policy=\"hw_thermal_slowdown\"}", 10.0, 10.1),
    ("nv_gpu_clocks_event_active{gpu_uuid=\"GPU-a\",reason=\"gpu_idle\"}", 1.0, 1.0),
    ("nv_gpu_xid_errors_total{gpu_uuid=\"GPU-a\",xid=\"79\"}", 1.0, 1.0),
    ("nv_gpu_recovery_action{gpu_uuid=\"GPU-a\"}", 0.0, 0.0),
];

/// A healthy record: every eighth iteration has a context phase.
fn record(iter: u64) -> Value {
    let context = u64::from(iter.is_multiple_of(8));
    json!({"iter": iter, "attentionDpRank": 0, "iterLatencyMS": 14 + 6 * context, "numActiveRequests": 20, "numQueuedRequests": 0,
        "maxNumActiveRequests": 64, "maxBatchSizeRuntime": 64, "maxBatchSizeStatic": 64, "maxNumTokensRuntime": 2048,
        "kvCacheStats": {"maxNumBlocks": 1000, "usedNumBlocks": 850, "freeNumBlocks": 150},
        "inflightBatchingStats": {"numScheduledRequests": 20, "numContextRequests": context, "numGenRequests": 20 - context,
            "numCtxTokens": 300 * context, "numPausedRequests": 0}})
}

/// `change` is merged into the record.
fn with(mut record: Value, change: Value) -> Value {
    for (key, value) in change.as_object().unwrap() {
        match (record[key].as_object_mut(), value.as_object()) {
            (Some(fields), Some(new)) => fields.extend(new.clone()),
            _ => record[key] = value.clone(),
        }
    }
    record
}

fn page(lines: &[Line], removed: &[&str], at: fn(&Line) -> f64) -> Page {
    let mut text = String::new();
    let replaced = |name: &str| lines[HEALTHY.len()..].iter().any(|(other, ..)| *other == name);
    for (index, line) in lines.iter().enumerate() {
        let is_old = index < HEALTHY.len() && (replaced(line.0) || removed.iter().any(|name| line.0.starts_with(name)));
        if !is_old {
            writeln!(text, "{} {}", line.0, at(line)).unwrap();
        }
    }
    Page::parse(text.as_bytes())
}

/// What is different from a healthy engine.
#[derive(Default)]
struct Case {
    lines: &'static [Line],
    removed: &'static [&'static str],
    record: Option<fn(u64) -> Vec<Value>>,
    /// What the API says of the engine: its `startPhase`, and the seconds without an answer.
    start: Option<(&'static str, f64)>,
}

fn observation(case: &Case) -> Observation {
    let lines = [HEALTHY, case.lines].concat();
    let page =
        Change { before: page(&lines, case.removed, |line| line.1), after: page(&lines, case.removed, |line| line.2) };
    let rows = (0..100).flat_map(|iter| case.record.map_or_else(|| vec![record(iter)], |record| record(iter)));
    let records: Vec<IterationStats> = rows.map(|row| serde_json::from_value(row).unwrap()).collect();
    let window = Duration::from_secs(10);
    let mut about =
        About { model: "m".to_owned(), version: "1".to_owned(), state: "busy".to_owned(), ..About::default() };
    about.start_phase = case.start.map(|(phase, _)| phase.to_owned());
    about.last_poll.error = case.start.map(|_| "connection refused".to_owned());
    let unanswered = case.start.map(|(_, seconds)| seconds);
    let batches = Batches::of(&records, configured(&page.after));
    let engine = Engine { window: 10.0, unanswered, page: page.clone(), batches, about };
    let exporter = Exporter {
        url: "http://e".to_owned(),
        window,
        gpus: gpus(&page, window),
        page,
        engines: vec![engine],
        ..Exporter::default()
    };
    let source = SourceAnswer {
        target: "http://s".to_owned(),
        version: Some("1.3.0".to_owned()),
        health: Some(200),
        ..SourceAnswer::default()
    };
    let sources = vec![SourceAnswer { page: Some(Ok(server_page("trtllm_max_num_active_requests 8\n"))), ..source }];
    Observation { exporters: vec![exporter], sources }
}

fn server_page(more: &str) -> Page {
    let text = "trtllm_request_success_total{finished_reason=\"stop\"} 5\ntrtllm_model_config_info{model=\"m\"} 1\n";
    Page::parse(format!("{text}{more}").as_bytes())
}

fn names(observation: &Observation) -> Vec<&'static str> {
    judge(observation).iter().map(|finding| finding.rule.name).collect()
}

fn one(record: Value) -> Vec<Value> {
    vec![record]
}

/// An engine without a record.
fn starting(phase: &'static str, seconds: f64) -> Case {
    Case {
        lines: &[("nv_trt_llm_engine_state{state=\"starting\"}", 1.0, 1.0), ("trtllm_exporter_source_up", 0.0, 0.0)],
        removed: &["nv_trt_llm_"],
        record: Some(|_| Vec::new()),
        start: Some((phase, seconds)),
    }
}

/// Every rule with a page or records that it is about, and the rules that may find something, too.
fn cases() -> Vec<(&'static str, Case, &'static [&'static str])> {
    let lines = |lines| Case { lines, ..Case::default() };
    let records = |record| Case { record: Some(record), ..Case::default() };
    let waiting = |iter| {
        let full = json!({"numQueuedRequests": 30, "numActiveRequests": 64, "inflightBatchingStats": {"numScheduledRequests": 64}});
        one(with(record(iter), full))
    };
    vec![
        (
            "context-bound",
            records(|iter| {
                one(with(record(iter), json!({"iterLatencyMS": if iter.is_multiple_of(8) { 600 } else { 14 }})))
            }),
            &["context-delays-generation"],
        ),
        (
            "context-delays-generation",
            Case {
                lines: &[("nv_trt_llm_iteration_latency_seconds_sum", 64.0, 69.0)],
                record: Some(|iter| {
                    one(with(record(iter), json!({"iterLatencyMS": if iter.is_multiple_of(8) { 520 } else { 14 }})))
                }),
                ..Case::default()
            },
            &[],
        ),
        (
            "generation-bound",
            Case {
                lines: &[("nv_trt_llm_iteration_latency_seconds_sum", 60.0, 90.0)],
                record: Some(|iter| one(with(record(iter), json!({"iterLatencyMS": 60})))),
                ..Case::default()
            },
            &[],
        ),
        ("host-bound", lines(&[("nv_trt_llm_host_step_seconds_sum", 60.0, 75.0)]), &[]),
        ("queue-bound", records(waiting), &[]),
        (
            "token-limit-reached",
            records(|iter| {
                let batch = json!({"numScheduledRequests": 7, "numContextRequests": 2, "numGenRequests": 5, "numCtxTokens": 2040});
                one(with(record(iter), json!({"numQueuedRequests": 30, "inflightBatchingStats": batch})))
            }),
            &[],
        ),
        (
            "requests-wait",
            records(|iter| {
                let few = json!({"numQueuedRequests": 30, "inflightBatchingStats": {"numScheduledRequests": 7},
                    "kvCacheStats": {"usedNumBlocks": 150}});
                one(with(record(iter), few))
            }),
            &[],
        ),
        ("queue-time-high", lines(&[("nv_trt_llm_new_request_queue_time_seconds_sum", 0.0, 900.0)]), &[]),
        ("saturated", records(|iter| one(with(record(iter), json!({"maxBatchSizeRuntime": 21})))), &[]),
        (
            "tuner-limits-batch",
            records(|iter| one(with(record(iter), json!({"numQueuedRequests": 3, "maxBatchSizeRuntime": 20})))),
            &[],
        ),
        (
            "static-batch-waste",
            records(|iter| {
                one(with(
                    record(iter),
                    json!({"staticBatchingStats":
            {"numScheduledRequests": 20, "numGenTokens": 10, "emptyGenSlots": 10}}),
                ))
            }),
            &[],
        ),
        (
            "unbalanced-ranks",
            records(|iter| {
                (0..2)
                    .map(|rank| {
                        with(
                            record(iter),
                            json!({"attentionDpRank": rank,
            "inflightBatchingStats": {"numGenRequests": if rank == 0 { 30 } else { 5 }, "numCtxTokens": 0}}),
                        )
                    })
                    .collect()
            }),
            &[],
        ),
        (
            "kv-cache-starved",
            records(|iter| {
                one(with(record(iter), json!({"numQueuedRequests": 9, "kvCacheStats": {"usedNumBlocks": 970}})))
            }),
            &[],
        ),
        ("requests-paused", lines(&[("nv_trt_llm_request_pauses_total", 2.0, 7.0)]), &[]),
        (
            "poor-reuse",
            Case {
                lines: &[
                    ("nv_trt_llm_kv_cache_blocks_missed_total", 500.0, 2000.0),
                    ("nv_trt_llm_context_tokens_total", 0.0, 1e5),
                ],
                record: Some(|iter| {
                    one(with(record(iter), json!({"iterLatencyMS": if iter.is_multiple_of(8) { 80 } else { 14 }})))
                }),
                ..Case::default()
            },
            &[],
        ),
        (
            "reuse-off",
            Case {
                lines: &[
                    ("nv_trt_llm_kv_cache_blocks_reused_total", 0.0, 0.0),
                    ("nv_trt_llm_kv_cache_blocks_missed_total", 0.0, 0.0),
                ],
                record: Some(|iter| {
                    let latency = if iter.is_multiple_of(8) { 80 } else { 14 };
                    one(with(record(iter), json!({"iterLatencyMS": latency, "kvCacheStats": {"missedBlocks": 0}})))
                }),
                ..Case::default()
            },
            &[],
        ),
        ("kv-transfer-slow", lines(&[("nv_trt_llm_kv_cache_transfer_seconds_sum", 0.0, 50.0)]), &[]),
        ("poor-speculation", lines(&[("nv_trt_llm_spec_decode_accepted_tokens_total", 0.0, 300.0)]), &[]),
        ("speculation-rarely-used", lines(&[("nv_trt_llm_spec_decode_drafted_requests_total", 3000.0, 4000.0)]), &[]),
        ("below-benchmark", lines(benchmark::REPORT), &[]),
        (
            "engine-unreachable",
            lines(&[
                ("nv_trt_llm_engine_state{state=\"busy\"}", 1.0, 0.0),
                ("nv_trt_llm_engine_state{state=\"unreachable\"}", 0.0, 1.0),
            ]),
            &[],
        ),
        (
            "engine-stalled",
            lines(&[
                ("nv_trt_llm_engine_state{state=\"busy\"}", 1.0, 0.0),
                ("nv_trt_llm_engine_state{state=\"stalled\"}", 0.0, 1.0),
            ]),
            &[],
        ),
        ("engine-restarted", lines(&[("nv_trt_llm_engine_restarts_total", 1.0, 2.0)]), &[]),
        ("source-never-answered", starting("never_answered", 120.0), &[]),
        ("source-never-answered", starting("loading", 3600.0), &[]),
        ("engine-starting", starting("never_answered", 119.0), &[]),
        ("engine-starting", starting("loading", 3599.0), &[]),
        (
            "source-without-statistics",
            Case {
                lines: &[
                    ("nv_trt_llm_engine_state{state=\"starting\"}", 1.0, 1.0),
                    ("trtllm_exporter_source_up", 0.0, 0.0),
                    ("trtllm_exporter_poll_errors_total{kind=\"not_json\"}", 10.0, 40.0),
                ],
                removed: &["nv_trt_llm_"],
                ..Case::default()
            },
            &[],
        ),
        ("source-failing", lines(&[("trtllm_exporter_poll_errors_total{kind=\"timeout\"}", 2.0, 13.0)]), &[]),
        ("statistics-off", lines(&[("trtllm_exporter_source_records_missing", 0.0, 1.0)]), &[]),
        ("statistics-sampled", lines(&[("nv_trt_llm_statistics_interval_iterations", 10.0, 10.0)]), &[]),
        (
            "statistics-lost",
            lines(&[("nv_trt_llm_iterations_total", 0.0, 99e3), ("nv_trt_llm_iterations_lost_total", 3.0, 9e3)]),
            &[],
        ),
        ("second-reader", lines(&[("nv_trt_llm_iterations_lost_total", 3.0, 400.0)]), &[]),
        ("records-rejected", lines(&[("trtllm_exporter_records_rejected_total{reason=\"not_json\"}", 1.0, 2.0)]), &[]),
        (
            "request-latencies-missing",
            Case {
                lines: &[("nv_trt_llm_request_latency_info{from=\"none\"}", 1.0, 1.0)],
                removed: &["nv_trt_llm_request_latency_info", "nv_trt_llm_e2e", "nv_trt_llm_time_to"],
                ..Case::default()
            },
            &[],
        ),
        (
            "objectives-unknown",
            lines(&[
                ("nv_trt_llm_objective_requests_total{objective=\"all\",outcome=\"met\"}", 7.0, 7.0),
                ("nv_trt_llm_objective_requests_total{objective=\"all\",outcome=\"unknown\"}", 7.0, 9.0),
            ]),
            &[],
        ),
        ("gpu-lost", lines(&[("nv_gpu_up{gpu_uuid=\"GPU-a\"}", 1.0, 0.0)]), &[]),
        ("gpu-absent", lines(&[("trtllm_exporter_nvml_gpus", 2.0, 1.0)]), &[]),
        (
            "gpu-throttled",
            lines(&[("nv_gpu_throttle_seconds_total{gpu_uuid=\"GPU-a\",policy=\"hw_thermal_slowdown\"}", 10.0, 13.0)]),
            &[],
        ),
        (
            "gpu-power-capped",
            lines(&[("nv_gpu_throttle_seconds_total{gpu_uuid=\"GPU-a\",policy=\"power\"}", 10.0, 19.0)]),
            &[],
        ),
        (
            "orchestrator-not-ready",
            orchestrator::orchestrator(&[
                ("nv_trt_llm_disagg_ready", 1.0, 0.0),
                ("nv_trt_llm_disagg_ready_workers{side=\"context\"}", 2.0, 2.0),
                ("nv_trt_llm_disagg_ready_workers{side=\"generation\"}", 1.0, 0.0),
            ]),
            &[],
        ),
        (
            "orchestrator-errors",
            orchestrator::orchestrator(&[
                ("nv_trt_llm_disagg_requests_total{mode=\"stream\"}", 100.0, 200.0),
                ("nv_trt_llm_disagg_request_errors_total{kind=\"http\"}", 5.0, 11.0),
            ]),
            &[],
        ),
        (
            "orchestrator-retries",
            orchestrator::orchestrator(&[
                ("nv_trt_llm_disagg_worker_requests_total{side=\"context\"}", 100.0, 200.0),
                ("nv_trt_llm_disagg_worker_retries_total{side=\"context\"}", 5.0, 11.0),
            ]),
            &[],
        ),
        ("gpu-errors", lines(&[("nv_gpu_xid_errors_total{gpu_uuid=\"GPU-a\",xid=\"79\"}", 1.0, 2.0)]), &[]),
        ("exporter-task-restarted", lines(&[("trtllm_exporter_task_restarts_total{task=\"poll\"}", 1.0, 1.0)]), &[]),
        ("log-lines-dropped", lines(&[("trtllm_exporter_log_lines_dropped_total", 5.0, 6.0)]), &[]),
        ("recording-incomplete", lines(&[("trtllm_exporter_recorder_dropped_total", 0.0, 3.0)]), &[]),
        ("publishers-refused", lines(&[("trtllm_exporter_publishers_refused_total{reason=\"uid\"}", 5.0, 6.0)]), &[]),
        ("config-not-reloaded", lines(&[("trtllm_exporter_config_last_reload_successful", 1.0, 0.0)]), &[]),
        (
            "gpus-unread",
            Case {
                lines: &[("trtllm_exporter_nvml_state{state=\"no_permission\"}", 1.0, 1.0)],
                removed: &["trtllm_exporter_nvml", "nv_gpu"],
                ..Case::default()
            },
            &[],
        ),
    ]
}

#[test]
fn a_healthy_engine_has_no_finding() {
    assert_eq!(names(&observation(&Case::default())), [""; 0]);
}

#[test]
fn every_rule_finds_its_problem_and_no_other_rule_does() {
    for (rule, case, too) in cases() {
        let found = names(&observation(&case));
        assert!(found.contains(&rule), "{rule}: {found:?}");
        let others: Vec<_> = found.iter().filter(|name| **name != rule && !too.contains(name)).collect();
        assert!(others.is_empty(), "{rule}: also {others:?}");
    }
}

/// The rules about sources, about what the API says of an engine, and about an exporter that does not answer.
fn other_cases() -> Vec<(&'static str, Observation)> {
    let source = |change: fn(&mut SourceAnswer)| {
        let mut all = observation(&Case::default());
        change(&mut all.sources[0]);
        all
    };
    let mut newer = observation(&Case::default());
    newer.exporters[0].engines[0].about.unread_keys = vec!["numDreams".to_owned()];
    let mut several = observation(&Case::default());
    several.exporters[0].engines[0].about.notice = Some(SEVERAL_FRONTENDS.to_owned());
    let unreadable = Exporter { error: Some("status 401".to_owned()), ..Exporter::default() };
    vec![
        ("engine-newer", newer),
        ("several-frontends", several),
        ("exporter-unreadable", Observation { exporters: vec![unreadable], ..Observation::default() }),
        ("source-unanswered", source(|source| source.reached = Reached::No("refused".to_owned()))),
        ("source-not-asked", source(|source| source.reached = Reached::NotAsked("no token".to_owned()))),
        ("source-refused", source(|source| source.reached = Reached::Refused(401))),
        ("source-other", source(|source| source.reached = Reached::Other)),
        ("source-unhealthy", source(|source| source.health = Some(503))),
        ("iteration-statistics-off", source(|source| source.page = Some(Ok(server_page(""))))),
        ("perf-metrics-off", source(|source| source.page = Some(Err(404)))),
        (
            "block-reuse-off",
            source(|source| {
                let page =
                    "trtllm_max_num_active_requests 8\ntrtllm_kv_cache_config_info{enable_block_reuse=\"False\"} 1\n";
                source.page = Some(Ok(server_page(page)));
            }),
        ),
        ("socket-missing", source(|source| source.reached = Reached::NoSocket)),
    ]
}

#[test]
fn every_rule_about_sources_finds_its_problem() {
    for (rule, observation) in other_cases() {
        assert_eq!(names(&observation), [rule]);
    }
}

#[test]
fn every_rule_has_a_case() {
    let all: BTreeSet<&str> = rules::all().map(|rule| rule.name).collect();
    let tested = cases().into_iter().map(|(rule, ..)| rule).chain(other_cases().into_iter().map(|(rule, _)| rule));
    assert_eq!(all, tested.collect());
    assert_eq!(all.len(), rules::all().count(), "a name is used twice");
}

#[test]
fn an_idle_engine_one_that_waits_for_requests_and_an_empty_page_are_no_problem() {
    let idle = Case {
        lines: &[("nv_trt_llm_engine_state{state=\"idle\"}", 1.0, 1.0), ("nv_trt_llm_iterations_total", 9.0, 9.0)],
        removed: &["nv_trt_llm_"],
        record: Some(|_| Vec::new()),
        start: None,
    };
    assert_eq!(names(&observation(&idle)), [""; 0]);
    for phase in ["no_record", "no_publisher"] {
        assert_eq!(names(&observation(&starting(phase, 9999.0))), [""; 0], "{phase}");
    }
    let empty = Observation { exporters: vec![Exporter::default()], ..Observation::default() };
    assert_eq!(names(&empty), [""; 0]);
}

#[test]
fn a_source_that_never_answered_is_a_warning_that_says_the_error() {
    let all = observation(&starting("never_answered", 720.0));
    let findings = judge(&all);
    assert_eq!(report::worst(&all, &findings).map(Severity::exit_code), Some(3));
    let says = "The source of this engine has never answered with statistics: connection refused";
    assert_eq!(report::json(&all, &findings)["findings"][0]["says"], says);
    let text = report::text(&all, &findings);
    assert!(text.contains("error: connection refused") && !text.contains("nothing found"), "{text}");
}

#[test]
fn a_page_with_very_many_gpus_is_cut() {
    let text: String = (0..1000).map(|gpu| format!("nv_gpu_up{{gpu_uuid=\"{gpu}\"}} 1\n")).collect();
    let page = Page::parse(text.as_bytes());
    let found = gpus(&Change { before: page.clone(), after: page }, Duration::from_secs(1));
    assert!(
        found.len() == 256 && found.iter().all(|gpu| gpu.page.now("nv_gpu_up", &[]) == Some(1.0)),
        "{}",
        found.len()
    );
}

/// 8 ranks with 20 of 64 requests each. The queue is that of all ranks, and each row has it.
#[test]
fn a_short_queue_before_many_ranks_is_no_problem() {
    let case = Case {
        record: Some(|iter| {
            let row = |rank| {
                with(
                    record(iter),
                    json!({"attentionDpRank": rank, "numQueuedRequests": 2, "kvCacheStats": {"usedNumBlocks": 300}}),
                )
            };
            (0..8).map(row).collect()
        }),
        ..Case::default()
    };
    assert_eq!(names(&observation(&case)), [""; 0]);
}

#[test]
fn the_fullest_rank_is_named_by_the_page_and_without_its_counters_by_the_records() {
    fn row(iter: u64, rank: u64) -> Value {
        with(
            record(iter),
            json!({"attentionDpRank": rank,
            "inflightBatchingStats": {"numGenRequests": if rank == 1 { 30 } else { 5 }, "numCtxTokens": 0}}),
        )
    }
    let case = |lines| Case { lines, record: Some(|iter| vec![row(iter, 0), row(iter, 1)]), ..Case::default() };
    let fullest = |lines| {
        let found = judge(&observation(&case(lines)));
        let finding = found.iter().find(|finding| finding.rule.name == "unbalanced-ranks").unwrap();
        finding.facts.last().unwrap().to_string()
    };
    assert_eq!(fullest(&[]), "fullest rank: 1");
    // The records are a part of the window.
    let page: &[Line] = &[
        ("nv_trt_llm_rank_context_tokens_total{rank=\"0\"}", 100.0, 900.0),
        ("nv_trt_llm_rank_context_tokens_total{rank=\"1\"}", 9000.0, 9100.0),
        ("nv_trt_llm_rank_context_tokens_total{rank=\"other\"}", 0.0, 9000.0),
        ("nv_trt_llm_rank_generation_tokens_total{rank=\"0\"}", 100.0, 200.0),
        ("nv_trt_llm_rank_generation_tokens_total{rank=\"1\"}", 100.0, 800.0),
        ("nv_trt_llm_rank_generation_tokens_total{rank=\"other\"}", 0.0, 9000.0),
    ];
    assert_eq!(fullest(page), "fullest rank: 0");
    // Counters of which none has grown tell nothing.
    let still: &[Line] = &[("nv_trt_llm_rank_generation_tokens_total{rank=\"0\"}", 100.0, 100.0)];
    assert_eq!(fullest(still), "fullest rank: 1");
}

#[test]
fn a_gauge_on_a_release_that_is_too_old_for_it_proves_nothing() {
    let mut all = observation(&Case::default());
    for version in ["1.0.0rc4", "0.20.0", "unknown", "1"] {
        (all.sources[0].version, all.sources[0].page) = (Some(version.to_owned()), Some(Err(404)));
        assert_eq!(names(&all), [""; 0], "{version}");
    }
}

#[test]
fn iterations_without_a_record_are_stolen_unless_the_engine_waits_for_transfers() {
    const GAPS: &[Line] = &[("nv_trt_llm_iterations_unreported_total", 0.0, 400.0)];
    let mut all = observation(&Case { lines: GAPS, ..Case::default() });
    assert_eq!(names(&all), [""; 0]);
    let removed = &["nv_trt_llm_kv_cache_transfer"];
    all = observation(&Case { lines: GAPS, removed, ..Case::default() });
    assert_eq!(names(&all), ["second-reader"]);
}

#[test]
fn the_worst_finding_comes_first_and_sets_the_exit_code() {
    let case = Case {
        lines: &[
            ("nv_trt_llm_engine_state{state=\"busy\"}", 1.0, 0.0),
            ("nv_trt_llm_engine_state{state=\"stalled\"}", 0.0, 1.0),
            ("nv_trt_llm_request_pauses_total", 2.0, 7.0),
            ("nv_trt_llm_statistics_interval_iterations", 2.0, 2.0),
        ],
        ..Case::default()
    };
    let all = observation(&case);
    let findings = judge(&all);
    let severities: Vec<Severity> = findings.iter().map(|finding| finding.rule.severity).collect();
    assert_eq!(severities, [Severity::Critical, Severity::Warning, Severity::Info]);
    assert_eq!(report::worst(&all, &findings).map(Severity::exit_code), Some(4));
    let text = report::text(&all, &findings);
    for words in ["CRITICAL engine-stalled: engine m 1", "state: stalled", "Change:", "requests paused or suspended: 5"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(text.lines().all(|line| line.len() <= 110), "{text}");
    let json = report::json(&all, &findings);
    assert_eq!((&json["worst"], &json["findings"][1]["rule"]), (&json!("critical"), &json!("requests-paused")));
    assert_eq!(
        json["findings"][1]["facts"][0],
        json!({"name": "requests paused or suspended", "value": 5.0, "unit": "count"})
    );
}

#[test]
fn the_verdict_of_the_exporter_replaces_rules_about_the_same() {
    let mut all = observation(&Case { lines: &[("nv_trt_llm_request_pauses_total", 2.0, 7.0)], ..Case::default() });
    assert!(names(&all).contains(&"requests-paused"));
    let verdict = serde_json::from_value(serde_json::json!({
        "cause": "kv_capacity", "severity": "warning", "confidence": "low", "says": "94 % of the KV cache are used.",
        "evidence": [{"name": "used share of the KV cache", "value": 0.94, "unit": "share", "threshold": 0.7}],
        "cost": "84 % of requests miss ttft=500 ms", "remedy": "Raise free_gpu_memory_fraction.", "settings": ["kv_cache_config"],
        "consequences": ["context_blocking"], "since": 1.0,
    }));
    all.exporters[0].engines[0].about.verdict = Some(verdict.unwrap());
    assert!(!names(&all).contains(&"requests-paused"));
    let findings = judge(&all);
    assert_eq!(report::worst(&all, &findings).map(Severity::exit_code), Some(3));
    let text = report::text(&all, &findings);
    for line in [
        "WARNING kv_capacity: engine m 1",
        "    used share of the KV cache: 94 % (limit 70 %)",
        "  Users: 84 % of requests miss ttft=500 ms",
        "  Change: Raise free_gpu_memory_fraction.",
        "  Follows from it: context_blocking",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let json = report::json(&all, &findings);
    assert_eq!(json["exporters"][0]["engines"][0]["verdict"]["cause"], "kv_capacity");
}
