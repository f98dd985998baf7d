"""Dashboard of one engine. What limits it, does it meet its objectives, and where does the time go?"""

from panels import BLUE, GREEN, ORANGE, RED, TEXT, Column, bars, heat_map, lines, link, needs_full, numbers, page, rows, steps
from panels import kinds
from queries import ENGINE, PER_ENGINE, SEVERITIES, STATES, WHAT_TO_DO
from queries import alerts, buckets, by, each, engine, numbered, per_second, quantile, quantiles, rate, starts, variables


def line(title, text, unit, *queries, **how):
    return lines(title, text, unit, list(queries), **how)


def percentiles(title, text, family, name):
    """Adds the engine's objective as a dashed line."""
    limit = by(PER_ENGINE, engine("nv_trt_llm_objective_seconds", f'objective="{name}"'), "min")
    return line(title, f"{text} The dashed line is the objective of the engine (--objectives).", "s", *quantiles(family), (limit, "objective"), width=12)


def of_gpus(name, labels=""):
    """A reading of the GPUs that serve the engine, no matter which exporter reads them."""
    info = by("gpu_uuid", engine("nv_trt_llm_engine_gpu_info"), "max")
    return f"max by (instance, node, gpu_uuid, index) (({name}{{{labels}}} * on (instance, gpu_uuid) group_left (index) nv_gpu_info) and on (gpu_uuid) {info})"


