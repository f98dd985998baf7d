//! Publishes each inventory of GPUs, and with it what the engines use of them.

use std::sync::{Arc, Mutex, PoisonError};

use crate::gpu_use::{EngineClaim, GpuUse};
use crate::model::gpu::GpuInventory;
use crate::state::State;

/// For [`crate::gpu::start`].
pub(super) fn publisher(state: Arc<State>) -> impl Fn(GpuInventory) + Send + Sync + 'static {
    let gpu_use = Mutex::new(GpuUse::default());
    move |inventory| {
        let slots = state.slots();
        let engines: Vec<EngineClaim<'_>> =
            slots.iter().map(|slot| EngineClaim { id: slot.id, configured: slot.configured_gpus() }).collect();
        let mut gpu_use = gpu_use.lock().unwrap_or_else(PoisonError::into_inner);
        for (slot, gpus) in slots.iter().zip(gpu_use.absorb(&inventory, &engines)) {
            slot.publish_gpus(gpus);
        }
        state.publish_gpus(inventory);
    }
}
