//! Selects the GPUs to show: by `--gpu.uuid`, otherwise by the environment. Pure.

use crate::model::gpu::GpuIdentity;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct GpuFilter {
    /// `None` selects every GPU.
    selectors: Option<Vec<Selector>>,
    /// The flag or variable that set them.
    origin: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Selector {
    /// A UUID or a prefix of one, as CUDA allows.
    Uuid(String),
    /// NVML's index, in PCI bus order.
    Index(u32),
}

impl GpuFilter {
    /// An empty `--gpu.uuid` selects every GPU.
    pub(super) fn from_flag(uuids: &[String]) -> Self {
        let selectors = (!uuids.is_empty()).then(|| uuids.iter().cloned().map(Selector::Uuid).collect());
        Self { selectors, origin: "--gpu.uuid" }
    }

    /// Uses the flag, otherwise `CUDA_VISIBLE_DEVICES`, otherwise `NVIDIA_VISIBLE_DEVICES`.
    pub(super) fn new(uuids: &[String], variable: impl Fn(&str) -> Option<String>) -> Self {
        if !uuids.is_empty() {
            return Self::from_flag(uuids);
        }
        if let Some(selectors) = variable("CUDA_VISIBLE_DEVICES").and_then(|value| parse_cuda(&value)) {
            return Self { selectors: Some(selectors), origin: "CUDA_VISIBLE_DEVICES" };
        }
        let selectors = variable("NVIDIA_VISIBLE_DEVICES").and_then(|value| parse_nvidia(&value));
        Self { selectors, origin: "NVIDIA_VISIBLE_DEVICES" }
    }

    pub(super) fn includes_all(&self) -> bool {
        self.selectors.is_none()
    }

    pub(super) fn includes(&self, gpu: &GpuIdentity) -> bool {
        self.selectors.as_ref().is_none_or(|selectors| selectors.iter().any(|selector| selector.matches(gpu)))
    }

    /// The selectors that match none of these GPUs, as they were written.
    pub(super) fn unmatched(&self, seen: &[&GpuIdentity]) -> Vec<String> {
        let unmatched = |selector: &&Selector| !seen.iter().any(|gpu| selector.matches(gpu));
        self.selectors.iter().flatten().filter(unmatched).map(Selector::text).collect()
    }

    pub(super) fn origin(&self) -> &'static str {
        self.origin
    }
}

impl Selector {
    fn matches(&self, gpu: &GpuIdentity) -> bool {
        match self {
            Self::Uuid(uuid) => gpu.uuid.starts_with(uuid.as_str()),
            Self::Index(index) => gpu.index == *index,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Uuid(uuid) => uuid.clone(),
            Self::Index(index) => index.to_string(),
        }
    }
}

/// CUDA ends the list at the first invalid entry. A list with a MIG instance does not filter, because a MIG UUID does not
/// name its GPU.
fn parse_cuda(value: &str) -> Option<Vec<Selector>> {
    let mut selectors = Vec::new();
    for entry in value.split(',').map(str::trim) {
        if entry.starts_with("MIG-") {
            return None;
        }
        match entry.parse() {
            Ok(index) => selectors.push(Selector::Index(index)),
            Err(_) if is_uuid(entry) => selectors.push(Selector::Uuid(entry.to_owned())),
            Err(_) => break,
        }
    }
    // An empty list hides every GPU from CUDA. That keeps a process off the GPUs; it does not select what to show.
    (!selectors.is_empty()).then_some(selectors)
}

/// Only UUIDs count. Indexes are those of the host, and the container runtime has applied them already.
fn parse_nvidia(value: &str) -> Option<Vec<Selector>> {
    let entries: Vec<&str> = value.split(',').map(str::trim).collect();
    let all_uuids = entries.iter().all(|entry| is_uuid(entry));
    all_uuids.then(|| entries.into_iter().map(|entry| Selector::Uuid(entry.to_owned())).collect())
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

    /// The indexes of three GPUs that the filter includes.
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
        let both = [("NVIDIA_VISIBLE_DEVICES", "GPU-aa"), ("CUDA_VISIBLE_DEVICES", "1")];
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
            assert_eq!(included(&[], &[("CUDA_VISIBLE_DEVICES", value)]), gpus, "{value:?}");
        }
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
        let filter = GpuFilter::new(&[], |name| (name == "CUDA_VISIBLE_DEVICES").then(|| "0,7,GPU-zz".to_owned()));
        assert_eq!(filter.unmatched(&[&gpu(0, "GPU-aa")]), ["7", "GPU-zz"]);
        assert_eq!(filter.origin(), "CUDA_VISIBLE_DEVICES");
    }
}
