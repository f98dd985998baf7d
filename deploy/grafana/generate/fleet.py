"""Dashboard of the fleet. Which engine is in trouble? It has a table of all engines, the worst first, and
graphs of the ten highest only."""

from limits import limit
from panels import BLUE, GREEN, ORANGE, RED, TEXT, Column, by_label, lines, link, numbers, page, rows, steps
from queries import ENGINE, ENGINE_LEGEND, PER_ENGINE, SEVERITIES, STATES, TARGET, WHAT_TO_DO
from queries import alerts, by, each, engine, label, numbered, per_second, quantile, select, starts, top, variables

SIDE = "{{side}} {{model}} {{pod}} {{instance}}"
LABELS = ("instance", "model", "version")


def side_share(part, whole):
    """One counter of the requests to the workers of each side, as a share of another one."""
    parts, all_of_them = (per_second(f"nv_trt_llm_disagg_worker_{name}_total", more=", side") for name in (part, whole))
    return f"{parts} / ({all_of_them} > 0)"


def disaggregated():
    """Panels about the orchestrators of disaggregated serving. Only the source trtllm-disagg has these numbers."""
    ready, needed = (each(f"nv_trt_llm_disagg_{name}_workers", more=", side") for name in ("ready", "minimal"))
    failing, retries, ended = (limit(f"TrtllmDisagg{name}") for name in ("RequestsFailing", "Retries", "SideSaturated"))
    errors = per_second("nv_trt_llm_disagg_request_errors_total", 'kind=~"http|internal"')
    sent = per_second("nv_trt_llm_disagg_worker_requests_total", more=", side")

    def of(title, text, unit, queries, **how):
        return lines(title, text, unit, [(top(expression), legend) for expression, legend in queries], 6, many=True, **how)

    def p95(family):
        return [(quantile(0.95, f"nv_trt_llm_disagg_worker_{family}_seconds", f"{PER_ENGINE}, side"), SIDE)]

    return [
        of("Workers of each side", "Workers that an orchestrator can send requests to, and how many it needs to be ready.", "none", [(ready, SIDE), (needed, f"{SIDE} needed")]),
        of(
            "Requests to orchestrators",
            "Accepted requests per second, and those that ended with an error status.",
            "reqps",
            [(per_second("nv_trt_llm_disagg_requests_total"), ENGINE_LEGEND), (errors, f"{ENGINE_LEGEND} errors")],
        ),
        of("Failed requests to workers", "Share of the requests to the workers of a side that failed. Most releases do not count streams that a worker refused: see the requests that accumulate.", "percentunit", [(side_share("errors", "requests"), SIDE)], limits=steps((failing, RED))),
        of("Retries", "Retries divided by the requests to the workers of a side.", "percentunit", [(side_share("retries", "requests"), SIDE)], limits=steps((retries, ORANGE))),
        of("Requests to workers", "Requests per second that an orchestrator sends to each side.", "reqps", [(sent, SIDE)]),
        of(
            "Requests that accumulate",
            f"Share of the requests to a side that have not ended, over the same time. Above {ended * 100:.4g} % for long, the side has too few workers, or they refuse streams.",
            "percentunit",
            [(f"1 - ({side_share('requests_ended', 'requests')})", SIDE)],
            limits=steps((ended, ORANGE)),
        ),
        of("Request time of each side, p95", "95 % of the requests to the workers of a side end within this time.", "s", p95("request_time")),
        of("First bytes of each side, p95", "95 % of the streams of a side begin within this time.", "s", p95("time_to_first_byte")),
    ]


