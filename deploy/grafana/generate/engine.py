"""Dashboard: what each engine does. The uid is that of the first release, so links stay valid."""

from limits import limit, percent
from panels import GREEN, ORANGE, RED, YELLOW, dashboard, row, states, steps, table, timeseries
from queries import ENGINE_LEGEND as LEGEND
from queries import PER_ENGINE, by, each, engine, engine_states, per_second, quantile, quantiles, variables


def p95(*families):
    """The 95th percentiles of several histograms: (family, word)."""
    return [(quantile(0.95, f"nv_trt_llm_{family}_seconds", PER_ENGINE), f"{LEGEND} {word}") for family, word in families]


def build():
    state, names = engine_states()
    energy = per_second("nv_trt_llm_gpu_energy_joules_total")
    lost = by(PER_ENGINE, f"increase({engine('nv_trt_llm_iterations_lost_total')}[$__rate_interval])")
    by_rank = " + ".join(per_second(f"nv_trt_llm_rank_{kind}_tokens_total", more=", rank") for kind in ("context", "generation"))
    imbalance = "nv_trt_llm_rank_imbalance_ratio"
    accepted, drafted = (per_second(f"nv_trt_llm_spec_decode_{kind}_tokens_total") for kind in ("accepted", "draft"))
    rows = [
        row(
            "State",
            states(
                "Engine state",
                "Stalled: the engine has requests but runs no iterations. Unreachable: the source does not answer. Idle is healthy.",
                [(state, LEGEND)],
                names,
                14,
                8,
            ),
            table(
                "Engines",
                "Source, backend and version of each engine.",
                (engine("nv_trt_llm_engine_info"), LEGEND),
                {
                    "model": "Model",
                    "version": "Version",
                    "instance": "Instance",
                    "source": "Source",
                    "backend": "Backend",
                    "engine_version": "TensorRT-LLM",
                    "simulated": "Simulated",
                },
                10,
                8,
            ),
        ),
        row(
            "Load",
            timeseries(
                "Requests in the engine",
                "Active: admitted by the engine. Scheduled: computed in the last iteration. Waiting: active and not scheduled.",
                "short",
                [
                    (
                        by(
                            PER_ENGINE + ", request_type",
                            engine("nv_trt_llm_request_metrics", 'request_type=~"active|scheduled|waiting"'),
                        ),
                        LEGEND + " {{request_type}}",
                    )
                ],
            ),
            timeseries(
                "Queued requests",
                "Requests in the executor's queue, not yet active.",
                "short",
                [(each("nv_trt_llm_queued_requests"), LEGEND)],
            ),
            timeseries(
                "Batch occupancy",
                "Requests in context and generation phase as a share of the maximum. At 100 %, the batch is the limit.",
                "percentunit",
                [(each("nv_trt_llm_batch_occupancy_ratio", operation="max"), LEGEND)],
                high=1,
            ),
        ),
        row(
            "Throughput",
            timeseries(
                "Iterations per second",
                "0 while requests are active means that the engine is stalled.",
                "suffix: it/s",
                [(per_second("nv_trt_llm_iterations_total"), LEGEND)],
            ),
            timeseries(
                "Tokens per second",
                "Generated tokens, and prompt tokens computed in context phases without those found in the KV cache.",
                "suffix: tok/s",
                [
                    (per_second("nv_trt_llm_generation_tokens_total"), LEGEND + " generation"),
                    (per_second("nv_trt_llm_context_tokens_total"), LEGEND + " context"),
                ],
            ),
            timeseries(
                "Requests per second",
                "If more requests start than complete, the batch fills.",
                "reqps",
                [
                    (per_second("nv_trt_llm_requests_started_total"), LEGEND + " started"),
                    (per_second("nv_trt_llm_requests_completed_total"), LEGEND + " completed"),
                ],
            ),
        ),
        row(
            "Latency",
            timeseries(
                "Time to first token",
                "From arrival to the first token. 0.25 s is a good value for a chat. Alerts use the objectives of the engine (--objectives).",
                "s",
                quantiles("nv_trt_llm_time_to_first_token_seconds"),
                thresholds=steps((0.25, ORANGE)),
            ),
            timeseries(
                "Time per output token",
                "Time between tokens of one request after its first. 20 ms is a good value for a chat.",
                "s",
                quantiles("nv_trt_llm_time_per_output_token_seconds"),
                thresholds=steps((0.02, ORANGE)),
            ),
            timeseries(
                "End-to-end latency",
                "From arrival to the last token. Alerts use the objectives of the engine (--objectives).",
                "s",
                quantiles("nv_trt_llm_e2e_request_latency_seconds"),
                thresholds=steps((30, ORANGE)),
            ),
            timeseries(
                "Iteration latency",
                "Duration of one iteration. Below 50 ms is good for decoding, below 500 ms with prompts.",
                "s",
                quantiles("nv_trt_llm_iteration_latency_seconds"),
                thresholds=steps((0.05, YELLOW), (0.5, RED)),
            ),
            timeseries(
                "Queue time of new requests",
                "Time before the first iteration of a request.",
                "s",
                quantiles("nv_trt_llm_new_request_queue_time_seconds"),
                thresholds=steps((5, ORANGE)),
            ),
            timeseries(
                "Phases of a request, p95",
                "Where a request spends its time: queue, prefill (context phase), decode (generation phase).",
                "s",
                p95(("request_queue_time", "queue"), ("request_prefill_time", "prefill"), ("request_decode_time", "decode")),
            ),
        ),
        row(
            "Outcome",
            timeseries(
                "Finished requests by reason",
                "Timeout and other are failures; cancelled means that the client has left. Absent if the engine sends no reasons.",
                "reqps",
                [(per_second("nv_trt_llm_requests_finished_total", more=", reason"), LEGEND + " {{reason}}")],
            ),
            timeseries(
                "Prompt and output tokens, p95",
                "Length of requests. Longer requests explain longer latencies. 1000 means 1000 or more, because Triton's buckets end there.",
                "short",
                [
                    (quantile(0.95, "nv_llm_input_token_len", PER_ENGINE), LEGEND + " prompt"),
                    (quantile(0.95, "nv_llm_output_token_len", PER_ENGINE), LEGEND + " output"),
                ],
            ),
            timeseries(
                "Restarts",
                "Restarts of the engine since its exporter started. Each one loses the running requests.",
                "short",
                [(each("nv_trt_llm_engine_restarts_total"), LEGEND)],
            ),
        ),
        row(
            "Ranks of attention data parallelism",
            timeseries(
                "Imbalance of ranks",
                "Tokens of the fullest rank as a multiple of the mean over all ranks. At 1, the ranks have equal work; at 1.5, they "
                "wait a third of their time.",
                "short",
                [(quantile(share, imbalance, PER_ENGINE), f"{LEGEND} p{name}") for share, name in ((0.5, "50"), (0.95, "95"))],
                thresholds=steps((1.33, ORANGE)),
            ),
            timeseries(
                "Tokens per second by rank",
                "Prompt tokens computed in context phases and generated tokens. All ranks wait for the fullest.",
                "suffix: tok/s",
                [(by_rank, LEGEND + " rank {{rank}}")],
            ),
            timeseries(
                "Scheduled requests by rank",
                "Requests of the last iteration.",
                "short",
                [(each("nv_trt_llm_rank_scheduled_requests", more=", rank"), LEGEND + " rank {{rank}}")],
            ),
        ),
        row(
            "Speculative decoding",
            timeseries(
                "Accepted draft tokens",
                f"Share of the draft tokens that the model accepts. Above 60 % is good; below 50 %, drafting may not pay off.",
                "percentunit",
                [(f"{accepted} / {drafted}", LEGEND)],
                thresholds=steps((0.6, GREEN), base=ORANGE),
                high=1,
            ),
            timeseries(
                "Tokens per step",
                "Mean number of tokens per decoding step. Above 2 is good.",
                "short",
                [(each("nv_trt_llm_spec_decode_acceptance_length", operation="max"), LEGEND)],
            ),
            timeseries(
                "Time spent drafting",
                "Share of an iteration's time that the draft model takes.",
                "percentunit",
                [(each("nv_trt_llm_spec_decode_draft_overhead_ratio", operation="max"), LEGEND)],
            ),
        ),
        row(
            "Energy",
            timeseries(
                "Power",
                "Power of the engine's GPUs, idle time included. No data if it is not certain which GPUs are the engine's alone.",
                "watt",
                [(energy, LEGEND)],
            ),
            timeseries(
                "Energy per token",
                "Joules per token of a generation phase, idle time included. It rises when the engine has little load.",
                "joule",
                [(f"{energy} / ({per_second('nv_trt_llm_generation_tokens_total')} > 0)", LEGEND)],
            ),
            timeseries(
                "GPUs",
                "GPUs that serve this engine alone and can be read.",
                "short",
                [(per_second("nv_trt_llm_gpu_seconds_total"), LEGEND)],
            ),
        ),
        row(
            "Statistics",
            timeseries(
                "Lost iterations",
                "Iterations whose record never arrived. Above 0: a second reader, or a ring that overflows between polls.",
                "short",
                [(lost, LEGEND)],
                thresholds=steps((1, RED)),
            ),
            timeseries(
                "Source up",
                "1 if the last poll of the source succeeded.",
                "short",
                [(by(PER_ENGINE + ", source", engine("trtllm_exporter_source_up"), "min"), LEGEND + " {{source}}")],
                high=1,
            ),
            timeseries(
                "Polls per second", "Polls of the engine's source.", "ops", [(per_second("trtllm_exporter_polls_total"), LEGEND)]
            ),
        ),
    ]
    return dashboard(
        "trtllm-engine",
        "TensorRT-LLM engine",
        "State, load, throughput and latency of each engine.",
        variables("job", "namespace", "pod", "instance", "model", "version"),
        rows,
    )
