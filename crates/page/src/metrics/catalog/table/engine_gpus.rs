//! The GPUs of an engine, with their energy, time and price.

use super::{ENGINE, EngineView, FamilyWriter, Metric, When, families};

/// The area of the families that any engine with a GPU has.
const GPUS: Metric = ENGINE.when(&[When::Any]).in_default();

families! {
    EngineGpus of EngineView<'_> => FamilyWriter<'_>;

    EngineGpuInfo(|engine, series| {
        for uuid in &engine.gpus?.uuids {
            series.with([("gpu_uuid", uuid.clone())], 1_u64);
        }
    }) = GPUS.gauge("nv_trt_llm_engine_gpu_info").labels(&["gpu_uuid", "model", "version"])
        .help("GPU that serves the engine, in a label; always 1, one series per GPU.");
    EngineGpuEnergy(|engine| engine.gpus?.energy_joules) = GPUS.counter("nv_trt_llm_gpu_energy_joules_total")
        .unit("joules").help("Energy used by the engine's GPUs on this node in joules, idle time included.");
    EngineGpuSeconds(|engine| engine.gpus?.gpu_seconds) = GPUS.counter("nv_trt_llm_gpu_seconds_total").unit("seconds")
        .help("Time for which the engine's GPUs on this node were present in seconds, idle time included, summed over \
            the GPUs.");
    EngineGpuCost(|engine| engine.gpus?.gpu_seconds? / 3600.0 * engine.gpu_hour_cost?) =
        GPUS.counter("nv_trt_llm_gpu_cost_total")
        .help("Price of the time for which the engine's GPUs on this node were present, idle time included, in the \
            currency of --cost.gpu-hour.");
}