def build():
    severity = engine("nv_trt_llm_limited_by_severity")
    cause = by(f"{PER_ENGINE}, cause", engine("nv_trt_llm_limited_by"), "max") + " == 1"
    used = each("nv_trt_llm_kv_cache_block_metrics", 'kv_cache_block_type="fraction"', "max")
    ttft, tpot, e2e = (
        quantile(0.95, f"nv_trt_llm_{name}_seconds")
        for name in ("time_to_first_token", "time_per_output_token", "e2e_request_latency")
    )
    missed = " / ".join(per_second("nv_trt_llm_objective_requests_total", labels, ", objective") for labels in ('outcome="missed"', 'outcome!="unknown"'))
    failed = per_second("nv_trt_llm_requests_finished_total", 'reason="timeout"') + " or " + per_second("nv_trt_llm_request_errors_total", 'code=~"5.."')
    to_engine = {name: f"${{__data.fields.{name.capitalize()}}}" for name in LABELS}

    def series(title, text, unit, expression, more=(), legend=ENGINE_LEGEND, **how):
        links = [by_label("This engine", "trtllm-engine", *LABELS)]
        return lines(title, f"{text} The ten highest.", unit, [(top(expression), legend), *more], many=True, links=links, **how)

    def objective(name):
        return [(f"min({engine('nv_trt_llm_objective_seconds', label('objective', name))})", "objective")]

    content = {
        "Which engine is in trouble?": [
            numbers(
                "Engines by severity",
                "How many engines are limited, by the severity of their verdict. Critical: requests hang or fail. Warning: users are hurt, or will be.",
                "none",
                [(f"sum({severity} == bool {number})", name) for number, name, _ in reversed(SEVERITIES)],
                8,
                {"critical": steps((1, RED)), "warning": steps((1, ORANGE)), "tuning": steps((1, BLUE), base=TEXT), "fine": steps()},
            ),
            numbers(
                "Engines by state",
                "Idle and busy are healthy. Stalled: the engine has requests but runs no iterations. Unreachable: the source does not answer.",
                "none",
                [(f"sum({engine('nv_trt_llm_engine_state', label('state', name))})", name) for _, name, _ in reversed(STATES)],
                10,
                {name: steps(*[] if shade == GREEN else [(1, shade)], base=GREEN if shade == GREEN else TEXT) for _, name, shade in STATES},
            ),
            numbers(
                "Exporters that cannot be scraped",
                "Their engines are in no panel here: their state is unknown. Targets of the last hour.",
                "none",
                [(f"sum(last_over_time({select('up', TARGET)}[1h]) == bool 0)", "down"), (f"count(last_over_time({select('up', TARGET)}[1h]))", "of")],
                6,
                {"down": steps((1, ORANGE)), "of": steps(base=TEXT)},
            ),
            rows(
                "Engines, the worst first",
                "What limits each engine, and what its users get. Click an instance to see the engine. The causes are explained in docs/verdict.md.",
                [Column("Cluster", "cluster"), Column("Pod", "pod"), Column("Instance", "instance", to=link("This engine", "trtllm-engine", **to_engine)), Column("Model", "model"), Column("Version", "version")],
                [
                    Column("Severity", by(PER_ENGINE, severity, "max"), names=SEVERITIES),
                    Column("Limited by", cause, label="cause", to=WHAT_TO_DO),
                    Column("State", numbered("nv_trt_llm_engine_state", PER_ENGINE, STATES), names=STATES),
                    Column("Miss objective", by(PER_ENGINE, missed, "max"), "percentunit", steps((0.05, ORANGE), (0.72, RED))),
                    Column("TTFT p95", ttft, "s"),
                    Column("TPOT p95", tpot, "s"),
                    Column("Active", each("nv_trt_llm_request_metrics", 'request_type="active"')),
                    Column("No seat", each("nv_trt_llm_waiting_requests_estimate")),
                    Column("KV cache", used, "percentunit"),
                    Column("Tokens/s", per_second("nv_trt_llm_generation_tokens_total")),
                    Column("Fail/s", failed, "none", steps((0.01, ORANGE), (0.1, RED))),
                ],
                12,
                "Severity",
            ),
            lines("Causes over time", "Engines by what limits them. Engines without a limit are left out.", "none", [(by("cause", engine("nv_trt_llm_limited_by", 'cause!="none"')) + " > 0", "{{cause}}")], 12, stack=True, many=True),
            lines("States over time", "Engines by state. Idle, busy and starting are healthy.", "none", [(by("state", engine("nv_trt_llm_engine_state")) + " > 0", "{{state}}")], 12, stack=True, many=True),
        ],
        "Latency": [
            series("Time to first token, p95", "The dashed line is the strictest objective (--objectives).", "s", ttft, objective("ttft")),
            series("Time per output token, p95", "Time between tokens of one request. The dashed line is the strictest objective.", "s", tpot, objective("tpot")),
            series("End-to-end latency, p95", "From arrival to the last token. The dashed line is the strictest objective.", "s", e2e, objective("e2e")),
            series("Requests that miss an objective", "Share of the requests.", "percentunit", missed, legend=ENGINE_LEGEND + " {{objective}}", limits=steps((0.05, RED))),
            series("Requests that fail", "Timeouts, errors and statuses of 5xx per second.", "reqps", failed, limits=steps((0.1, RED))),
            lines("Free capacity", "Share of each engine's capacity that is free, where the data can tell. The ten lowest.", "percentunit", [(top(each("nv_trt_llm_headroom_ratio", operation="min"), "bottomk"), ENGINE_LEGEND)], many=True, high=1),
        ],
        "Load": [
            series("Requests without a seat", "Requests that wait to become active. An estimate for the PyTorch engine, whose own queue has only the arrivals of one iteration.", "none", each("nv_trt_llm_waiting_requests_estimate")),
            series("Batch occupancy", "Scheduled requests as a share of the maximum. At 100 %, the batch is the limit.", "percentunit", each("nv_trt_llm_batch_occupancy_ratio", operation="max"), high=1),
            series("KV cache in use", "Share of the blocks that requests hold. A full cache can be normal: the verdict says whether it limits the engine.", "percentunit", used, high=1),
        ],
        "+Disaggregated serving (needs a source trtllm-disagg)": disaggregated(),
    }
    return page(
        "trtllm-fleet",
        "TensorRT-LLM fleet",
        "Which engine is in trouble, and what limits it?",
        variables("cluster", "job", "namespace", "pod", "model", "version", "instance"),
        alerts(ENGINE) + starts(ENGINE),
        content,
    )
