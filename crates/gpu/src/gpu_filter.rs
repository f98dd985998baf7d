//! Selects the GPUs to show: by `--gpu.uuid`, otherwise by the environment. Pure.

use trtllm_records::gpu::GpuIdentity;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct GpuFilter {
    /// Each selector is a UUID or, as CUDA allows, a prefix of one. Selectors from [`CUDA`] can also be NVML's index, in PCI
    /// bus order. `None` selects every GPU.
    selectors: Option<Vec<String>>,
    /// The flag or environment variable that set the selectors.
    pub(super) origin: &'static str,
    /// The value of [`CUDA`], if it has indexes whose order is not known to be NVML's. It selects nothing then.
    pub(super) ignored: Option<String>,
}

const CUDA: &str = "CUDA_VISIBLE_DEVICES";
/// CUDA numbers the fastest GPU 0, unless this variable is `PCI_BUS_ID`. Then its order is NVML's.
const CUDA_ORDER: &str = "CUDA_DEVICE_ORDER";
const NVIDIA: &str = "NVIDIA_VISIBLE_DEVICES";

impl GpuFilter {
    /// Uses the flag, otherwise `CUDA_VISIBLE_DEVICES`, otherwise `NVIDIA_VISIBLE_DEVICES`.
    pub(super) fn new(uuids: &[String], variable: impl Fn(&str) -> Option<String>) -> Self {
        if !uuids.is_empty() {
            return Self { selectors: Some(uuids.to_vec()), origin: "--gpu.uuid", ignored: None };
        }
        let cuda = variable(CUDA).unwrap_or_default();
        let selectors = parse_cuda(&cuda);
        let has_indexes = selectors.iter().flatten().any(|selector| selector.parse::<u32>().is_ok());
        let ignored = (has_indexes && variable(CUDA_ORDER).as_deref() != Some("PCI_BUS_ID")).then_some(cuda);
        match selectors.filter(|_| ignored.is_none()) {
            Some(selectors) => Self { selectors: Some(selectors), origin: CUDA, ignored },
            None => {
                Self { selectors: variable(NVIDIA).and_then(|value| parse_nvidia(&value)), origin: NVIDIA, ignored }
            }
        }
    }

    pub(super) fn includes_all(&self) -> bool {
        self.selectors.is_none()
    }

    pub(super) fn includes(&self, gpu: &GpuIdentity) -> bool {
        self.selectors.as_ref().is_none_or(|selectors| selectors.iter().any(|selector| self.matches(selector, gpu)))
    }

    /// The selectors that match none of these GPUs, as they were written.
    pub(super) fn unmatched(&self, seen: &[&GpuIdentity]) -> Vec<String> {
        let unmatched = |selector: &&String| !seen.iter().any(|gpu| self.matches(selector, gpu));
        self.selectors.iter().flatten().filter(unmatched).cloned().collect()
    }

    fn matches(&self, selector: &str, gpu: &GpuIdentity) -> bool {
        gpu.uuid.starts_with(selector) || (self.origin == CUDA && selector.parse() == Ok(gpu.index))
    }
}

/// CUDA ends the list at the first invalid entry. A list with a MIG instance does not filter, because a MIG UUID does not
/// name its GPU.
fn parse_cuda(value: &str) -> Option<Vec<String>> {
    let is_mig = |entry: &str| entry.starts_with("MIG-");
    let is_valid = |entry: &&str| entry.parse::<u32>().is_ok() || is_uuid(entry) || is_mig(entry);
    let selectors: Vec<&str> = value.split(',').map(str::trim).take_while(is_valid).collect();
    // An empty list hides every GPU from CUDA. It keeps a process off the GPUs, and does not select GPUs to show.
    let filters = !selectors.is_empty() && !selectors.iter().any(|entry| is_mig(entry));
    filters.then(|| selectors.into_iter().map(str::to_owned).collect())
}

/// Only UUIDs filter. Indexes are those of the host, and the container runtime has already applied them.
fn parse_nvidia(value: &str) -> Option<Vec<String>> {
    let entries: Vec<&str> = value.split(',').map(str::trim).collect();
    entries.iter().all(|entry| is_uuid(entry)).then(|| entries.into_iter().map(str::to_owned).collect())
}

