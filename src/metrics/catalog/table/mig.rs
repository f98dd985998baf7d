//! MIG instances.

use super::super::id::{Id, families};
use super::super::metric::{Area, Group, Metric, Stability};

const MIG: Area = Area::new(Group::Gpu, Stability::Stable, &["gpu_uuid", "mig_uuid"]);

families! {
    first: super::gpu::END;

    MigInfo = MIG.gauge("nv_gpu_mig_info").labels(&["compute_instance_id", "gpu_instance_id", "gpu_uuid", "mig_profile", "mig_uuid"])
        .help("MIG instance description in labels (profile, instance ids); always 1.")
        .origin("nvmlDeviceGetMigDeviceHandleByIndex, GpuInstanceId, ComputeInstanceId, Name");
    MigMemoryTotal = MIG.gauge("nv_gpu_mig_memory_total_bytes").unit("bytes")
        .help("Total memory of the MIG instance in bytes.").origin("nvmlDeviceGetMemoryInfo_v2");
    MigMemoryUsed = MIG.gauge("nv_gpu_mig_memory_used_bytes").unit("bytes")
        .help("Used memory of the MIG instance in bytes.").origin("nvmlDeviceGetMemoryInfo_v2");
    MigMemoryFree = MIG.gauge("nv_gpu_mig_memory_free_bytes").unit("bytes")
        .help("Free memory of the MIG instance in bytes.").origin("nvmlDeviceGetMemoryInfo_v2");
    MigGpmGraphics = MIG.gauge("nv_gpu_mig_graphics_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of time in which any graphics or compute engine of the MIG instance was active.")
        .origin("GPM GRAPHICS_UTIL of the GPU instance, Hopper and later");
    MigGpmSm = MIG.gauge("nv_gpu_mig_sm_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of time in which an SM of the MIG instance had a warp assigned, averaged over its SMs.")
        .origin("GPM SM_UTIL of the GPU instance, Hopper and later");
    MigGpmSmOccupancy = MIG.gauge("nv_gpu_mig_sm_occupancy_ratio").unit("ratio").experimental()
        .help("Resident warps as a share (0-1) of the maximum an SM of the MIG instance can hold, averaged over its SMs.")
        .origin("GPM SM_OCCUPANCY of the GPU instance, Hopper and later");
    MigGpmTensor = MIG.gauge("nv_gpu_mig_tensor_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of time in which any tensor pipe of the MIG instance was active.")
        .origin("GPM ANY_TENSOR_UTIL of the GPU instance, Hopper and later");
    MigGpmTensorDfma = MIG.gauge("nv_gpu_mig_tensor_dfma_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of time in which the tensor pipe of the MIG instance executed FP64 operations.")
        .origin("GPM DFMA_TENSOR_UTIL of the GPU instance, Hopper and later");
    MigGpmTensorHmma = MIG.gauge("nv_gpu_mig_tensor_hmma_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of time in which the tensor pipe of the MIG instance executed FP16 or BF16 operations.")
        .origin("GPM HMMA_TENSOR_UTIL of the GPU instance, Hopper and later");
    MigGpmTensorImma = MIG.gauge("nv_gpu_mig_tensor_imma_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of time in which the tensor pipe of the MIG instance executed integer operations.")
        .origin("GPM IMMA_TENSOR_UTIL of the GPU instance, Hopper and later");
    MigGpmDram = MIG.gauge("nv_gpu_mig_dram_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of the memory bandwidth of the MIG instance in use.")
        .origin("GPM DRAM_BW_UTIL of the GPU instance, Hopper and later");
    MigGpmFp64 = MIG.gauge("nv_gpu_mig_fp64_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of time in which the FP64 pipe of the MIG instance was active.")
        .origin("GPM FP64_UTIL of the GPU instance, Hopper and later");
    MigGpmFp32 = MIG.gauge("nv_gpu_mig_fp32_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of time in which the FP32 pipe of the MIG instance was active.")
        .origin("GPM FP32_UTIL of the GPU instance, Hopper and later");
    MigGpmFp16 = MIG.gauge("nv_gpu_mig_fp16_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of time in which the FP16 pipe of the MIG instance was active.")
        .origin("GPM FP16_UTIL of the GPU instance, Hopper and later");
}
