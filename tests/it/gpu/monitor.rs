//! Runs GPU monitoring for a test: starts it on a stand-in and collects every inventory that it publishes.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use trtllm_gpu::{self as gpu, GpuConfig, GpuHandle, GpuTiming};
use trtllm_records::gpu::{Gpu, GpuInventory, GpuReadings, GpuState};

use crate::support::standin::Standin;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const INTERVAL: Duration = Duration::from_millis(20);
/// Deadline for an NVML call. It is longer than any pause of a busy build machine, so only a hung call exceeds it.
const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// Shorter deadline for tests that wait until a hung call exceeds it. It is still longer than any pause of the machine.
const HANG_DEADLINE: Duration = Duration::from_secs(4);
pub(crate) const UUID_0: &str = "GPU-00000000-0000-4000-8000-000000000000";
pub(crate) const UUID_1: &str = "GPU-00000000-0000-4000-8000-000000000001";

/// The running GPU monitoring, which stops when the test ends, and the inventories (snapshots of all GPUs) that it has
/// published.
pub(crate) struct Monitor {
    pub(crate) handle: Option<GpuHandle>,
    published: Arc<Published>,
}

/// Every inventory with the time of its publication.
pub(crate) type Published = (Mutex<Vec<(Instant, GpuInventory)>>, Condvar);

impl Monitor {
    pub(crate) fn start(config: GpuConfig) -> Self {
        let published = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let sink = Arc::clone(&published);
        let handle = gpu::start(config, move |inventory| {
            sink.0.lock().unwrap().push((Instant::now(), inventory));
            sink.1.notify_all();
        });
        Self { handle: Some(handle.unwrap()), published }
    }

    /// Waits for an inventory that fulfils the condition, starting with the latest one.
    pub(crate) fn until(&self, what: &str, condition: impl Fn(&GpuInventory) -> bool) -> GpuInventory {
        self.until_since(self.published().saturating_sub(1), what, condition)
    }

    /// Waits for an inventory that fulfils the condition. Skips the first `already` inventories and checks each later
    /// one, so it does not miss a condition that held for only one interval.
    pub(crate) fn until_since(
        &self,
        already: usize,
        what: &str,
        condition: impl Fn(&GpuInventory) -> bool,
    ) -> GpuInventory {
        let mut at = already;
        let unmet = |all: &mut Vec<(Instant, GpuInventory)>| {
            at += all[at..].iter().take_while(|(_, next)| !condition(next)).count();
            at == all.len()
        };
        let guard = self.published.0.lock().unwrap();
        let (all, _) = self.published.1.wait_timeout_while(guard, PATIENCE, unmet).unwrap();
        assert!(at < all.len(), "never published: {what}; last: {:#?}", all.last());
        all[at].1.clone()
    }

    /// The number of inventories so far.
    pub(crate) fn published(&self) -> usize {
        self.published.0.lock().unwrap().len()
    }

    pub(crate) fn all(&self) -> Vec<(Instant, GpuInventory)> {
        self.published.0.lock().unwrap().clone()
    }

    pub(crate) fn stop(&mut self) {
        self.handle.take().unwrap().stop(PATIENCE);
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            handle.stop(PATIENCE);
        }
    }
}

pub(crate) fn config(standin: &Standin) -> GpuConfig {
    GpuConfig {
        library: Some(standin.library()),
        interval: INTERVAL,
        timing: GpuTiming {
            call_deadline: CALL_DEADLINE,
            init_deadline: CALL_DEADLINE,
            slow_interval: INTERVAL,
            pods_interval: INTERVAL,
            unsupported_retry: Duration::from_secs(600),
            reprobe_interval: Duration::from_millis(50),
            init_retry_min: Duration::from_millis(20),
            init_retry_max: Duration::from_millis(80),
        },
        ..GpuConfig::default()
    }
}

/// The configuration for tests with a hung call.
pub(crate) fn hang_config(standin: &Standin) -> GpuConfig {
    let config = config(standin);
    let timing = GpuTiming { call_deadline: HANG_DEADLINE, init_deadline: HANG_DEADLINE, ..config.timing };
    GpuConfig { timing, ..config }
}

pub(crate) fn monitor(standin: &Standin) -> Monitor {
    Monitor::start(config(standin))
}

pub(crate) fn monitor_hanging(standin: &Standin) -> Monitor {
    Monitor::start(hang_config(standin))
}

/// Starts monitoring, and waits for an inventory in which this number of GPUs can be read.
pub(crate) fn ready(standin: &Standin, gpus: usize) -> (Monitor, GpuInventory) {
    ready_with(config(standin), gpus)
}

pub(crate) fn ready_with(config: GpuConfig, gpus: usize) -> (Monitor, GpuInventory) {
    let monitor = Monitor::start(config);
    let inventory = monitor.until("the GPUs", |inventory| all_ok(inventory, gpus));
    (monitor, inventory)
}

/// The GPU at this index, if the inventory lists it.
pub(crate) fn gpu(inventory: &GpuInventory, index: u32) -> Option<&Gpu> {
    inventory.gpus.iter().find(|gpu| gpu.identity.index == index)
}

pub(crate) fn is(inventory: &GpuInventory, index: u32, state: GpuState) -> bool {
    gpu(inventory, index).is_some_and(|gpu| gpu.state == state)
}

pub(crate) fn readings(inventory: &GpuInventory, index: u32) -> GpuReadings {
    gpu(inventory, index).map(|gpu| gpu.readings.clone()).unwrap_or_default()
}

pub(crate) fn all_ok(inventory: &GpuInventory, count: usize) -> bool {
    inventory.gpus.len() == count && inventory.gpus.iter().all(|gpu| gpu.state == GpuState::Ok)
}
