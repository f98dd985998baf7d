//! The most important tests with a live engine, a look-alike of trtllm-serve that also reports the expected numbers:
//! every iteration is counted once, the load of an idle engine is 0, and the load of a stale engine disappears.

use crate::support;
use crate::support::daemon::Daemon;
use crate::support::lookalike::{Lookalike, Truth, often_idle, reserved_port, steady};
use crate::support::page::{Page, name_of};
use crate::support::{ensure, until};

/// Families that show the load of an engine, for routers and alerts.
const LOADS: &[&str] = &[
    "nv_trt_llm_request_metrics",
    "nv_trt_llm_runtime_memory_metrics",
    "nv_trt_llm_kv_cache_block_metrics",
    "nv_trt_llm_inflight_batcher_metrics",
    "nv_trt_llm_v1_metrics",
    "nv_trt_llm_queued_requests",
    "nv_trt_llm_waiting_requests_estimate",
    "nv_trt_llm_kv_cache_available_tokens",
    "nv_trt_llm_kv_cache_pressure_ratio",
    "nv_trt_llm_batch_occupancy_ratio",
    "nv_trt_llm_context_request_ratio",
    "nv_trt_llm_decoded_tokens_per_iteration",
];

/// The load series on a page. The maximum of active requests is left out, because it is a limit.
fn loads(page: &Page) -> Vec<&str> {
    let load = |series: &str| LOADS.contains(&name_of(series)) && !series.contains("request_type=\"max\"");
    page.series.iter().map(|(series, _)| series.as_str()).filter(|series| load(series)).collect()
}

/// Waits until all records of a stopped engine have been read. Returns the page.
fn read_to_the_end(engine: &Lookalike, daemon: &Daemon) -> (Page, Truth) {
    until(|| {
        let truth = engine.truth();
        let waiting = truth.count("in_ring") + truth.count("perf_metrics")
            - truth.count("perf_metrics_lost")
            - truth.count("perf_metrics_served");
        ensure(waiting == 0, || format!("{waiting} records wait to be read"))
    });
    let page = daemon.poll(&[], 2);
    // Read the look-alike's counts last, because it counts an answer only after it has sent the answer.
    (page, engine.truth())
}

fn counts_equal_the_truth(page: &Page, truth: &Truth, backend: &str) {
    let is_cpp = backend == "tensorrt";
    if !is_cpp {
        // Some batches have no time, such as one that is handled after an idle time. `crates/sim` compares each time with the truth.
        let timed = page.count("nv_trt_llm_iteration_latency_seconds_count", &[]);
        let iterations = truth.count("iterations");
        assert!(timed <= iterations && 10 * timed >= 9 * iterations, "{timed} of {iterations} iterations have a time");
    }
    let is_asked = |name: &str| is_cpp || !name.starts_with("iteration_latency");
    for (total, true_count) in [
        ("iterations_total", "iterations"),
        ("requests_completed_total", "completed_requests"),
        ("requests_started_total", "started_requests"),
        ("context_tokens_total", "context_tokens"),
        ("generation_tokens_total", "generation_tokens"),
        ("iteration_latency_seconds_count", "latencies"),
        ("new_request_queue_time_seconds_count", "waits"),
        ("e2e_request_latency_seconds_count", "perf_metrics_served"),
        ("time_to_first_token_seconds_count", "perf_metrics_served"),
    ]
    .into_iter()
    .filter(|(total, _)| is_asked(total))
    {
        assert_eq!(page.count(&format!("nv_trt_llm_{total}"), &[]), truth.count(true_count), "{total}");
    }
    for (sum, milliseconds) in
        [("iteration_latency_seconds_sum", "latency_ms"), ("new_request_queue_time_seconds_sum", "queue_time_ms")]
            .into_iter()
            .filter(|(sum, _)| is_asked(sum))
    {
        let (shown, meant) = (page.get(&format!("nv_trt_llm_{sum}"), &[]), truth.number(milliseconds) / 1000.0);
        // Times in records are milliseconds with six decimal digits.
        assert!((shown - meant).abs() <= 1e-6 * meant, "{sum}: {shown} is not {meant}");
    }
    // The engine ran before the exporter started, so the first values of its cumulative counts are not an increase.
    for kind in ["allocated", "newly_allocated", "reused", "missed"] {
        let increase =
            truth.count(&format!("kv_cache_blocks/{kind}")) - truth.count(&format!("kv_cache_blocks_first/{kind}"));
        assert_eq!(page.count(&format!("nv_trt_llm_kv_cache_blocks_{kind}_total"), &[]), increase, "{kind}");
    }
}

