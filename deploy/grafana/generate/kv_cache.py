"""Dashboard: how full the KV cache is, how well it is reused, and where its blocks go."""

from limits import limit, percent
from panels import GREEN, ORANGE, RED, dashboard, row, steps, timeseries
from queries import ENGINE_LEGEND as LEGEND
from queries import PER_ENGINE, each, per_second, quantile, variables

FULL = steps((0.9, ORANGE))


def build():
    reused, missed = (per_second(f"nv_trt_llm_kv_cache_blocks_{kind}_total") for kind in ("reused", "missed"))
    events = [
        (per_second(f"nv_trt_llm_kv_cache_blocks_{kind}_total"), f"{LEGEND} {word}")
        for kind, word in (("reused", "reused"), ("missed", "missed"), ("newly_allocated", "newly allocated"))
    ]
    paused = [
        (per_second("nv_trt_llm_request_pauses_total"), LEGEND + " paused"),
        (per_second("nv_trt_llm_request_suspensions_total"), LEGEND + " suspended"),
    ]
    moved = per_second("nv_trt_llm_kv_cache_window_bytes_total", 'event=~"onboarded|offloaded|copied"', ", event")
    rows = [
        row(
            "Use",
            timeseries(
                "KV cache in use",
                "Share of the blocks that requests hold. Above 90 %, new requests soon wait; above 95 %, they wait or are paused.",
                "percentunit",
                [(each("nv_trt_llm_kv_cache_block_metrics", 'kv_cache_block_type="fraction"', "max"), LEGEND)],
                8,
                thresholds=FULL,
                high=1,
            ),
            timeseries(
                "Blocks",
                "Blocks that requests hold, and all blocks.",
                "short",
                [
                    (
                        each(
                            "nv_trt_llm_kv_cache_block_metrics", 'kv_cache_block_type=~"used|max"', more=", kv_cache_block_type"
                        ),
                        LEGEND + " {{kv_cache_block_type}}",
                    )
                ],
            ),
            timeseries(
                "Free capacity in tokens",
                "Tokens that still fit: free blocks times tokens per block. Absent with several pools of blocks.",
                "short",
                [(each("nv_trt_llm_kv_cache_available_tokens"), LEGEND)],
            ),
            timeseries(
                "Pauses and suspensions per second",
                "Requests that lost their blocks to other requests and are computed again later. Above 0, the cache is too small for the load.",
                "cps",
                paused,
                8,
                thresholds=steps((0.1, RED)),
            ),
            timeseries(
                "Backlog",
                "Requests that wait: queued, or active and not scheduled. Together with a full cache, the cache is the limit.",
                "short",
                [
                    (each("nv_trt_llm_queued_requests"), LEGEND + " queued"),
                    (each("nv_trt_llm_request_metrics", 'request_type="waiting"'), LEGEND + " waiting"),
                ],
            ),
            timeseries(
                "Blocks per request, p95",
                "Blocks of a finished request. If it grows, requests have become longer.",
                "short",
                [(quantile(0.95, "nv_trt_llm_request_kv_cache_blocks", PER_ENGINE), LEGEND)],
            ),
        ),
        row(
            "Reuse",
            timeseries(
                "Hit ratio",
                f"Share of the looked-up blocks that were found. For long prompts with a common beginning, 70 % and more is good.",
                "percentunit",
                [(f"{reused} / (({reused} + {missed}) > 0)", LEGEND)],
                6,
                thresholds=steps((0.7, GREEN), base=ORANGE),
                high=1,
            ),
            timeseries(
                "Hit ratio of requests",
                "Median and 95th percentile over finished requests. A wide gap: some clients share prompts and others do not.",
                "percentunit",
                [
                    (quantile(share, "nv_trt_llm_request_kv_cache_hit_ratio", PER_ENGINE), f"{LEGEND} p{name}")
                    for share, name in ((0.5, 50), (0.95, 95))
                ],
                6,
                high=1,
            ),
            timeseries(
                "Blocks per second",
                "Reused: found in the cache. Missed: computed. Newly allocated: taken from the free blocks.",
                "suffix: blocks/s",
                events,
                6,
            ),
            timeseries(
                "Cached prompt tokens by tier",
                "Prompt tokens per second that were found, by where their blocks were: gpu, host or disk. Needs KV cache manager V2.",
                "suffix: tok/s",
                [(per_second("nv_trt_llm_cached_tokens_total", more=", tier"), LEGEND + " {{tier}}")],
                6,
                stack=True,
            ),
        ),
        row(
            "Tiers and transfers",
            timeseries(
                "Blocks on the GPU by state",
                "Evictable blocks hold data for reuse and are given away when needed. Needs KV cache iteration statistics.",
                "short",
                [
                    (
                        each("nv_trt_llm_kv_cache_primary_pool_blocks", 'state=~"free|used|evictable"', more=", state"),
                        LEGEND + " {{state}}",
                    )
                ],
            ),
            timeseries(
                "Blocks on host and disk by state",
                "The second tier keeps blocks that left the GPU. Needs KV cache iteration statistics.",
                "short",
                [
                    (
                        each("nv_trt_llm_kv_cache_secondary_pool_blocks", 'state=~"free|used|evictable"', more=", state"),
                        LEGEND + " {{state}}",
                    )
                ],
            ),
            timeseries(
                "Bytes moved",
                "Onboarded: from host to GPU. Offloaded: from GPU to host. Copied: within the GPU. Needs KV cache iteration statistics.",
                "Bps",
                [(moved, LEGEND + " {{event}}")],
            ),
            timeseries(
                "Transfer between instances, p95",
                "Disaggregated serving: time to move a request's KV cache. It should be below 10 % of the request's time.",
                "s",
                [(quantile(0.95, "nv_trt_llm_kv_cache_transfer_seconds", PER_ENGINE), LEGEND)],
                12,
            ),
            timeseries(
                "Size of transfers, p95",
                "Disaggregated serving: bytes of one request's KV cache.",
                "bytes",
                [(quantile(0.95, "nv_trt_llm_kv_cache_transfer_bytes", PER_ENGINE), LEGEND)],
                12,
            ),
        ),
    ]
    return dashboard(
        "trtllm-kv-cache",
        "TensorRT-LLM KV cache",
        "Use, reuse, tiers and transfers of the KV cache of each engine.",
        variables("job", "namespace", "pod", "instance", "model", "version"),
        rows,
    )
