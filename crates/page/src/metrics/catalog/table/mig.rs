//! MIG instances.

use trtllm_records::gpu::MigInstance;

use super::{FamilyWriter, Group, Metric, Stability, families};

const MIG: Metric = Metric::area(Group::Gpu, Stability::Stable, &["gpu_uuid", "mig_uuid"]);
const ACTIVITY: Metric = Metric::area(Group::Gpu, Stability::Experimental, &["gpu_uuid", "mig_uuid"]);

families! {
    Mig of MigInstance => FamilyWriter<'_>;

    MigInfo(|mig, series| {
        let id = |id: Option<u32>| id.map(|id| id.to_string()).unwrap_or_default();
        let (compute, gpu) = (id(mig.compute_instance_id), id(mig.gpu_instance_id));
        let profile = mig.profile.clone().unwrap_or_default();
        series.with([("compute_instance_id", compute), ("gpu_instance_id", gpu), ("mig_profile", profile)], 1_u64)
    }) = MIG.gauge("nv_gpu_mig_info").in_default()
        .labels(&["compute_instance_id", "gpu_instance_id", "gpu_uuid", "mig_profile", "mig_uuid"])
        .help("MIG instance description in labels (profile, instance ids); always 1.");
    MigMemoryTotal(|mig| mig.memory.total_bytes) = MIG.gauge("nv_gpu_mig_memory_total_bytes").in_default().unit("bytes")
        .help("Total memory of the MIG instance in bytes.");
    MigMemoryUsed(|mig| mig.memory.used_bytes) = MIG.gauge("nv_gpu_mig_memory_used_bytes").in_default().unit("bytes")
        .help("Used memory of the MIG instance in bytes.");
    MigMemoryFree(|mig| mig.memory.free_bytes) = MIG.gauge("nv_gpu_mig_memory_free_bytes").unit("bytes")
        .help("Free memory of the MIG instance in bytes.");
    MigGpmGraphics(|mig| mig.activity.graphics) = ACTIVITY.gauge("nv_gpu_mig_graphics_active_ratio").unit("ratio")
        .help("Share (0-1) of time in which any graphics or compute engine of the MIG instance was active.");
    MigGpmSm(|mig| mig.activity.sm) = ACTIVITY.gauge("nv_gpu_mig_sm_active_ratio").in_default().unit("ratio")
        .help("Share (0-1) of time in which an SM of the MIG instance had a warp assigned, averaged over its SMs.");
    MigGpmSmOccupancy(|mig| mig.activity.sm_occupancy) = ACTIVITY.gauge("nv_gpu_mig_sm_occupancy_ratio").unit("ratio")
        .help("Resident warps as a share (0-1) of the maximum an SM of the MIG instance can hold, averaged over its \
            SMs.");
    MigGpmTensor(|mig| mig.activity.tensor) =
        ACTIVITY.gauge("nv_gpu_mig_tensor_active_ratio").in_default().unit("ratio")
        .help("Share (0-1) of time in which any tensor pipe of the MIG instance was active.");
    MigGpmTensorDfma(|mig| mig.activity.tensor_dfma) = ACTIVITY.gauge("nv_gpu_mig_tensor_dfma_active_ratio")
        .unit("ratio")
        .help("Share (0-1) of time in which the tensor pipe of the MIG instance executed FP64 operations.");
    MigGpmTensorHmma(|mig| mig.activity.tensor_hmma) = ACTIVITY.gauge("nv_gpu_mig_tensor_hmma_active_ratio")
        .unit("ratio")
        .help("Share (0-1) of time in which the tensor pipe of the MIG instance executed FP16 or BF16 operations.");
    MigGpmTensorImma(|mig| mig.activity.tensor_imma) = ACTIVITY.gauge("nv_gpu_mig_tensor_imma_active_ratio")
        .unit("ratio")
        .help("Share (0-1) of time in which the tensor pipe of the MIG instance executed integer operations.");
    MigGpmDram(|mig| mig.activity.dram) = ACTIVITY.gauge("nv_gpu_mig_dram_active_ratio").in_default().unit("ratio")
        .help("Share (0-1) of the memory bandwidth of the MIG instance in use.");
    MigGpmFp64(|mig| mig.activity.fp64) = ACTIVITY.gauge("nv_gpu_mig_fp64_active_ratio").unit("ratio")
        .help("Share (0-1) of time in which the FP64 pipe of the MIG instance was active.");
    MigGpmFp32(|mig| mig.activity.fp32) = ACTIVITY.gauge("nv_gpu_mig_fp32_active_ratio").unit("ratio")
        .help("Share (0-1) of time in which the FP32 pipe of the MIG instance was active.");
    MigGpmFp16(|mig| mig.activity.fp16) = ACTIVITY.gauge("nv_gpu_mig_fp16_active_ratio").unit("ratio")
        .help("Share (0-1) of time in which the FP16 pipe of the MIG instance was active.");
}
