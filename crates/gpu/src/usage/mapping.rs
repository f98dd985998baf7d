//! Finds which GPUs serve which engine. The configuration comes first, then the GPUs on which NVML lists a process of
//! the engine, then the GPUs that the kubelet gave to the engine's pod: the one of which Kubernetes told, or this pod, if there is
//! only one engine. A GPU is assigned only if that is certain. A process that belongs to no known engine may be another rank of a known engine. So while such a
//! process exists, no GPU is assigned by processes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use trtllm_records::gpu::{Gpu, GpuInventory, GpuState, PodDevice, PodName};

use super::processes::ProcessTable;
use super::{EngineClaim, EngineId};

/// The same processes are looked up again after this time, because a process may have ended.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub(super) struct Mapping {
    /// `None` if NVML reports PIDs of another PID namespace.
    processes: Option<ProcessTable>,
    /// The pod of this process.
    pod: Option<PodName>,
    /// For each GPU, by UUID, the engines that have a process on it. Kept while the GPU cannot be read.
    engines: BTreeMap<String, BTreeSet<EngineId>>,
    /// The processes and claims from which `engines` was computed, and when.
    seen: Option<(Vec<Processes>, Vec<EngineClaim>, Duration)>,
}

/// A GPU's UUID and state, and the processes on it.
type Processes = (String, GpuState, Option<Vec<u32>>);

impl Mapping {
    pub(super) fn new(processes: Option<ProcessTable>, pod: Option<PodName>) -> Self {
        Self { processes, pod, ..Self::default() }
    }

    /// The UUIDs of each engine's GPUs, sorted. Empty if they are not known.
    pub(super) fn gpus_of(&mut self, inventory: &GpuInventory, engines: &[EngineClaim]) -> Vec<Vec<String>> {
        self.look_up_processes(inventory, engines);
        let gpus = engines.iter().map(|engine| {
            let by_process = self.engines.iter().filter(|(_, engines)| engines.contains(&engine.id));
            if !engine.configured.is_empty() {
                return engine.configured.iter().cloned().collect::<BTreeSet<String>>().into_iter().collect();
            }
            let found: Vec<String> = by_process.map(|(uuid, _)| uuid.clone()).collect();
            // The only engine may be in the pod of this process.
            let pod = engine.pod.as_ref().or(self.pod.as_ref().filter(|_| engines.len() == 1));
            match pod.filter(|_| found.is_empty()) {
                Some(pod) => gpus_of_pod(pod, inventory),
                None => found,
            }
        });
        gpus.collect()
    }

    fn look_up_processes(&mut self, inventory: &GpuInventory, engines: &[EngineClaim]) {
        let Some(processes) = &self.processes else { return };
        let now = inventory.gpus.iter().filter_map(|gpu| gpu.last_poll).map(|poll| poll.monotonic).max();
        let now = now.unwrap_or_default();
        let on_gpus: Vec<Processes> = inventory.gpus.iter().map(processes_on).collect();
        if let Some((last_on_gpus, last_engines, at)) = &self.seen
            && last_on_gpus == &on_gpus
            && last_engines == engines
            && now < *at + LOOK_AGAIN
        {
            return;
        }
        let listeners = processes.listeners(engines);
        let owners = |pid: u32| processes.engines_of(pid, engines, &listeners);
        // If some GPUs are excluded, nothing is assigned, because those may serve these engines, too.
        let found = if inventory.excluded > 0 { None } else { assign(&on_gpus, engines, &self.engines, owners) };
        self.engines = found.unwrap_or_default();
        self.seen = Some((on_gpus, engines.to_vec(), now));
    }
}

/// The GPUs of a pod, if a single container has all of them to itself.
fn gpus_of_pod(pod: &PodName, inventory: &GpuInventory) -> Vec<String> {
    let is_of_pod = |device: &&PodDevice| device.pod == *pod;
    let devices: Vec<&PodDevice> = inventory.pods.iter().filter(is_of_pod).collect();
    let gpus: BTreeSet<&String> = devices.iter().map(|device| &device.gpu_uuid).collect();
    let containers: BTreeSet<&String> = devices.iter().map(|device| &device.container).collect();
    let is_shared = inventory.pods.iter().any(|device| !is_of_pod(&device) && gpus.contains(&device.gpu_uuid));
    if is_shared || containers.len() != 1 || inventory.pods_with_other_gpus.contains(pod) {
        return Vec::new();
    }
    gpus.into_iter().cloned().collect()
}

fn processes_on(gpu: &Gpu) -> Processes {
    (gpu.identity.uuid.clone(), gpu.state, gpu.readings.health.pids.clone())
}

