//! MIG instances.

use super::super::id::{Id, families};
use super::super::metric::{Area, Group, Metric, Stability};

const MIG: Area = Area::new(Group::Gpu, Stability::Stable, &["gpu_uuid", "mig_uuid"]);

families! {
    first: super::gpu::END;

    MigInfo = MIG.gauge("nv_gpu_mig_info").labels(&["compute_instance_id", "gpu_instance_id", "gpu_uuid", "mig_profile", "mig_uuid"])
        .help("Which MIG instance this is.")
        .origin("nvmlDeviceGetMigDeviceHandleByIndex, GpuInstanceId, ComputeInstanceId, Name");
    MigMemoryTotal = MIG.gauge("nv_gpu_mig_memory_total_bytes").unit("bytes")
        .help("Memory of the MIG instance in bytes.")
        .origin("nvmlDeviceGetMemoryInfo_v2");
    MigMemoryUsed = MIG.gauge("nv_gpu_mig_memory_used_bytes").unit("bytes")
        .help("Used memory of the MIG instance in bytes.")
        .origin("nvmlDeviceGetMemoryInfo_v2");
    MigMemoryFree = MIG.gauge("nv_gpu_mig_memory_free_bytes").unit("bytes")
        .help("Free memory of the MIG instance in bytes.")
        .origin("nvmlDeviceGetMemoryInfo_v2");
    MigGpmGraphics = MIG.gauge("nv_gpu_mig_graphics_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of time in which, in the MIG instance, any engine was computing or drawing.")
        .origin("GPM GRAPHICS_UTIL of the GPU instance, Hopper and later");
    MigGpmSm = MIG.gauge("nv_gpu_mig_sm_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of time in which, in the MIG instance, a warp was assigned to an SM, averaged over SMs.")
        .origin("GPM SM_UTIL of the GPU instance, Hopper and later");
    MigGpmSmOccupancy = MIG.gauge("nv_gpu_mig_sm_occupancy_ratio").unit("ratio").experimental()
        .help("Share (0-1) of the warps an SM of the MIG instance can hold that were resident, averaged over its SMs.")
        .origin("GPM SM_OCCUPANCY of the GPU instance, Hopper and later");
    MigGpmTensor = MIG.gauge("nv_gpu_mig_tensor_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of time in which, in the MIG instance, any tensor pipe was active.")
        .origin("GPM ANY_TENSOR_UTIL of the GPU instance, Hopper and later");
    MigGpmTensorDfma = MIG.gauge("nv_gpu_mig_tensor_dfma_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of time in which, in the MIG instance, the tensor pipe did FP64.")
        .origin("GPM DFMA_TENSOR_UTIL of the GPU instance, Hopper and later");
    MigGpmTensorHmma = MIG.gauge("nv_gpu_mig_tensor_hmma_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of time in which, in the MIG instance, the tensor pipe did FP16 or BF16.")
        .origin("GPM HMMA_TENSOR_UTIL of the GPU instance, Hopper and later");
    MigGpmTensorImma = MIG.gauge("nv_gpu_mig_tensor_imma_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of time in which, in the MIG instance, the tensor pipe did integers.")
        .origin("GPM IMMA_TENSOR_UTIL of the GPU instance, Hopper and later");
    MigGpmDram = MIG.gauge("nv_gpu_mig_dram_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of time in which, in the MIG instance, GPU memory was transferring, of what it could.")
        .origin("GPM DRAM_BW_UTIL of the GPU instance, Hopper and later");
    MigGpmFp64 = MIG.gauge("nv_gpu_mig_fp64_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of time in which, in the MIG instance, the FP64 pipe was active.")
        .origin("GPM FP64_UTIL of the GPU instance, Hopper and later");
    MigGpmFp32 = MIG.gauge("nv_gpu_mig_fp32_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of time in which, in the MIG instance, the FP32 pipe was active.")
        .origin("GPM FP32_UTIL of the GPU instance, Hopper and later");
    MigGpmFp16 = MIG.gauge("nv_gpu_mig_fp16_active_ratio").unit("ratio").experimental()
        .help("Share (0-1) of time in which, in the MIG instance, the FP16 pipe was active.")
        .origin("GPM FP16_UTIL of the GPU instance, Hopper and later");
}
