"""The selectors, variables and query forms that all dashboards share."""

from panels import variable

# Series of an engine, of a GPU, and of a recording rule, for the values of the variables.
TARGET = 'job=~"$job", namespace=~"$namespace", pod=~"$pod", instance=~"$instance"'
ENGINE = f'{TARGET}, model=~"$model", version=~"$version"'
GPU = f'{TARGET}, gpu_uuid=~"$gpu"'
RECORDED = 'job=~"$job", namespace=~"$namespace", model=~"$model", version=~"$version"'
PER_ENGINE = "model, version, instance"
ENGINE_LEGEND = "{{model}} v{{version}} {{instance}}"
STATES = (("idle", "blue"), ("busy", "green"), ("starting", "yellow"), ("stalled", "orange"), ("unreachable", "red"))


def engine(name, labels=""):
    return f"{name}{{{labels}{', ' if labels else ''}{ENGINE}}}"


def gpu(name, labels=""):
    return f"{name}{{{labels}{', ' if labels else ''}{GPU}}}"


def recorded(name):
    return f"{name}{{{RECORDED}}}"


def rate(series):
    return f"rate({series}[$__rate_interval])"


def by(labels, expression, operation="sum"):
    return f"{operation} by ({labels}) ({expression})"


def quantile(share, family, labels, select=engine):
    """A quantile of classic buckets or, where Prometheus keeps none, of the native histogram."""
    classic = by(f"le, {labels}", rate(select(f"{family}_bucket")))
    native = by(labels, rate(select(family)))
    return f"histogram_quantile({share}, {classic}) or histogram_quantile({share}, {native})"


def quantiles(family, labels=PER_ENGINE, legend=ENGINE_LEGEND):
    return [(quantile(share, family, labels), f"{legend} p{name}") for share, name in ((0.5, "50"), (0.95, "95"), (0.99, "99"))]


def engine_states():
    """The state of each engine as a number. The largest wins if two engines have the same labels, so none hides another."""
    numbers = " or ".join(
        f"{number} * {engine('nv_trt_llm_engine_state', f'state={chr(34)}{state}{chr(34)}')}"
        for number, (state, _) in enumerate(STATES, 1)
    )
    return by(PER_ENGINE, numbers, "max"), [(number, state, color) for number, (state, color) in enumerate(STATES, 1)]


def variables(*names):
    """In the order of their dependence: each offers the values that exist for those before it."""
    on_target = 'job=~"$job", namespace=~"$namespace", pod=~"$pod"'
    known = {
        "job": ("Job", "label_values(trtllm_exporter_build_info, job)"),
        "namespace": ("Namespace", 'label_values(trtllm_exporter_build_info{job=~"$job"}, namespace)'),
        "pod": ("Pod", 'label_values(trtllm_exporter_build_info{job=~"$job", namespace=~"$namespace"}, pod)'),
        "instance": ("Instance", f"label_values(trtllm_exporter_build_info{{{on_target}}}, instance)"),
        "model": ("Model", f"label_values(nv_trt_llm_engine_info{{{on_target}}}, model)"),
        "version": ("Version", f'label_values(nv_trt_llm_engine_info{{{on_target}, model=~"$model"}}, version)'),
        "gpu": ("GPU", f"label_values(nv_gpu_info{{{TARGET}}}, gpu_uuid)"),
    }
    return [variable(name, *known[name]) for name in names]
