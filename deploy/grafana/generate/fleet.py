"""Dashboard: all models at a glance. Most queries read the recording rules, so its cost does not grow with the fleet."""

from limits import limit, percent
from panels import GREEN, ORANGE, RED, YELLOW, dashboard, row, stat, states, steps, timeseries
from queries import ENGINE_LEGEND, PER_ENGINE, RECORDED, TARGET, by, each, engine_states, per_second, quantile, recorded, select, variables

MODEL = "model, version"
LEGEND = "{{model}} v{{version}}"
FLEET = 'job=~"$job", namespace=~"$namespace"'
RULES = "Needs the rules in recording.yml."
BURN = steps((1, YELLOW), (6, ORANGE), (14.4, RED))


def per_model(name):
    return by(MODEL, recorded(f"model_version:nv_trt_llm_{name}"))


def of_objective(name, objective, operation="sum"):
    return by(MODEL, select(f"model_version:nv_trt_llm_objective_{name}", f'objective="{objective}"', RECORDED), operation)


def attained(objective):
    return f"1 - {of_objective('missed:rate5m', objective)} / ({of_objective('requests:rate5m', objective)} > 0)"


def burn(objective, window):
    return of_objective(f"missed:ratio_rate{window}", objective, "max") + " / scalar(trtllm_slo:objective_budget:ratio)"


def objective(title, name, common=""):
    return [
        stat(
            f"{title}: objective met",
            f"Share of the requests that met the objective of their engine, in the last 5 minutes. It should be 95 %. Needs --objectives{common}. {RULES}",
            "percentunit",
            [(attained(name), LEGEND)],
            5,
            7,
            steps((0.9, ORANGE), (0.95, GREEN), base=RED),
            1,
        ),
        timeseries(
            f"{title}: burn rate",
            f"Share of slow requests divided by the error budget. At 1, the budget of 30 days lasts 30 days; at 14.4, two days. {RULES}",
            "short",
            [(burn(name, window), f"{LEGEND} {window}") for window in ("5m", "1h")],
            7,
            7,
            BURN,
        ),
    ]


SIDE = "{{model}} {{side}} {{instance}}"


def side_share(part, whole):
    """Of the requests to the workers of each side."""
    parts, all_of_them = (per_second(f"nv_trt_llm_disagg_worker_{name}_total", more=", side") for name in (part, whole))
    return f"{parts} / ({all_of_them} > 0)"


def disaggregated():
    """The orchestrators of disaggregated serving. A fleet has few of them, so their series are read directly."""
    requests = per_second("nv_trt_llm_disagg_requests_total")
    errors = per_second("nv_trt_llm_disagg_request_errors_total", 'kind=~"http|internal"')
    ready, needed = (each(f"nv_trt_llm_disagg_{name}_workers", more=", side") for name in ("ready", "minimal"))
    failing, retries, ended = (limit(f"TrtllmDisagg{name}") for name in ("RequestsFailing", "Retries", "SideSaturated"))
    return row(
        "Disaggregated serving",
        timeseries(
            "Workers of each side",
            "Workers that an orchestrator can send requests to, and how many it needs to be ready. Only the source trtllm-disagg has these numbers.",
            "none",
            [(ready, SIDE), (needed, f"{SIDE} needed")],
            6,
        ),
        timeseries(
            "Requests to orchestrators",
            "Accepted requests per second, and those that ended with an error status.",
            "reqps",
            [(requests, ENGINE_LEGEND), (errors, f"{ENGINE_LEGEND} errors")],
            6,
        ),
        timeseries(
            "Failed requests to workers",
            "Share of the requests to the workers of a side that failed.",
            "percentunit",
            [(side_share("errors", "requests"), SIDE)],
            6,
            thresholds=steps((failing, ORANGE)),
        ),
        timeseries(
            "Retries",
            "Retries divided by the requests to the workers of a side.",
            "percentunit",
            [(side_share("retries", "requests"), SIDE)],
            6,
            thresholds=steps((retries, ORANGE)),
        ),
        timeseries(
            "Requests to workers",
            "Requests per second that an orchestrator sends to each side.",
            "reqps",
            [(per_second("nv_trt_llm_disagg_worker_requests_total", more=", side"), SIDE)],
            6,
        ),
        timeseries(
            "Requests that accumulate",
            f"Share of the requests to a side that have not ended, over the same time. Above {ended * 100:.4g} % for long, the side has too few workers.",
            "percentunit",
            [(f"1 - ({side_share('requests_ended', 'requests')})", SIDE)],
            6,
            thresholds=steps((ended, ORANGE)),
        ),
        timeseries(
            "Request time of each side, p95",
            "95 % of the requests to the workers of a side end within this time.",
            "s",
            [(quantile(0.95, "nv_trt_llm_disagg_worker_request_time_seconds", f"{PER_ENGINE}, side"), SIDE)],
            6,
        ),
        timeseries(
            "First bytes of each side, p95",
            "95 % of the streams of a side begin within this time.",
            "s",
            [(quantile(0.95, "nv_trt_llm_disagg_worker_time_to_first_byte_seconds", f"{PER_ENGINE}, side"), SIDE)],
            6,
        ),
    )


