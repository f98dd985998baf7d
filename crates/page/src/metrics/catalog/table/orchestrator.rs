//! The orchestrator of disaggregated serving. It sends each request to one side after the other: encoders if the model
//! has some, then context (prefill), then generation (decode).

use trtllm_fold::orchestrator::SideTotals;
use trtllm_records::orchestrator::Side;

use super::{ENGINE, EngineView, FamilyWriter, Metric, When, families};

/// The area of the families that only an orchestrator has.
const ORCHESTRATOR: Metric = ENGINE.when(&[When::Orchestrator]);

/// A value of each side that the orchestrator has.
fn sides<'e, V>(engine: &'e EngineView<'_>, read: impl Fn(&'e SideTotals) -> V) -> Option<[Option<V>; 3]> {
    Some(engine.orchestrator()?.sides.each_ref().map(|side| side.as_ref().map(&read)))
}

families! {
    Orchestrator of EngineView<'_> => FamilyWriter<'_>;

    DisaggRequests(|engine| let totals = engine.orchestrator()?; by mode {
        stream: totals.streamed, nonstream: totals.whole,
    }) = ORCHESTRATOR.counter("nv_trt_llm_disagg_requests_total").in_default()
        .help("Requests that the orchestrator has accepted, by whether their answer is a stream.");
    DisaggResponses(|engine| engine.orchestrator()?.responses) =
        ORCHESTRATOR.counter("nv_trt_llm_disagg_responses_total").in_default()
        .help("Responses that the orchestrator has begun, streams that fail later included.");
    DisaggRequestErrors(|engine| let totals = engine.orchestrator()?; by kind {
        validation: totals.invalid, http: totals.http_errors, internal: totals.internal_errors,
    }) = ORCHESTRATOR.counter("nv_trt_llm_disagg_request_errors_total").in_default()
        .help("Requests that the orchestrator answered with an error before a response began: validation is a 400 for \
            a body that was not accepted, http an error status of its own or of a worker, internal a 500.");
    DisaggQueueTime(|engine| Some(&engine.orchestrator()?.queue_time)) =
        ORCHESTRATOR.histogram("nv_trt_llm_disagg_queue_time_seconds").unit("seconds")
        .help("Time from the arrival of a request at the orchestrator to the start of its routing in seconds, without \
            any wait in a worker.");
    DisaggWorkerRequests(|engine, series| series.all(sides(engine, |side| side.sent)?)) =
        ORCHESTRATOR.counter("nv_trt_llm_disagg_worker_requests_total").in_default().by("side", &Side::NAMES)
        .help("Requests that the orchestrator has sent to the workers of a side, each counted once with its retries.");
    DisaggWorkerRetries(|engine, series| series.all(sides(engine, |side| side.retried)?)) =
        ORCHESTRATOR.counter("nv_trt_llm_disagg_worker_retries_total").in_default().by("side", &Side::NAMES)
        .help("Further attempts of requests to the workers of a side after a failed connection or an error status.");
    DisaggWorkerErrors(|engine, series| series.all(sides(engine, |side| side.failed)?)) =
        ORCHESTRATOR.counter("nv_trt_llm_disagg_worker_errors_total").in_default().by("side", &Side::NAMES)
        .help("Requests to the workers of a side that have failed, without streams that a worker refused and with \
            repeated attempts of streams that broke.");
    DisaggWorkerEnded(|engine, series| series.all(sides(engine, |side| side.ended)?)) =
        ORCHESTRATOR.counter("nv_trt_llm_disagg_worker_requests_ended_total").in_default().by("side", &Side::NAMES)
        .help("Requests to the workers of a side that have ended, with failed ones but without streams that a worker \
            refused.");
    DisaggWorkerFirstBytes(|engine, series| series.all(sides(engine, |side| &side.first_bytes)?)) =
        ORCHESTRATOR.histogram("nv_trt_llm_disagg_worker_time_to_first_byte_seconds").in_default().unit("seconds")
        .by("side", &Side::NAMES)
        .help("Time from the last attempt of a streaming request to a worker to the first bytes of its answer in \
            seconds.");
    DisaggWorkerReadInterval(|engine, series| series.all(sides(engine, |side| &side.between_reads)?)) =
        ORCHESTRATOR.histogram("nv_trt_llm_disagg_worker_read_interval_seconds").unit("seconds")
        .by("side", &Side::NAMES)
        .help("Time between two network reads of a streaming answer of a worker in seconds, which is longer than the \
            time per token if a read has several tokens.");
    DisaggWorkerRequestTime(|engine, series| series.all(sides(engine, |side| &side.complete)?)) =
        ORCHESTRATOR.histogram("nv_trt_llm_disagg_worker_request_time_seconds").in_default().unit("seconds")
        .by("side", &Side::NAMES)
        .help("Time from the last attempt of a request to a worker to the end of its answer in seconds, of requests \
            that succeeded.");
    DisaggReady(|engine| engine.answering_orchestrator()?.ready) =
        ORCHESTRATOR.gauge("nv_trt_llm_disagg_ready").in_default()
        .help("1 if the orchestrator says that it is ready, 0 if it says that it is not.");
    DisaggWorkers(|engine| let workers = engine.answering_orchestrator()?.workers; by side {
        context: workers.context, generation: workers.generation,
    }) = ORCHESTRATOR.gauge("nv_trt_llm_disagg_ready_workers").in_default()
        .help("Workers of a side that the orchestrator can send requests to.");
    DisaggMinimalWorkers(|engine| let workers = engine.answering_orchestrator()?.minimal_workers; by side {
        context: workers.context, generation: workers.generation,
    }) = ORCHESTRATOR.gauge("nv_trt_llm_disagg_minimal_workers").in_default()
        .help("Workers of a side that the orchestrator needs to be ready.");
}
