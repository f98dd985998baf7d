//! The ids of NVML's field values, and which of them each driver and GPU has. One NVML call reads many fields. The name
//! of a field is the label value under which its errors are counted.

use std::ops::RangeInclusive;

use super::limits::{CounterKind, ERRORS, NVLINK_KIB, THROTTLE_NANOSECONDS};
use trtllm_records::gpu::{LinkTraffic, NvLinkErrors, ThrottleTimes};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct NvmlField {
    pub(super) name: &'static str,
    pub(super) id: u32,
    /// The number of the NVLink, [`ALL_LINKS`], or 0 for a field without a scope.
    pub(super) scope: u32,
    /// The highest possible value. Not used for a counter.
    most: u64,
    /// How the field counts, if it is a cumulative counter.
    pub(super) counter: Option<CounterKind>,
}

impl NvmlField {
    pub(super) const fn at_most(self, most: u64) -> Self {
        Self { most, ..self }
    }

    pub(super) const fn counter(self, kind: CounterKind) -> Self {
        Self { counter: Some(kind), ..self }
    }

    pub(super) const fn limits(self) -> RangeInclusive<u64> {
        0..=self.most
    }
}

/// For a call that reads no field. Only the name is used.
impl From<&'static str> for NvmlField {
    fn from(name: &'static str) -> Self {
        field(name, 0)
    }
}

/// The value of a field, if it was read. See [`Probe::fields`](super::probe::Probe::fields).
pub(super) type ReadField<'r> = &'r mut dyn FnMut(NvmlField) -> Option<u64>;

/// The scope of the sum over all NVLinks.
const ALL_LINKS: u32 = u32::MAX;

pub(super) const fn field(name: &'static str, id: u32) -> NvmlField {
    NvmlField { name, id, scope: 0, most: u64::MAX, counter: None }
}

/// Payload bytes of all NVLinks. NVML counts the payload in KiB.
pub(super) fn nvlink_bytes(read: ReadField<'_>) -> LinkTraffic<u64> {
    let mut bytes = |name, id| {
        let kib = NvmlField { scope: ALL_LINKS, ..field(name, id).counter(NVLINK_KIB) };
        read(kib).map(|kib| kib.saturating_mul(1024))
    };
    LinkTraffic { transmit: bytes("field_nvlink_data_tx", 138), receive: bytes("field_nvlink_data_rx", 139) }
}

/// Nanoseconds in which the clocks were throttled, by reason. `renumbered`: see [`renumbers_clocks_events`].
pub(super) fn throttle_ns(renumbered: bool, read: ReadField<'_>) -> ThrottleTimes {
    let slowdown = if renumbered { 269 } else { 251 };
    let mut time = |name, id| read(field(name, id).counter(THROTTLE_NANOSECONDS));
    ThrottleTimes {
        power: time("field_throttle_power", 74),
        thermal: time("field_throttle_thermal", 75),
        sync_boost: time("field_throttle_sync_boost", 76),
        board_limit: time("field_throttle_board_limit", 77),
        low_utilization: time("field_throttle_low_utilization", 78),
        reliability: time("field_throttle_reliability", 79),
        sw_thermal_slowdown: time("field_throttle_sw_thermal", slowdown),
        hw_thermal_slowdown: time("field_throttle_hw_thermal", slowdown + 1),
        hw_power_brake_slowdown: time("field_throttle_hw_power_brake", slowdown + 2),
    }
}

/// NVML 13 update 1 (driver 580.82) renumbered the fields 251 to 273. Since then, field 251 is about power smoothing.
pub(super) fn renumbers_clocks_events(driver_version: &str) -> bool {
    let mut parts = driver_version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (580_u32, 82_u32)
}

/// The error counters of one NVLink. Hopper and later have one id per counter, with the link as scope. Their only CRC counter
/// counts flits. Pascal to Ampere have one id per counter and link.
pub(super) fn link_errors(link: u32, read: ReadField<'_>) -> NvLinkErrors {
    let mut by_scope = |name, id| read(NvmlField { scope: link, ..field(name, id).counter(ERRORS) });
    let replay = by_scope("field_nvlink_replay", 161);
    let recovery = by_scope("field_nvlink_recovery", 162);
    let crc_flit = by_scope("field_nvlink_crc", 163);
    // The ids of links 0 to 5 are consecutive, and so are the ids of links 6 to 11.
    let mut by_id = |name, link_0, link_6| match link {
        0..6 => read(field(name, link_0 + link).counter(ERRORS)),
        6..12 => read(field(name, link_6 + link - 6).counter(ERRORS)),
        _ => None,
    };
    NvLinkErrors {
        replay: replay.or_else(|| by_id("field_nvlink_replay", 46, 108)),
        recovery: recovery.or_else(|| by_id("field_nvlink_recovery", 53, 114)),
        crc_flit: crc_flit.or_else(|| by_id("field_nvlink_crc", 32, 96)),
        crc_data: by_id("field_nvlink_crc_data", 39, 102),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renumbered_fields_have_the_ids_of_the_driver() {
        let ids = |version| throttle_ns(renumbers_clocks_events(version), &mut |field| Some(u64::from(field.id)));
        let last = |version| {
            let ids = ids(version);
            [ids.sw_thermal_slowdown, ids.hw_thermal_slowdown, ids.hw_power_brake_slowdown]
        };
        for old in ["550.163.01", "580.65.06"] {
            assert_eq!(last(old), [251, 252, 253].map(Some), "{old}");
        }
        for new in ["580.82", "580.159.03", "610.1"] {
            assert_eq!(last(new), [269, 270, 271].map(Some), "{new}");
        }
        assert_eq!(ids("610.1").power, Some(74));
    }

    #[test]
    fn link_counters_have_the_ids_of_nvml_h() {
        let asked = |link| {
            let mut asked = Vec::new();
            link_errors(link, &mut |field| {
                asked.push((field.id, field.scope));
                None
            });
            let old = asked.split_off(3);
            assert_eq!(asked, [(161, link), (162, link), (163, link)]);
            assert!(old.iter().all(|(_, scope)| *scope == 0));
            old.into_iter().map(|(id, _)| id).collect::<Vec<_>>()
        };
        assert_eq!(asked(0), [46, 53, 32, 39]);
        assert_eq!(asked(5), [51, 58, 37, 44]);
        assert_eq!(asked(11), [113, 119, 101, 107]);
        assert!(asked(12).is_empty() && asked(17).is_empty());
    }

    #[test]
    fn a_counter_with_a_scope_is_preferred_to_one_without() {
        let errors = link_errors(7, &mut |field| Some(u64::from(field.id)));
        let expected =
            NvLinkErrors { replay: Some(161), recovery: Some(162), crc_flit: Some(163), crc_data: Some(103) };
        assert_eq!(errors, expected);
    }
}
