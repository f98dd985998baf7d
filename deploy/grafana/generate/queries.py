"""The selectors, variables and query forms that all dashboards share."""

from panels import variable

# Series of an engine, of a GPU, and of a recording rule, for the values of the variables.
POD = 'job=~"$job", namespace=~"$namespace", pod=~"$pod"'
TARGET = f'{POD}, instance=~"$instance"'
ENGINE = f'{TARGET}, model=~"$model", version=~"$version"'
GPU = f'{TARGET}, gpu_uuid=~"$gpu"'
RECORDED = 'job=~"$job", namespace=~"$namespace", model=~"$model", version=~"$version"'
PER_ENGINE = "model, version, instance"
ENGINE_LEGEND = "{{model}} v{{version}} {{instance}}"
# What has the labels model and version: an engine, or the orchestrator of disaggregated serving.
NAMED = '__name__=~"nv_trt_llm_engine_info|nv_trt_llm_disagg_responses_total"'
STATES = (("idle", "blue"), ("busy", "green"), ("starting", "yellow"), ("stalled", "orange"), ("unreachable", "red"))


def select(name, *labels):
    return f"{name}{{{', '.join(filter(None, labels))}}}"


def engine(name, labels=""):
    return select(name, labels, ENGINE)


def gpu(name, labels=""):
    return select(name, labels, GPU)


def recorded(name):
    return select(name, RECORDED)


def rate(series):
    return f"rate({series}[$__rate_interval])"


def by(labels, expression, operation="sum"):
    return f"{operation} by ({labels}) ({expression})"


def each(name, labels="", operation="sum", more=""):
    """One series per engine, and per value of the labels in `more`."""
    return by(PER_ENGINE + more, engine(name, labels), operation)


def per_second(name, labels="", more=""):
    return by(PER_ENGINE + more, rate(engine(name, labels)))


def quantile(share, family, labels, select=engine):
    """A quantile of classic buckets or, where Prometheus keeps none, of the native histogram."""
    classic = by(f"le, {labels}", rate(select(f"{family}_bucket")))
    native = by(labels, rate(select(family)))
    return f"histogram_quantile({share}, {classic}) or histogram_quantile({share}, {native})"


def quantiles(family, labels=PER_ENGINE, legend=ENGINE_LEGEND):
    return [(quantile(share, family, labels), f"{legend} p{name}") for share, name in ((0.5, "50"), (0.95, "95"), (0.99, "99"))]


def numbered(name, labels, states, of=engine):
    """A state as a number, and the names of the numbers. The largest wins if two things have the same labels, so none is hidden."""
    numbers = " or ".join(
        f"{number} * {of(name, f'state={chr(34)}{state}{chr(34)}')}" for number, (state, _) in enumerate(states, 1)
    )
    return by(labels, numbers, "max"), [(number, state, color) for number, (state, color) in enumerate(states, 1)]


def engine_states():
    return numbered("nv_trt_llm_engine_state", PER_ENGINE, STATES)


def variables(*names):
    """In the order of their dependence: each offers the values that exist for those before it."""
    known = {
        "job": ("Job", "label_values(trtllm_exporter_build_info, job)"),
        "namespace": ("Namespace", 'label_values(trtllm_exporter_build_info{job=~"$job"}, namespace)'),
        "pod": ("Pod", 'label_values(trtllm_exporter_build_info{job=~"$job", namespace=~"$namespace"}, pod)'),
        "instance": ("Instance", f"label_values(trtllm_exporter_build_info{{{POD}}}, instance)"),
        "model": ("Model", f"label_values({{{NAMED}, {POD}}}, model)"),
        "version": ("Version", f'label_values({{{NAMED}, {POD}, model=~"$model"}}, version)'),
        "gpu": ("GPU", f"label_values(nv_gpu_info{{{TARGET}}}, gpu_uuid)"),
    }
    return [variable(name, *known[name]) for name in names]
