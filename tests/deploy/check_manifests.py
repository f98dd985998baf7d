"""Checks deploy/kubernetes beyond its schema: references between the documents, and Pod Security "restricted".

usage: check_manifests.py FILE [--json]      (needs PyYAML; --json prints the documents for another checker)
"""
import json
import sys

import yaml

RESTRICTED_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


def restricted(pod):
    """The Pod Security Standards' "restricted" profile, for Linux pods."""
    pod_context = pod.get("securityContext", {})
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            yield f"{field} is set"
    for volume in pod.get("volumes", []):
        if not RESTRICTED_VOLUMES & set(volume):
            yield f"volume {volume['name']} has a forbidden type"
    for container in pod.get("initContainers", []) + pod["containers"]:
        context, name = container.get("securityContext", {}), container["name"]
        if context.get("privileged") or context.get("allowPrivilegeEscalation") is not False:
            yield f"{name}: allowPrivilegeEscalation must be false"
        if context.get("capabilities", {}).get("drop") != ["ALL"] or set(context.get("capabilities", {}).get("add", [])) - {"NET_BIND_SERVICE"}:
            yield f"{name}: capabilities must drop ALL"
        if context.get("runAsNonRoot", pod_context.get("runAsNonRoot")) is not True:
            yield f"{name}: runAsNonRoot must be true"
        if not context.get("runAsUser", pod_context.get("runAsUser")):
            yield f"{name}: runAsUser must be a number other than 0"
        if context.get("seccompProfile", pod_context.get("seccompProfile", {})).get("type") not in ("RuntimeDefault", "Localhost"):
            yield f"{name}: seccompProfile must be RuntimeDefault or Localhost"
        if any("hostPort" in port for port in container.get("ports", [])):
            yield f"{name}: hostPort is set"


def coherence(documents):
    kinds = {}
    for document in documents:
        kinds.setdefault(document["kind"], []).append(document)
    pod = kinds["Deployment"][0]["spec"]["template"]
    labels, spec = pod["metadata"]["labels"], pod["spec"]
    yield from restricted(spec)
    sidecar = next((c for c in spec["initContainers"] if c["name"] == "trtllm-exporter"), None)
    if sidecar is None or sidecar.get("restartPolicy") != "Always":
        yield "the exporter is not a native sidecar"
        return
    if "startupProbe" not in sidecar or "livenessProbe" not in sidecar or "readinessProbe" in sidecar:
        yield "the exporter must have a startup and a liveness probe, and no readiness probe"
    if sidecar["securityContext"].get("readOnlyRootFilesystem") is not True:
        yield "the exporter's root file system is writable"
    ports = {port["name"]: port["containerPort"] for c in spec["initContainers"] + spec["containers"] for port in c.get("ports", [])}
    if ports.get("metrics") != 8002:
        yield "there is no container port 8002 named metrics"
    selectors = [kinds["Deployment"][0]["spec"]["selector"]["matchLabels"], kinds["Service"][0]["spec"]["selector"],
                 kinds["PodMonitor"][0]["spec"]["selector"]["matchLabels"]]
    if any(set(selector.items()) - set(labels.items()) for selector in selectors):
        yield "a selector does not match the pod's labels"
    used_ports = [port["targetPort"] for port in kinds["Service"][0]["spec"]["ports"]]
    used_ports += [endpoint["port"] for endpoint in kinds["PodMonitor"][0]["spec"]["podMetricsEndpoints"]]
    for container in spec["initContainers"] + spec["containers"]:
        used_ports += [probe["httpGet"]["port"] for key, probe in container.items() if key.endswith("Probe")]
    if set(used_ports) - set(ports):
        yield f"unknown ports {sorted(set(used_ports) - set(ports))}"
    source = next(a for a in sidecar["args"] if a.startswith("--source=trtllm-serve:"))
    if not source.endswith(f":{ports['http']}"):
        yield "the exporter's --source does not use the server's port"
    configured = {document["metadata"]["name"]: document["data"] for document in kinds["ConfigMap"]}
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    for container in spec["containers"]:
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes:
                yield f"{container['name']}: no volume {mount['name']}"
    for volume in volumes.values():
        if "configMap" in volume and volume["configMap"]["name"] not in configured:
            yield f"no ConfigMap {volume['configMap']['name']}"
    for data in configured.values():
        if yaml.safe_load(data["options.yaml"]).get("enable_iter_perf_stats") is not True:
            yield "the server records no iteration statistics"
    jobs = [r for e in kinds["PodMonitor"][0]["spec"]["podMetricsEndpoints"] for r in e.get("relabelings", []) if r["targetLabel"] == "job"]
    if [r["replacement"] for r in jobs] != ["trtllm-exporter"]:
        yield "the PodMonitor does not set the job name that the alerts expect"


def main():
    with open(sys.argv[1]) as file:
        documents = [document for document in yaml.safe_load_all(file) if document]
    if "--json" in sys.argv:
        print(json.dumps(documents))
        return
    findings = list(coherence(documents))
    for finding in findings:
        print(finding)
    print(f"{len(documents)} documents: {', '.join(document['kind'] for document in documents)}")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
