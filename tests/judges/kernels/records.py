"""Writes what an engine reports, as lines for the socket, in one of three kinds:

- today: 1.3.0rc29 with the overlap scheduler, the default;
- stable: 1.2.1 with the overlap scheduler. It reports no times but iterLatencyMS, and `iter` is the pass that handles the batch;
- serial: 1.3.0rc29 with disable_overlap_scheduler.
"""

import datetime
import json

from engine import BLOCK

KINDS = ("today", "stable", "serial")
STEADY = 100000.0  # the steady clock of the engines' host at the begin, in seconds


def is_overlap(kind):
    return kind != "serial"


def hello(case, kind, pid):
    settings = case.settings
    config = {
        "max_batch_size": settings.max_batch_size,
        "max_num_tokens": settings.max_num_tokens,
        "tokens_per_block": BLOCK,
        "enable_chunked_prefill": settings.chunked,
        "capacity_scheduler_policy": settings.policy,
        "disable_overlap_scheduler": not is_overlap(kind),
    }
    return json.dumps({"hello": {"model": case.name, "version": "1", "pid": pid, "config": config}})


def record(batch, kind, settings, sequence):
    """The record of a batch without `timestamp`, which is only known when the line is sent."""
    size = len(batch.chunks) + len(batch.decoding)
    inflight = {
        "numScheduledRequests": size,
        "numContextRequests": len(batch.chunks),
        "numGenRequests": len(batch.decoding),
        "numPausedRequests": batch.paused,
        "numCtxTokens": batch.context_tokens,
        "microBatchId": 0,
        "avgNumDecodedTokensPerIter": 0.0,
    }
    told = {
        "iter": batch.handled_in if kind == "stable" else batch.number,
        "iterLatencyMS": round((batch.due - batch.begin) * 1e3, 4),
        "newActiveRequestsQueueLatencyMS": batch.waited,  # seconds since the start, in spite of its name
        "numNewActiveRequests": batch.new,
        "numActiveRequests": batch.active,
        "numQueuedRequests": batch.queued,
        "numCompletedRequests": batch.completed,
        "maxNumActiveRequests": settings.max_batch_size,
        **dict.fromkeys(("maxBatchSizeStatic", "maxBatchSizeTunerRecommended", "maxBatchSizeRuntime"), 0),
        **dict.fromkeys(("maxNumTokensStatic", "maxNumTokensTunerRecommended", "maxNumTokensRuntime"), 0),
        "gpuMemUsage": 72000000000,
        "cpuMemUsage": 0,
        "pinnedMemUsage": 0,
        "kvCacheStats": {
            "maxNumBlocks": settings.blocks,
            "freeNumBlocks": settings.blocks - batch.used,
            "usedNumBlocks": batch.used,
            "tokensPerBlock": BLOCK,
            "allocTotalBlocks": batch.allocated,
            "allocNewBlocks": batch.allocated,
            "reusedBlocks": 0,
            "missedBlocks": 0,
            "cacheHitRate": 0.0,
        },
        "inflightBatchingStats": inflight,
        "staticBatchingStats": dict.fromkeys(
            ("numScheduledRequests", "numContextRequests", "numCtxTokens", "numGenTokens", "emptyGenSlots"), 0
        ),
        "specDecodingStats": None,
    }
    if kind != "stable":
        inflight |= {"numCtxKvTokens": batch.context_kv, "numGenKvTokens": batch.kv_tokens}
        queued = ("numQueuedContextRequests", "numQueuedCtxTokens", "numQueuedGenRequests", "numQueuedGenKvTokens")
        inflight |= dict.fromkeys((*queued, "numPausedKvTokens"), 0)
        told |= {
            "schedulerMode": "overlap" if kind == "today" else "non_overlap",
            "statsSequence": sequence,
            "statsDroppedFrames": 0,
            "hostStepTimeMS": round(batch.host_step * 1e3, 4),
            "prevDeviceStepTimeMS": round(batch.device_step * 1e3, 4),
            "gpuForwardTimeMS": round(batch.forward * 1e3, 4),
        }
    return told


def entry(request):
    """A finished request, as /perf_metrics reports it. The iterations are the passes that handled its tokens."""
    timing = {
        "arrival_time": STEADY + request.arrival,
        "first_scheduled_time": STEADY + request.first_scheduled,
        "first_token_time": STEADY + request.first_token,
        "last_token_time": STEADY + request.last_token,
    }
    cache = {"num_total_allocated_blocks": request.peak, "num_new_allocated_blocks": request.peak}
    cache |= {"num_reused_blocks": 0, "num_missed_blocks": 0}
    metrics = {"first_iter": request.first_iter, "last_iter": request.last_iter, "timing_metrics": timing}
    metrics["kv_cache_metrics"] = cache
    return {
        "request_id": request.id,
        "perf_metrics": metrics,
        "finish_reason": "stop" if request.stops else "length",
        "prompt_tokens": request.prompt,
        "output_tokens": request.output,
    }


def lines(engine, kind):
    """All lines of a run: when each is sent, the time of its timestamp (or None), and its text without it."""
    ended = iter(engine.finished)
    request = next(ended, None)
    for sequence, batch in enumerate(engine.batches, 1):
        while request and request.last_token <= batch.due:
            yield request.last_token, None, json.dumps(entry(request))
            request = next(ended, None)
        yield batch.due, batch.stamp, json.dumps(record(batch, kind, engine.settings, sequence))[1:]


def stamped(text, stamp, begin):
    """The line to send. `begin`: the time on the clock at which the virtual time began."""
    if stamp is None:
        return text.encode() + b"\n"
    local = datetime.datetime.fromtimestamp(begin + stamp).strftime("%m-%d-%Y %H:%M:%S.%f")
    return f'{{"timestamp": "{local}", {text}\n'.encode()
