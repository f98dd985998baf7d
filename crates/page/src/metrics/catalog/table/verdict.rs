//! What limits an engine.

use trtllm_verdict::blind::Blind;
use trtllm_verdict::cause::Cause;

use super::{Area, ENGINE, EngineReadings, EngineWriter, When, families};

/// The area of the families that any engine has.
const VERDICT: Area = ENGINE.when(&[When::Any]);

families! {
    Verdict of EngineReadings<'_> => EngineWriter<'_>;

    LimitedBy(|engine, series| series.one_of(engine.judged.verdict.verdict()?.cause as usize)) = VERDICT.gauge("nv_trt_llm_limited_by").by("cause", &Cause::NAMES)
        .help("1 for the cause that limits the engine, none if nothing does.")
        .origin("the last five minutes of numActiveRequests, iterLatencyMS and the other numbers of records, of request times and of GPU readings, judged every five seconds: see verdict.md; absent while too little is known");
    LimitedByBlind(|engine, series| {
        let verdict = engine.judged.verdict.verdict()?;
        series.all(Blind::NAMES.map(|what| Some(verdict.blind.iter().any(|spot| spot.what == what))))
    }) = VERDICT.gauge("nv_trt_llm_limited_by_blind").by("what", &Blind::NAMES)
        .help("1 for each kind of numbers about the engine that no source provides.")
        .origin("whether numActiveRequests and the other numbers of records, request times, finish reasons and GPU readings are known: see verdict.md; absent as nv_trt_llm_limited_by is");
    LimitedBySince(|engine| engine.judged.verdict.verdict()?.since) = VERDICT.gauge("nv_trt_llm_limited_by_since_timestamp_seconds")
        .unit("seconds").help("Time at which the present cause was found as a Unix timestamp in seconds.")
        .origin("as nv_trt_llm_limited_by: numActiveRequests, iterLatencyMS and others");
    LimitedBySeverity(|engine| engine.judged.verdict.verdict()?.severity as u64) = VERDICT.gauge("nv_trt_llm_limited_by_severity")
        .help("Severity of the present cause: 0 none, 1 info, 2 warning (users are hurt, or will be), 3 critical (requests hang or fail).")
        .origin("as nv_trt_llm_limited_by: numActiveRequests, iterLatencyMS and others, and --objectives");
    IterationSlowdown(|engine| engine.judged.slowdown) = VERDICT.gauge("nv_trt_llm_iteration_slowdown_ratio").unit("ratio")
        .help("Duration of the last iterations relative to what the engine took for equal work before; 1 is as fast.")
        .origin("the last 15 s of times of batches (iterLatencyMS, hostStepTimeMS), by their context tokens, generation requests and KV cache tokens; absent while too few iterations can be compared")
        .when(&[When::Iterations]);
    Capacity(|engine| engine.headroom?.capacity) = VERDICT.gauge("nv_trt_llm_capacity_requests_per_second")
        .help("Requests per second that the engine could serve of those that it gets now.")
        .origin("simulated once a minute from the last requests of RequestPerfMetrics and the costs learned from iterLatencyMS: see what-if.md; requests completed in the last minute while requests always wait; absent where the data cannot tell it within 25 %")
        .when(&[When::Iterations]);
    Headroom(|engine| engine.headroom?.free) = VERDICT.gauge("nv_trt_llm_headroom_ratio").unit("ratio")
        .help("Share of the engine's capacity that is free: 0 at capacity.")
        .origin("1 - arrivals of the last minute (numNewActiveRequests and the growth of waiting requests) / nv_trt_llm_capacity_requests_per_second")
        .when(&[When::Iterations]);
    ThroughputOfReference(|engine| engine.judged.output_ratios(engine.bench?).throughput) = VERDICT.gauge("nv_trt_llm_throughput_of_reference_ratio").unit("ratio").by("reference", &["benchmark"])
        .help("Output tokens per second and GPU in the last five minutes relative to those of the benchmark report.")
        .origin("numGenRequests, accepted draft tokens and numNewActiveRequests, as nv_trt_llm_bench_gpu_output_tokens_per_second counts them: see compare.md; assumes the same model, lengths of requests and load; absent where statistics are sampled or records are lost")
        .when(&[When::Iterations]);
    EfficiencyOfReference(|engine| engine.judged.output_ratios(engine.bench?).efficiency) = VERDICT.gauge("nv_trt_llm_tokens_per_joule_of_reference_ratio").unit("ratio").by("reference", &["benchmark"])
        .help("Output tokens per joule in the last five minutes relative to those of the benchmark report.")
        .origin("as nv_trt_llm_throughput_of_reference_ratio (numGenRequests and others), and nv_trt_llm_gpu_energy_joules_total, idle time included")
        .when(&[When::Iterations]);
}
