package main

import (
	"errors"
	"fmt"
	"slices"

	core "k8s.io/api/core/v1"
)

// An example of the user ids that OpenShift assigns to a namespace, in the annotation openshift.io/sa.scc.uid-range. The ids differ
// between namespaces, so most namespaces refuse a manifest that sets a user id.
const firstUser, users = 1000660000, 10000

// openshift judges each pod by the SecurityContextConstraints "restricted-v2", which OpenShift applies to every user. The values are from
// openshift/cluster-kube-apiserver-operator (scc-restricted-v2.yaml). The Go proxy does not have OpenShift's own admission plugin.
func openshift(documents []document) error {
	var problems []error
	pods := 0
	for _, d := range documents {
		spec := podSpec(d.object)
		if spec == nil {
			continue
		}
		pods++
		for _, problem := range restrictedV2(spec) {
			problems = append(problems, fmt.Errorf("%s: %s", d.kind, problem))
		}
	}
	fmt.Printf("%d pods\n", pods)
	if pods == 0 {
		problems = append(problems, errors.New("no Deployment, StatefulSet or DaemonSet"))
	}
	return errors.Join(problems...)
}

func restrictedV2(spec *core.PodSpec) (problems []string) {
	refuse := func(refused bool, format string, arguments ...any) {
		if refused {
			problems = append(problems, fmt.Sprintf(format, arguments...))
		}
	}
	outside := func(id *int64) bool { return id != nil && (*id < firstUser || *id >= firstUser+users) }
	// For this id, MustRunAs allows only the first number of the range.
	other := func(id *int64) bool { return id != nil && *id != firstUser }
	wrongProfile := func(profile *core.SeccompProfile) bool {
		return profile != nil && profile.Type != core.SeccompProfileTypeRuntimeDefault
	}
	refuse(spec.HostNetwork || spec.HostPID || spec.HostIPC, "host namespaces are not allowed")
	if pod := spec.SecurityContext; pod != nil {
		refuse(outside(pod.RunAsUser), "pod: runAsUser is not in the range of the namespace")
		refuse(other(pod.FSGroup), "pod: fsGroup is not that of the namespace")
		refuse(wrongProfile(pod.SeccompProfile), "pod: seccompProfile must be RuntimeDefault")
		refuse(len(pod.Sysctls) > 0, "pod: sysctls are not allowed")
	}
	for _, volume := range spec.Volumes {
		source := volume.VolumeSource
		allowed := source.ConfigMap != nil || source.DownwardAPI != nil || source.EmptyDir != nil || source.PersistentVolumeClaim != nil ||
			source.Projected != nil || source.Secret != nil || source.CSI != nil || source.Ephemeral != nil
		refuse(!allowed, "volume %s: this kind is not allowed", volume.Name)
	}
	for _, container := range append(slices.Clone(spec.InitContainers), spec.Containers...) {
		for _, port := range container.Ports {
			refuse(port.HostPort != 0, "container %s: hostPort is not allowed", container.Name)
		}
		// If a manifest sets nothing, OpenShift itself drops all capabilities and forbids privilege escalation. So it refuses only
		// a manifest that contradicts this.
		security := container.SecurityContext
		if security == nil {
			continue
		}
		refuse(outside(security.RunAsUser), "container %s: runAsUser is not in the range of the namespace", container.Name)
		refuse(security.Privileged != nil && *security.Privileged, "container %s: privileged is not allowed", container.Name)
		refuse(security.AllowPrivilegeEscalation != nil && *security.AllowPrivilegeEscalation, "container %s: allowPrivilegeEscalation is not allowed", container.Name)
		refuse(wrongProfile(security.SeccompProfile), "container %s: seccompProfile must be RuntimeDefault", container.Name)
		if security.Capabilities != nil {
			for _, capability := range security.Capabilities.Add {
				refuse(capability != "NET_BIND_SERVICE", "container %s: the capability %s is not allowed", container.Name, capability)
			}
		}
	}
	return problems
}
