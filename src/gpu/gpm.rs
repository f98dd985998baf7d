//! NVML's GPM (GPU performance monitoring): utilisation of the parts of a GPU between two samples. Needs Hopper or later,
//! but neither DCGM nor privileges.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::{Device, GpmSample};

use super::probe::Probe;
use crate::model::gpu::{ACTIVITIES, GpuActivity};

/// Percentages, in the order of [`GpuActivity::ratio`].
const RATIOS: [GpmMetricId; ACTIVITIES] = [
    GpmMetricId::GraphicsUtil,
    GpmMetricId::SmUtil,
    GpmMetricId::SmOccupancy,
    GpmMetricId::AnyTensorUtil,
    GpmMetricId::DfmaTensorUtil,
    GpmMetricId::HmmaTensorUtil,
    GpmMetricId::ImmaTensorUtil,
    GpmMetricId::DramBwUtil,
    GpmMetricId::Fp64Util,
    GpmMetricId::Fp32Util,
    GpmMetricId::Fp16Util,
];
/// MiB per second, as nvml.h says (nvml-wrapper says bytes, which is wrong): PCIe, then NVLink; transmit, then receive.
const RATES: [GpmMetricId; 4] = [
    GpmMetricId::PcieTxPerSec,
    GpmMetricId::PcieRxPerSec,
    GpmMetricId::NvlinkTotalTxPerSec,
    GpmMetricId::NvlinkTotalRxPerSec,
];
const MIB: f64 = 1_048_576.0;

/// The last samples of a GPU and of its MIG GPU instances.
#[derive(Debug)]
pub(super) struct GpmSampler<'nvml> {
    supported: Option<bool>,
    /// By GPU instance; `None` is the whole GPU.
    last: HashMap<Option<u32>, LastSample<'nvml>>,
    /// If two samples are further apart, a call hung in between and their average is outdated.
    max_age: Duration,
}

#[derive(Debug)]
struct LastSample<'nvml> {
    at: Instant,
    sample: GpmSample<'nvml>,
    /// Taken in this poll.
    fresh: bool,
    activity: GpuActivity,
}

impl<'nvml> GpmSampler<'nvml> {
    pub(super) fn new(interval: Duration) -> Self {
        Self { supported: None, last: HashMap::new(), max_age: interval * 5 + Duration::from_secs(5) }
    }

    /// Starts over after the GPU was reconfigured.
    pub(super) fn clear(&mut self) {
        self.supported = None;
        self.last.clear();
    }

    /// Drops the samples of GPU instances that were not read in this poll: they are gone, and their numbers may be reused.
    pub(super) fn end_poll(&mut self) {
        self.last.retain(|_, last| last.fresh);
        self.last.values_mut().for_each(|last| last.fresh = false);
    }

    /// The activity since the last poll; empty at the first. Takes one sample per GPU instance and poll, although several
    /// compute instances may share a GPU instance.
    pub(super) fn read(
        &mut self,
        device: &Device<'nvml>,
        gpu_instance: Option<u32>,
        probe: &mut Probe<'_>,
    ) -> GpuActivity {
        if let Some(last) = self.last.get(&gpu_instance).filter(|last| last.fresh) {
            return last.activity.clone();
        }
        // nvml-wrapper 0.13 frees a sample in its Drop and panics without this symbol, so no sample is taken then.
        let usable = device.nvml().lib().nvmlGpmSampleFree.is_ok();
        if self.supported.is_none() {
            self.supported = probe.call("gpm_support", || if usable { device.gpm_support() } else { Ok(false) });
        }
        if self.supported != Some(true) {
            return GpuActivity::default();
        }
        let sample = match gpu_instance {
            None => probe.call("gpm_sample", || device.gpm_sample()),
            Some(instance) => probe.call("gpm_mig_sample", || device.gpm_mig_sample(instance)),
        };
        let Some(sample) = sample else {
            self.last.remove(&gpu_instance);
            return GpuActivity::default();
        };
        let at = Instant::now();
        let before = self.last.remove(&gpu_instance).filter(|last| at.duration_since(last.at) <= self.max_age);
        let activity = before.map(|before| between(device, &before.sample, &sample, probe)).unwrap_or_default();
        self.last.insert(gpu_instance, LastSample { at, sample, fresh: true, activity: activity.clone() });
        activity
    }
}

fn between<'nvml>(
    device: &Device<'nvml>,
    before: &GpmSample<'nvml>,
    now: &GpmSample<'nvml>,
    probe: &mut Probe<'_>,
) -> GpuActivity {
    let ids: Vec<GpmMetricId> = RATIOS.into_iter().chain(RATES).collect();
    let Some(metrics) = probe.call("gpm_metrics", || gpm_metrics_get(device.nvml(), before, now, &ids)) else {
        return GpuActivity::default();
    };
    let values: Vec<Option<f64>> = metrics.into_iter().map(|metric| metric.ok().map(|metric| metric.value)).collect();
    let value = |at: usize| values.get(at).copied().flatten();
    let rate = |at: usize| value(ACTIVITIES + at).filter(|mib| mib.is_finite() && *mib >= 0.0).map(|mib| mib * MIB);
    GpuActivity {
        ratio: std::array::from_fn(|at| value(at).and_then(from_percent)),
        pcie_bytes_per_second: [rate(0), rate(1)],
        nvlink_bytes_per_second: [rate(2), rate(3)],
    }
}

/// Converts to 0..1. `None` for an impossible percentage; rounding over a short time may yield slightly more than 100.
fn from_percent(value: f64) -> Option<f64> {
    (0.0..=101.0).contains(&value).then(|| (value / 100.0).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impossible_percentage_is_absent() {
        assert_eq!(from_percent(42.0), Some(0.42));
        assert_eq!(from_percent(100.4), Some(1.0));
        for impossible in [f64::NAN, f64::INFINITY, -1.0, 4e9] {
            assert_eq!(from_percent(impossible), None, "{impossible}");
        }
    }
}