def build():
    severity = by(PER_ENGINE, engine("nv_trt_llm_limited_by_severity"), "max")
    cause = f"({by(PER_ENGINE + ', cause', engine('nv_trt_llm_limited_by'), 'max')} == 1) * on ({PER_ENGINE}) group_left () {severity}"
    missed = " / ".join(per_second("nv_trt_llm_objective_requests_total", labels, ", objective") for labels in ('outcome="missed"', 'outcome!="unknown"'))
    energy, tokens = per_second("nv_trt_llm_gpu_energy_joules_total"), per_second("nv_trt_llm_generation_tokens_total")
    lost = by(PER_ENGINE, f"increase({engine('nv_trt_llm_iterations_lost_total')}[$__rate_interval])")
    by_rank = " + ".join(per_second(f"nv_trt_llm_rank_{kind}_tokens_total", more=", rank") for kind in ("context", "generation"))
    reused, missing = (per_second(f"nv_trt_llm_kv_cache_blocks_{kind}_total") for kind in ("reused", "missed"))
    accepted, drafted = (per_second(f"nv_trt_llm_spec_decode_{kind}_tokens_total") for kind in ("accepted", "draft"))
    blocks = {"gpu": "primary", "host and disk": "secondary"}
    shade = steps((1, BLUE), (2, ORANGE), (3, RED))
    content = {
        "What limits this engine?": [
            numbers(
                "Limited by",
                "The verdict of the exporter, in the color of its severity: red hurts users now, orange hurts or will, blue is worth tuning. docs/verdict.md has what helps.",
                "none",
                [(cause, "{{cause}}")],
                6,
                shade,
                show=kinds.BigValueTextMode.NAME,
            ).data_links([WHAT_TO_DO]),
            numbers(
                "Engine state",
                "Stalled: the engine has requests but runs no iterations. Unreachable: the source does not answer. Idle is healthy.",
                "none",
                [(numbered("nv_trt_llm_engine_state", PER_ENGINE, STATES), "state")],
                4,
                steps(base=TEXT),
                names=STATES,
                show=kinds.BigValueTextMode.VALUE,
            ),
            numbers("Verdict since", "Time since this cause was found.", "s", [(f"time() - {each('nv_trt_llm_limited_by_since_timestamp_seconds', operation='max')}", "since")], 3, steps(base=TEXT), show=kinds.BigValueTextMode.VALUE),
            numbers(
                "Requests that miss an objective",
                "Share of the requests, by objective. Needs --objectives.",
                "percentunit",
                [(missed, "{{objective}}")],
                7,
                steps((0.05, ORANGE), (0.72, RED)),
                1,
            ),
            numbers("Iterations per second", "0 while requests are active means that the engine is stalled.", "none", [(per_second("nv_trt_llm_iterations_total"), "it/s")], 4, steps(base=TEXT), 0),
            bars("Verdict over time", "Each cause that was the limit, in the color of its severity.", [(cause, "{{cause}}")], SEVERITIES),
            bars("State over time", "States of the engine.", [(numbered("nv_trt_llm_engine_state", PER_ENGINE, STATES), "state")], [(number, name, shade) for number, name, shade in STATES]),
        ],
        "Latency": [
            heat_map("Time to first token", "Requests by their time to the first token. Two bands: two kinds of requests.", buckets("nv_trt_llm_time_to_first_token_seconds"), 12),
            percentiles("Time to first token, percentiles", "From arrival to the first token.", "nv_trt_llm_time_to_first_token_seconds", "ttft"),
            heat_map("Time per output token", "Requests by the time of each further token.", buckets("nv_trt_llm_time_per_output_token_seconds"), 12),
            percentiles("Time per output token, percentiles", "Time between tokens of one request after its first.", "nv_trt_llm_time_per_output_token_seconds", "tpot"),
            heat_map("End-to-end latency", "Requests by the time from arrival to the last token.", buckets("nv_trt_llm_e2e_request_latency_seconds"), 12),
            percentiles("End-to-end latency, percentiles", "From arrival to the last token.", "nv_trt_llm_e2e_request_latency_seconds", "e2e"),
        ],
        "Load": [
            line(
                "Requests in the engine",
                "Active: has a seat in the engine. Scheduled: computed in the last iteration. Waiting: active and not scheduled; on PyTorch, this includes requests that are ending. Without a seat: waits to become active; an estimate on PyTorch.",
                "none",
                (each("nv_trt_llm_request_metrics", 'request_type=~"active|scheduled|waiting"', more=", request_type"), "{{request_type}}"),
                (each("nv_trt_llm_waiting_requests_estimate"), "without a seat"),
            ),
            line("Batch occupancy", "Scheduled requests as a share of the maximum. At 100 %, the batch is the limit.", "percentunit", (each("nv_trt_llm_batch_occupancy_ratio", operation="max"), "occupancy"), high=1),
            line(
                "Requests per second",
                "If more requests start than complete, the batch fills. The capacity is what the engine could complete of the present mix, where the data can tell.",
                "reqps",
                (each("nv_trt_llm_capacity_requests_per_second", operation="max"), "capacity"),
                (per_second("nv_trt_llm_requests_started_total"), "started"),
                (per_second("nv_trt_llm_requests_completed_total"), "completed"),
            ),
            line(
                "Tokens per second",
                "Generated tokens, and prompt tokens computed in context phases without those found in the KV cache.",
                "none",
                (tokens, "generation"),
                (per_second("nv_trt_llm_context_tokens_total"), "context"),
            ),
            line(
                "Finished requests by reason",
                "Timeout and other are failures; cancelled means that the client has left. Absent if the engine sends no reasons.",
                "reqps",
                (per_second("nv_trt_llm_requests_finished_total", more=", reason"), "{{reason}}"),
                many=True,
            ),
            line(
                "Prompt and output tokens, p95",
                "Length of requests. Longer requests explain longer latencies. 1000 means 1000 or more, because Triton's buckets end there.",
                "none",
                *((quantile(0.95, f"nv_llm_{kind}_token_len"), word) for kind, word in (("input", "prompt"), ("output", "output"))),
            ),
        ],
        "KV cache": [
            line("KV cache in use", "Share of the blocks that requests hold. At 100 %, requests wait or are paused.", "percentunit", (each("nv_trt_llm_kv_cache_block_metrics", 'kv_cache_block_type="fraction"', "max"), "used"), width=12, high=1),
            line(
                "Pauses and suspensions per second",
                "Requests that lost their blocks to other requests and are computed again later. Above 0 for long, the cache is too small for the load.",
                "none",
                (per_second("nv_trt_llm_request_pauses_total"), "paused"),
                (per_second("nv_trt_llm_request_suspensions_total"), "suspended"),
                width=12,
            ),
            line(
                "Hit ratio",
                "Share of the looked-up blocks that were found.",
                "percentunit",
                (f"{reused} / (({reused} + {missing}) > 0)", "blocks"),
                width=12,
                high=1,
            ),
            line("Free capacity in tokens", "Tokens that still fit: free blocks times tokens per block. Absent with several pools of blocks.", "none", (each("nv_trt_llm_kv_cache_available_tokens"), "tokens"), width=12),
        ],
        "+GPUs and energy (needs to know the GPUs of the engine)": [
            rows(
                "GPUs of this engine",
                "Empty if it is not certain which GPUs are the engine's. Click an instance to see its GPUs.",
                [Column("Node", "node"), Column("Instance", "instance", to=link("GPUs", "trtllm-gpu", instance="${__data.fields.Instance}")), Column("GPU", "index")],
                [
                    Column("Up", of_gpus("nv_gpu_up"), names=[(0, "down", RED), (1, "up", GREEN)]),
                    Column("Busy", of_gpus("nv_gpu_utilization"), "percentunit"),
                    Column("Power", of_gpus("nv_gpu_power_usage"), "watt"),
                    Column("Temperature", of_gpus("nv_gpu_temperature_celsius", 'sensor="gpu"'), "celsius"),
                    Column("Slowed down", of_gpus("nv_gpu_clocks_event_active", 'reason=~".*thermal_slowdown|hw_power_brake_slowdown"'), names=[(0, "no", GREEN), (1, "yes", ORANGE)]),
                ],
                8,
                width=8,
            ),
            line("Power", "Power of the engine's GPUs, idle time included. No data if it is not certain which GPUs are the engine's alone.", "watt", (energy, "power")),
            line("Energy per token", "Joules per token of a generation phase, idle time included. It rises when the engine has little load.", "joule", (f"{energy} / ({tokens} > 0)", "energy")),
            line(
                "How far from the limit",
                "Output tokens per second and GPU, and per joule, relative to the benchmark report. Low with little load. docs/what-if.md has what it assumes.",
                "percentunit",
                (each("nv_trt_llm_throughput_of_reference_ratio", operation="max", more=", reference"), "tokens/s of {{reference}}"),
                (each("nv_trt_llm_tokens_per_joule_of_reference_ratio", operation="max", more=", reference"), "tokens/J of {{reference}}"),
            ),
        ],
        needs_full("Where request time goes"): [
            line(
                "All finished requests",
                "Seconds of requests per second, by what they were spent on: blocked is other requests' prompts. docs/request-time.md has what helps.",
                "none",
                (per_second("nv_trt_llm_request_time_seconds_total", more=", part"), "{{part}}"),
                stack=True,
            ),
            *(
                line(
                    f"Requests that missed {objective}",
                    f"The same for the time that the objective {objective} limits, of the requests that missed it.",
                    "none",
                    (per_second("nv_trt_llm_missed_request_time_seconds_total", f'objective="{objective}"', ", part"), "{{part}}"),
                    stack=True,
                )
                for objective in ("ttft", "tpot")
            ),
        ],
        needs_full("Iterations, and phases of requests"): [
            line(
                "Phases of a request, p95",
                "Where a request spends its time: queue, prefill (context phase), decode (generation phase).",
                "s",
                *((quantile(0.95, f"nv_trt_llm_request_{phase}_time_seconds"), phase) for phase in ("queue", "prefill", "decode")),
            ),
            line("Iteration latency", "Duration of one iteration. An iteration with prompts takes longer.", "s", *quantiles("nv_trt_llm_iteration_latency_seconds")),
            line("Queue time of new requests", "Time before the first iteration of a request.", "s", *quantiles("nv_trt_llm_new_request_queue_time_seconds")),
            line(
                "Hit ratio of requests",
                "Share of a finished request's blocks that were found. A wide gap: some clients share prompts and others do not.",
                "percentunit",
                *((quantile(share, "nv_trt_llm_request_kv_cache_hit_ratio"), f"p{name}") for share, name in ((0.5, 50), (0.95, 95))),
                high=1,
            ),
            line(
                "Blocks per second",
                "Reused: found in the cache. Missed: computed. New: taken from the free blocks.",
                "none",
                *((per_second(f"nv_trt_llm_kv_cache_blocks_{kind}_total"), word) for kind, word in (("reused", "reused"), ("missed", "missed"), ("newly_allocated", "new"))),
            ),
            line("Blocks per request, p95", "Blocks of a finished request. If it grows, requests have become longer.", "none", (quantile(0.95, "nv_trt_llm_request_kv_cache_blocks"), "p95")),
        ],
        needs_full("KV cache: tiers and transfers"): [
            *(
                line(
                    f"Blocks on {tier}",
                    "Evictable blocks hold data for reuse and are given away when needed. Needs KV cache iteration statistics.",
                    "none",
                    (each(f"nv_trt_llm_kv_cache_{pool}_pool_blocks", 'state=~"free|used|evictable"', more=", state"), "{{state}}"),
                )
                for tier, pool in blocks.items()
            ),
            line(
                "Bytes moved",
                "Onboarded: from host to GPU. Offloaded: from GPU to host. Copied: within the GPU. Needs KV cache iteration statistics.",
                "Bps",
                (per_second("nv_trt_llm_kv_cache_window_bytes_total", 'event=~"onboarded|offloaded|copied"', ", event"), "{{event}}"),
            ),
            line("Cached prompt tokens by tier", "Prompt tokens per second that were found, by where their blocks were. Needs KV cache manager V2.", "none", (per_second("nv_trt_llm_cached_tokens_total", more=", tier"), "{{tier}}"), stack=True),
            line("Transfer between instances, p95", "Disaggregated serving: time to move a request's KV cache.", "s", (quantile(0.95, "nv_trt_llm_kv_cache_transfer_seconds"), "p95")),
            line("Size of transfers, p95", "Disaggregated serving: bytes of one request's KV cache.", "bytes", (quantile(0.95, "nv_trt_llm_kv_cache_transfer_bytes"), "p95")),
        ],
        needs_full("Ranks of attention data parallelism"): [
            line(
                "Imbalance of ranks",
                "Tokens of the fullest rank as a multiple of the mean over all ranks. At 1, the ranks have equal work; at 1.5, they wait a third of their time.",
                "none",
                *((quantile(share, "nv_trt_llm_rank_imbalance_ratio"), f"p{name}") for share, name in ((0.5, 50), (0.95, 95))),
            ),
            line("Tokens per second by rank", "Prompt tokens computed in context phases and generated tokens. All ranks wait for the fullest.", "none", (by_rank, "rank {{rank}}"), many=True),
            line("Scheduled requests by rank", "Requests of the last iteration.", "none", (each("nv_trt_llm_rank_scheduled_requests", more=", rank"), "rank {{rank}}"), many=True),
        ],
        needs_full("Speculative decoding"): [
            line("Accepted draft tokens", "Share of the draft tokens that the model accepts. Below 50 %, drafting may not pay off.", "percentunit", (f"{accepted} / {drafted}", "accepted"), high=1),
            line("Tokens per step", "Mean number of tokens per decoding step. Above 2 is good.", "none", (each("nv_trt_llm_spec_decode_acceptance_length", operation="max"), "tokens")),
            line("Time spent drafting", "Share of an iteration's time that the draft model takes.", "percentunit", (each("nv_trt_llm_spec_decode_draft_overhead_ratio", operation="max"), "drafting")),
        ],
        "+Statistics": [
            rows(
                "Engine",
                "Source, backend and version.",
                [Column(word, label) for label, word in (("model", "Model"), ("version", "Version"), ("source", "Source"), ("backend", "Backend"), ("engine_version", "TensorRT-LLM"), ("simulated", "Simulated"))],
                [Column("", by(PER_ENGINE + ", source, backend, engine_version, simulated", engine("nv_trt_llm_engine_info"), "max"))],
                4,
                width=12,
            ),
            line("Restarts", "Restarts of the engine since its exporter started. Each one loses the running requests.", "none", (each("nv_trt_llm_engine_restarts_total"), "restarts"), width=12),
            line("Lost iterations", "Iterations whose record never arrived. Above 0: a second reader, or a ring that overflows between polls.", "none", (lost, "lost"), limits=steps((1, ORANGE))),
            line("Source up", "1 if the last poll of the source succeeded.", "none", (by(PER_ENGINE + ", source", engine("trtllm_exporter_source_up"), "min"), "{{source}}"), high=1),
            line("Polls per second", "Polls of the engine's source.", "ops", (per_second("trtllm_exporter_polls_total"), "polls")),
        ],
    }
    return page(
        "trtllm-engine",
        "TensorRT-LLM engine",
        "One engine: what limits it, what its users get, and where the time goes.",
        variables("cluster", "job", "namespace", "pod", "model", "version", "instance", single=("model", "version", "instance")),
        alerts(ENGINE) + starts(ENGINE),
        content,
    )
