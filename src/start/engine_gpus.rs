//! Publishes each inventory of GPUs, and how the engines use these GPUs.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use trtllm_engines::{EngineSlot, State};
use trtllm_gpu::usage::{EngineClaim, GpuUse};
use trtllm_records::gpu::{GpuInventory, PodName};

/// The function that [`trtllm_gpu::start`] calls with each inventory. `own_pod` is the pod of this process.
pub(super) fn publisher(state: Arc<State>, own_pod: Option<PodName>) -> impl Fn(GpuInventory) + Send + Sync + 'static {
    let gpu_use = Mutex::new(GpuUse::new(Path::new("/proc"), own_pod));
    move |inventory| {
        let slots = state.slots();
        let engines: Vec<EngineClaim> = slots.iter().map(|slot| claim(slot)).collect();
        let mut gpu_use = gpu_use.lock();
        for (slot, gpus) in slots.iter().zip(gpu_use.absorb(&inventory, &engines)) {
            slot.lock().gpus = gpus.map(Arc::new);
        }
        state.publish_gpus(inventory);
    }
}

/// The name of the pod of this process, from environment variables that its manifest sets.
pub(super) fn own_pod() -> Option<PodName> {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    Some(PodName { namespace: set("POD_NAMESPACE")?, pod: set("POD_NAME")? })
}

fn claim(slot: &EngineSlot) -> EngineClaim {
    let origin = slot.origin.clone();
    let engine = slot.lock();
    let mut pids = engine.source.processes.clone();
    if origin.is_own_process {
        pids.push(std::process::id());
    }
    let (id, gpu_count) = (slot.id, engine.gpu_count());
    EngineClaim { id, configured: origin.gpus, pids, port: origin.port, pod: origin.pod, gpu_count }
}
