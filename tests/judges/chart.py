"""Checks what the values of the Helm chart change in monitors, rules and dashboards. tests/deploy/helm.sh runs it.

usage: chart.py HELM MANIFESTS [--promtool PATH]     (run in the repository root; MANIFESTS is the program of tests/go/manifests)
Renders the chart with each value and compares the rendered objects. With promtool, it also runs the unit tests of deploy/prometheus
with changed thresholds and durations.
Prints one line per finding. Exit code 1 if there is a finding.
"""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback

from exporter import conclude

CHART = "deploy/helm/trtllm-exporter"
GROUPS = {"monitoring.coreos.com/v1", "monitoring.googleapis.com/v1", "operator.victoriametrics.com/v1beta1"}
THRESHOLD = re.compile(r" \([0-9.]+\)")
ENGINE = {"source": "trtllm-serve:http://llama-0.llama:8000"}
ALL_MODES = {"standalone": {"enabled": True, "engines": [ENGINE]}, "image": {"repository": "example/trtllm-exporter"}}


def template(values, release="trtllm-exporter"):
    """Runs helm template. `values` are the values of `monitoring`, or all values if they have this key."""
    values = values if "monitoring" in values else {"monitoring": values}
    command = [HELM, "template", release, CHART, "--namespace", "observability", "--kube-version", "1.32.0", "--values", "-"]
    apis = [argument for group in GROUPS for argument in ("--api-versions", group)]
    return subprocess.run([*command, *apis], input=json.dumps(ALL_MODES | values), capture_output=True, text=True)


def render(values, release="trtllm-exporter"):
    """The rendered objects, as {(kind, name): object}."""
    rendered = template(values, release)
    if rendered.returncode:
        raise AssertionError(f"{values}: {rendered.stderr.splitlines()[-1]}")
    lines = subprocess.run([MANIFESTS, "json", "-"], input=rendered.stdout, capture_output=True, text=True, check=True).stdout
    objects = [one for one in map(json.loads, lines.splitlines()) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in objects}


def refused(values, text):
    rendered = template(values)
    assert rendered.returncode and text in rendered.stderr, f"{values}: expected the message {text!r}, got {rendered.stderr[-600:]!r}"


def endpoint(monitor):
    (one,) = monitor["spec"].get("podMetricsEndpoints") or monitor["spec"]["endpoints"]
    return one


def monitors(objects, kind):
    return {name.removeprefix("trtllm-exporter").lstrip("-") or "standalone": one for (of, name), one in objects.items() if of == kind}


def rules_of(objects, kind="PrometheusRule"):
    return next(one for (of, _), one in objects.items() if of == kind)["spec"]["groups"]


def alerts_of(groups):
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


NODE = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}


def each_mode_has_a_monitor_with_the_node():
    found = monitors(render({}), "PodMonitor")
    assert set(found) == {"gpu", "sidecar", "standalone"}, found.keys()
    for mode, one in found.items():
        assert endpoint(one)["relabelings"][:2] == [{"targetLabel": "job", "replacement": "trtllm-exporter"}, NODE], one
        assert endpoint(one).get("honorLabels", False) == (mode != "sidecar"), one


