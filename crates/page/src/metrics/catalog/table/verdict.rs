//! What limits an engine.

use trtllm_verdict::blind::Blind;
use trtllm_verdict::cause::Cause;

use super::{ENGINE, EngineView, FamilyWriter, InDefault, Metric, When, families};

/// The area of the families that any engine has.
const VERDICT: Metric = ENGINE.when(&[When::Any]);

families! {
    Verdict of EngineView<'_> => FamilyWriter<'_>;

    LimitedBy(|engine, series| series.one_of(engine.judged.verdict.verdict()?.cause as usize)) =
        VERDICT.gauge("nv_trt_llm_limited_by").shown_in_default(InDefault::CurrentState).by("cause", &Cause::NAMES)
        .help("1 for the cause that limits the engine, none if nothing does.");
    LimitedByBlind(|engine, series| {
        let verdict = engine.judged.verdict.verdict()?;
        series.all(Blind::NAMES.map(|what| Some(verdict.blind.iter().any(|spot| spot.what == what))))
    }) = VERDICT.gauge("nv_trt_llm_limited_by_blind").by("what", &Blind::NAMES)
        .help("1 for each kind of numbers about the engine that no source provides.");
    LimitedBySince(|engine| engine.judged.verdict.verdict()?.since) =
        VERDICT.gauge("nv_trt_llm_limited_by_since_timestamp_seconds").in_default().unit("seconds")
        .help("Time at which the present cause was found as a Unix timestamp in seconds.");
    LimitedBySeverity(|engine| engine.judged.verdict.verdict()?.severity as u64) =
        VERDICT.gauge("nv_trt_llm_limited_by_severity").in_default()
        .help("Severity of the present cause: 0 none, 1 info, 2 warning (users are hurt, or will be), 3 critical \
            (requests hang or fail).");
    IterationSlowdown(|engine| engine.judged.slowdown) = VERDICT.gauge("nv_trt_llm_iteration_slowdown_ratio")
        .unit("ratio")
        .help("Duration of the last iterations relative to what the engine took for equal work before; 1 is as fast.")
        .when(&[When::Iterations]);
    Capacity(|engine| engine.headroom?.capacity) = VERDICT.gauge("nv_trt_llm_capacity_requests_per_second").in_default()
        .help("Requests per second that the engine could serve of those that it gets now.").when(&[When::Iterations]);
    Headroom(|engine| engine.headroom?.free) = VERDICT.gauge("nv_trt_llm_headroom_ratio").in_default().unit("ratio")
        .help("Share of the engine's capacity that is free: 0 at capacity.").when(&[When::Iterations]);
    ThroughputOfReference(|engine| engine.judged.output_ratios(engine.bench?).throughput) =
        VERDICT.gauge("nv_trt_llm_throughput_of_reference_ratio").in_default().unit("ratio")
        .by("reference", &["benchmark"])
        .help("Output tokens per second and GPU in the last five minutes relative to those of the benchmark report.")
        .when(&[When::Iterations]);
    EfficiencyOfReference(|engine| engine.judged.output_ratios(engine.bench?).efficiency) =
        VERDICT.gauge("nv_trt_llm_tokens_per_joule_of_reference_ratio").in_default().unit("ratio")
        .by("reference", &["benchmark"])
        .help("Output tokens per joule in the last five minutes relative to those of the benchmark report.")
        .when(&[When::Iterations]);
}
