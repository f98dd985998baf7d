"""Dashboard for the overview. Are users served, and which model is in trouble? It reads recording rules, so its cost
does not grow with the fleet, and the verdict, which is one series per engine and cause."""

from panels import BLUE, GREEN, ORANGE, RED, TEXT, Column, by_label, lines, link, numbers, page, rows, steps
from queries import MODELS, PER_MODEL, SEVERITIES, WHAT_TO_DO, alerts, by, label, of_model, quantile, select, starts, top, variables

LEGEND = "{{model}} v{{version}} {{namespace}} {{cluster}}"
RULES = "Needs the rules in recording.yml."


def recorded(name, operation="sum", labels="", more=""):
    return by(PER_MODEL + more, of_model(f"model_version:nv_trt_llm_{name}", labels), operation)


def build():
    severity = of_model("nv_trt_llm_limited_by_severity")
    weight = f"{of_model('nv_trt_llm_limited_by')} * on (cluster, job, namespace, instance, pod, replica, model, version) group_left () ({severity} + 0.001)"
    causes = f"topk by ({PER_MODEL}) (1, {by(PER_MODEL + ', cause', weight)})"
    share_ready = f"{recorded('engines_ready:count')} / {recorded('engines:count')}"
    failing = f"{recorded('requests_failed:rate5m')} / ({recorded('requests_completed:rate5m')} + {recorded('requests_failed:rate5m')} > 0)"
    firing = f'alertname=~"Trtllm.+", alertstate="firing", {MODELS}'
    missed = recorded("objective_missed:ratio_rate5m", "max", more=", objective")
    budget = "scalar(trtllm_slo:objective_budget:ratio)"
    burn = f"{recorded('objective_missed:ratio_rate1h', 'max', more=', objective')} / {budget}"
    to_fleet = [by_label("Engines of this model", "trtllm-fleet", "model", "version")]
    column_fleet = link("Engines of this model", "trtllm-fleet", model="${__data.fields.Model}", version="${__data.fields.Version}")
    worst = steps((1, BLUE), (2, ORANGE), (3, RED))
    failed = recorded("requests_failed:rate5m")

    def series(title, text, unit, expression, legend=LEGEND, more=(), **how):
        return lines(title, f"{text} The ten highest.", unit, [(top(expression), legend), *more], many=True, links=to_fleet, **how)

    content = {
        "Are users served?": [
            numbers(
                "Engines by severity",
                "How many engines are limited, by the severity of their verdict. Critical: requests hang or fail. Warning: users are hurt, or will be. "
                "Tuning: nobody is hurt.",
                "none",
                [(f"sum({severity} == bool {number})", name) for number, name, _ in reversed(SEVERITIES)],
                9,
                {"critical": steps((1, RED)), "warning": steps((1, ORANGE)), "tuning": steps((1, BLUE), base=TEXT), "fine": steps()},
            ),
            numbers(
                "Engines ready",
                f"Engines that can serve requests. Some that cannot are a warning, none that can is an outage. {RULES}",
                "percentunit",
                [(f"sum({recorded('engines_ready:count')}) / sum({recorded('engines:count')})", "ready")],
                3,
                steps((0.001, ORANGE), (1, GREEN), base=RED),
            ),
            numbers(
                "Engines not ready",
                f"Engines that load, drain, hang or do not answer, and all engines. {RULES}",
                "none",
                [(f"sum({recorded('engines:count')}) - sum({recorded('engines_ready:count')})", "not ready"), (f"sum({recorded('engines:count')})", "of")],
                4,
                {"not ready": steps((1, ORANGE)), "of": steps(base=TEXT)},
            ),
            numbers(
                "Requests that fail",
                f"Share of the requests that end with a timeout, an error or a status of 5xx. TrtllmRequestsFailing pages at 5 %. {RULES}",
                "percentunit",
                [(f"sum({failed}) / (sum({recorded('requests_completed:rate5m')}) + sum({failed}) > 0) or 0 * sum({failed})", "failed")],
                4,
                steps((0.01, ORANGE), (0.05, RED)),
                1,
            ),
            numbers(
                "Alerts firing",
                "Alerts of this exporter that fire now. Alerts on GPUs and exporters have no model: choose All to see them.",
                "none",
                [(f"count({select('ALERTS', label('severity', name), firing)}) or vector(0)", name) for name in ("critical", "warning")],
                4,
                {"critical": steps((1, RED)), "warning": steps((1, ORANGE))},
            ),
            rows(
                "Models, the worst first",
                f"What limits each model most: the cause with the most and worst engines. Click a model to see its engines. {RULES}",
                [Column("Cluster", "cluster"), Column("Namespace", "namespace"), Column("Model", "model", to=column_fleet), Column("Version", "version")],
                [
                    Column("Severity", by(PER_MODEL, severity, "max"), names=SEVERITIES),
                    Column("Limited by", causes, label="cause", to=WHAT_TO_DO),
                    Column("Ready", share_ready, "percentunit", steps((0.001, ORANGE), (1, GREEN), base=RED)),
                    Column("Engines", recorded("engines:count")),
                    Column("Fail", failing, "percentunit", steps((0.01, ORANGE), (0.05, RED))),
                    Column("Miss objective", by(PER_MODEL, missed, "max"), "percentunit", steps((0.05, ORANGE), (0.72, RED))),
                    Column("Burn rate 1h", by(PER_MODEL, burn, "max"), "none", steps((1, ORANGE), (14.4, RED))),
                    Column("Requests/s", recorded("requests_completed:rate5m"), "reqps"),
                    Column("Tokens/s", recorded("generation_tokens:rate5m")),
                    Column("Backlog", recorded("backlog_requests:sum")),
                    Column("KV cache", recorded("kv_cache_used:ratio", "max"), "percentunit"),
                ],
                9,
                "Severity",
            ),
        ],
        "Objectives": [
            series(
                "Requests that miss an objective",
                f"Share of the requests of the last 5 minutes. The dashed line is the budget. Only engines with --objectives. {RULES}",
                "percentunit",
                missed,
                LEGEND + " {{objective}}",
                limits=steps((0.05, RED)),
            ),
            series(
                "Error budget: burn rate, 1 hour",
                f"Share of missed requests divided by the budget. At 1, the budget of 30 days lasts 30 days; at 14.4, two days. {RULES}",
                "none",
                burn,
                LEGEND + " {{objective}}",
                limits=steps((1, ORANGE), (14.4, RED)),
            ),
            series("Goodput", f"Output tokens per second of requests that met every objective. {RULES}", "none", recorded("goodput_tokens:rate5m")),
            lines(
                "Causes",
                "Engines by what limits them. Engines without a limit are left out.",
                "none",
                [(by("cause", of_model("nv_trt_llm_limited_by", 'cause!="none"')) + " > 0", "{{cause}}")],
                stack=True,
                many=True,
            ),
            series(
                "Time to first token, p95",
                "95 % of the requests get their first token within this time. The dashed line is the strictest objective.",
                "s",
                quantile(0.95, "nv_trt_llm_time_to_first_token_seconds", PER_MODEL, of_model),
                more=[(f"min({of_model('nv_trt_llm_objective_seconds', label('objective', 'ttft'))})", "objective")],
            ),
            series("Requests that fail per model", f"Share of the requests. {RULES}", "percentunit", failing, limits=steps((0.05, RED))),
        ],
        "Traffic": [
            series("Completed requests", f"Requests per second, over 5 minutes. {RULES}", "reqps", recorded("requests_completed:rate5m")),
            series("Generated tokens", f"Tokens per second, without each request's first token. {RULES}", "none", recorded("generation_tokens:rate5m")),
            series("Backlog", f"Requests that wait for a seat in the engine, or with a seat for their batch. {RULES}", "none", recorded("backlog_requests:sum")),
        ],
        "+Energy and cost (needs to know the GPUs of engines)": [
            series("Energy per token", f"Joules per token of a generation phase, idle time included. {RULES}", "joule", recorded("energy_per_token_joules:ratio_rate5m", "max")),
            series("GPU time per request", f"Seconds of all GPUs of a model per completed request, idle time included. {RULES}", "s", recorded("gpu_seconds_per_request:ratio_rate5m", "max")),
            series("Cost of a million tokens", f"At the price of a GPU hour in trtllm_cost:gpu_hour:price, which is an example. {RULES}", "none", recorded("cost_per_million_tokens:ratio_rate5m", "max")),
        ],
    }
    return page(
        "trtllm-overview",
        "TensorRT-LLM overview",
        "Are users served? Which model is in trouble, and why?",
        variables("cluster", "job", "namespace", "model", "version"),
        alerts(MODELS) + starts(MODELS),
        content,
    )
