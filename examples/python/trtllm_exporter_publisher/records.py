"""Turns TensorRT-LLM's objects into lines for the exporter. Only reads attributes, so it works with every release."""
from __future__ import annotations

import json
import math
from typing import Any, Iterable

_TIMES = ("arrival_time", "first_scheduled_time", "first_token_time", "last_token_time", "kv_cache_transfer_start",
          "kv_cache_transfer_end")
_CACHE = ("num_total_allocated_blocks", "num_new_allocated_blocks", "num_reused_blocks", "num_missed_blocks",
          "kv_cache_hit_rate")
_DRAFTS = ("acceptance_rate", "total_accepted_draft_tokens", "total_draft_tokens")


def iteration(record: Any) -> str:
    """The record as one line of JSON. Releases before 1.0 return JSON text, later releases return dicts, and the
    bindings return objects."""
    if hasattr(record, "to_json_str"):
        record = record.to_json_str()
    if isinstance(record, str):
        if not any(text in record for text in ("\n", "NaN", "Infinity")):
            return record
        record = json.loads(record)
    try:
        return json.dumps(record, separators=(",", ":"), allow_nan=False)
    except ValueError:  # JSON has no NaN, so the exporter would reject the record
        return json.dumps(_finite(record), separators=(",", ":"))


def _finite(value: Any) -> Any:
    """A copy without numbers that are not finite."""
    def keep(member: object) -> bool:
        return not isinstance(member, float) or math.isfinite(member)
    if isinstance(value, dict):
        return {name: _finite(member) for name, member in value.items() if keep(member)}
    if isinstance(value, (list, tuple)):
        return [_finite(member) for member in value if keep(member)]
    return value


request_rows = iteration  # a RequestStatsPerIteration has the same forms


def finished_request(output: Any) -> dict[str, Any] | None:
    """The entry for a finished request, or None."""
    if hasattr(output, "has_error"):
        return _of_response(output)
    return _of_output(output) if getattr(output, "finished", False) and output.outputs else None


def _of_output(output: Any) -> dict[str, Any]:
    """A RequestOutput of the LLM API."""
    first = output.outputs[0]
    return _entry(output.request_id, getattr(first, "request_perf_metrics", None), getattr(first, "finish_reason", None),
                  prompt=getattr(output, "prompt_token_ids", None), tokens=first.token_ids,
                  cached=getattr(output, "cached_tokens", None))


def _of_response(response: Any) -> dict[str, Any] | None:
    """A Response of the bindings' Executor."""
    if response.has_error():
        return _entry(response.request_id, None, "error") | {"executorId": response.request_id}
    result = response.result
    if not result.is_final:
        return None
    reasons = getattr(result, "finish_reasons", None)
    # An enumerator of the bindings, such as FinishReason.END_ID.
    reason = getattr(reasons[0], "name", None) if reasons else None
    # Without lengths: output_token_ids may contain the prompt, and while streaming they are only the last part.
    entry = _entry(response.request_id, getattr(result, "request_perf_metrics", None), reason)
    # The request statistics have this number for the request. A RequestOutput has a different number.
    return entry | {"executorId": response.request_id}


def _entry(request_id: Any, metrics: Any, reason: Any, prompt: Any = None, tokens: Any = None,
           cached: Any = None) -> dict[str, Any]:
    # Without return_perf_metrics, only the finish reason and the lengths are known.
    entry: dict[str, Any] = {"requestId": request_id, "perfMetrics": {} if metrics is None else _perf_metrics(metrics)}
    if reason not in (None, "NOT_FINISHED"):
        entry["finishReason"] = reason
    if prompt:
        entry["promptTokens"] = len(prompt)
    if tokens is not None:
        entry["outputTokens"] = len(tokens)
    # Without metrics, the engine leaves the number of cached tokens at 0.
    if metrics is not None and isinstance(cached, int):
        entry["cachedTokens"] = cached
    return entry


def _perf_metrics(metrics: Any) -> dict[str, Any]:
    values = _attributes(metrics, ("first_iter", "last_iter"))
    timing = getattr(metrics, "timing_metrics", None)
    if timing is not None:
        values["timing_metrics"] = _attributes(timing, (*_TIMES, "kv_cache_size"))
    for group, names in (("kv_cache_metrics", _CACHE), ("speculative_decoding", _DRAFTS)):
        if getattr(metrics, group, None) is not None:
            values[group] = _attributes(getattr(metrics, group), names)
    return values


def _attributes(source: Any, names: Iterable[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in names:
        value = getattr(source, name, None)
        if value is not None:
            # The bindings return times as timedelta.
            values[name] = value.total_seconds() if hasattr(value, "total_seconds") else value
    return values
