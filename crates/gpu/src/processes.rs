//! Processes on a GPU: their number and, with `--gpu.processes`, the memory and SM utilisation of each.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, ProcessUtilizationSample};

use super::limits::MEMORY_BYTES;
use super::probe::Probe;
use super::usage::knows_processes;
use trtllm_records::gpu::{GpuHealth, GpuProcess};

/// Maximum number of processes that are read of one GPU, because NVML's list takes memory for all.
const MOST_READ: u32 = 4096;
/// Maximum number of processes that are shown of one GPU. It limits the number of series.
const MOST_PROCESSES: usize = 64;

/// Reads the processes on one GPU, with the calls that are safe and enabled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProcessReader {
    count: bool,
    pids: bool,
    list: bool,
    /// Where the names of processes are looked up. `None` in a container with its own PIDs: there, the PIDs of NVML are those of
    /// other programs.
    names: Option<PathBuf>,
    /// Timestamp of the newest utilisation sample, in microseconds by the driver's clock.
    newest_us: Option<u64>,
}

impl ProcessReader {
    /// Early 535 drivers write past the caller's buffer (nvml-wrapper #48, go-nvml #75), so nothing is read with them.
    /// `proc` is where the names of processes are looked up, `/proc` outside tests.
    pub(super) fn new(driver_version: Option<&str>, per_process: bool, pids: bool, proc: &Path) -> Self {
        let mut parts = driver_version.unwrap_or("").split('.').map(|part| part.parse().unwrap_or(0));
        let version = (parts.next().unwrap_or(0_u32), parts.next().unwrap_or(0_u32));
        let safe = !((535, 0)..(535, 98)).contains(&version);
        let names = knows_processes(proc).then(|| proc.to_owned());
        Self { count: safe, pids: safe && pids, list: safe && per_process, names, newest_us: None }
    }

    pub(super) fn read(&mut self, device: &Device<'_>, probe: &mut Probe<'_>, health: &mut GpuHealth) {
        if !self.count {
            return;
        }
        let count = || device.running_compute_processes_count();
        let count = probe.number("running_compute_processes_count", &(0..=MOST_READ), count);
        health.processes = count.map(u64::from);
        if count.is_none() || !self.pids && !self.list {
            return;
        }
        let processes = probe.call("running_compute_processes", || device.running_compute_processes());
        let Some(mut processes) = processes else { return };
        processes.sort_by_key(|process| process.pid);
        // With MIG, a process is listed once per instance that it uses.
        processes.dedup_by_key(|process| process.pid);
        health.pids = self.pids.then(|| processes.iter().map(|process| process.pid).collect());
        if self.list {
            health.process_list = self.list(processes, device, probe);
        }
    }

    fn list(&mut self, mut processes: Vec<ProcessInfo>, device: &Device<'_>, probe: &mut Probe<'_>) -> Vec<GpuProcess> {
        processes.truncate(MOST_PROCESSES);
        let sm_ratios = self.sm_ratios(device, probe);
        let mut bytes = |process: &ProcessInfo| match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => probe.possible("running_compute_processes", &MEMORY_BYTES, bytes),
            UsedGpuMemory::Unavailable => None,
        };
        processes
            .into_iter()
            .map(|process| GpuProcess {
                pid: process.pid,
                name: self.names.as_deref().and_then(|proc| name(proc, process.pid)),
                bytes: bytes(&process),
                sm_ratio: sm_ratios.get(&process.pid).copied(),
            })
            .collect()
    }

    fn sm_ratios(&mut self, device: &Device<'_>, probe: &mut Probe<'_>) -> BTreeMap<u32, f64> {
        let samples = probe.call("process_utilization", || match device.process_utilization_stats(self.newest_us) {
            // No process has run a kernel since the last call.
            Err(NvmlError::NotFound) => Ok(Vec::new()),
            samples => samples,
        });
        let Some(samples) = samples else { return BTreeMap::new() };
        // The samples of the first call cover an unknown time before it.
        let first = self.newest_us.is_none();
        self.newest_us = samples.iter().map(|sample| sample.timestamp).max().or(self.newest_us).or(Some(0));
        if first { BTreeMap::new() } else { means(&samples) }
    }
}

/// The mean SM utilisation of each process. Skips blank entries, which drivers leave in a buffer larger than needed.
fn means(samples: &[ProcessUtilizationSample]) -> BTreeMap<u32, f64> {
    let mut sums = BTreeMap::<u32, (f64, u32)>::new();
    for sample in samples.iter().filter(|sample| sample.pid != 0 && sample.sm_util <= 100) {
        let (sum, count) = sums.entry(sample.pid).or_default();
        *sum += f64::from(sample.sm_util) / 100.0;
        *count += 1;
    }
    sums.into_iter().map(|(pid, (sum, count))| (pid, sum / f64::from(count))).collect()
}

fn name(proc: &Path, pid: u32) -> Option<String> {
    fs::read_to_string(proc.join(format!("{pid}/comm"))).ok().map(|name| name.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_process_calls_are_not_made_with_drivers_where_they_are_unsafe() {
        for (version, safe) in [("535.54.03", false), ("535.86.10", false), ("535.104.05", true), ("580.159", true)] {
            let reader = ProcessReader::new(Some(version), true, true, Path::new("/proc"));
            assert_eq!((reader.count, reader.pids, reader.list), (safe, safe, safe), "{version}");
        }
        let reader = ProcessReader::new(Some("580.1"), false, false, Path::new("/proc"));
        assert!(!reader.list && !reader.pids, "only if enabled");
    }

    #[test]
    fn names_are_looked_up_only_where_the_pids_are_those_of_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let proc = folder.path();
        fs::create_dir_all(proc.join("self/ns")).unwrap();
        fs::create_dir_all(proc.join("7")).unwrap();
        fs::write(proc.join("7/comm"), "python3\n").unwrap();
        let names = || ProcessReader::new(Some("580.1"), true, false, proc).names;
        assert_eq!(names(), None);
        for (namespace, expected) in [("pid:[4026532177]", None), ("pid:[4026531836]", Some("python3".to_owned()))] {
            symlink(namespace, proc.join("self/ns/pid")).unwrap();
            assert_eq!(names().and_then(|proc| name(&proc, 7)), expected, "{namespace}");
            fs::remove_file(proc.join("self/ns/pid")).unwrap();
        }
    }

    #[test]
    fn the_sm_ratio_of_a_process_is_the_mean_of_its_samples() {
        let sample = |pid, sm_util| ProcessUtilizationSample {
            pid,
            timestamp: 1,
            sm_util,
            mem_util: 0,
            enc_util: 0,
            dec_util: 0,
        };
        let found = means(&[sample(7, 40), sample(7, 60), sample(8, 3), sample(0, 0), sample(9, 4_000_000)]);
        assert_eq!(found, BTreeMap::from([(7, 0.5), (8, 0.03)]));
    }
}
