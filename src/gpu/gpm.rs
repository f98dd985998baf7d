//! NVML's GPM: how busy a GPU's parts were between two samples. Hopper and later, without DCGM and without privileges.

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
/// MiB a second (nvml.h; the wrapper's "bytes" is wrong): PCIe, then NVLink; transmit, then receive.
const RATES: [GpmMetricId; 4] = [
    GpmMetricId::PcieTxPerSec,
    GpmMetricId::PcieRxPerSec,
    GpmMetricId::NvlinkTotalTxPerSec,
    GpmMetricId::NvlinkTotalRxPerSec,
];
const MIB: f64 = 1_048_576.0;

/// The last sample of a GPU and of each of its GPU instances.
#[derive(Debug)]
pub(super) struct Gpm<'nvml> {
    supported: Option<bool>,
    /// By GPU instance; `None` is the whole GPU. With whether it was taken in this poll.
    last: HashMap<Option<u32>, Last<'nvml>>,
    /// A longer time between two samples is not "now": a call hung meanwhile.
    longest: Duration,
}

#[derive(Debug)]
struct Last<'nvml> {
    at: Instant,
    sample: GpmSample<'nvml>,
    fresh: bool,
    activity: GpuActivity,
}

impl<'nvml> Gpm<'nvml> {
    pub(super) fn new(interval: Duration) -> Self {
        Self { supported: None, last: HashMap::new(), longest: interval * 5 + Duration::from_secs(5) }
    }

    /// The GPU is not what it was.
    pub(super) fn clear(&mut self) {
        self.supported = None;
        self.last.clear();
    }

    /// Ends a poll: a GPU instance that was not asked for is gone, and one that comes under its number is another.
    pub(super) fn settle(&mut self) {
        self.last.retain(|_, last| last.fresh);
        self.last.values_mut().for_each(|last| last.fresh = false);
    }

    /// Since the poll before; all absent on the first. A GPU instance that compute instances share is sampled once a poll.
    pub(super) fn read(
        &mut self,
        device: &Device<'nvml>,
        gpu_instance: Option<u32>,
        probe: &mut Probe<'_>,
    ) -> GpuActivity {
        if let Some(last) = self.last.get(&gpu_instance).filter(|last| last.fresh) {
            return last.activity.clone();
        }
        // The wrapper frees a sample with `expect` when it is dropped (0.13): none is taken that could not be freed.
        let usable = device.nvml().lib().nvmlGpmSampleFree.is_ok();
        if self.supported.is_none() {
            self.supported = probe.ask("gpm_support", || if usable { device.gpm_support() } else { Ok(false) });
        }
        if self.supported != Some(true) {
            return GpuActivity::default();
        }
        let sample = match gpu_instance {
            None => probe.ask("gpm_sample", || device.gpm_sample()),
            Some(instance) => probe.ask("gpm_mig_sample", || device.gpm_mig_sample(instance)),
        };
        let Some(sample) = sample else {
            self.last.remove(&gpu_instance);
            return GpuActivity::default();
        };
        let at = Instant::now();
        let before = self.last.remove(&gpu_instance).filter(|last| at.duration_since(last.at) <= self.longest);
        let activity = before.map(|before| between(device, &before.sample, &sample, probe)).unwrap_or_default();
        self.last.insert(gpu_instance, Last { at, sample, fresh: true, activity: activity.clone() });
        activity
    }
}

fn between<'nvml>(
    device: &Device<'nvml>,
    before: &GpmSample<'nvml>,
    now: &GpmSample<'nvml>,
    probe: &mut Probe<'_>,
) -> GpuActivity {
    let asked: Vec<GpmMetricId> = RATIOS.into_iter().chain(RATES).collect();
    let Some(answers) = probe.ask("gpm_metrics", || gpm_metrics_get(device.nvml(), before, now, &asked)) else {
        return GpuActivity::default();
    };
    let values: Vec<Option<f64>> = answers.into_iter().map(|answer| answer.ok().map(|metric| metric.value)).collect();
    let value = |at: usize| values.get(at).copied().flatten();
    let rate = |at: usize| value(ACTIVITIES + at).filter(|mib| mib.is_finite() && *mib >= 0.0).map(|mib| mib * MIB);
    GpuActivity {
        ratio: std::array::from_fn(|at| value(at).and_then(from_percent)),
        pcie_bytes_per_second: [rate(0), rate(1)],
        nvlink_bytes_per_second: [rate(2), rate(3)],
    }
}

/// A share in 0..1; what is no share is none. Counters of a short window may overshoot by a rounding.
fn from_percent(value: f64) -> Option<f64> {
    (0.0..=101.0).contains(&value).then(|| (value / 100.0).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_percentage_is_absent() {
        assert_eq!(from_percent(42.0), Some(0.42));
        assert_eq!(from_percent(100.4), Some(1.0));
        for nonsense in [f64::NAN, f64::INFINITY, -1.0, 4e9] {
            assert_eq!(from_percent(nonsense), None, "{nonsense}");
        }
    }
}
