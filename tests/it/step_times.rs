//! Times of steps, from end to end. A simulated engine measures each step of its requests and computes the sums itself,
//! without writing or parsing a line. The page must show the same sums.

use crate::support::daemon::Daemon;
use crate::support::lookalike::{Lookalike, often_idle};
use crate::support::{ensure, until};

/// An engine whose prompts are processed in several chunks.
fn engine(more: &str) -> String {
    often_idle(100) + "&max_num_tokens=256" + more
}

/// Compares the page with the engine's own sums. The family `nv_trt_llm_{gaps}_latency_seconds` must have the gaps
/// between steps.
fn shows_the_times_of_steps(engine: &Lookalike, source: &str, gaps: &str) {
    let daemon = Daemon::start(&["--source", source]);
    daemon.until_up(&[]);
    engine.resume();
    until(|| ensure(engine.truth().count("perf_metrics") >= 20, || "few requests have ended".to_owned()));
    engine.stop();
    let ended = engine.truth().count("perf_metrics");
    let page = daemon.until_is("nv_trt_llm_e2e_request_latency_seconds_count", &[], ended as f64);
    let truth = engine.truth();
    let near = |name: &str, labels: &[&str], meant: f64| {
        let shown = page.get(name, labels);
        assert!(meant > 0.0 && (shown - meant).abs() <= 1e-6 * meant, "{name} {labels:?}: {shown} is not {meant}");
    };
    let family = format!("nv_trt_llm_{gaps}_latency_seconds");
    assert_eq!(page.count(&format!("{family}_count"), &[]), truth.count("steps/gaps"));
    near(&format!("{family}_sum"), &[], truth.number("steps/gap_seconds"));
    for bound in ["0.01", "0.025", "0.05"] {
        let within = page.count(&format!("{family}_bucket"), &[&format!("le={bound}")]);
        assert_eq!(within, truth.count(&format!("steps/gaps_within/{bound}")), "{bound}");
    }
    let other = if gaps == "inter_token" { "inter_step" } else { "inter_token" };
    assert_eq!(page.find(&format!("nv_trt_llm_{other}_latency_seconds_count"), &[]).unwrap_or(0.0), 0.0);
    assert_eq!(page.find("vllm:inter_token_latency_seconds_count", &[]), None, "no set of names was chosen");
    for phase in ["context", "generation"] {
        let label = format!("phase={phase}");
        for work in ["forward", "sample"] {
            let family = format!("nv_trt_llm_request_gpu_{work}_time_seconds");
            assert_eq!(
                page.count(&format!("{family}_count"), &[&label]),
                truth.count(&format!("steps/{phase}/requests"))
            );
            near(&format!("{family}_sum"), &[&label], truth.number(&format!("steps/{phase}/gpu_{work}")));
        }
    }
}

#[test]
fn steps_in_lines_give_the_time_between_tokens_and_of_the_gpu() {
    let lines = tempfile::tempdir().unwrap();
    let directory = lines.path().display().to_string();
    let server = Lookalike::start_stopped(&engine(""), &["--step-times", "--perf-metrics-dir", &directory]);
    shows_the_times_of_steps(&server, &format!("{}?perf_metrics_dir={directory}", server.source()), "inter_token");
}

#[test]
fn steps_of_the_endpoint_give_the_same_and_under_speculation_the_time_between_steps() {
    let server = Lookalike::start_stopped(&engine(""), &["--step-times"]);
    shows_the_times_of_steps(&server, &server.source(), "inter_token");
    let drafts = engine("&spec_draft_len=3&spec_acceptance=0.7");
    let server = Lookalike::start_stopped(&drafts, &["--step-times"]);
    shows_the_times_of_steps(&server, &server.source(), "inter_step");
}