/// The engine runs a thousand iterations per second with pauses. Meanwhile, the exporter is scraped.
fn every_iteration_is_counted(backend: &str) -> Truth {
    let scrapes = if support::long() { 50 } else { 6 };
    // The ring holds twenty times the records of one poll, so that a busy machine does not fail this test.
    let engine = Lookalike::start_stopped(&often_idle(1000), &["--ring", "5000", "--backend", backend]);
    let daemon = Daemon::start(&["--source", &engine.source()]);
    daemon.until_up(&[]);
    engine.resume();

    let mut last = daemon.page();
    for scrape in 1..=scrapes {
        until(|| {
            let made = engine.truth().count("iterations");
            ensure(made >= 1000 * scrape, || format!("{made} of {scrape} thousand iterations"))
        });
        let page = daemon.page();
        page.never_below(&last);
        last = page;
    }
    engine.stop();
    let (page, truth) = read_to_the_end(&engine, &daemon);
    assert_eq!(truth.count("lost"), 0, "the look-alike's ring overflowed: this machine paused for seconds");
    assert_eq!(page.count("nv_trt_llm_iterations_lost_total", &[]), 0);
    assert_eq!(page.count("nv_trt_llm_engine_restarts_total", &[]), 0);
    counts_equal_the_truth(&page, &truth, backend);
    page.never_below(&last);
    println!("{backend}: {} iterations, {} flush records", truth.count("iterations"), truth.count("flush_records"));
    truth
}

#[test]
fn a_thousand_iterations_a_second_with_flush_duplicates_are_counted_exactly() {
    let truth = every_iteration_is_counted("tensorrt");
    assert!(truth.count("flush_records") > 0, "there were no flush duplicates");
}

#[test]
fn a_thousand_iterations_a_second_of_the_pytorch_backend_are_counted_exactly() {
    every_iteration_is_counted("pytorch");
}

/// The counted and the lost iterations add up to the iterations of the engine.
fn iterations_dropped_by_a_small_ring_are_lost(backend: &str) {
    let engine = Lookalike::start_stopped(&often_idle(1000), &["--ring", "20", "--backend", backend]);
    let before = engine.truth();
    let daemon = Daemon::start(&["--source", &engine.source()]);
    daemon.until_up(&[]);
    // The exporter counts iterations that were lost before its first poll only if the engine has just started.
    let unseen = before.count("lost_iterations") - daemon.page().count("nv_trt_llm_iterations_lost_total", &[]);
    engine.resume();
    daemon.until_at_least("nv_trt_llm_iterations_total", &[], 500.0);
    engine.stop();
    let (page, truth) = read_to_the_end(&engine, &daemon);
    let (counted, lost) =
        (page.count("nv_trt_llm_iterations_total", &[]), page.count("nv_trt_llm_iterations_lost_total", &[]));
    assert!(lost > 0, "nothing was lost: {truth:?}");
    assert_eq!(counted + lost, truth.count("iterations") - unseen, "{counted} counted, {lost} lost, {truth:?}");
    assert_eq!(lost, truth.count("lost_iterations") - unseen);
}

#[test]
fn iterations_dropped_between_two_polls_are_counted_as_lost() {
    iterations_dropped_by_a_small_ring_are_lost("pytorch");
}

#[test]
fn losses_are_counted_across_flush_records() {
    iterations_dropped_by_a_small_ring_are_lost("tensorrt");
}

