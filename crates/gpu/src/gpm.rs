//! NVML's GPM (GPU performance monitoring): utilisation of the parts of a GPU between two samples. It needs Hopper or
//! later, but neither DCGM nor privileges.

use std::collections::HashMap;
use std::mem;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::{Device, GpmSample};

use super::limits::{GPM_PERCENT, NVLINK_MIB_PER_SECOND, PCIE_MIB_PER_SECOND};
use super::probe::Probe;
use trtllm_records::gpu::GpuActivity;

/// A GPM metric, its unit, and the field of [`GpuActivity`] that gets the value.
type Metric = (GpmMetricId, &'static Unit, fn(&mut GpuActivity) -> &mut Option<f64>);

struct Unit {
    /// The possible values.
    limits: RangeInclusive<f64>,
    convert: fn(f64) -> f64,
}

/// Shares are rounded to a millionth, because NVML's numbers have many digits that mean nothing.
const PERCENT: &Unit = &Unit { limits: GPM_PERCENT, convert: |percent| (percent * 1e4).round().min(1e6) / 1e6 };
const PCIE_MIB: &Unit = &Unit { limits: PCIE_MIB_PER_SECOND, convert: bytes };
const NVLINK_MIB: &Unit = &Unit { limits: NVLINK_MIB_PER_SECOND, convert: bytes };

const METRICS: [Metric; 15] = [
    (GpmMetricId::GraphicsUtil, PERCENT, |activity| &mut activity.graphics),
    (GpmMetricId::SmUtil, PERCENT, |activity| &mut activity.sm),
    (GpmMetricId::SmOccupancy, PERCENT, |activity| &mut activity.sm_occupancy),
    (GpmMetricId::AnyTensorUtil, PERCENT, |activity| &mut activity.tensor),
    (GpmMetricId::DfmaTensorUtil, PERCENT, |activity| &mut activity.tensor_dfma),
    (GpmMetricId::HmmaTensorUtil, PERCENT, |activity| &mut activity.tensor_hmma),
    (GpmMetricId::ImmaTensorUtil, PERCENT, |activity| &mut activity.tensor_imma),
    (GpmMetricId::DramBwUtil, PERCENT, |activity| &mut activity.dram),
    (GpmMetricId::Fp64Util, PERCENT, |activity| &mut activity.fp64),
    (GpmMetricId::Fp32Util, PERCENT, |activity| &mut activity.fp32),
    (GpmMetricId::Fp16Util, PERCENT, |activity| &mut activity.fp16),
    (GpmMetricId::PcieTxPerSec, PCIE_MIB, |activity| &mut activity.pcie_bytes_per_second.transmit),
    (GpmMetricId::PcieRxPerSec, PCIE_MIB, |activity| &mut activity.pcie_bytes_per_second.receive),
    (GpmMetricId::NvlinkTotalTxPerSec, NVLINK_MIB, |activity| &mut activity.nvlink_bytes_per_second.transmit),
    (GpmMetricId::NvlinkTotalRxPerSec, NVLINK_MIB, |activity| &mut activity.nvlink_bytes_per_second.receive),
];

/// The last samples of a GPU and of its MIG GPU instances.
#[derive(Debug)]
pub(super) struct GpmSampler<'nvml> {
    supported: Option<bool>,
    /// The samples of the last poll by GPU instance; `None` is the whole GPU.
    last: HashMap<Option<u32>, TimedSample<'nvml>>,
    /// The samples of this poll.
    current: HashMap<Option<u32>, TimedSample<'nvml>>,
    /// The longest time between two samples whose average is used. If the samples are further apart, a call hung in
    /// between and the average is outdated.
    max_age: Duration,
}

#[derive(Debug)]
struct TimedSample<'nvml> {
    at: Instant,
    sample: GpmSample<'nvml>,
    activity: GpuActivity,
}

impl<'nvml> GpmSampler<'nvml> {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            supported: None,
            last: HashMap::new(),
            current: HashMap::new(),
            max_age: interval * 5 + Duration::from_secs(5),
        }
    }

    /// Forgets the last samples, because the GPU was reconfigured.
    pub(super) fn clear(&mut self) {
        self.supported = None;
        self.last.clear();
    }

    /// Keeps only the samples of the last poll. A GPU instance that was not read in it is gone, and its number may be reused.
    pub(super) fn begin_poll(&mut self) {
        self.last = mem::take(&mut self.current);
    }

    /// The activity since the last poll; empty in the first poll. Takes one sample per GPU instance and poll, although
    /// several compute instances may share a GPU instance.
    pub(super) fn read(
        &mut self,
        device: &Device<'nvml>,
        gpu_instance: Option<u32>,
        probe: &mut Probe<'_>,
    ) -> GpuActivity {
        if let Some(current) = self.current.get(&gpu_instance) {
            return current.activity;
        }
        // nvml-wrapper 0.13 frees a sample in its Drop and panics without this symbol, so no sample is taken then.
        if device.nvml().lib().nvmlGpmSampleFree.is_err() {
            return GpuActivity::default();
        }
        if self.supported.is_none() {
            self.supported = probe.call("gpm_support", || device.gpm_support());
        }
        if self.supported != Some(true) {
            return GpuActivity::default();
        }
        let sample = match gpu_instance {
            None => probe.call("gpm_sample", || device.gpm_sample()),
            Some(instance) => probe.call("gpm_mig_sample", || device.gpm_mig_sample(instance)),
        };
        let Some(sample) = sample else { return GpuActivity::default() };
        let at = Instant::now();
        let before = self.last.remove(&gpu_instance).filter(|last| at.duration_since(last.at) <= self.max_age);
        let activity = before.map(|before| between(device, &before.sample, &sample, probe)).unwrap_or_default();
        self.current.insert(gpu_instance, TimedSample { at, sample, activity });
        activity
    }
}

fn between<'nvml>(
    device: &Device<'nvml>,
    before: &GpmSample<'nvml>,
    now: &GpmSample<'nvml>,
    probe: &mut Probe<'_>,
) -> GpuActivity {
    let ids = METRICS.map(|(id, ..)| id);
    let results = probe.call("gpm_metrics", || gpm_metrics_get(device.nvml(), before, now, &ids)).unwrap_or_default();
    let mut activity = GpuActivity::default();
    for ((_, unit, reading), result) in METRICS.iter().zip(results) {
        // A metric that the GPU does not have is an error here.
        let value = result.ok().and_then(|result| probe.possible("gpm_metrics", &unit.limits, result.value));
        *reading(&mut activity) = value.map(unit.convert);
    }
    activity
}

/// Converts from MiB. nvml.h says MiB per second; nvml-wrapper says bytes, which is wrong.
fn bytes(mib: f64) -> f64 {
    mib * 1_048_576.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_percentage_is_not_in_the_limits() {
        assert_eq!((PERCENT.convert)(42.0), 0.42);
        assert_eq!((PERCENT.convert)(82.482_910_156_25), 0.824_829);
        assert_eq!((PERCENT.convert)(100.4), 1.0);
        assert!(PERCENT.limits.contains(&100.4));
        for impossible in [f64::NAN, f64::INFINITY, -1.0, 4e9] {
            assert!(!PERCENT.limits.contains(&impossible), "{impossible}");
        }
    }
}
