"""Checks that references between the documents of manifests in deploy/kubernetes exist. tests/go/manifests checks fields and Pod Security.

usage: manifests.py FILE...      (needs PyYAML)
"""
import pathlib
import sys

import yaml
from exporter import conclude


def coherence(documents):
    kinds = {}
    for document in documents:
        kinds.setdefault(document["kind"], []).append(document)
    pod = kinds["Deployment"][0]["spec"]["template"]
    labels, spec = pod["metadata"]["labels"], pod["spec"]
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
    jobs = [r for e in kinds["PodMonitor"][0]["spec"]["podMetricsEndpoints"] for r in e.get("relabelings", []) if r.get("targetLabel") == "job"]
    if [r["replacement"] for r in jobs] != ["trtllm-exporter"]:
        yield "the PodMonitor does not set the job name that the alerts expect"


def main():
    documents = [document for path in sys.argv[1:] for document in yaml.safe_load_all(pathlib.Path(path).read_text()) if document]
    conclude(coherence(documents), f"{len(documents)} documents: {', '.join(document['kind'] for document in documents)}")


if __name__ == "__main__":
    main()