fn is_uuid(entry: &str) -> bool {
    entry.strip_prefix("GPU-").is_some_and(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u32, uuid: &str) -> GpuIdentity {
        GpuIdentity { index, uuid: uuid.to_owned(), ..GpuIdentity::default() }
    }

    /// The indexes of those GPUs, out of three, that the filter includes.
    fn included(uuids: &[&str], environment: &[(&str, &str)]) -> Vec<u32> {
        let uuids: Vec<String> = uuids.iter().map(|uuid| (*uuid).to_owned()).collect();
        let variable =
            |name: &str| environment.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
        let filter = GpuFilter::new(&uuids, variable);
        [gpu(0, "GPU-aa"), gpu(1, "GPU-bb"), gpu(2, "GPU-bc")]
            .iter()
            .filter(|gpu| filter.includes(gpu))
            .map(|gpu| gpu.index)
            .collect()
    }

    #[test]
    fn the_flag_overrides_the_environment_and_cuda_overrides_nvidia() {
        let both = [("NVIDIA_VISIBLE_DEVICES", "GPU-aa"), ("CUDA_VISIBLE_DEVICES", "GPU-bb")];
        assert_eq!(included(&["GPU-bc"], &both), [2]);
        assert_eq!(included(&[], &both), [1]);
        assert_eq!(included(&[], &both[..1]), [0]);
        assert_eq!(included(&[], &[]), [0, 1, 2]);
    }

    #[test]
    fn cuda_accepts_indexes_uuids_and_prefixes_up_to_the_first_invalid_entry() {
        for (value, gpus) in [
            ("2,0", vec![0, 2]),
            ("GPU-b", vec![1, 2]),
            ("0,-1,2", vec![0]),
            ("", vec![0, 1, 2]),
            ("NoDevFiles", vec![0, 1, 2]),
            ("MIG-4f1d,0", vec![0, 1, 2]),
        ] {
            let environment = [("CUDA_VISIBLE_DEVICES", value), ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")];
            assert_eq!(included(&[], &environment), gpus, "{value:?}");
        }
    }

    #[test]
    fn indexes_of_cuda_do_not_filter_if_its_order_may_differ_from_that_of_nvml() {
        for order in [None, Some("FASTEST_FIRST"), Some("")] {
            for (value, ignored) in [("1", true), ("GPU-aa,1", true), ("GPU-aa", false)] {
                let variable = |name: &str| match name {
                    "CUDA_VISIBLE_DEVICES" => Some(value.to_owned()),
                    "CUDA_DEVICE_ORDER" => order.map(str::to_owned),
                    _ => None,
                };
                let filter = GpuFilter::new(&[], variable);
                assert_eq!(filter.ignored.as_deref(), ignored.then_some(value));
                assert_eq!(filter.includes(&gpu(2, "GPU-bc")), ignored, "{value} {order:?}");
            }
        }
        let nvidia = [("CUDA_VISIBLE_DEVICES", "1"), ("NVIDIA_VISIBLE_DEVICES", "GPU-aa")];
        assert_eq!(included(&[], &nvidia), [0]);
    }

    #[test]
    fn indexes_in_nvidia_visible_devices_do_not_filter() {
        for (value, gpus) in
            [("all", vec![0, 1, 2]), ("1", vec![0, 1, 2]), ("void", vec![0, 1, 2]), ("GPU-aa,GPU-bc", vec![0, 2])]
        {
            assert_eq!(included(&[], &[("NVIDIA_VISIBLE_DEVICES", value)]), gpus, "{value:?}");
        }
    }

    #[test]
    fn an_unmatched_selector_is_returned_as_it_was_written() {
        let variable = |name: &str| match name {
            "CUDA_VISIBLE_DEVICES" => Some("0,7,GPU-zz".to_owned()),
            "CUDA_DEVICE_ORDER" => Some("PCI_BUS_ID".to_owned()),
            _ => None,
        };
        let filter = GpuFilter::new(&[], variable);
        assert_eq!(filter.unmatched(&[&gpu(0, "GPU-aa")]), ["7", "GPU-zz"]);
        assert_eq!(filter.origin, "CUDA_VISIBLE_DEVICES");
    }
}
