//! When an engine is compared with its benchmark, and when not.

use super::*;

/// The healthy engine has 20 requests for 80 % of the time, gives 2010 output tokens per second, outputs of 201 tokens and computes
/// 100 tokens of each prompt. Here it gives 62 % of its benchmark.
pub(super) const REPORT: &[Line] = &[
    ("nv_trt_llm_bench_output_tokens_per_second", 3242.0, 3242.0),
    ("nv_trt_llm_bench_concurrent_requests", 16.0, 16.0),
    ("nv_trt_llm_bench_output_tokens{statistic=\"avg\"}", 200.0, 200.0),
    ("nv_trt_llm_bench_output_tokens{statistic=\"max\"}", 900.0, 900.0),
    ("nv_trt_llm_bench_input_tokens{statistic=\"avg\"}", 512.0, 512.0),
    ("nv_trt_llm_bench_info{bench_model=\"llama\",engine_version=\"unknown\",gpu_name=\"NVIDIA H100\"}", 1.0, 1.0),
];

/// The facts of the finding. Lines replace those of the report, and a later one an earlier one.
fn found(lines: &[Line], removed: &'static [&'static str]) -> Option<Vec<String>> {
    let report = REPORT.iter().filter(|(name, ..)| {
        !lines.iter().any(|(other, ..)| other == name) && !removed.iter().any(|other| name.starts_with(other))
    });
    let lines: Vec<Line> = report.chain(lines).copied().collect();
    let all = observation(&Case { lines: lines.leak(), removed, ..Case::default() });
    let findings = judge(&all);
    assert!(findings.iter().all(|finding| finding.rule.name == "below-benchmark"), "{:?}", names(&all));
    findings.first().map(|finding| finding.facts.iter().map(ToString::to_string).collect())
}

fn share(lines: &[Line]) -> Option<String> {
    found(lines, &[]).map(|facts| facts[0].rsplit_once(": ").unwrap().1.to_owned())
}

#[test]
fn the_finding_says_the_share_at_equal_concurrency_and_what_was_measured() {
    assert_eq!(
        found(&[], &[]).unwrap(),
        [
            "tokens/s of its benchmark at equal concurrency: 62 %",
            "output tokens per second: 2010",
            "output tokens per second in the benchmark: 3242",
            "mean requests in the engine: 16",
            "mean requests in the benchmark: 16",
            "benchmark of: llama, NVIDIA H100",
        ]
    );
}

#[test]
fn an_engine_that_is_nearly_as_fast_has_no_finding() {
    let rate = |rate| ("nv_trt_llm_bench_output_tokens_per_second", rate, rate);
    for enough in [2500.0, 2010.0, 100.0, 0.0] {
        assert_eq!(share(&[rate(enough)]), None, "{enough}");
    }
    assert_eq!(share(&[rate(2520.0)]).as_deref(), Some("80 %"));
}

#[test]
fn other_concurrency_is_not_compared_and_fewer_requests_count_in_proportion() {
    let requests = |requests| ("nv_trt_llm_bench_concurrent_requests", requests, requests);
    for other in [13.0, 20.5, 4.0, 200.0, 0.0] {
        assert_eq!(share(&[requests(other)]), None, "{other}");
    }
    assert_eq!(share(&[requests(14.0)]).as_deref(), Some("62 %"));
    // 16 of 19 requests would give 84 % of the tokens.
    assert_eq!(share(&[requests(19.0)]).as_deref(), Some("74 %"));
    let slower = ("nv_trt_llm_bench_output_tokens_per_second", 2700.0, 2700.0);
    assert_eq!(share(&[requests(19.0), slower]), None);
}

#[test]
fn requests_that_do_not_fit_in_the_batch_of_the_benchmark_do_not_count() {
    let report = |batch| {
        [
            ("nv_trt_llm_bench_concurrent_requests", 900.0, 900.0),
            ("nv_trt_llm_bench_config{setting=\"max_batch_size\"}", batch, batch),
            ("nv_trt_llm_bench_config{setting=\"num_gpus\"}", 2.0, 2.0),
        ]
    };
    assert_eq!(share(&report(8.0)).as_deref(), Some("62 %"));
    assert_eq!(share(&report(16.0)), None);
}

#[test]
fn the_concurrency_of_an_old_report_follows_from_rate_and_latency() {
    let old = [
        ("nv_trt_llm_bench_requests_per_second", 8.0, 8.0),
        ("nv_trt_llm_bench_e2e_request_latency_seconds{statistic=\"avg\"}", 2.0, 2.0),
    ];
    let removed = &["nv_trt_llm_bench_concurrent_requests"];
    assert!(found(&old, removed).unwrap().contains(&"mean requests in the benchmark: 16".to_owned()));
    assert_eq!(found(&old[..1], removed), None);
}

#[test]
fn other_lengths_are_not_compared() {
    let outputs = |length| ("nv_trt_llm_bench_output_tokens{statistic=\"avg\"}", length, length);
    let prompts = |length| ("nv_trt_llm_bench_input_tokens{statistic=\"avg\"}", length, length);
    for same in [outputs(170.0), outputs(250.0), prompts(84.0), prompts(9000.0)] {
        assert_eq!(share(&[same]).as_deref(), Some("62 %"), "{same:?}");
    }
    for other in [outputs(160.0), outputs(260.0), prompts(80.0)] {
        assert_eq!(share(&[other]), None, "{other:?}");
    }
    // The lengths of finished requests are better than what follows from counters: prompts of 900 tokens, of which 800 are cached.
    let lengths = [("nv_llm_input_token_len_sum", 0.0, 90_000.0), ("nv_llm_input_token_len_count", 0.0, 100.0)];
    assert_eq!(share(&lengths), None);
    // A report without lengths, and an engine in which too few requests end.
    let removed = &["nv_trt_llm_bench_output_tokens{", "nv_trt_llm_bench_input_tokens"];
    assert!(found(&[], removed).is_some());
    assert_eq!(share(&[("nv_trt_llm_requests_completed_total", 981.0, 990.0)]), None);
}

#[test]
fn an_engine_without_all_its_tokens_or_without_a_report_is_not_compared() {
    assert_eq!(found(&[], &["nv_trt_llm_generation_tokens_total"]), None);
    assert_eq!(found(&[], &["nv_trt_llm_bench_"]), None);
    let hidden: &[Line] = &[("nv_trt_llm_iterations_unreported_total", 7.0, 47.0)];
    assert_eq!(share(hidden), None);
    let sampled: &[Line] = &[("nv_trt_llm_statistics_interval_iterations", 10.0, 10.0)];
    let lines = [REPORT, sampled].concat();
    let found = names(&observation(&Case { lines: lines.leak(), ..Case::default() }));
    assert_eq!(found, ["statistics-sampled"]);
}