def build():
    state, names = engine_states()
    firing = 'count by (severity) (ALERTS{alertname=~"Trtllm.+", alertstate="firing"}) or on () vector(0)'
    failed = per_model("requests_failed:rate5m")
    completed = per_model("requests_completed:rate5m")
    rows = [
        row(
            "Objectives",
            *objective("First token", "ttft", ", or the common limit of 0.25 s that recording.yml can enable"),
            *objective("Further tokens", "tpot"),
            *objective("End to end", "e2e", ", or the common limit of 30 s that recording.yml can enable"),
            timeseries(
                "All objectives met",
                f"Share of the requests that met every objective of their engine, of those that are known to have met or missed them. Needs --objectives, or the key objectives of an engine. {RULES}",
                "percentunit",
                [(attained("all"), LEGEND)],
                12,
                7,
            ),
            timeseries(
                "Goodput",
                f"Output tokens per second of requests that met every objective. Needs --objectives. {RULES}",
                "short",
                [(per_model("goodput_tokens:rate5m"), LEGEND)],
                12,
                7,
            ),
        ),
        row(
            "Engines and GPUs",
            stat(
                "Engines ready",
                f"Engines that are busy or idle, or that answer and have had no request yet; and all engines. {RULES}",
                "none",
                [
                    (f"sum({recorded('model_version:nv_trt_llm_engines_ready:count')})", "ready"),
                    (f"sum({recorded('model_version:nv_trt_llm_engines:count')})", "all"),
                ],
                4,
                4,
            ),
            stat(
                "GPUs up",
                f"GPUs that the driver can read, and all GPUs. {RULES}",
                "none",
                [(f"sum(job:nv_gpu_gpus_up:count{{{FLEET}}})", "up"), (f"sum(job:nv_gpu_gpus:count{{{FLEET}}})", "all")],
                4,
                4,
            ),
            stat(
                "Alerts firing",
                "Alerts of trtllm-exporter that fire now, by severity.",
                "none",
                [(firing, "{{severity}}")],
                4,
                4,
                steps((1, RED)),
            ),
            stat(
                "Exporters up",
                "Exporters that Prometheus can scrape now, and those that it had as targets within the last hour.",
                "none",
                [
                    (f"sum({select('up', TARGET)})", "up"),
                    (f"count(last_over_time({select('up', TARGET)}[1h]))", "all"),
                ],
                4,
                4,
            ),
            stat(
                "Failed requests",
                f"Requests per second that end with a timeout, an error or a status of 5xx. {RULES}",
                "reqps",
                [(f"sum({failed}) or vector(0)", "failed")],
                4,
                4,
                steps((0.1, RED)),
                2,
            ),
            stat(
                "Power", f"Power of all GPUs. {RULES}", "watt", [(f"sum(job:nv_gpu_power_watts:sum{{{FLEET}}})", "power")], 4, 4
            ),
            states(
                "State of each engine",
                "Busy and idle are healthy. Stalled: the engine has requests but runs no iterations. Unreachable: the source does not answer.",
                [(state, ENGINE_LEGEND)],
                names,
                24,
                7,
            ),
        ),
        row(
            "Traffic",
            timeseries(
                "Completed requests", f"Requests per second by model, over 5 minutes. {RULES}", "reqps", [(completed, LEGEND)], 6
            ),
            timeseries(
                "Generated tokens",
                f"Tokens per second by model, over 5 minutes, without each request's first token. {RULES}",
                "suffix: tok/s",
                [(per_model("generation_tokens:rate5m"), LEGEND)],
                6,
                stack=True,
            ),
            timeseries(
                "Computed prompt tokens",
                f"Tokens per second in context phases, without tokens found in the KV cache. {RULES}",
                "suffix: tok/s",
                [(per_model("context_tokens:rate5m"), LEGEND)],
                6,
                stack=True,
            ),
            timeseries(
                "Backlog",
                f"Requests that have arrived and are not being computed. {RULES}",
                "short",
                [(per_model("backlog_requests:sum"), LEGEND)],
                6,
            ),
        ),
        row(
            "Latency",
            timeseries(
                "Time to first token, p95",
                "95 % of the requests get their first token within this time. 0.25 s is a good value for a chat.",
                "s",
                [(quantile(0.95, "nv_trt_llm_time_to_first_token_seconds", MODEL), LEGEND)],
                6,
                thresholds=steps((0.25, ORANGE)),
            ),
            timeseries(
                "Time per output token, p95",
                "Time between tokens of one request. 20 ms is a good value for a chat.",
                "s",
                [(quantile(0.95, "nv_trt_llm_time_per_output_token_seconds", MODEL), LEGEND)],
                6,
                thresholds=steps((0.02, ORANGE)),
            ),
            timeseries(
                "End-to-end latency, p95",
                "95 % of the requests end within this time after their arrival.",
                "s",
                [(quantile(0.95, "nv_trt_llm_e2e_request_latency_seconds", MODEL), LEGEND)],
                6,
                thresholds=steps((30, ORANGE)),
            ),
            timeseries(
                "Queue time, p95",
                "Time that new requests waited before their first iteration.",
                "s",
                [(quantile(0.95, "nv_trt_llm_new_request_queue_time_seconds", MODEL), LEGEND)],
                6,
                thresholds=steps((5, ORANGE)),
            ),
        ),
        row(
            "Resources",
            timeseries(
                "KV cache in use",
                f"Share of the blocks of all engines of a model. Above 90 %, new requests soon wait. {RULES}",
                "percentunit",
                [(by(MODEL, recorded("model_version:nv_trt_llm_kv_cache_used:ratio"), "max"), LEGEND)],
                6,
                thresholds=steps((0.9, ORANGE)),
                high=1,
            ),
            timeseries(
                "KV cache hit ratio",
                f"Share of the looked-up blocks that were found. 70 % and more is good for long prompts. {RULES}",
                "percentunit",
                [(by(MODEL, recorded("model_version:nv_trt_llm_kv_cache_hit:ratio_rate5m"), "max"), LEGEND)],
                6,
                high=1,
            ),
            timeseries(
                "GPU utilization",
                f"Mean of all GPUs of a job. {RULES}",
                "percentunit",
                [(f"job:nv_gpu_utilization:avg{{{FLEET}}}", "{{job}} {{namespace}}")],
                6,
                high=1,
            ),
            timeseries(
                "GPU memory in use",
                f"Share of the memory of all GPUs of a job. {RULES}",
                "percentunit",
                [(f"job:nv_gpu_memory_used:ratio{{{FLEET}}}", "{{job}} {{namespace}}")],
                6,
                high=1,
            ),
        ),
        disaggregated(),
        row(
            "Energy and cost",
            timeseries(
                "Energy per token",
                f"Joules per token of a generation phase, idle time included. {RULES}",
                "joule",
                [(by(MODEL, recorded("model_version:nv_trt_llm_energy_per_token_joules:ratio_rate5m"), "max"), LEGEND)],
            ),
            timeseries(
                "GPU time per request",
                f"Seconds of all GPUs of a model per completed request, idle time included. {RULES}",
                "s",
                [(by(MODEL, recorded("model_version:nv_trt_llm_gpu_seconds_per_request:ratio_rate5m"), "max"), LEGEND)],
            ),
            timeseries(
                "Cost of a million tokens",
                f"At the price of a GPU hour in trtllm_cost:gpu_hour:price, which is an example. {RULES}",
                "short",
                [(by(MODEL, recorded("model_version:nv_trt_llm_cost_per_million_tokens:ratio_rate5m"), "max"), LEGEND)],
            ),
        ),
    ]
    return dashboard(
        "trtllm-fleet",
        "TensorRT-LLM fleet",
        "All models, engines and GPUs at a glance, with objectives.",
        variables("job", "namespace", "pod", "instance", "model", "version"),
        rows,
    )
