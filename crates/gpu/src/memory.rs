//! The memory of a GPU or MIG instance.

use nvml_wrapper::Device;

use super::limits::MEMORY_BYTES;
use super::probe::Probe;
use super::raw;
use trtllm_records::gpu::GpuMemory;
/// Reads it. What exceeds the total is impossible.
pub(super) fn memory(call: &'static str, device: &Device<'_>, probe: &mut Probe<'_>) -> GpuMemory {
    let memory = probe.call(call, || raw::memory(device)).unwrap_or_default();
    let total_bytes = memory.total_bytes.and_then(|bytes| probe.possible(call, &MEMORY_BYTES, bytes));
    let part = 0..=total_bytes.unwrap_or(*MEMORY_BYTES.end());
    let mut part = |bytes: Option<u64>| probe.possible(call, &part, bytes?);
    GpuMemory {
        total_bytes,
        used_bytes: part(memory.used_bytes),
        free_bytes: part(memory.free_bytes),
        reserved_bytes: part(memory.reserved_bytes),
    }
}