def service_monitors_find_their_services():
    objects = render({"kind": "ServiceMonitor"})
    services, found = monitors(objects, "Service"), monitors(objects, "ServiceMonitor")
    assert set(found) == {"gpu", "standalone"} and set(monitors(objects, "PodMonitor")) == {"sidecar"}, objects.keys()
    for mode, one in found.items():
        service = services[mode]
        assert one["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items(), service
        assert endpoint(one)["port"] == service["spec"]["ports"][0]["name"] and NODE in endpoint(one)["relabelings"], one
        owner = objects["DaemonSet" if mode == "gpu" else "Deployment", service["metadata"]["name"]]
        assert service["spec"]["selector"].items() <= owner["spec"]["template"]["metadata"]["labels"].items(), service
    assert services["gpu"]["spec"]["clusterIP"] == "None", services["gpu"]


def google_reads_each_mode():
    objects = render({"kind": "PodMonitoring", "metricRelabelings": [{"action": "drop", "sourceLabels": ["__name__"], "regex": "x"}],
                      "sampleLimit": 5, "podTargetLabels": ["llm-d.ai/variant"], "tlsConfig": {"insecureSkipVerify": True}, "interval": "20s"})
    assert set(monitors(objects, "PodMonitoring")) == {"gpu", "standalone"}, objects.keys()
    sidecar = monitors(objects, "ClusterPodMonitoring")["sidecar"]
    for one in (objects["PodMonitoring", "trtllm-exporter-gpu"], sidecar):
        assert one["spec"]["limits"] == {"samples": 5} and {"node", "pod"} <= set(one["spec"]["targetLabels"]["metadata"]), one
        assert one["spec"]["targetLabels"]["fromPod"] == [{"from": "llm-d.ai/variant", "to": "llm_d_ai_variant"}], one
        assert endpoint(one)["tls"] == {"insecureSkipVerify": True} and endpoint(one)["interval"] == "20s", one
        assert endpoint(one)["metricRelabeling"][-1]["regex"] == "x", one
    assert endpoint(sidecar)["metricRelabeling"][0] == {"sourceLabels": ["container"], "regex": "trtllm-exporter", "action": "keep"}, sidecar
    assert "namespace" not in sidecar["metadata"] and "namespace" in sidecar["spec"]["targetLabels"]["metadata"], sidecar
    groups = rules_of(objects, "ClusterRules")
    matcher = re.search(r'up\{job=~"([^"]+)"\}', alerts_of(groups)["TrtllmExporterDown"]["expr"])[1]
    names = [name for kind, name in objects if kind.endswith("PodMonitoring")]
    assert all(re.fullmatch(matcher, name) for name in names) and len(names) == 3, (matcher, names)
    limited = render({"kind": "PodMonitoring", "sidecarNamespaces": ["llama"], "basicAuth": {"username": "u"}})
    assert limited["PodMonitoring", "trtllm-exporter-sidecar"]["metadata"]["namespace"] == "llama", limited.keys()
    refused({"kind": "PodMonitoring", "relabelings": [{"action": "drop"}]}, "monitoring.relabelings does not exist in a PodMonitoring")


def victoria_reads_each_mode():
    objects = render({"kind": "VMPodScrape", "relabelings": [{"targetLabel": "a", "replacement": "b"}], "sampleLimit": 5,
                      "metricRelabelings": [{"action": "drop"}], "attachMetadata": {"node": True}, "proxyUrl": "http://p"})
    found = monitors(objects, "VMPodScrape")
    assert set(found) == {"gpu", "sidecar", "standalone"}, objects.keys()
    for one in found.values():
        assert NODE in endpoint(one)["relabelConfigs"] and {"targetLabel": "a", "replacement": "b"} == endpoint(one)["relabelConfigs"][-1], one
        assert endpoint(one)["metricRelabelConfigs"] == [{"action": "drop"}] and endpoint(one)["proxyURL"] == "http://p", one
        assert one["spec"]["sampleLimit"] == 5 and one["spec"]["attach_metadata"] == {"node": True}, one
    groups = rules_of(objects, "VMRule")
    assert not [rule for group in groups for rule in group["rules"] if re.search(r"histogram_(count|sum|fraction)", rule["expr"])]
    assert len(alerts_of(groups)) == len(alerts_of(rules_of(render({})))), "VMRule lacks alerts"


def scrape_settings_reach_each_monitor():
    limits = {"sampleLimit": 1, "targetLimit": 2, "labelLimit": 3, "labelNameLengthLimit": 4, "labelValueLengthLimit": 5}
    spec = limits | {"jobLabel": "team", "podTargetLabels": ["a"], "attachMetadata": {"node": True}}
    own = {"relabelings": [{"targetLabel": "cluster", "replacement": "eu"}], "metricRelabelings": [{"action": "drop"}], "proxyUrl": "http://p"}
    for kind in ("PodMonitor", "ServiceMonitor"):
        objects = render({"kind": kind, "namespace": "watch", "honorLabels": False, **spec, **own})
        found = monitors(objects, "PodMonitor") | monitors(objects, "ServiceMonitor")
        assert len(found) == 3, objects.keys()
        for mode, one in found.items():
            assert spec.items() <= one["spec"].items() and one["metadata"]["namespace"] == "watch", one
            assert endpoint(one)["relabelings"][-1] == own["relabelings"][0] and endpoint(one)["metricRelabelings"] == own["metricRelabelings"], one
            assert endpoint(one)["proxyUrl"] == "http://p" and "honorLabels" not in endpoint(one), one
            assert not any(rule.get("targetLabel") == "job" for rule in endpoint(one)["relabelings"]), one
            assert one["spec"]["namespaceSelector"] == ({"any": True} if mode == "sidecar" else {"matchNames": ["observability"]}), one
        assert objects["PrometheusRule", "trtllm-exporter"]["metadata"]["namespace"] == "watch"
    refused({"sampleLimit": "many"}, "at '/monitoring/sampleLimit': got string, want integer")
    refused({"kind": "ScrapeConfig"}, "at '/monitoring/kind': value must be one of 'PodMonitor', 'ServiceMonitor', 'PodMonitoring', 'VMPodScrape'")


def the_job_is_one_value():
    objects = render({"jobName": "llm-metrics"})
    assert all(endpoint(one)["relabelings"][0]["replacement"] == "llm-metrics" for one in monitors(objects, "PodMonitor").values())
    groups = rules_of(objects)
    assert 'job="trtllm-exporter"' not in json.dumps(groups) and alerts_of(groups)["TrtllmExporterDown"]["expr"].count('job="llm-metrics"') == 2
    refused({"jobName": ""}, "at '/monitoring/jobName'")


def the_alert_on_nodes_knows_the_daemonset():
    for release, values in (("trtllm-exporter", {}), ("gpus", {}), ("x", {"fullnameOverride": "llm"})):
        objects = render({"monitoring": {}, **values}, release)
        (daemonset,) = [name for kind, name in objects if kind == "DaemonSet"]
        expression = alerts_of(rules_of(objects))["TrtllmGpuNodeWithoutExporter"]["expr"]
        matchers = re.findall(r'(?:daemonset|created_by_name)=~"([^"]+)"', expression)
        assert len(matchers) == 2 and all(re.fullmatch(one, daemonset) for one in matchers), (daemonset, matchers)


def alerts_can_be_changed():
    shipped = alerts_of(rules_of(render({})))
    changed = alerts_of(rules_of(render({"alerts": {"severities": {"critical": "page"}, "labels": {"team": "llm"}, "overrides": {
        "TrtllmEngineTuning": {"enabled": False}, "TrtllmObjectiveBudgetBurn": {"enabled": False}, "TrtllmObjectiveBudgetBurnSlow": {"enabled": False},
        "TrtllmEngineStalled": {"for": "10m", "severity": "info"}, "TrtllmGpuHot": {"threshold": 8}, "TrtllmGpuXid": None}}})))
    gone = {"TrtllmEngineTuning", "TrtllmObjectiveBudgetBurn", "TrtllmObjectiveBudgetBurnSlow"}
    assert set(shipped) - set(changed) == gone, set(shipped) ^ set(changed)
    assert changed["TrtllmEngineStalled"]["for"] == "10m" and changed["TrtllmEngineStalled"]["labels"] == {"severity": "info", "team": "llm"}
    assert changed["TrtllmModelUnavailable"]["labels"]["severity"] == "page"
    assert changed["TrtllmGpuHot"]["expr"] == THRESHOLD.sub(" (8)", shipped["TrtllmGpuHot"]["expr"]) != shipped["TrtllmGpuHot"]["expr"]
    for name in set(changed) - {"TrtllmEngineStalled", "TrtllmGpuHot"}:
        assert changed[name]["expr"] == shipped[name]["expr"] and changed[name].get("for") == shipped[name].get("for"), name
    groups = rules_of(render({"objectiveBudget": 0.01, "gpuHourPrice": 3.5}))
    values = {rule["record"]: rule["expr"] for group in groups for rule in group["rules"] if "record" in rule}
    assert values["trtllm_slo:objective_budget:ratio"] == "vector(0.01)" and values["trtllm_cost:gpu_hour:price"] == "vector(3.5)"
    override = lambda **own: {"alerts": {"overrides": own}}
    refused(override(TrtllmGpuHott={"enabled": False}), "monitoring.alerts.overrides.TrtllmGpuHott: there is no such alert; use one of " + ", ".join(shipped))
    refused(override(TrtllmGpuHot={"threshhold": 1}), "additional properties 'threshhold' not allowed")
    refused(override(TrtllmGpuHot={"threshold": "8"}), "at '/monitoring/alerts/overrides/TrtllmGpuHot/threshold': got string, want number")
    refused(override(TrtllmGpuHot={"for": 5}), "at '/monitoring/alerts/overrides/TrtllmGpuHot/for'")
    refused(override(TrtllmGpuLost={"threshold": 1}), "monitoring.alerts.overrides.TrtllmGpuLost.threshold: this alert has no threshold")
    refused({"objectiveBudget": 5}, "at '/monitoring/objectiveBudget'")


def the_folder_of_the_kubelet_is_one_value():
    folder = "/var/snap/microk8s/common/var/lib/kubelet/pod-resources"
    gpu = {"podResources": True, "kubeletPath": folder}
    pod = render({"monitoring": {}, "gpuNodes": gpu})["DaemonSet", "trtllm-exporter-gpu"]["spec"]["template"]["spec"]
    (volume,) = [one for one in pod["volumes"] if one["name"] == "pod-resources"]
    (mount,) = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "pod-resources"]
    assert volume["hostPath"]["path"] == folder, volume
    assert f"--gpu.pod-resources={mount['mountPath']}/kubelet.sock" in pod["containers"][0]["args"], mount
    refused({"monitoring": {}, "gpuNodes": {"kubeletPath": "kubelet"}}, "at '/gpuNodes/kubeletPath'")


