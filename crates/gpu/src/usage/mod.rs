//! What each engine uses of its GPUs. Knows no NVML, no metric and no source. `mapping` finds which GPUs serve an
//! engine, with the help of `processes`, which reads `/proc`. `account` adds up the GPUs' energy and time.

mod account;
mod mapping;
mod processes;

use std::path::Path;

use trtllm_model::gpu::{EngineGpus, GpuInventory, GpuSnapshot, GpuState, PodName};

use account::{GpuAccount, Poll};
use mapping::Mapping;
use processes::ProcessTable;

/// Identifies an engine while the exporter runs.
pub type EngineId = u64;

/// What is known of an engine that helps to find its GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EngineClaim {
    pub id: EngineId,
    /// UUIDs from the configuration; empty if the configuration names no GPU.
    pub configured: Vec<String>,
    /// Processes that publish for the engine or host it.
    pub pids: Vec<u32>,
    /// The port on this host where the engine's server listens.
    pub port: Option<u16>,
}

/// Tracks which GPUs each engine uses, and how much. It needs each inventory.
#[derive(Debug, Default)]
pub struct GpuUse {
    account: GpuAccount,
    mapping: Mapping,
}

/// Whether the processes that NVML lists can be found in `proc`. Outside tests, `proc` is `/proc`.
#[must_use]
pub fn knows_processes(proc: &Path) -> bool {
    ProcessTable::of_host(proc).is_some()
}

impl GpuUse {
    /// `proc` is where the processes of engines are looked up, `/proc` outside tests. `pod` is the pod of this process.
    #[must_use]
    pub fn new(proc: &Path, pod: Option<PodName>) -> Self {
        Self { mapping: Mapping::new(ProcessTable::of_host(proc), pod), account: GpuAccount::default() }
    }

    /// Adds what was used since the last inventory. Returns the GPUs of each engine, in the order of `engines`, or `None` where
    /// they are not known.
    pub fn absorb(&mut self, inventory: &GpuInventory, engines: &[EngineClaim]) -> Vec<Option<EngineGpus>> {
        self.account.keep_engines(|id| engines.iter().any(|engine| engine.id == id));
        let mapping = self.mapping.gpus_of(inventory, engines);
        let owner = |uuid: &str| -> Option<EngineId> {
            let mut engines = engines.iter().zip(&mapping).filter(|(_, gpus)| gpus.iter().any(|gpu| gpu == uuid));
            let (owner, _) = engines.next()?;
            engines.next().is_none().then_some(owner.id)
        };
        for gpu in &inventory.gpus {
            let uuid = &gpu.identity.uuid;
            match current_poll(gpu) {
                Some(poll) => {
                    // A GPU with MIG has no owner, because other programs may use its other instances.
                    let alone = owner(uuid).filter(|_| gpu.readings.mig_enabled != Some(true));
                    self.account.polled(uuid, alone, poll);
                }
                None => self.account.away(uuid),
            }
        }
        let each = engines.iter().zip(&mapping).map(|(EngineClaim { id, .. }, gpus)| {
            if gpus.is_empty() {
                return None;
            }
            let counts_time = |uuid: &String| owner(uuid) == Some(*id) && self.account.counts_time(uuid, *id);
            let used = gpus.iter().all(counts_time).then(|| self.account.used(*id));
            let has_energy = gpus.iter().all(|uuid| self.account.counts_energy(uuid, *id));
            Some(EngineGpus {
                uuids: gpus.clone(),
                energy_joules: used.filter(|_| has_energy).map(|used| used.energy_mj as f64 / 1000.0),
                gpu_seconds: used.map(|used| used.time.as_secs_f64()),
            })
        });
        each.collect()
    }
}

/// The last poll, if the GPU can be read now.
fn current_poll(gpu: &GpuSnapshot) -> Option<Poll> {
    let last = gpu.last_poll.filter(|_| gpu.state == GpuState::Ok)?;
    // `energy_joules` stays on the page after a poll that could not read the counter, so the counter is checked, too.
    let total = gpu.readings.energy_joules.filter(|_| gpu.readings.energy_counter_mj.is_some());
    Some(Poll { at: last.monotonic, energy_mj: total.map(|joules| (joules * 1000.0).round() as u64) })
}
