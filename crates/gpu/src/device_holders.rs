//! Finds the pod that has a device now. Kubelets before 1.34 also list pods that have finished, until they are deleted, and
//! do not say which those are. But they give the device of a plugin to one pod at a time. No I/O.

use std::collections::{BTreeMap, BTreeSet};

use trtllm_records::gpu::PodName;

use super::device_assignment::DeviceAssignment;

#[derive(Debug, Default)]
pub(super) struct DeviceHolders {
    /// The assignments of the last answer, each with the number of the answer that had it first.
    first_seen: BTreeMap<DeviceAssignment, u64>,
    answers: u64,
}

impl DeviceHolders {
    /// Removes the assignments of finished pods from an answer. Of two pods with the same device, this exporter's own pod is kept,
    /// otherwise the pod that appeared in a later answer. If both first appeared in the same answer, it is unknown which has finished,
    /// and both are kept.
    pub(super) fn update(
        &mut self,
        assignments: Vec<DeviceAssignment>,
        own_pod: Option<&PodName>,
    ) -> Vec<DeviceAssignment> {
        self.answers += 1;
        let seen = |assignment: &DeviceAssignment| self.first_seen.get(assignment).copied().unwrap_or(self.answers);
        let first_seen: BTreeMap<_, _> =
            assignments.into_iter().map(|assignment| (assignment.clone(), seen(&assignment))).collect();
        self.first_seen = first_seen;
        let mut holders = BTreeMap::<&str, (u64, BTreeSet<&PodName>)>::new();
        for (assignment, seen) in self.first_seen.iter().filter(|(assignment, _)| assignment.exclusive) {
            let DeviceAssignment { pod, device, .. } = assignment;
            let seen = if own_pod == Some(pod) { u64::MAX } else { *seen };
            let (newest, pods) = holders.entry(device).or_default();
            if seen > *newest {
                *newest = seen;
                pods.clear();
            }
            if seen == *newest {
                pods.insert(pod);
            }
        }
        let has_it = |assignment: &&DeviceAssignment| {
            let holder = holders.get(&*assignment.device);
            !assignment.exclusive || holder.is_some_and(|(_, pods)| pods.contains(&assignment.pod))
        };
        self.first_seen.keys().filter(has_it).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(pod: &str) -> PodName {
        PodName { namespace: "prod".to_owned(), pod: pod.to_owned() }
    }

    fn assigned(pod: &str, device: &str) -> DeviceAssignment {
        DeviceAssignment { pod: name(pod), container: "engine".to_owned(), device: device.to_owned(), exclusive: true }
    }

    /// The pods that have their devices after the last of these answers, each a list of pods and devices.
    fn pods(answers: &[&[(&str, &str)]], own: Option<&str>) -> Vec<String> {
        let own = own.map(name);
        let mut holders = DeviceHolders::default();
        let mut current = |answer: &&[(&str, &str)]| {
            let assignments = answer.iter().map(|(pod, device)| assigned(pod, device)).collect();
            holders.update(assignments, own.as_ref())
        };
        let last = answers.iter().map(&mut current).last().unwrap();
        last.into_iter().map(|assignment| assignment.pod.pod).collect()
    }

    #[test]
    fn the_pod_that_was_listed_later_has_the_device() {
        assert_eq!(pods(&[&[("z", "GPU-a")], &[("z", "GPU-a"), ("a", "GPU-a")]], None), ["a"]);
        assert_eq!(pods(&[&[("z", "GPU-a")], &[("a", "GPU-a"), ("z", "GPU-a")], &[("z", "GPU-a")]], None), ["z"]);
        // It stays so with later answers, and a pod with another device is not affected.
        let both: &[(&str, &str)] = &[("a", "GPU-a"), ("b", "GPU-b"), ("z", "GPU-a")];
        assert_eq!(pods(&[&[("a", "GPU-a")], both, both, both], None), ["b", "z"]);
    }

    #[test]
    fn the_own_pod_has_its_device_and_otherwise_both_of_the_first_answer_are_kept() {
        let both: &[(&str, &str)] = &[("finished", "GPU-a"), ("own", "GPU-a")];
        assert_eq!(pods(&[both], Some("own")), ["own"]);
        assert_eq!(pods(&[both, both], None), ["finished", "own"]);
    }

    #[test]
    fn shares_of_a_gpu_and_claims_of_dra_belong_to_several_pods() {
        let shares: &[(&str, &str)] = &[("a", "GPU-a::0"), ("b", "GPU-a::1")];
        assert_eq!(pods(&[&shares[..1], shares], None), ["a", "b"]);
        let claim = |pod| DeviceAssignment { exclusive: false, ..assigned(pod, "gpu-0") };
        let mut holders = DeviceHolders::default();
        holders.update(vec![claim("a")], None);
        assert_eq!(holders.update(vec![claim("a"), claim("b")], None), [claim("a"), claim("b")]);
    }
}
