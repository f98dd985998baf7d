//! Adds up the energy and the time of each GPU for its owner: the engine that uses the GPU alone. Pure: the time is an
//! argument. A difference between two readings belongs to an engine only if the engine was the owner at both readings.
//! So an engine starts at 0, and what a GPU used while its owner changed belongs to no engine. The GPU's total is
//! cumulative, so a missed reading loses nothing. The total already accounts for resets of NVML's counter, so an engine
//! never has more joules than its GPUs show.

use std::collections::BTreeMap;
use std::time::Duration;

use super::EngineId;

/// One successful poll of a GPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Poll {
    /// End of the poll by the monotonic clock.
    pub(super) at: Duration,
    /// Millijoules since this exporter first read the GPU, if this poll could read them. Never decreases.
    pub(super) energy_mj: Option<u64>,
}

/// What one engine has used of its GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Used {
    pub(super) energy_mj: u64,
    pub(super) time: Duration,
}

#[derive(Debug, Default)]
pub(super) struct GpuAccount {
    /// Each GPU, by UUID.
    gpus: BTreeMap<String, Gpu>,
    engines: BTreeMap<EngineId, Used>,
}

#[derive(Debug, Default)]
struct Gpu {
    energy: Option<EnergyReading>,
    /// `None` while the GPU cannot be read.
    polled_at: Option<Duration>,
    /// The engine that used the GPU alone at the last poll.
    owner: Option<EngineId>,
}

#[derive(Debug, Clone, Copy)]
struct EnergyReading {
    millijoules: u64,
    /// The engine that used the GPU alone at this reading.
    owner: Option<EngineId>,
}

impl GpuAccount {
    /// Counts a poll of a GPU. `owner` is the engine that uses the GPU alone. A poll that was already counted changes nothing.
    pub(super) fn polled(&mut self, uuid: &str, owner: Option<EngineId>, poll: Poll) {
        let gpu = self.gpus.entry(uuid.to_owned()).or_default();
        if gpu.polled_at.is_some_and(|last| poll.at <= last) {
            return;
        }
        let mut used = Used::default();
        let is_same_owner = std::mem::replace(&mut gpu.owner, owner) == owner;
        if let Some(last) = gpu.polled_at.replace(poll.at)
            && is_same_owner
        {
            used.time = poll.at.saturating_sub(last);
        }
        let energy = poll.energy_mj.map(|millijoules| EnergyReading { millijoules, owner });
        if let Some(energy) = energy
            && let Some(last) = gpu.energy.replace(energy)
            && last.owner == owner
        {
            used.energy_mj = energy.millijoules.saturating_sub(last.millijoules);
        }
        if let Some(owner) = owner {
            let total = self.engines.entry(owner).or_default();
            total.energy_mj = total.energy_mj.saturating_add(used.energy_mj);
            total.time = total.time.saturating_add(used.time);
        }
    }

    /// Notes that the GPU cannot be read now. The time until the next poll is not counted. The energy is, at the next
    /// poll, if the owner is the same.
    pub(super) fn away(&mut self, uuid: &str) {
        if let Some(gpu) = self.gpus.get_mut(uuid) {
            gpu.polled_at = None;
        }
    }

    pub(super) fn used(&self, engine: EngineId) -> Used {
        self.engines.get(&engine).copied().unwrap_or_default()
    }

    /// Whether the time of this GPU is being counted for this engine.
    pub(super) fn counts_time(&self, uuid: &str, engine: EngineId) -> bool {
        self.gpus.get(uuid).is_some_and(|gpu| gpu.owner == Some(engine))
    }

    /// Whether the energy of this GPU is being counted for this engine.
    pub(super) fn counts_energy(&self, uuid: &str, engine: EngineId) -> bool {
        let gpu = self.gpus.get(uuid);
        gpu.and_then(|gpu| gpu.energy).is_some_and(|energy| energy.owner == Some(engine))
    }

    /// Drops the engines that are no longer monitored.
    pub(super) fn keep_engines(&mut self, stays: impl Fn(EngineId) -> bool) {
        self.engines.retain(|engine, _| stays(*engine));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: EngineId = 1;
    const B: EngineId = 2;

    fn poll(at_ms: u64, energy_mj: impl Into<Option<u64>>) -> Poll {
        Poll { at: Duration::from_millis(at_ms), energy_mj: energy_mj.into() }
    }

    fn used(energy_mj: u64, ms: u64) -> Used {
        Used { energy_mj, time: Duration::from_millis(ms) }
    }

    #[test]
    fn a_poll_that_is_reported_again_counts_once() {
        let mut account = GpuAccount::default();
        for at in [0, 1000, 1000, 500] {
            account.polled("x", Some(A), poll(at, at));
        }
        assert_eq!(account.used(A), used(1000, 1000));
    }

    #[test]
    fn a_missed_reading_is_counted_at_the_next() {
        let mut account = GpuAccount::default();
        for (at, energy) in [(0, Some(100)), (1000, None), (2000, None), (3000, Some(400))] {
            account.polled("x", Some(A), poll(at, energy));
        }
        assert_eq!(account.used(A), used(300, 3000));
    }

    #[test]
    fn what_a_shared_gpu_uses_belongs_to_no_engine_nor_does_what_it_uses_while_its_owner_changes() {
        let mut account = GpuAccount::default();
        for (at, energy, owner) in [
            (0, 0, Some(A)),
            (1000, 10, Some(A)),
            // The GPU is shared from here on.
            (2000, 30, None),
            (3000, 70, None),
            // Only B is left on the GPU.
            (4000, 150, Some(B)),
            (5000, 310, Some(B)),
            (6000, 630, Some(A)),
            (7000, 1270, Some(A)),
        ] {
            account.polled("x", owner, poll(at, energy));
        }
        assert_eq!(account.used(A), used(10 + 640, 2000));
        assert_eq!(account.used(B), used(160, 1000));
    }

    #[test]
    fn an_engine_that_left_is_forgotten() {
        let mut account = GpuAccount::default();
        for at in [0, 1000] {
            account.polled("x", Some(A), poll(at, at));
        }
        account.keep_engines(|engine| engine == B);
        assert_eq!(account.used(A), Used::default());
    }
}
