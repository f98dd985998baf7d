"""Replaces the parts of TensorRT-LLM 1.3 that Dynamo's worker imports. There is no model: each request gets the tokens
7 7 7 …, and each token is one iteration with one record of statistics.

STANDIN_RECORDS is a file with one JSON object per line: each record of the engine, and each read of the records.
"""
import asyncio
import collections
import dataclasses
import datetime
import enum
import json
import os
import pathlib
import time
import types

import submodules

BLOCK, MAX_BLOCKS, ITERATION = 32, 1000, 0.005
RECORDED = open(os.environ["STANDIN_RECORDS"], "a", buffering=1)


def record(kind, **values):
    RECORDED.write(json.dumps({"kind": kind, **values}) + "\n")


class Settings:
    """Accepts named arguments, like the pydantic models of TensorRT-LLM."""

    def __init__(self, *_positional, **values):
        self.__dict__.update(values)

    def model_dump(self, **_options):
        return dict(self.__dict__)


@dataclasses.dataclass
class SamplingParams:
    n: int = 1
    max_tokens: int = 4
    min_tokens: int = None
    temperature: float = None
    top_p: float = None
    top_k: int = None
    seed: int = None
    stop_token_ids: list = None
    ignore_eos: bool = False
    detokenize: bool = True
    return_perf_metrics: bool = False


class BuildConfig(Settings):
    # Defaults of Dynamo's own flags.
    model_fields = {name: types.SimpleNamespace(default=value) for name, value in
                    (("max_batch_size", 8), ("max_num_tokens", 2048), ("max_beam_width", 1), ("max_seq_len", 2048))}


class CapacitySchedulerPolicy(enum.Enum):
    GUARANTEED_NO_EVICT = "GUARANTEED_NO_EVICT"


class GenerationResult:
    """The result of one request. As in TensorRT-LLM, it is an asynchronous iterator that returns itself after each token."""

    def __init__(self, llm, request_id, prompt, sampling):
        self.request_id, self.prompt_token_ids, self.finished, self.cached_tokens = request_id, prompt, False, 0
        self.disaggregated_params, self.metrics_dict, self._llm, self._sampling = None, {}, llm, sampling
        self.outputs = [types.SimpleNamespace(
            index=0, token_ids=[], finish_reason=None, stop_reason=None, logprobs=None, prompt_logprobs=None,
            cumulative_logprob=None, disaggregated_params=None, request_perf_metrics=None, text="")]
        self._arrival, self._first = time.monotonic(), None

    def abort(self):
        self.finished = True

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self.finished:
            raise StopAsyncIteration
        await asyncio.sleep(ITERATION)
        only, now = self.outputs[0], time.monotonic()
        self._first = self._first or now
        only.token_ids = [*only.token_ids, 7]
        self.finished = len(only.token_ids) >= (self._sampling.max_tokens or 4)
        self._llm.iterate(len(self.prompt_token_ids) if len(only.token_ids) == 1 else 0, self.finished)
        if self.finished:
            self._finish(only, now)
        return self

    def _finish(self, only, now):
        only.finish_reason, seconds = "length", lambda value: datetime.timedelta(seconds=value)
        if self._sampling.return_perf_metrics:
            self.metrics_dict = {
                "finished_reason": "length", "e2e": now - self._arrival, "ttft": self._first - self._arrival}
            only.request_perf_metrics = types.SimpleNamespace(
                first_iter=1, last_iter=self._llm.iterations, kv_cache_metrics=None, speculative_decoding=None,
                timing_metrics=types.SimpleNamespace(
                    arrival_time=seconds(self._arrival), first_scheduled_time=seconds(self._arrival),
                    first_token_time=seconds(self._first), last_token_time=seconds(now),
                    kv_cache_transfer_start=seconds(0), kv_cache_transfer_end=seconds(0), kv_cache_size=0))
        record("request", prompt=len(self.prompt_token_ids), tokens=len(only.token_ids))


