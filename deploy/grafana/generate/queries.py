"""The selectors, variables and query forms that all dashboards share."""

import re

from panels import BLUE, GREEN, ORANGE, RED, Marker, Names, Query, Variable, runbook

# Matchers for the series that the variables of a dashboard select.
FLEET = 'cluster=~"$cluster", job=~"$job", namespace=~"$namespace"'
TARGET = f'{FLEET}, pod=~"$pod", instance=~"$instance"'
MODELS = f'{FLEET}, model=~"$model", version=~"$version"'
ENGINE = f'{TARGET}, model=~"$model", version=~"$version"'
GPU = f'{TARGET}, gpu_uuid=~"$gpu"'
PER_MODEL = "cluster, namespace, model, version"
PER_ENGINE = "cluster, pod, replica, instance, model, version"
ENGINE_LEGEND = "{{model}} v{{version}} {{pod}} {{instance}} {{cluster}}"
WHAT_TO_DO = runbook("limits.md#trtllmenginelimited")
STATES = [(1, "idle", GREEN), (2, "busy", GREEN), (3, "starting", BLUE), (4, "stalled", RED), (5, "unreachable", ORANGE)]
SEVERITIES: Names = [(0, "fine", GREEN), (1, "tuning", BLUE), (2, "warning", ORANGE), (3, "critical", RED)]


def label(name: str, value: str) -> str:
    return f'{name}="{value}"'


def select(name: str, *labels: str) -> str:
    return f"{name}{{{', '.join(filter(None, labels))}}}"


def gpu(name: str, labels: str = "") -> str:
    return select(name, labels, GPU)


def engine(name: str, labels: str = "") -> str:
    return select(name, labels, ENGINE)


def of_model(name: str, labels: str = "") -> str:
    return select(name, labels, MODELS)


def rate(series: str) -> str:
    return f"rate({series}[$__rate_interval])"


def by(labels: str, expression: str, operation: str = "sum") -> str:
    return f"{operation} by ({labels}) ({expression})"


def each(name: str, labels: str = "", operation: str = "sum", more: str = "") -> str:
    """One series per engine, and per value of the labels in `more`."""
    return by(PER_ENGINE + more, engine(name, labels), operation)


def per_second(name: str, labels: str = "", more: str = "") -> str:
    return by(PER_ENGINE + more, rate(engine(name, labels)))


def quantile(share: float, family: str, labels: str = PER_ENGINE, select=engine) -> str:
    """A quantile of classic buckets, or of the native histogram if Prometheus keeps no classic buckets."""
    classic = by(f"le, {labels}", rate(select(f"{family}_bucket")))
    native = by(labels, rate(select(family)))
    return f"histogram_quantile({share}, {classic}) or histogram_quantile({share}, {native})"


def quantiles(family: str) -> list[Query]:
    return [(quantile(share, family), f"p{name}") for share, name in ((0.5, 50), (0.95, 95), (0.99, 99))]


def buckets(family: str) -> list[Query]:
    """Queries for a heatmap: requests per second in each bucket, from a classic or from a native histogram."""
    return [(by("le", rate(engine(f"{family}_bucket"))), "{{le}}"), (f"sum({rate(engine(family))})", "native")]


def top(expression: str, operation: str = "topk") -> str:
    """The ten series that are highest (or lowest) at the end of the shown time, so that 200 engines are as readable as two."""
    end = re.sub(r"\}(\[[^\]]*\])?", r"\g<0> @ end()", expression)
    return f"({expression}) and {operation}(10, {end})"


def numbered(name: str, labels: str, states: Names, of=engine, more: tuple[str, ...] = ()) -> str:
    """A state as a number. If two engines or GPUs have the same labels, the result is the larger number, so that the worse
    state is shown. `more` contains further expressions of such numbers."""
    numbers = (f"{number} * {of(name, label('state', state))}" for number, state, _ in states if " " not in state)
    return by(labels, " or ".join([*numbers, *more]), "max")


def variables(*names: str, single: tuple[str, ...] = ()) -> list[Variable]:
    """The variables in the order of their dependence: each offers the values that exist for the previous ones."""
    named = '__name__=~"nv_trt_llm_engine_info|nv_trt_llm_disagg_responses_total"'  # an engine, or an orchestrator
    # Engines that kubernetes: finds have the namespace and the pod of the server, not of the exporter.
    placed = named.replace('~"', '~"trtllm_exporter_build_info|')
    known = {
        "cluster": ("Cluster", "trtllm_exporter_build_info", "cluster"),
        "job": ("Job", 'trtllm_exporter_build_info{cluster=~"$cluster"}', "job"),
        "namespace": ("Namespace", f'{{{placed}, cluster=~"$cluster", job=~"$job"}}', "namespace"),
        "pod": ("Pod", f"{{{placed}, {FLEET}}}", "pod"),
        "model": ("Model", f"{{{named}, {FLEET}}}", "model"),
        "version": ("Version", f'{{{named}, {FLEET}, model=~"$model"}}', "version"),
        "instance": ("Instance", f'{{{named}, {FLEET}, pod=~"$pod", model=~"$model", version=~"$version"}}', "instance"),
        "node": ("Instance", f'nv_gpu_info{{{FLEET}, pod=~"$pod"}}', "instance"),
        "gpu": ("GPU", f"nv_gpu_info{{{TARGET}}}", "gpu_uuid"),
    }
    result = []
    for name in names:
        heading, series, label = known[name]
        result.append(Variable("instance" if name == "node" else name, heading, f"label_values({series}, {label})", name in single))
    return result


def alerts(labels: str) -> list[Marker]:
    """Marks alerts while they fire."""
    firing = f'alertname=~"Trtllm.+", alertstate="firing", {labels}'
    title = "{{alertname}} {{model}} {{instance}}"
    return [
        Marker("Critical alerts", RED, f'ALERTS{{severity="critical", {firing}}}', title),
        Marker("Warnings", ORANGE, f'ALERTS{{severity="warning", {firing}}}', title),
    ]


def starts(labels: str) -> list[Marker]:
    """Marks restarts and deploys of engines. A deploy is a new pod, or another release of TensorRT-LLM than in the last hour. After a gap of
    an hour, Prometheus does not know what ran before, so nothing is marked."""

    def new(name: str, word: str) -> str:
        one = f"{name}{{{labels}}}"
        return f"count by (cluster, model, version, {word}) ({one} unless on (cluster, job, instance, pod, replica, model, version, {word}) last_over_time({one}[1h] offset 2m) and on (cluster, job) last_over_time(up[1h] offset 2m))"

    return [
        Marker("Engine restarts", BLUE, f"increase(nv_trt_llm_engine_restarts_total{{{labels}}}[2m]) > 0", "{{model}} restarted {{instance}}"),
        Marker("Deploys", GREEN, new("nv_trt_llm_engine_info", "engine_version"), "{{model}} v{{version}} deployed, TensorRT-LLM {{engine_version}}"),
    ]
