//! Who runs on a GPU: how many processes, and with `--gpu.processes` each one's memory and share of the SMs.

use std::collections::BTreeMap;
use std::fs;

use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessUtilizationSample;

use super::probe::Probe;
use crate::model::gpu::GpuProcess;

/// Series of one GPU are bounded, whoever runs there.
const MOST_PROCESSES: usize = 64;

/// Which questions about processes are safe and wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProcessQuestions {
    count: bool,
    list: bool,
    /// The driver's time of the newest sample that was seen, microseconds.
    seen_us: Option<u64>,
}

impl ProcessQuestions {
    /// Early 535 drivers write past the caller's buffer (nvml-wrapper #48, go-nvml #75): nothing is asked of them.
    pub(super) fn new(driver_version: Option<&str>, per_process: bool) -> Self {
        let mut parts = driver_version.unwrap_or("").split('.').map(|part| part.parse().unwrap_or(0));
        let version = (parts.next().unwrap_or(0_u32), parts.next().unwrap_or(0_u32));
        let safe = !((535, 0)..(535, 98)).contains(&version);
        Self { count: safe, list: safe && per_process, seen_us: None }
    }

    pub(super) fn count(&self, device: &Device<'_>, probe: &mut Probe<'_>) -> Option<u64> {
        if !self.count {
            return None;
        }
        probe.ask("running_compute_processes_count", || device.running_compute_processes_count()).map(u64::from)
    }

    pub(super) fn list(&mut self, device: &Device<'_>, probe: &mut Probe<'_>) -> Vec<GpuProcess> {
        if !self.list {
            return Vec::new();
        }
        let mut processes =
            probe.ask("running_compute_processes", || device.running_compute_processes()).unwrap_or_default();
        processes.sort_by_key(|process| process.pid);
        // With MIG a process is listed once for each instance that it uses.
        processes.dedup_by_key(|process| process.pid);
        processes.truncate(MOST_PROCESSES);
        let shares = self.sm_ratios(device, probe);
        processes
            .into_iter()
            .map(|process| GpuProcess {
                pid: process.pid,
                name: name(process.pid),
                bytes: match process.used_gpu_memory {
                    UsedGpuMemory::Used(bytes) => Some(bytes),
                    UsedGpuMemory::Unavailable => None,
                },
                sm_ratio: shares.get(&process.pid).copied(),
            })
            .collect()
    }

    fn sm_ratios(&mut self, device: &Device<'_>, probe: &mut Probe<'_>) -> BTreeMap<u32, f64> {
        let samples = probe.ask("process_utilization", || match device.process_utilization_stats(self.seen_us) {
            // Nobody has run anything since.
            Err(NvmlError::NotFound) => Ok(Vec::new()),
            samples => samples,
        });
        // A look that failed was none.
        let Some(samples) = samples else { return BTreeMap::new() };
        // What the driver had kept from before the first look is of nobody knows when.
        let first = self.seen_us.is_none();
        self.seen_us = samples.iter().map(|sample| sample.timestamp).max().or(self.seen_us).or(Some(0));
        if first { BTreeMap::new() } else { means(&samples) }
    }
}

/// By process. A driver writes blanks into the room that it asked for and did not need.
fn means(samples: &[ProcessUtilizationSample]) -> BTreeMap<u32, f64> {
    let mut sums = BTreeMap::<u32, (f64, u32)>::new();
    for sample in samples.iter().filter(|sample| sample.pid != 0 && sample.sm_util <= 100) {
        let (sum, count) = sums.entry(sample.pid).or_default();
        *sum += f64::from(sample.sm_util) / 100.0;
        *count += 1;
    }
    sums.into_iter().map(|(pid, (sum, count))| (pid, sum / f64::from(count))).collect()
}

fn name(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_whose_process_list_is_unsafe_is_not_asked_for_it() {
        for (version, safe) in [("535.54.03", false), ("535.86.10", false), ("535.104.05", true), ("580.159", true)] {
            let questions = ProcessQuestions::new(Some(version), true);
            assert_eq!((questions.count, questions.list), (safe, safe), "{version}");
        }
        assert!(!ProcessQuestions::new(Some("580.1"), false).list, "not unless it is wanted");
    }

    #[test]
    fn a_process_has_the_mean_of_its_samples() {
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
