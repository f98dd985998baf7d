//! The ids of NVML's field values, of which one call reads many. The name of a field is the label value under which its
//! errors are counted.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) id: u32,
    /// The number of the NVLink, [`ALL_LINKS`], or 0 for a field without a scope.
    pub(super) scope: u32,
}

/// The sum over all NVLinks.
pub(super) const ALL_LINKS: u32 = u32::MAX;

const fn field(name: &'static str, id: u32) -> Field {
    Field { name, id, scope: 0 }
}

pub(super) const MEMORY_TEMPERATURE: Field = field("field_memory_temp", 82);
/// Milliwatts.
pub(super) const POWER_INSTANT: Field = field("field_power_instant", 186);
pub(super) const PCIE_BYTES: [Field; 2] = [field("field_pcie_tx_bytes", 197), field("field_pcie_rx_bytes", 198)];
/// KiB of payload.
pub(super) const NVLINK_KIB: [Field; 2] = [
    Field { name: "field_nvlink_data_tx", id: 138, scope: ALL_LINKS },
    Field { name: "field_nvlink_data_rx", id: 139, scope: ALL_LINKS },
];
/// Nanoseconds. The last three have other ids since driver 580.82; see [`throttle`].
const THROTTLE: [Field; 9] = [
    field("field_throttle_power", 74),
    field("field_throttle_thermal", 75),
    field("field_throttle_sync_boost", 76),
    field("field_throttle_board_limit", 77),
    field("field_throttle_low_utilization", 78),
    field("field_throttle_reliability", 79),
    field("field_throttle_sw_thermal", 251),
    field("field_throttle_hw_thermal", 252),
    field("field_throttle_hw_power_brake", 253),
];

/// Corrected and uncorrected since the driver was loaded, then both over the lifetime of the GPU.
pub(super) const ECC_ERRORS: [Field; 4] = [
    field("field_ecc_sbe_volatile", 3),
    field("field_ecc_dbe_volatile", 4),
    field("field_ecc_sbe_aggregate", 5),
    field("field_ecc_dbe_aggregate", 6),
];
pub(super) const RETIRED_PAGES: [Field; 2] = [field("field_retired_sbe", 29), field("field_retired_dbe", 30)];
pub(super) const RETIRED_PENDING: Field = field("field_retired_pending", 31);
pub(super) const REMAPPED_ROWS: [Field; 2] = [field("field_remapped_cor", 142), field("field_remapped_unc", 143)];
pub(super) const REMAPPED_PENDING: Field = field("field_remapped_pending", 144);
pub(super) const REMAPPED_FAILURE: Field = field("field_remapped_failure", 145);
pub(super) const PCIE_REPLAYS: Field = field("field_pcie_replay", 94);
pub(super) const RECOVERY_ACTION: Field = field("field_recovery_action", 230);

/// Hopper and later have one id per counter, with the link as scope.
const LINK_REPLAY: u32 = 161;
const LINK_RECOVERY: u32 = 162;
const LINK_CRC: u32 = 163;
/// Pascal to Ampere have one id per counter and link: the ids of link 0 and link 6. In the order replay, recovery,
/// crc_flit, crc_data.
const OLD_LINK_ERRORS: [(u32, u32); 4] = [(46, 108), (53, 114), (32, 96), (39, 102)];

/// The throttle times, with the ids that this driver uses.
pub(super) fn throttle(driver_version: Option<&str>) -> [Field; 9] {
    let moved = driver_version.is_some_and(renumbers_clocks_events);
    THROTTLE.map(|field| if moved && field.id >= 251 { Field { id: field.id + 18, ..field } } else { field })
}

/// NVML 13 update 1 renumbered the fields 251 to 273. On such a driver, 251 is about power smoothing.
fn renumbers_clocks_events(driver_version: &str) -> bool {
    let mut parts = driver_version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (580_u32, 82_u32)
}

/// The error counters of one link in the order replay, recovery, crc_flit, crc_data, each with its new and its old id. New
/// GPUs have only one CRC counter, which counts flits.
pub(super) fn link_errors(link: u32) -> [(Option<Field>, Option<Field>); 4] {
    const NAMES: [&str; 4] =
        ["field_nvlink_replay", "field_nvlink_recovery", "field_nvlink_crc", "field_nvlink_crc_data"];
    let new = [Some(LINK_REPLAY), Some(LINK_RECOVERY), Some(LINK_CRC), None];
    std::array::from_fn(|kind| {
        let (first, seventh) = OLD_LINK_ERRORS[kind];
        let old = match link {
            0..6 => Some(first + link),
            6..12 => Some(seventh + link - 6),
            _ => None,
        };
        let name = NAMES[kind];
        (new[kind].map(|id| Field { name, id, scope: link }), old.map(|id| Field { name, id, scope: 0 }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renumbered_fields_have_the_ids_of_the_driver() {
        let last = |version| throttle(version).map(|field| field.id)[6..].to_vec();
        for old in [None, Some("550.163.01"), Some("580.65.06")] {
            assert_eq!(last(old), [251, 252, 253], "{old:?}");
        }
        for new in ["580.82", "580.159.03", "610.1"] {
            assert_eq!(last(Some(new)), [269, 270, 271], "{new}");
        }
        assert_eq!(throttle(Some("610.1"))[0].id, 74);
    }

    #[test]
    fn link_counters_have_the_ids_of_nvml_h() {
        let old = |link| link_errors(link).map(|(_, old)| old.map(|field| field.id));
        assert_eq!(old(0), [Some(46), Some(53), Some(32), Some(39)]);
        assert_eq!(old(5), [Some(51), Some(58), Some(37), Some(44)]);
        assert_eq!(old(11), [Some(113), Some(119), Some(101), Some(107)]);
        assert_eq!(old(12), [None; 4]);
        assert_eq!(link_errors(17)[0].0.map(|field| (field.id, field.scope)), Some((161, 17)));
    }
}
