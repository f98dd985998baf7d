//! Families that Dynamo's TensorRT-LLM worker adds to those of the engine, under the same prefix (`--metrics.compat
//! trtllm`). The reference page (`src/tools/metrics.md`) lists the families that are missing here because no statistics
//! have their values.

use super::{EngineView, FamilyWriter, Id, Metric, families, increased, seen};

const DYNAMO: Metric = Metric::compat("dynamo", &["disaggregation_mode", "engine_type", "model_name"]);

families! {
    Dynamo of EngineView<'_> => FamilyWriter<'_>;

    DynamoTransferSuccess(|engine| increased(engine.times.dynamo_transfer.count())) =
        DYNAMO.counter("trtllm_kv_transfer_success_total")
        .help("KV cache transfers from the context server that have ended.").like(Id::KvCacheTransferTime);
    DynamoTransferLatency(|engine| seen(&engine.times.dynamo_transfer)) =
        DYNAMO.histogram("trtllm_kv_transfer_latency_seconds").unit("seconds")
        .help("Duration of a request's KV cache transfer in seconds.").like(Id::KvCacheTransferTime);
    DynamoTransferBytes(|engine| seen(&engine.times.dynamo_transfer_bytes)) =
        DYNAMO.histogram("trtllm_kv_transfer_bytes").unit("bytes")
        .help("Size of a request's KV cache transfer in bytes.").like(Id::KvCacheTransferBytes);
    DynamoTransferSpeed(|engine| seen(&engine.times.dynamo_transfer_speed)) =
        DYNAMO.histogram("trtllm_kv_transfer_speed_gb_s")
        .help("Speed of a request's KV cache transfer in 10^9 bytes per second.").like(Id::KvCacheTransferBytes);
}
