//! Conversions from NVML's units to base units.

pub(super) fn watts_from_milliwatts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1000.0
}

pub(super) fn hertz_from_megahertz(megahertz: u32) -> u64 {
    u64::from(megahertz) * 1_000_000
}

pub(super) fn ratio_from_percent(percent: u32) -> f64 {
    f64::from(percent) / 100.0
}
