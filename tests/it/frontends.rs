//! A trtllm-serve with several frontends (processes) behind one port, each of which may count only its own requests.
//! Values that the exporter cannot know must be absent with a reason, and nothing may be counted twice.

use crate::support::daemon::Daemon;
use crate::support::lookalike::{Lookalike, steady};
use crate::support::page::Page;
use crate::support::{ensure, until};

/// A stopped server with four frontends, which have finished different numbers of requests. Also returns its temporary
/// folder, which is deleted when the value is dropped.
fn frontends(mode: &str) -> (Lookalike, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    // With this directory, /perf_metrics is off, and only the frontends' pages report requests.
    let directory = folder.path().to_str().expect("UTF-8");
    let flags = ["--frontends", "4", "--frontend-mode", mode, "--prometheus", "--perf-metrics-dir", directory];
    let server = Lookalike::start(&steady(100), &[&flags[..], &["--ring", "20000"]].concat());
    until(|| ensure(server.truth().count("perf_metrics") >= 31, || "few requests".to_owned()));
    server.stop();
    (server, folder)
}

fn daemon(server: &Lookalike) -> Daemon {
    let daemon =
        Daemon::start(&["--source", &server.source(), "--poll.interval", "100ms", "--metrics.compat", "trtllm"]);
    daemon.poll(&[], 10);
    daemon
}

fn notice(daemon: &Daemon) -> Option<String> {
    daemon.engine()["notice"].as_str().map(str::to_owned)
}

fn until_noticed(daemon: &Daemon) {
    until(|| {
        let notice = notice(daemon).unwrap_or_default();
        ensure(notice.starts_with("several frontends"), || format!("notice: {notice:?}"))
    });
}

/// Values that only a single frontend reports must be absent.
fn has_no_numbers_of_the_server(page: &Page) {
    for family in ["nv_trt_llm_requests_finished_total", "trtllm_prompt_tokens_total", "trtllm_request_success_total"] {
        assert_eq!(page.find(family, &[]), None, "{family}");
    }
    assert_eq!(page.count("nv_trt_llm_e2e_request_latency_seconds_count", &[]), 0);
    assert_eq!(page.count("nv_trt_llm_engine_restarts_total", &[]), 0);
}

#[test]
fn frontends_that_have_counted_nothing_at_first_are_noticed_when_they_count() {
    // Between two polls, each frontend finishes more requests than the counts of two frontends differ. So the exporter
    // never reads a count that decreases.
    for number in ["2", "4"] {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = folder.path().to_str().expect("UTF-8");
        let flags = ["--frontends", number, "--frontend-mode", "own", "--prometheus", "--perf-metrics-dir", directory];
        let server = Lookalike::start_stopped(&steady(100), &flags);
        let daemon = daemon(&server);
        assert_eq!(notice(&daemon), None);
        server.resume();
        until_noticed(&daemon);
        daemon.poll(&[], 3);
        has_no_numbers_of_the_server(&daemon.page());
    }
}

#[test]
fn frontends_with_a_page_each_are_noticed_and_named_by_doctor() {
    let (server, _folder) = frontends("own");
    let daemon = daemon(&server);
    until_noticed(&daemon);
    server.resume();
    daemon.until_at_least("nv_trt_llm_iterations_total", &[], 50.0);
    has_no_numbers_of_the_server(&daemon.page());
    daemon.until_diagnosed(&["Several frontends answer for this engine"]);
    // The records that another frontend took from the engine are lost or arrive late. None is counted twice.
    let made = server.stop().count("iterations");
    let page = daemon.poll(&[], 10);
    let read = page.count("nv_trt_llm_iterations_total", &[]);
    assert!(read <= made, "{read} of {made} iterations");
}

#[test]
fn frontends_that_forward_to_the_first_one_lose_no_record() {
    let (server, _folder) = frontends("forwarded");
    let daemon = daemon(&server);
    until_noticed(&daemon);
    server.resume();
    daemon.until_at_least("nv_trt_llm_iterations_total", &[], 50.0);
    let made = server.stop().count("iterations");
    let page = daemon.until_is("nv_trt_llm_iterations_total", &[], made as f64);
    assert_eq!(page.count("nv_trt_llm_iterations_lost_total", &[]), 0);
    has_no_numbers_of_the_server(&page);
}

#[test]
fn frontends_that_share_their_counts_are_counted_exactly() {
    let (server, _folder) = frontends("multiproc");
    let before = server.truth().count("perf_metrics");
    let daemon = daemon(&server);
    daemon.until_shown("trtllm_prompt_tokens_total", &[], true);
    server.resume();
    daemon.until_at_least("trtllm_prompt_tokens_total", &[], 1.0);
    let finished = server.stop().count("perf_metrics") - before;
    daemon.until_is("trtllm_request_success_total", &[], finished as f64);
    assert_eq!(notice(&daemon), None);
}

#[test]
fn a_server_whose_engine_has_ended_while_idle_is_unreachable_and_says_so() {
    let server = Lookalike::start(&steady(100), &[]);
    let daemon = Daemon::start(&["--source", &server.source(), "--stale-after", "2s"]);
    daemon.poll(&[], 10);
    server.mode("engine-gone");
    daemon.until_state(&[], "unreachable");
    let engine = daemon.engine();
    let why = engine["why"].as_str().unwrap_or_default();
    assert!(why.starts_with("the server has lost its engine") && why.contains("/health"), "{why}");
    let load = daemon.page().find("nv_trt_llm_request_metrics", &["request_type=active"]);
    assert_eq!(load, None, "a router must not prefer it");
    server.mode("ok");
    daemon.until_up(&[]);
}

#[test]
fn frontends_whose_launcher_is_gone_are_unavailable_and_do_not_load() {
    let (server, _folder) = frontends("forwarded");
    let daemon = daemon(&server);
    server.mode("launcher-gone");
    daemon.until_is("trtllm_exporter_source_up", &[], 0.0);
    daemon.until_diagnosed(&["answers without statistics", "the process with the engine does not answer it"]);
}
