//! Triton's request counters (`--metrics.compat triton-core`), so that autoscaling rules written for them work.

use trtllm_fold::histogram::FIRST_TOKEN_MILLISECONDS;

use super::{EngineView, FamilyWriter, Id, Metric, families, seen};

const TRITON_CORE: Metric = Metric::compat("triton-core", &["model", "version"]);

families! {
    TritonCore of EngineView<'_> => FamilyWriter<'_>;

    InferenceRequestSuccess(|engine| engine.told(engine.requests.succeeded)) =
        TRITON_CORE.legacy_counter("nv_inference_request_success")
        .help("Number of successful inference requests, all batch sizes").like(Id::RequestsCompleted);
    InferenceRequestFailure(|engine, series| {
        let [_, _, timeout, cancelled, other] = engine.requests.finished.unwrap_or_default();
        series.all([0, cancelled, timeout.saturating_add(other), 0].map(Some))
    }) = TRITON_CORE.legacy_counter("nv_inference_request_failure")
        .by("reason", &["BACKEND", "CANCELED", "OTHER", "REJECTED"])
        .help("Number of failed inference requests, all batch sizes").feeds("finishReason");
    InferenceCount(|engine| engine.told(engine.requests.succeeded)) = TRITON_CORE.legacy_counter("nv_inference_count")
        .help("Number of inferences performed (does not include cached requests)").like(Id::InferenceRequestSuccess);
    InferenceExecCount(|engine| engine.iterations()) = TRITON_CORE.legacy_counter("nv_inference_exec_count")
        .help("Number of model executions performed (does not include cached requests)").like(Id::Iterations);
    InferenceRequestDuration(|engine| engine.microseconds(engine.times.e2e_latency.sum())) =
        TRITON_CORE.legacy_counter("nv_inference_request_duration_us")
        .help("Cumulative inference request duration in microseconds (includes cached requests)").like(Id::E2eLatency);
    InferenceQueueDuration(|engine| engine.microseconds(engine.times.queue_time.sum())) =
        TRITON_CORE.legacy_counter("nv_inference_queue_duration_us")
        .help("Cumulative inference queuing duration in microseconds (includes cached requests)")
        .like(Id::RequestQueueTime);
    InferenceComputeInput(|engine| engine.microseconds(0.0)) =
        TRITON_CORE.legacy_counter("nv_inference_compute_input_duration_us")
        .help("Cumulative compute input duration in microseconds (does not include cached requests)")
        .like(Id::RequestQueueTime);
    InferenceComputeInfer(|engine| engine.microseconds(engine.times.inference_time.sum())) =
        TRITON_CORE.legacy_counter("nv_inference_compute_infer_duration_us")
        .help("Cumulative compute inference duration in microseconds (does not include cached requests)")
        .like(Id::RequestInferenceTime);
    InferenceComputeOutput(|engine| engine.microseconds(0.0)) =
        TRITON_CORE.legacy_counter("nv_inference_compute_output_duration_us")
        .help("Cumulative inference compute output duration in microseconds (does not include cached requests)")
        .like(Id::RequestInferenceTime);
    InferenceFirstResponse(
        |engine| seen(&engine.times.time_to_first_token)?.in_unit(FIRST_TOKEN_MILLISECONDS, 1000.0)
    ) = TRITON_CORE.histogram("nv_inference_first_response_histogram_ms")
        .help("Duration from request to first response in milliseconds").like(Id::TimeToFirstToken);
    InferencePending(|engine| engine.load?.all_waiting_rounded()) =
        TRITON_CORE.gauge("nv_inference_pending_request_count")
        .help("Instantaneous number of pending requests awaiting execution per-model.")
        .like(Id::WaitingRequestsEstimate);
}