def dashboards_have_a_folder():
    plain = render({})
    assert not monitors(plain, "GrafanaDashboard") and not any("annotations" in one["metadata"] for one in monitors(plain, "ConfigMap").values())
    selector = {"matchLabels": {"dashboards": "llm"}}
    values = {"folder": "LLM", "annotations": {"a": "b"}, "grafanaOperator": {"enabled": True, "instanceSelector": selector}}
    objects = render({"monitoring": {}, "dashboards": values})
    dashboards = monitors(objects, "GrafanaDashboard")
    assert set(dashboards) == {re.search(r"trtllm-(\w+)\.json", path)[1] for path in glob.glob("deploy/grafana/*.json")}, dashboards.keys()
    for one in dashboards.values():
        config = objects["ConfigMap", one["spec"]["configMapRef"]["name"]]
        assert json.loads(config["data"][one["spec"]["configMapRef"]["key"]])["panels"] and one["spec"]["folder"] == "LLM", one["spec"]
        assert one["spec"]["instanceSelector"]["matchLabels"]["dashboards"] == "llm" and one["spec"]["allowCrossNamespaceImport"], one["spec"]
        assert config["metadata"]["annotations"] == {"a": "b", "grafana_folder": "LLM"}, config["metadata"]
    refused({"monitoring": {}, "dashboards": {"grafanaOperator": {"on": True}}}, "additional properties 'on' not allowed")


