//! What the rules about an orchestrator find, and what they leave alone.

use super::{Case, Line, names, observation};

/// An orchestrator instead of the engine.
pub(super) fn orchestrator(lines: &'static [Line]) -> Case {
    Case { lines, removed: &["nv_trt_llm_"], record: Some(|_| Vec::new()), start: None }
}

#[test]
fn a_healthy_orchestrator_has_no_finding() {
    let healthy = orchestrator(&[
        ("nv_trt_llm_disagg_ready", 1.0, 1.0),
        ("nv_trt_llm_disagg_ready_workers{side=\"context\"}", 2.0, 2.0),
        ("nv_trt_llm_disagg_ready_workers{side=\"generation\"}", 1.0, 1.0),
        ("nv_trt_llm_disagg_minimal_workers{side=\"context\"}", 2.0, 2.0),
        ("nv_trt_llm_disagg_requests_total{mode=\"stream\"}", 100.0, 300.0),
        ("nv_trt_llm_disagg_request_errors_total{kind=\"http\"}", 50.0, 59.0),
        ("nv_trt_llm_disagg_request_errors_total{kind=\"validation\"}", 0.0, 150.0),
        ("nv_trt_llm_disagg_worker_requests_total{side=\"context\"}", 0.0, 200.0),
        ("nv_trt_llm_disagg_worker_errors_total{side=\"context\"}", 0.0, 9.0),
        ("nv_trt_llm_disagg_worker_retries_total{side=\"context\"}", 0.0, 9.0),
        // Too few to tell.
        ("nv_trt_llm_disagg_worker_requests_total{side=\"encoder\"}", 0.0, 19.0),
        ("nv_trt_llm_disagg_worker_errors_total{side=\"encoder\"}", 0.0, 9.0),
    ]);
    assert_eq!(names(&observation(&healthy)), [""; 0]);
}

#[test]
fn a_side_without_a_worker_is_named_also_where_no_minimum_is_known() {
    for lines in [
        &[("nv_trt_llm_disagg_ready_workers{side=\"generation\"}", 1.0, 0.0)][..],
        &[
            ("nv_trt_llm_disagg_ready_workers{side=\"context\"}", 1.0, 1.0),
            ("nv_trt_llm_disagg_minimal_workers{side=\"context\"}", 2.0, 2.0),
        ],
        &[("nv_trt_llm_disagg_ready", 1.0, 0.0)],
    ] {
        assert_eq!(names(&observation(&orchestrator(lines))), ["orchestrator-not-ready"], "{lines:?}");
    }
}