#[test]
fn the_load_of_a_killed_engine_is_withdrawn_and_totals_continue_with_a_new_one() {
    let arguments = ["--ring", "20000"];
    let (_reserved, port) = reserved_port();
    let mut engine = Lookalike::start_on(port, &steady(200), &arguments);
    let daemon = Daemon::start(&["--source", &engine.source(), "--stale-after", "10s", "--poll.interval", "50ms"]);
    let working = daemon.until(|page| {
        let counted = page.count("nv_trt_llm_iterations_total", &[]);
        ensure(counted >= 600 && page.state(&[]) == "busy", || format!("{counted} iterations"))
    });
    assert_eq!(loads(&working).len(), 4 + 3 + 6 + 4 + 6);
    assert_eq!(Page::parse(&daemon.text("/metrics/gateway")).series.len(), GATEWAY);

    engine.kill();
    let mut last = working;
    // Read the main page between two reads of the gateway's page, so that the test notices any difference.
    loop {
        let gateway_before = Page::parse(&daemon.text("/metrics/gateway")).series.len();
        let page = daemon.page();
        let gateway_after = Page::parse(&daemon.text("/metrics/gateway")).series.len();
        page.never_below(&last);
        let unreachable = page.state(&[]) == "unreachable";
        let shown = loads(&page).len();
        // The last answers before the end may have been empty. Then the exporter may call the engine stalled before it
        // notices that the engine is unreachable.
        let stale = unreachable || page.state(&[]) == "stalled";
        assert_eq!(shown == 0, stale, "{shown} load gauges, {}", page.state(&[]));
        assert!([0, GATEWAY].contains(&gateway_before) && [0, GATEWAY].contains(&gateway_after));
        // The exporter counts an error a moment before it publishes the page without the load. So compare with the
        // previous page.
        let refused = |page: &Page| page.find("trtllm_exporter_poll_errors_total", &["kind=connect"]) > Some(0.0);
        let (withdrawn, refused) = (refused(&last), refused(&page));
        assert!(
            gateway_before == GATEWAY || refused,
            "the gateway's page lost its series before a connection was refused"
        );
        assert!(gateway_after == 0 || !withdrawn, "the gateway's page kept its series after a connection was refused");
        last = page;
        if unreachable {
            break;
        }
    }
    assert_eq!(last.get("trtllm_exporter_source_up", &[]), 0.0);
    assert!(last.find("nv_trt_llm_request_metrics", &["request_type=max"]).is_some(), "a limit stays");
    // A scrape checks the age of the load itself. The poll driver, which logs the line, checks it ten times per second.
    daemon.until_logged(&["engine is stale"]);
    let counted = last.count("nv_trt_llm_iterations_total", &[]);
    let completed = last.count("nv_trt_llm_requests_completed_total", &[]);

    let engine = Lookalike::start_on(port, &steady(200), &arguments);
    let back = daemon.until(|page| {
        page.never_below(&last);
        last = page.clone();
        let counted_since = page.count("nv_trt_llm_iterations_total", &[]) - counted;
        ensure(counted_since >= 100 && page.state(&[]) == "busy", || format!("{counted_since} iterations since"))
    });
    assert_eq!(back.get("trtllm_exporter_source_up", &[]), 1.0);
    assert_eq!(Page::parse(&daemon.text("/metrics/gateway")).series.len(), GATEWAY);
    engine.stop();
    let (page, truth) = read_to_the_end(&engine, &daemon);
    page.never_below(&last);
    assert_eq!(page.count("nv_trt_llm_engine_restarts_total", &[]), 1);
    assert_eq!(page.count("nv_trt_llm_iterations_lost_total", &[]), 0);
    assert_eq!(page.count("nv_trt_llm_iterations_total", &[]), counted + truth.count("iterations"));
    assert_eq!(page.count("nv_trt_llm_requests_completed_total", &[]), completed + truth.count("completed_requests"));
    daemon.until_logged(&["engine recovered"]);
}

/// Number of series of one engine on the gateway's page: five under each of two names.
const GATEWAY: usize = 10;

