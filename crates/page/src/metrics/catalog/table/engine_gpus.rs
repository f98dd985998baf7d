//! The GPUs of an engine, with their energy, time and price.

use super::{Area, ENGINE, EngineReadings, EngineWriter, When, families};

/// The area of the families that any engine with a GPU has.
const GPUS: Area = ENGINE.when(&[When::Any]);

families! {
    EngineGpus of EngineReadings<'_> => EngineWriter<'_>;

    EngineGpuInfo(|engine, series| {
        for uuid in &engine.gpus?.uuids {
            series.with([("gpu_uuid", uuid.clone())], 1_u64);
        }
    }) = GPUS.gauge("nv_trt_llm_engine_gpu_info").labels(&["gpu_uuid", "model", "version"])
        .help("GPU that serves the engine, in a label; always 1, one series per GPU.")
        .origin("gpus of the engine in --config.file; else the GPUs on which nvmlDeviceGetComputeRunningProcesses_v3 lists a process that publishes for the engine, hosts it or listens on its port, or a descendant; else, for the only engine of a pod, the GPUs that the kubelet gave to the pod; absent if it is not known for certain which GPUs serve the engine, and with --gpu off");
    EngineGpuEnergy(|engine| engine.gpus?.energy_joules) = GPUS.counter("nv_trt_llm_gpu_energy_joules_total").unit("joules")
        .help("Energy used by the engine's GPUs on this node in joules, idle time included.")
        .origin("increases of nv_energy_consumption of the engine's GPUs since the engine appeared; absent if a GPU also serves another engine, has MIG enabled, has no energy counter or was not found yet, and if the engine reports more GPUs than were found");
    EngineGpuSeconds(|engine| engine.gpus?.gpu_seconds) = GPUS.counter("nv_trt_llm_gpu_seconds_total").unit("seconds")
        .help("Time for which the engine's GPUs on this node were present in seconds, idle time included, summed over the GPUs.")
        .origin("time between two successive polls of the GPU that succeeded; absent if a GPU also serves another engine, has MIG enabled or was not found yet, and if the engine reports more GPUs than were found");
    EngineGpuCost(|engine| engine.gpus?.gpu_seconds? / 3600.0 * engine.gpu_hour_cost?) = GPUS.counter("nv_trt_llm_gpu_cost_total")
        .help("Price of the time for which the engine's GPUs on this node were present, idle time included, in the currency of --cost.gpu-hour.")
        .origin("nv_trt_llm_gpu_seconds_total / 3600 × --cost.gpu-hour, or the key gpu_hour_cost of the engine; absent without a price");
}
