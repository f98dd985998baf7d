//! What a GPU can report: the range of each kind of reading, and how fast each kind of counter can rise. The limits are far
//! above every GPU that exists, because they must only find values that no GPU can have, such as all bits set.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The label value under which an impossible reading is counted.
pub(super) const IMPOSSIBLE: &str = "impossible";

pub(super) const PERCENT: RangeInclusive<u32> = 0..=100;
/// The intended speed of a fan can exceed its maximum.
pub(super) const FAN_PERCENT: RangeInclusive<u32> = 0..=200;
/// Percent of GPM (GPU performance monitoring). Rounding over a short time may yield slightly more than 100.
pub(super) const GPM_PERCENT: RangeInclusive<f64> = 0.0..=101.0;
/// 1 TiB per second, four times the rate of PCIe 7.0 with 16 lanes.
pub(super) const PCIE_MIB_PER_SECOND: RangeInclusive<f64> = 0.0..=1_048_576.0;
/// 10 TiB per second, five times the rate of all NVLinks of a Rubin GPU.
pub(super) const NVLINK_MIB_PER_SECOND: RangeInclusive<f64> = 0.0..=10_485_760.0;
/// 10 kW.
pub(super) const MILLIWATTS: RangeInclusive<u32> = 0..=10_000_000;
pub(super) const CELSIUS: RangeInclusive<u32> = 0..=200;
pub(super) const MEGAHERTZ: RangeInclusive<u32> = 0..=50_000;
/// Bytes of GPU memory or of the BAR1 window: 16 TiB.
pub(super) const MEMORY_BYTES: RangeInclusive<u64> = 0..=1 << 44;
pub(super) const PCIE_GENERATION: RangeInclusive<u32> = 0..=16;
pub(super) const PCIE_LANES: RangeInclusive<u32> = 0..=64;
/// 0 for no, 1 for yes.
pub(super) const YES_OR_NO: RangeInclusive<u32> = 0..=1;
/// Retired pages or remapped rows.
pub(super) const PAGES: u64 = 1 << 20;
/// NVML defines 0 to 4.
pub(super) const RECOVERY_ACTION: u64 = 100;
/// NVIDIA's catalog of Xid errors has about 170 codes.
pub(super) const XID: RangeInclusive<u64> = 0..=9999;

/// Whether this cannot be the UUID of a device: it is empty, all of its digits are 0 or f, or it says that there is none. Some
/// virtual machines report such UUIDs for all of their GPUs.
pub(super) fn is_blank(uuid: &str) -> bool {
    let uuid = uuid.to_ascii_lowercase();
    let digits = uuid.trim_start_matches("mig-").trim_start_matches("gpu-").replace(|c: char| !c.is_alphanumeric(), "");
    let only = |digit| digits.bytes().all(|other| other == digit);
    only(b'0') || only(b'f') || ["na", "none", "unknown"].contains(&&*digits)
}

/// How a cumulative counter of a GPU counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CounterKind {
    /// The most by which the counter can rise in one second, in its unit.
    per_second: u64,
    /// Width of the counter in the hardware. It continues at 0 after its highest value.
    bits: u32,
    /// Whether the total starts at 0 with this exporter and continues over driver reloads. Otherwise it is that of the driver,
    /// which starts at 0 when the driver is loaded.
    pub(super) since_exporter: bool,
}

pub(super) const ENERGY_MILLIJOULES: CounterKind =
    CounterKind { per_second: 10_000_000, bits: 64, since_exporter: true };
pub(super) const THROTTLE_NANOSECONDS: CounterKind =
    CounterKind { per_second: 1_000_000_000, bits: 64, since_exporter: false };
pub(super) const NVLINK_KIB: CounterKind = CounterKind { per_second: 10 << 30, bits: 64, since_exporter: false };
/// ECC and NVLink errors. A GPU with a million errors per second does no useful work.
pub(super) const ERRORS: CounterKind = CounterKind { per_second: 1_000_000, bits: 64, since_exporter: false };
/// NVML's field 94 is an unsigned int.
pub(super) const PCIE_REPLAYS: CounterKind = CounterKind { bits: 32, ..ERRORS };

impl CounterKind {
    /// The highest reading of a GPU that is 30 years old. All bits set is never a count.
    pub(super) fn highest(self) -> u64 {
        const SECONDS: u64 = 30 * 366 * 86_400;
        self.per_second.saturating_mul(SECONDS).min((u64::MAX >> (64 - self.bits)) - 1)
    }

    /// The rise from one reading to a later one. `None` if the counter cannot rise that much in this time, or fell. Drivers
    /// update their counters only several times per second, so one second is added.
    pub(super) fn rise(self, from: u64, to: u64, elapsed: Duration) -> Option<u64> {
        let most = self.per_second.saturating_mul(elapsed.as_secs().saturating_add(2));
        let wrapped = || if self.bits == 64 { None } else { (to + (1 << self.bits)).checked_sub(from) };
        to.checked_sub(from).or_else(wrapped).filter(|rise| *rise <= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_uuid_is_recognised() {
        for blank in
            ["", " ", "GPU-", "N/A", "[Unknown]", "GPU-00000000-0000-0000-0000-000000000000", "MIG-0", "GPU-FFFFFFFF"]
        {
            assert!(is_blank(blank), "{blank:?}");
        }
        for uuid in ["GPU-00000000-0000-4000-8000-000000000000", "MIG-GPU-a/1/0", "54d0709b-1531-51e9", "MIG-z"] {
            assert!(!is_blank(uuid), "{uuid}");
        }
    }
}