/// Load gauges that must be 0 without work.
const NO_LOAD: [(&str, &str); 9] = [
    ("nv_trt_llm_request_metrics", "request_type=active"),
    ("nv_trt_llm_request_metrics", "request_type=scheduled"),
    ("nv_trt_llm_request_metrics", "request_type=context"),
    ("nv_trt_llm_request_metrics", "request_type=waiting"),
    ("nv_trt_llm_inflight_batcher_metrics", "inflight_batcher_specific_metric=total_context_tokens"),
    ("nv_trt_llm_inflight_batcher_metrics", "inflight_batcher_specific_metric=generation_requests"),
    ("nv_trt_llm_inflight_batcher_metrics", "inflight_batcher_specific_metric=paused_requests"),
    ("nv_trt_llm_queued_requests", "version=1"),
    ("nv_trt_llm_batch_occupancy_ratio", "version=1"),
];

fn idle_load_is_0_and_stays(backend: &str) {
    let engine = Lookalike::start(&steady(200), &["--ring", "20000", "--backend", backend]);
    // The 5 s are longer than any pause of a busy build machine.
    let daemon = Daemon::start(&["--source", &engine.source(), "--stale-after", "5s"]);
    daemon.until_state(&[], "busy");
    engine.control(r#"{"drain":true}"#);
    let since = daemon.until(|page| {
        let idle = engine.truth().is("idle") && page.state(&[]) == "idle";
        ensure(idle, || format!("{}, {:?}", page.state(&[]), engine.truth()))
    });
    let answered = |page: &Page| page.get("trtllm_exporter_last_success_timestamp_seconds", &[]);
    // Poll the idle engine for six seconds, which is longer than --stale-after.
    daemon.until(|page| {
        assert_eq!(page.state(&[]), "idle");
        assert_eq!(page.get("trtllm_exporter_source_up", &[]), 1.0);
        for (name, label) in NO_LOAD {
            assert_eq!(page.get(name, &[label]), 0.0, "{name} {label}");
        }
        ensure(answered(page) >= answered(&since) + 6.0, || "not polled for six seconds".to_owned())
    });
    let gateway = Page::parse(&daemon.text("/metrics/gateway"));
    assert_eq!(gateway.series.len(), GATEWAY);
    assert_eq!(gateway.get("nv_trt_llm_request_metrics", &["request_type=waiting"]), 0.0);
    assert_eq!(daemon.logged(&["engine is stale"]), 0, "{}", daemon.stderr());
    engine.control(r#"{"drain":false}"#);
    daemon.until_state(&[], "busy");
}

#[test]
fn the_load_of_an_idle_pytorch_engine_is_0_and_it_is_not_stale() {
    idle_load_is_0_and_stays("pytorch");
}

#[test]
fn the_load_of_an_idle_cpp_engine_is_0_and_it_is_not_stale() {
    idle_load_is_0_and_stays("tensorrt");
}

#[test]
fn outstanding_work_without_records_is_stalled() {
    let engine = Lookalike::start(&steady(200), &[]);
    let daemon = Daemon::start(&["--source", &engine.source(), "--stale-after", "1s"]);
    daemon.until_state(&[], "busy");
    // In rare cases, the engine has no requests when it stops. Then it is idle, so resume it and try again.
    until(|| {
        let truth = engine.stop();
        let outstanding = truth.count("active_requests") + truth.count("queued_requests");
        if outstanding == 0 {
            engine.resume();
        }
        ensure(outstanding > 0, || "no work outstanding".to_owned())
    });
    let page = daemon.until_state(&[], "stalled");
    assert_eq!(loads(&page), [] as [&str; 0]);
    assert_eq!(Page::parse(&daemon.text("/metrics/gateway")).series.len(), 0);
    assert_eq!(page.get("trtllm_exporter_source_up", &[]), 1.0, "its source answers");
    assert!(page.find("nv_trt_llm_request_metrics", &["request_type=max"]).is_some(), "a limit stays");
    engine.resume();
    let page = daemon.until_state(&[], "busy");
    assert_eq!(page.count("nv_trt_llm_engine_restarts_total", &[]), 0);
    assert!(!loads(&page).is_empty());
}
