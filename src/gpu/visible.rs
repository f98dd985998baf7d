//! Which GPUs to show: `--gpu.uuid`, else what the environment says is visible. Pure.

use crate::model::gpu::GpuIdentity;

/// The GPUs asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Visible {
    /// `None` for all.
    only: Option<Vec<Wanted>>,
    origin: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    /// Or the beginning of it, as CUDA allows.
    Uuid(String),
    /// NVML's, which is in the order of the PCI bus.
    Index(u32),
}

impl Visible {
    /// `--gpu.uuid`; all if it is empty.
    pub(super) fn from_flag(uuids: &[String]) -> Self {
        let only = (!uuids.is_empty()).then(|| uuids.iter().cloned().map(Wanted::Uuid).collect());
        Self { only, origin: "--gpu.uuid" }
    }

    /// The flag, else `CUDA_VISIBLE_DEVICES`, else `NVIDIA_VISIBLE_DEVICES`.
    pub(super) fn new(uuids: &[String], variable: impl Fn(&str) -> Option<String>) -> Self {
        if !uuids.is_empty() {
            return Self::from_flag(uuids);
        }
        if let Some(only) = variable("CUDA_VISIBLE_DEVICES").and_then(|value| cuda(&value)) {
            return Self { only: Some(only), origin: "CUDA_VISIBLE_DEVICES" };
        }
        let only = variable("NVIDIA_VISIBLE_DEVICES").and_then(|value| nvidia(&value));
        Self { only, origin: "NVIDIA_VISIBLE_DEVICES" }
    }

    pub(super) fn shows_all(&self) -> bool {
        self.only.is_none()
    }

    pub(super) fn shows(&self, gpu: &GpuIdentity) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|wanted| wanted.is(gpu)))
    }

    /// What none of these GPUs is, as it was written.
    pub(super) fn missing(&self, seen: &[&GpuIdentity]) -> Vec<String> {
        let unmet = self.only.iter().flatten().filter(|wanted| !seen.iter().any(|gpu| wanted.is(gpu)));
        unmet.map(Wanted::text).collect()
    }

    pub(super) fn origin(&self) -> &'static str {
        self.origin
    }
}

impl Wanted {
    fn is(&self, gpu: &GpuIdentity) -> bool {
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

/// CUDA ends the list at the first entry that is none. A MIG instance does not say which GPU it is on, so no list that
/// has one filters.
fn cuda(value: &str) -> Option<Vec<Wanted>> {
    let mut only = Vec::new();
    for entry in value.split(',').map(str::trim) {
        if entry.starts_with("MIG-") {
            return None;
        }
        match entry.parse() {
            Ok(index) => only.push(Wanted::Index(index)),
            Err(_) if is_uuid(entry) => only.push(Wanted::Uuid(entry.to_owned())),
            Err(_) => break,
        }
    }
    // CUDA sees nothing then, which is a way to keep a process off the GPUs and none to choose what to show.
    (!only.is_empty()).then_some(only)
}

/// Only UUIDs: indexes are the host's, and the container runtime, which understands them, has applied them already.
fn nvidia(value: &str) -> Option<Vec<Wanted>> {
    let entries: Vec<&str> = value.split(',').map(str::trim).collect();
    let only = entries.iter().all(|entry| is_uuid(entry));
    only.then(|| entries.into_iter().map(|entry| Wanted::Uuid(entry.to_owned())).collect())
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

    /// Which of three GPUs are shown.
    fn shown(uuids: &[&str], environment: &[(&str, &str)]) -> Vec<u32> {
        let uuids: Vec<String> = uuids.iter().map(|uuid| (*uuid).to_owned()).collect();
        let variable =
            |name: &str| environment.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
        let visible = Visible::new(&uuids, variable);
        [gpu(0, "GPU-aa"), gpu(1, "GPU-bb"), gpu(2, "GPU-bc")]
            .iter()
            .filter(|gpu| visible.shows(gpu))
            .map(|gpu| gpu.index)
            .collect()
    }

    #[test]
    fn the_flag_goes_before_the_environment_and_cuda_before_nvidia() {
        let both = [("NVIDIA_VISIBLE_DEVICES", "GPU-aa"), ("CUDA_VISIBLE_DEVICES", "1")];
        assert_eq!(shown(&["GPU-bc"], &both), [2]);
        assert_eq!(shown(&[], &both), [1]);
        assert_eq!(shown(&[], &both[..1]), [0]);
        assert_eq!(shown(&[], &[]), [0, 1, 2]);
    }

    #[test]
    fn cuda_takes_indexes_uuids_and_their_beginnings_up_to_the_first_that_is_none() {
        for (value, gpus) in [
            ("2,0", vec![0, 2]),
            ("GPU-b", vec![1, 2]),
            ("0,-1,2", vec![0]),
            ("", vec![0, 1, 2]),
            ("NoDevFiles", vec![0, 1, 2]),
            ("MIG-4f1d,0", vec![0, 1, 2]),
        ] {
            assert_eq!(shown(&[], &[("CUDA_VISIBLE_DEVICES", value)]), gpus, "{value:?}");
        }
    }

    #[test]
    fn a_containers_indexes_are_the_hosts_and_do_not_filter() {
        for (value, gpus) in
            [("all", vec![0, 1, 2]), ("1", vec![0, 1, 2]), ("void", vec![0, 1, 2]), ("GPU-aa,GPU-bc", vec![0, 2])]
        {
            assert_eq!(shown(&[], &[("NVIDIA_VISIBLE_DEVICES", value)]), gpus, "{value:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_named_as_it_was_written() {
        let visible = Visible::new(&[], |name| (name == "CUDA_VISIBLE_DEVICES").then(|| "0,7,GPU-zz".to_owned()));
        assert_eq!(visible.missing(&[&gpu(0, "GPU-aa")]), ["7", "GPU-zz"]);
        assert_eq!(visible.origin(), "CUDA_VISIBLE_DEVICES");
    }
}