/// The engines on each GPU. `None` if one of the processes belongs to no engine or to several, or if the processes of a GPU are
/// unknown.
fn assign(
    on_gpus: &[Processes],
    engines: &[EngineClaim],
    before: &BTreeMap<String, BTreeSet<EngineId>>,
    owners: impl Fn(u32) -> Vec<EngineId>,
) -> Option<BTreeMap<String, BTreeSet<EngineId>>> {
    let mut found = BTreeMap::new();
    for (uuid, state, pids) in on_gpus {
        let is_configured = engines.iter().any(|engine| engine.configured.contains(uuid));
        let mut here = BTreeSet::new();
        match (state, pids) {
            (GpuState::Ok, Some(pids)) => {
                for pid in pids {
                    match owners(*pid).as_slice() {
                        [engine] => drop(here.insert(*engine)),
                        [] if is_configured => {}
                        _ => return None,
                    }
                }
            }
            (GpuState::Ok, None) if is_configured => {}
            (GpuState::Ok, None) => return None,
            _ => match before.get(uuid) {
                Some(engines) => here.clone_from(engines),
                // No process runs on a GPU that is lost or needs a reset.
                None if matches!(state, GpuState::Lost | GpuState::ResetRequired) => {}
                None => return None,
            },
        }
        found.insert(uuid.clone(), here);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGINES: [(EngineId, &[u32]); 2] = [(1, &[10, 11]), (2, &[20])];

    fn owners(pid: u32) -> Vec<EngineId> {
        ENGINES.iter().filter(|(_, pids)| pids.contains(&pid)).map(|(id, _)| *id).collect()
    }

    fn gpu(uuid: &str, state: GpuState, pids: Option<&[u32]>) -> Processes {
        (uuid.to_owned(), state, pids.map(<[u32]>::to_vec))
    }

    /// The engines of each GPU, ordered by UUID.
    fn assigned(on_gpus: &[Processes], engines: &[EngineClaim], before: &[(&str, EngineId)]) -> Option<Vec<Vec<u64>>> {
        let before = before.iter().map(|(uuid, engine)| ((*uuid).to_owned(), BTreeSet::from([*engine]))).collect();
        let found = assign(on_gpus, engines, &before, owners)?;
        Some(found.into_values().map(|engines| engines.into_iter().collect()).collect())
    }

    #[test]
    fn an_engine_has_every_gpu_with_one_of_its_processes() {
        let ok = |uuid, pids| gpu(uuid, GpuState::Ok, Some(pids));
        let gpus = [ok("a", &[10]), ok("b", &[11]), ok("c", &[]), ok("d", &[10, 20])];
        assert_eq!(assigned(&gpus, &[], &[]), Some(vec![vec![1], vec![1], vec![], vec![1, 2]]));
    }

    #[test]
    fn a_process_of_no_engine_or_unknown_processes_make_every_gpu_uncertain() {
        let (ours, theirs) = (gpu("a", GpuState::Ok, Some(&[10])), gpu("b", GpuState::Ok, Some(&[99])));
        let unknown = gpu("b", GpuState::Ok, None);
        assert_eq!(assigned(&[ours.clone(), theirs.clone()], &[], &[]), None);
        assert_eq!(assigned(&[ours.clone(), unknown.clone()], &[], &[]), None);
        // It is certain if the configuration names the engine of that GPU.
        let engines = [EngineClaim { id: 3, configured: vec!["b".to_owned()], ..EngineClaim::default() }];
        for other in [theirs, unknown] {
            assert_eq!(assigned(&[ours.clone(), other], &engines, &[]), Some(vec![vec![1], vec![]]));
        }
    }

    #[test]
    fn a_gpu_that_cannot_be_read_keeps_its_engines() {
        let ours = gpu("a", GpuState::Ok, Some(&[10]));
        let with = |state| [ours.clone(), gpu("b", state, None)];
        assert_eq!(assigned(&with(GpuState::Stalled), &[], &[("b", 2)]), Some(vec![vec![1], vec![2]]));
        assert_eq!(assigned(&with(GpuState::Lost), &[], &[]), Some(vec![vec![1], vec![]]));
        assert_eq!(assigned(&with(GpuState::Stalled), &[], &[]), None);
    }

    #[test]
    fn the_only_engine_of_a_pod_has_the_gpus_that_one_container_of_the_pod_has_alone() {
        let name = |pod: &str| PodName { namespace: "n".to_owned(), pod: pod.to_owned() };
        let device = |gpu: &str, pod: &str, container: &str| PodDevice {
            gpu_uuid: gpu.to_owned(),
            mig_uuid: String::new(),
            pod: name(pod),
            container: container.to_owned(),
        };
        let ours = || name("ours");
        let gpus = |pods: &[PodDevice], with_others: &[PodName], engines: &[EngineClaim]| {
            let pods_with_other_gpus = with_others.iter().cloned().collect();
            let inventory = GpuInventory { pods: pods.to_vec(), pods_with_other_gpus, ..GpuInventory::default() };
            Mapping::new(None, Some(ours())).gpus_of(&inventory, engines).remove(0)
        };
        let engine = |id| EngineClaim { id, ..EngineClaim::default() };
        let one = [engine(1)];
        let pods = [device("a", "ours", "engine"), device("b", "ours", "engine"), device("c", "theirs", "engine")];
        assert_eq!(gpus(&pods, &[], &one), ["a", "b"]);
        let configured = EngineClaim { id: 1, configured: vec!["c".to_owned()], ..EngineClaim::default() };
        assert_eq!(gpus(&pods, &[], &[configured]), ["c"]);
        // No GPU is assigned with two engines, a shared GPU, two containers with GPUs, a GPU that is not visible here, or no
        // GPU at all.
        let none: [String; 0] = [];
        assert_eq!(gpus(&pods, &[], &[engine(1), engine(2)]), none);
        // Kubernetes told of the pods of these two.
        let of_pod = |id, pod| EngineClaim { id, pod: Some(name(pod)), ..EngineClaim::default() };
        assert_eq!(gpus(&pods, &[], &[of_pod(1, "theirs"), of_pod(2, "ours")]), ["c"]);
        assert_eq!(gpus(&pods, &[], &[of_pod(1, "another")]), none);
        assert_eq!(gpus(&[&pods[..], &[device("a", "theirs", "x")]].concat(), &[], &one), none);
        assert_eq!(gpus(&[&pods[..], &[device("d", "ours", "x")]].concat(), &[], &one), none);
        assert_eq!(gpus(&pods, &[ours()], &one), none);
        assert_eq!(gpus(&pods[2..], &[], &one), none);
    }
}