def changes_of_alerts_have_an_effect():
    """Changes each alert so that it never fires: by its threshold, or by `for`. Then exactly the unit tests in which an alert fires must fail."""
    shipped = alerts_of(rules_of(render({})))
    own = {}
    for name, rule in shipped.items():
        marked = THRESHOLD.search(rule["expr"]) and name != "TrtllmGpuHot"  # this one has a distance from a limit
        own[name] = {"threshold": 0 if "< (" in rule["expr"] else 1000000000} if marked else {"for": "1000d"}
    assert len([1 for one in own.values() if "threshold" in one]) > 15, own
    groups, failed = rules_of(render({"alerts": {"overrides": own}})), set()
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/rules.yml", "w") as file:
            json.dump({"groups": groups}, file)
        checked = subprocess.run([PROMTOOL, "check", "rules", file.name], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr
        for path in glob.glob("deploy/prometheus/alerts*_test.yml") + [f"deploy/prometheus/{name}_test.yml" for name in ("recording", "verdict")]:
            text = re.sub(r"(?m)^rule_files:\n(?:  - .*\n)+", "rule_files: [rules.yml]\n", open(path).read())
            with open(f"{folder}/{os.path.basename(path)}", "w") as file:
                file.write(text)
            result = subprocess.run([PROMTOOL, "test", "rules", file.name], capture_output=True, text=True)
            failed |= set(re.findall(r'alertname(?:: |=\\?")(\w+)(?:\\?"|,)[^\n]*time: ', result.stdout + result.stderr))
    assert failed == set(shipped), f"changed, but not by the tests: {set(shipped) - failed}; changed by mistake: {failed - set(shipped)}"


def main():
    global HELM, MANIFESTS, PROMTOOL
    HELM, MANIFESTS = sys.argv[1:3]
    PROMTOOL = sys.argv[sys.argv.index("--promtool") + 1] if "--promtool" in sys.argv else None
    checks = [
        each_mode_has_a_monitor_with_the_node, service_monitors_find_their_services, google_reads_each_mode, victoria_reads_each_mode,
        scrape_settings_reach_each_monitor, the_job_is_one_value, the_alert_on_nodes_knows_the_daemonset,
        the_folder_of_the_kubelet_is_one_value, alerts_can_be_changed, dashboards_have_a_folder,
    ]
    if PROMTOOL:
        checks.append(changes_of_alerts_have_an_effect)
    findings = []
    for check in checks:
        try:
            check()
        except (AssertionError, LookupError) as finding:
            line = traceback.extract_tb(finding.__traceback__)[1].line
            findings.append(f"{check.__name__}: {str(finding)[:1500]} in: {line}")
    conclude(findings, f"{len(checks)} checks")


if __name__ == "__main__":
    main()
