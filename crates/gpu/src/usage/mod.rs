//! What each engine uses of its GPUs. Knows no NVML, no metric and no source. `mapping` finds which GPUs serve an
//! engine, with the help of `processes`, which reads `/proc`. `account` adds up the GPUs' energy and time.

mod account;
mod mapping;
mod processes;

use std::path::Path;

use trtllm_records::gpu::{EngineGpus, Gpu, GpuInventory, GpuState, PodName};

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
    /// The pod of the engine, if Kubernetes told of it.
    pub pod: Option<PodName>,
    /// Number of GPUs of the engine on all nodes, if the engine reports it.
    pub gpu_count: Option<usize>,
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
        let each = engines.iter().zip(&mapping).map(|(EngineClaim { id, gpu_count, .. }, gpus)| {
            if gpus.is_empty() {
                return None;
            }
            let missing = gpu_count.map_or(0, |count| count.saturating_sub(gpus.len()));
            let counts_time = |uuid: &String| owner(uuid) == Some(*id) && self.account.counts_time(uuid, *id);
            // The engine's tokens are those of all its GPUs, so the energy of only some of them would mislead. It is still counted:
            // a process on the missing GPU may only be late, or the engine may correct its number of GPUs.
            let is_known = missing == 0 && gpus.iter().all(counts_time);
            let used = is_known.then(|| self.account.used(*id));
            let has_energy = gpus.iter().all(|uuid| self.account.counts_energy(uuid, *id));
            Some(EngineGpus {
                uuids: gpus.clone(),
                missing,
                energy_joules: used.filter(|_| has_energy).map(|used| used.energy_mj as f64 / 1000.0),
                gpu_seconds: used.map(|used| used.time.as_secs_f64()),
            })
        });
        each.collect()
    }
}

/// The last poll, if the GPU can be read now.
fn current_poll(gpu: &Gpu) -> Option<Poll> {
    let last = gpu.last_poll.filter(|_| gpu.state == GpuState::Ok)?;
    // `energy_joules` stays on the page after a poll that could not read the counter, so the counter is checked, too.
    let total = gpu.readings.energy_joules.filter(|_| gpu.readings.energy_counter_mj.is_some());
    Some(Poll { at: last.monotonic, energy_mj: total.map(|joules| (joules * 1000.0).round() as u64) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use trtllm_records::gpu::{GpuIdentity, GpuPoll, GpuReadings};

    use super::*;

    const GPUS: [&str; 2] = ["GPU-a", "GPU-b"];

    /// Both GPUs after so many polls, one a second. Each uses 100 J between two polls.
    fn inventory(polls: u32) -> GpuInventory {
        let gpu = |uuid: &str| Gpu {
            identity: GpuIdentity { uuid: uuid.to_owned(), ..GpuIdentity::default() },
            state: GpuState::Ok,
            readings: GpuReadings {
                energy_joules: Some(100.0 * f64::from(polls)),
                energy_counter_mj: Some(100_000 * u64::from(polls)),
                ..GpuReadings::default()
            },
            last_poll: Some(GpuPoll {
                at_us: i64::from(polls) * 1_000_000,
                monotonic: Duration::from_secs(u64::from(polls)),
                took: Duration::ZERO,
            }),
            ..Gpu::default()
        };
        GpuInventory { gpus: GPUS.map(gpu).to_vec(), ..GpuInventory::default() }
    }

    /// What the page shows after each poll of an engine on both GPUs that reports these numbers of GPUs.
    fn shown(gpu_counts: &[Option<usize>]) -> Vec<EngineGpus> {
        let mut gpu_use = GpuUse::default();
        let absorb = |(polls, gpu_count): (u32, &Option<usize>)| {
            let configured = GPUS.map(str::to_owned).to_vec();
            let engine = EngineClaim { id: 1, configured, gpu_count: *gpu_count, ..EngineClaim::default() };
            gpu_use.absorb(&inventory(polls), &[engine]).remove(0).unwrap()
        };
        (0..).zip(gpu_counts).map(absorb).collect()
    }

    fn used(gpus: &EngineGpus) -> (Option<f64>, Option<f64>) {
        (gpus.energy_joules, gpus.gpu_seconds)
    }

    #[test]
    fn an_engine_with_more_gpus_than_were_found_has_neither_energy_nor_time() {
        let after_two_polls = |gpu_count| shown(&[gpu_count; 2]).remove(1);
        let on_two_nodes = after_two_polls(Some(4));
        assert_eq!((used(&on_two_nodes), on_two_nodes.missing), ((None, None), 2));
        assert_eq!(on_two_nodes.uuids, GPUS);
        // All GPUs were found, more were found than one replica has, or the engine does not report how many it has.
        for gpu_count in [Some(2), Some(1), None] {
            let all = after_two_polls(gpu_count);
            assert_eq!((used(&all), all.missing), ((Some(200.0), Some(2.0)), 0), "{gpu_count:?}");
        }
    }

    #[test]
    fn a_number_of_gpus_that_is_known_late_or_corrected_resets_no_counter() {
        let counts = [None, None, Some(2), Some(16), Some(16), Some(2), None];
        let energy: Vec<Option<f64>> = shown(&counts).iter().map(|gpus| gpus.energy_joules).collect();
        let expected = [Some(0.0), Some(200.0), Some(400.0), None, None, Some(1000.0), Some(1200.0)];
        assert_eq!(energy, expected);
    }
}