class BaseLLM:
    """Replaces TensorRT-LLM's class LLM. Statistics wait in a ring of 1000 records until somebody reads them."""

    def __init__(self, model=None, **arguments):
        self.args = types.SimpleNamespace(model=model, **arguments)
        self.iterations, self._requests, self._ring = 0, 0, collections.deque(maxlen=1000)
        record("arguments", enable_iter_perf_stats=arguments.get("enable_iter_perf_stats"),
               return_perf_metrics=arguments.get("return_perf_metrics"))

    def generate_async(self, inputs, sampling_params=None, lora_request=None, prompt_adapter_request=None, streaming=False,
                       kv_cache_retention_config=None, disaggregated_params=None, trace_headers=None,
                       _postproc_params=None, scheduling_params=None, cache_salt=None, priority=0.5):
        self._requests += 1
        return RequestOutput(self, self._requests, list(inputs), sampling_params or SamplingParams())

    def iterate(self, context_tokens, finished):
        self.iterations += 1
        if not self.args.enable_iter_perf_stats:
            return
        used = 10 + self.iterations % 7
        self._ring.append({
            "iter": self.iterations, "iterLatencyMS": 5.0, "numActiveRequests": 1, "numQueuedRequests": 0,
            "numNewActiveRequests": 1 if context_tokens else 0, "numCompletedRequests": int(finished),
            "maxNumActiveRequests": 8, "gpuMemUsage": 1 << 30, "cpuMemUsage": 0, "pinnedMemUsage": 0,
            "kvCacheStats": {
                "maxNumBlocks": MAX_BLOCKS, "freeNumBlocks": MAX_BLOCKS - used, "usedNumBlocks": used,
                "tokensPerBlock": BLOCK, "allocTotalBlocks": self.iterations, "allocNewBlocks": self.iterations,
                "reusedBlocks": self.iterations // 3, "missedBlocks": self.iterations, "cacheHitRate": 0.25},
            "inflightBatchingStats": {
                "numScheduledRequests": 1, "numContextRequests": int(bool(context_tokens)),
                "numGenRequests": int(not context_tokens), "numPausedRequests": 0, "numCtxTokens": context_tokens,
                "numCtxKvTokens": 0, "numGenKvTokens": used * BLOCK, "numQueuedContextRequests": 0, "numQueuedCtxTokens": 0,
                "numQueuedGenRequests": 0, "numQueuedGenKvTokens": 0, "numPausedKvTokens": 0,
                "microBatchId": 0, "avgNumDecodedTokensPerIter": float(not context_tokens)}})
        record("iteration", **self._ring[-1])

    def get_stats(self, timeout=2):
        taken = [self._ring.popleft() for _ in range(len(self._ring))]
        if taken:
            record("taken", by="get_stats", iters=[each["iter"] for each in taken])
        return taken

    async def get_stats_async(self, timeout=2):
        while self._ring:
            taken = self._ring.popleft()
            record("taken", by="get_stats_async", iters=[taken["iter"]])
            yield taken

    async def get_kv_cache_events_async(self, timeout=2):
        for event in ():
            yield event

    def get_kv_cache_capacity(self):
        return {"maxNumBlocks": MAX_BLOCKS, "tokensPerBlock": BLOCK}

    def _check_health(self):
        return True

    def shutdown(self):
        record("shutdown", left=len(self._ring))


class LLM(BaseLLM):
    pass


class RequestOutput(GenerationResult):
    pass


class MultimodalEncoder(BaseLLM):
    pass


class MetricsCollector:
    """Replaces TensorRT-LLM's collector. It has only four of the collector's metrics."""

    def __init__(self, labels):
        from prometheus_client import Counter, Gauge
        self._labels = labels
        self._running = Gauge("trtllm_num_requests_running", "Number of active requests", labels)
        self._utilization = Gauge("trtllm_kv_cache_utilization", "KV cache utilization", labels)
        self._completed = Counter("trtllm_num_requests_completed_total", "Total number of completed requests", labels)
        self._success = Counter("trtllm_request_success_total", "Count of requests", [*labels, "finished_reason"])

    def log_iteration_stats(self, stats):
        self._running.labels(**self._labels).set(stats["numActiveRequests"])
        cache = stats["kvCacheStats"]
        self._utilization.labels(**self._labels).set(cache["usedNumBlocks"] / cache["maxNumBlocks"])
        self._completed.labels(**self._labels).inc(stats["numCompletedRequests"])

    def log_request_metrics_dict(self, metrics):
        if metrics:
            self._success.labels(**self._labels, finished_reason=metrics["finished_reason"]).inc()


def tokenizer_factory(folder, **_options):
    from transformers import AutoTokenizer
    return AutoTokenizer.from_pretrained(folder)


def update_llm_args_with_extra_options(arguments, path):
    import yaml
    return {**arguments, **yaml.safe_load(pathlib.Path(path).read_text())}


class RequestError(RuntimeError):
    pass


DEFAULT_REQUEST_PRIORITY, TOKENIZER_ALIASES = 0.5, {}


def _attribute(name):
    """Each submodule exports the names that this file defines. Any other name is an empty class, because only type hints use it."""
    if name.startswith("__") or name in ("ConversationParams", "PreprocessedInputs"):
        raise AttributeError(name)
    return globals().get(name) or globals().setdefault(name, type(name, (Settings,), {}))


submodules.add(__name__, _attribute)
