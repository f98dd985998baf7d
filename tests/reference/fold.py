#!/usr/bin/env python3
"""Computes the page that a file of records must produce: a second implementation of the fold, in another language.

  fold.py FILE        prints a JSON object: series without model and version -> value

Written from the rules of the metric reference, not from the code of the exporter. Simple and slow. It has all counters and
histograms, and the gauges of an idle engine. Uses only Python's standard library.
"""
import json
import sys
from datetime import datetime, timezone

LONG = "0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680"
SHORT = "0.001 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1 2.5 5 10 20 40 80 160 640 2560"
FIRST = "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 640 2560"
PER_TOKEN = "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80"
ITERATION = "0.001 0.0025 0.005 0.0075 0.01 0.015 0.02 0.03 0.05 0.075 0.1 0.15 0.2 0.3 0.5 0.75 1 2.5 5 10"
TENTHS = "0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 1"
POWERS = " ".join(str(1 << n) for n in range(13))
BOUNDS = {
    "nv_llm_input_token_len": "10 50 100 500 1000",
    "nv_llm_output_token_len": "10 50 100 500 1000",
    "nv_trt_llm_iteration_latency_seconds": ITERATION,
    "nv_trt_llm_iteration_scheduled_requests": POWERS,
    "nv_trt_llm_iteration_context_tokens": " ".join(str(64 << n) for n in range(10)),
    "nv_trt_llm_new_request_queue_time_seconds": SHORT,
    "nv_trt_llm_time_to_first_token_seconds": FIRST,
    "nv_trt_llm_time_per_output_token_seconds": PER_TOKEN,
    "nv_trt_llm_e2e_request_latency_seconds": LONG,
    "nv_trt_llm_request_queue_time_seconds": LONG,
    "nv_trt_llm_request_prefill_time_seconds": SHORT,
    "nv_trt_llm_request_decode_time_seconds": LONG,
    "nv_trt_llm_request_inference_time_seconds": LONG,
    "nv_trt_llm_kv_cache_transfer_seconds": SHORT,
    "nv_trt_llm_kv_cache_transfer_bytes": " ".join(str(1 << n) for n in range(16, 35, 2)),
    "nv_trt_llm_request_kv_cache_hit_ratio": TENTHS,
}
# Present from their first observation.
LATER = {
    "nv_trt_llm_host_step_seconds": ITERATION,
    "nv_trt_llm_device_step_seconds": ITERATION,
    "nv_trt_llm_gpu_forward_seconds": ITERATION,
    "nv_trt_llm_request_kv_cache_blocks": POWERS,
    "nv_trt_llm_request_kv_cache_new_blocks": POWERS,
    "nv_trt_llm_request_iterations": "1 2 5 10 20 50 100 200 500 1000 2000 5000 10000 20000 50000",
    "nv_trt_llm_request_decoded_tokens_per_iteration": "1 1.25 1.5 1.75 2 2.5 3 4 5 6 8",
    "nv_trt_llm_request_spec_decode_acceptance_ratio": TENTHS,
}
COUNTERS = """iterations iterations_lost engine_restarts requests_started requests_completed context_tokens generation_tokens
 kv_cache_blocks_allocated kv_cache_blocks_newly_allocated kv_cache_blocks_reused kv_cache_blocks_missed
 spec_decode_draft_tokens spec_decode_accepted_tokens spec_decode_drafted_requests spec_decode_draft_seconds
 request_pauses""".split()


class Fold:
    def __init__(self):
        self.counts = dict.fromkeys((f"nv_trt_llm_{name}_total" for name in COUNTERS), 0)
        self.observed = {name: [] for name in (*BOUNDS, *LATER)}
        self.transfers, self.transfer_ms = 0, 0.0
        self.events = {}
        self.exact = self.rows_seen = False
        self.undecided = []  # lengths and transfers of entries, until it is known whether rows have them
        self.process = None
        self.last = self.last_end = None  # the last record and its time
        self.begin(met_running=True)

    def begin(self, met_running):
        """Begins an epoch of the engine. Counts of an engine that was already running are a baseline."""
        self.seen = None  # every iteration up to this one is counted or lost
        self.rank = None
        self.completed_of = (None, 0)
        self.waited_through = None  # iterations up to this one may contain the wait for work
        self.sequence, self.gap, self.dropped = None, 0, 0
        self.lost_before = self.counts["nv_trt_llm_iterations_lost_total"]
        start = None if met_running else 0
        self.cumulative = dict.fromkeys(("allocTotalBlocks", "allocNewBlocks", "reusedBlocks", "missedBlocks",
                                         "statsDroppedFrames"), start)
        self.end = None  # end of the last iteration, microseconds
        self.last_was_flush = False
        self.typical = 0
        self.lives, self.rounds = {}, 0

    def count(self, name, more):
        self.counts[f"nv_trt_llm_{name}_total"] += more

    def observe(self, name, value, times=1):
        self.observed[name if name.startswith("nv_llm") else f"nv_trt_llm_{name}"].append((value, times))

    def add_event(self, series, more):
        if more is not None:
            self.events[series] = self.events.get(series, 0) + more

    def line(self, line):
        if "hello" in line:
            pid = line["hello"].get("pid")
            if pid is not None:
                if self.process not in (None, pid) and self.seen is not None:
                    self.restart()
                self.process = pid
        elif "perf_metrics" in line:
            self.entry(line)
        else:
            self.record(line)

    def restart(self):
        self.count("engine_restarts", 1)
        self.begin(met_running=False)

    def record(self, r):
        """Folds one record. A flush is not an iteration. It has the number of the next one."""
        n = r["iter"]
        batch = r.get("inflightBatchingStats")
        flush = (r["numActiveRequests"] == 0 and r["iterLatencyMS"] == 0.0
                 and (batch or {}).get("numScheduledRequests", 0) == 0)
        if self.seen is not None and n < self.seen:
            self.restart()
        if self.seen == n and not flush and r.get("attentionDpRank") not in (None, self.rank):
            # The row of another rank for the same iteration. Only its batch is its own.
            self.tokens(r)
            return
        gap = self.losses(r, n - 1 if flush else n)
        self.kv(r)
        already = self.completed_of[1] if self.completed_of[0] == n else 0
        self.count("requests_completed", max(0, r["numCompletedRequests"] - already))
        self.completed_of = (n, max(already, r["numCompletedRequests"]))
        latency = self.latency(r, n, flush)
        if not flush:
            self.rank = r.get("attentionDpRank")
            self.iteration(r, latency)
        start, end, continuous = self.time(r, latency, flush, gap)
        if r.get("requestStats") is not None:
            self.rows(r["requestStats"], start, end, continuous)
        self.last = r

    def losses(self, r, through):
        before = max(self.gap, self.dropped)
        if self.seen is not None:
            frames = r.get("statsSequence")
            if frames is not None and self.sequence is not None and frames > self.sequence:
                self.gap += frames - self.sequence - 1
            else:
                self.gap += max(0, through - self.seen - (0 if through < r["iter"] else 1))
        self.sequence = r.get("statsSequence", self.sequence)
        self.seen = through if self.seen is None else max(self.seen, through)
        self.dropped += self.increase("statsDroppedFrames", r.get("statsDroppedFrames"))
        lost = max(self.gap, self.dropped)
        self.counts["nv_trt_llm_iterations_lost_total"] = self.lost_before + lost
        return lost > before

    def increase(self, name, value):
        """The increase of a cumulative count of the engine. A lower count has restarted from 0."""
        if value is None:
            return 0
        last, self.cumulative[name] = self.cumulative[name], value
        return 0 if last is None else value - last if value >= last else value

    def kv(self, r):
        for key, name in (("allocTotalBlocks", "allocated"), ("allocNewBlocks", "newly_allocated"),
                          ("reusedBlocks", "reused"), ("missedBlocks", "missed")):
            self.count(f"kv_cache_blocks_{name}", self.increase(key, r["kvCacheStats"][key]))

    def latency(self, r, n, flush):
        """Seconds. None for the 0 after idle and for a latency that contains the wait for work."""
        if flush:
            self.waited_through = n + 1
            return None
        ms = r["iterLatencyMS"]
        if r.get("schedulerMode") == "overlap":
            ms = r.get("hostStepTimeMS", ms)
        if ms <= 0:
            self.waited_through = n + 1
            return None
        if self.waited_through is not None and n <= self.waited_through:
            return None
        return ms / 1000

    def tokens(self, r):
        batch = r.get("inflightBatchingStats")
        if batch is None:
            batch = r["staticBatchingStats"]
            generated = batch["numGenTokens"]
        else:
            # A mean of 0 means that the field is not set.
            generated = round(batch["numGenRequests"] * (batch["avgNumDecodedTokensPerIter"] or 1))
        self.count("context_tokens", batch["numCtxTokens"])
        self.count("generation_tokens", generated)
        return batch

    def iteration(self, r, latency):
        self.count("iterations", 1)
        new = r["numNewActiveRequests"]
        self.count("requests_started", new)
        if latency is not None:
            self.observe("iteration_latency_seconds", latency)
        if new:
            self.observe("new_request_queue_time_seconds", r["newActiveRequestsQueueLatencyMS"] / 1000 / new, new)
        batch = self.tokens(r)
        self.observe("iteration_scheduled_requests", batch["numScheduledRequests"])
        if batch["numCtxTokens"]:
            self.observe("iteration_context_tokens", batch["numCtxTokens"])
        spec = r.get("specDecodingStats")
        if spec:
            self.count("spec_decode_draft_tokens", spec["numDraftTokens"])
            self.count("spec_decode_accepted_tokens", spec["numAcceptedTokens"])
            self.count("spec_decode_drafted_requests", spec["numRequestsWithDraftTokens"])
            self.count("spec_decode_draft_seconds", spec["iterLatencyMS"] / 1000)
        for key, name in (("hostStepTimeMS", "host_step"), ("prevDeviceStepTimeMS", "device_step"),
                          ("gpuForwardTimeMS", "gpu_forward")):
            if r.get(key):
                self.observe(f"{name}_seconds", r[key] / 1000)
        self.add_event("nv_trt_llm_request_suspensions_total", r.get("iterSuspendedRequests"))
        for window in (r.get("kvCacheIterationStats") or {}).values():
            self.add_event('nv_trt_llm_kv_cache_window_blocks_total{event="reused"}', window["iterReusedBlocks"])
            self.add_event('nv_trt_llm_kv_cache_window_blocks_total{event="missed"}', window["iterMissedBlocks"])
            self.add_event('nv_trt_llm_kv_cache_window_bytes_total{event="onboarded"}', window["iterOnboardBytes"])

    def time(self, r, latency, flush, gap):
        """Start and end of the iteration. It starts at the end of the previous one, or after idle or a loss at its end less
        its latency."""
        if latency is not None:
            self.typical = int(latency * 1e6)
        stamp = datetime.fromisoformat(r["timestamp"].replace("Z", "+00:00"))
        delta = stamp - datetime(1970, 1, 1, tzinfo=timezone.utc)
        end = (delta.days * 86400 + delta.seconds) * 1_000_000 + delta.microseconds
        continuous = self.end is not None and not gap
        if self.end is None:
            start = end - self.typical
        elif continuous and not self.last_was_flush:
            start = self.end
        else:
            start = max(end - self.typical, self.end)
        self.end, self.last_end, self.last_was_flush = end, end, flush
        return start, end, continuous

    def rows(self, rows, start, end, continuous):
        """A request arrives with its first row, is scheduled with the first row that says so, has its first token at the end
        of the iteration that shows one, and ends before the pass that reports it complete. Times in lost iterations, and of
        requests that started before the first record, are unknown."""
        self.rounds += 1
        known = continuous and self.rounds > 1
        for row in rows:
            number, tokens = row["id"], row["numGeneratedTokens"]
            if row["stage"] == "GENERATION_COMPLETE":
                self.complete(row, self.lives.pop(number, None), start, known)
                continue
            life = self.lives.get(number)
            if life is None or tokens < life["tokens"]:
                life = self.lives[number] = {"arrived": start if known else None, "scheduled": None, "first": None,
                                             "paused": False}
            life["tokens"], life["round"] = tokens, self.rounds
            if row["scheduled"] and life["scheduled"] is None:
                life["scheduled"] = start
                life["arrived"] = life["arrived"] if known else None
            if tokens > 0 and life["first"] is None:
                life["first"] = end
                life["arrived"] = life["arrived"] if known else None
            if row["paused"] and not life["paused"]:
                self.count("request_pauses", 1)
            life["paused"] = row["paused"]
        if self.rounds % 64 == 0:  # the end of a request without rows was missed
            self.lives = {number: life for number, life in self.lives.items() if life["round"] >= self.rounds - 64}

    def complete(self, row, life, start, known):
        self.rows_seen, self.undecided = True, []
        self.lengths(row["contextPrefillPosition"], row["numGeneratedTokens"])
        transfer = row["disServingStats"]
        if transfer:
            self.transfers += 1
            self.transfer_ms += transfer["kvCacheTransferMS"]
        self.observe("request_decoded_tokens_per_iteration", row["avgNumDecodedTokensPerIter"])
        if self.exact:
            return
        tokens = row["numGeneratedTokens"]
        if life and life["arrived"] is not None and tokens >= life["tokens"] and (
                known or None not in (life["scheduled"], life["first"])):
            first = life["first"] if life["first"] is not None else start if tokens else None
            seconds = [None if us is None else us / 1e6 for us in (life["arrived"], life["scheduled"], first, start)]
            self.times(*seconds, tokens)
        self.blocks(row["allocTotalBlocksPerRequest"], row["allocNewBlocksPerRequest"], row["reusedBlocksPerRequest"],
                    row["missedBlocksPerRequest"])
        if transfer:
            self.transfer(transfer["kvCacheTransferMS"] / 1000, transfer["kvCacheSize"])

    def lengths(self, prompt, output):
        if prompt:
            self.observe("nv_llm_input_token_len", prompt)
        if output is not None:
            self.observe("nv_llm_output_token_len", output)

    def times(self, arrived, scheduled, first, ended, tokens):
        between = lambda a, b: None if a is None or b is None else b - a
        pairs = {"time_to_first_token": (arrived, first), "e2e_request_latency": (arrived, ended),
                 "request_prefill_time": (scheduled, first), "request_decode_time": (first, ended),
                 "request_inference_time": (scheduled, ended)}
        for name, (a, b) in pairs.items():
            if (between(a, b) or 0) > 0:
                self.observe(f"{name}_seconds", b - a)
        waited, decode = between(arrived, scheduled), between(first, ended)
        if waited is not None and waited >= 0:  # a queue time may be 0
            self.observe("request_queue_time_seconds", waited)
        if tokens is not None and tokens >= 2 and (decode or 0) > 0:
            self.observe("time_per_output_token_seconds", decode / (tokens - 1))

    def blocks(self, total, new, reused, missed):
        if reused + missed > 0:
            self.observe("request_kv_cache_hit_ratio", reused / (reused + missed))
        self.observe("request_kv_cache_blocks", total)
        self.observe("request_kv_cache_new_blocks", new)

    def transfer(self, seconds, size):
        if seconds > 0:
            self.observe("kv_cache_transfer_seconds", seconds)
        if size > 0:
            self.observe("kv_cache_transfer_bytes", size)

    def entry(self, line):
        """The times of a finished request are exact. After the first entry, latencies come from entries only."""
        if not self.exact:
            assert not self.rows_seen, "the test's entries begin before its rows"
        self.exact = True
        reason = line.get("finish_reason")
        if reason:
            for name in ("stop", "length", "timeout", "cancelled", "other"):
                self.add_event(f'nv_trt_llm_requests_finished_total{{reason="{name}"}}', int(name == reason))
        metrics = line["perf_metrics"]
        t = metrics["timing_metrics"]
        moved = t["kv_cache_transfer_end"] - t["kv_cache_transfer_start"] if "kv_cache_transfer_start" in t else None
        if not self.rows_seen:
            self.undecided.append((line.get("prompt_tokens"), line.get("output_tokens"), moved))
        self.times(t.get("arrival_time"), t.get("first_scheduled_time"), t.get("first_token_time"), t.get("last_token_time"),
                   line.get("output_tokens"))
        if moved is not None:
            self.transfer(moved, t["kv_cache_size"])
        if "first_iter" in metrics:
            self.observe("request_iterations", metrics["last_iter"] - metrics["first_iter"] + 1)
        kv = metrics.get("kv_cache_metrics")
        if kv:
            self.blocks(kv["num_total_allocated_blocks"], kv["num_new_allocated_blocks"], kv["num_reused_blocks"],
                        kv["num_missed_blocks"])
        spec = metrics.get("speculative_decoding")
        if spec:
            accepted, drafted = spec["total_accepted_draft_tokens"], spec["total_draft_tokens"]
            self.observe("request_spec_decode_acceptance_ratio", accepted / drafted)
            self.add_event('nv_trt_llm_request_draft_tokens_total{outcome="proposed"}', drafted)
            self.add_event('nv_trt_llm_request_draft_tokens_total{outcome="accepted"}', accepted)

    def page(self):
        for prompt, output, moved in self.undecided:
            self.lengths(prompt, output)
            if moved is not None:
                self.transfers += 1
                self.transfer_ms += moved * 1000
        series = {**self.counts, **self.events}
        for name, bounds in {**BOUNDS, **LATER}.items():
            if name in BOUNDS or self.observed[name]:
                histogram(series, name, bounds.split(), self.observed[name])
        disaggregated = "nv_trt_llm_disaggregated_serving_metrics{disaggregated_serving_type=\"%s\"}"
        series[disaggregated % "kv_cache_transfer_ms"] = self.transfer_ms
        series[disaggregated % "request_count"] = self.transfers
        return {**series, **self.gauges()}

    def gauges(self):
        """The engine is idle at the end of the file: its loads are 0, and other values stay."""
        r, kv = self.last, self.last["kvCacheStats"]
        blocks = 'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="%s"}'
        requests = 'nv_trt_llm_request_metrics{request_type="%s"}'
        total = lambda name: self.counts[f"nv_trt_llm_kv_cache_blocks_{name}_total"]
        series = {
            blocks % "max": kv["maxNumBlocks"], blocks % "used": kv["usedNumBlocks"],
            blocks % "free": kv["freeNumBlocks"], blocks % "tokens_per": kv["tokensPerBlock"],
            blocks % "reused": kv["reusedBlocks"], blocks % "fraction": kv["usedNumBlocks"] / kv["maxNumBlocks"],
            requests % "max": r["maxNumActiveRequests"], requests % "active": 0, requests % "scheduled": 0,
            requests % "waiting": 0, requests % "context": 0,
            'nv_trt_llm_general_metrics{general_type="iteration_counter"}': r["iter"],
            'nv_trt_llm_general_metrics{general_type="timestamp"}': self.last_end,
            "nv_trt_llm_queued_requests": 0,
            "nv_trt_llm_kv_cache_available_tokens": kv["freeNumBlocks"] * kv["tokensPerBlock"],
            "nv_trt_llm_kv_cache_pressure_ratio": (kv["maxNumBlocks"] - kv["freeNumBlocks"]) / kv["maxNumBlocks"],
            "nv_trt_llm_kv_cache_hit_ratio": total("reused") / (total("reused") + total("missed")),
            "nv_trt_llm_kv_cache_reuse_efficiency_ratio": total("reused") / total("allocated"),
            'nv_trt_llm_request_latency_info{from="%s"}' % ("perf_metrics" if self.exact else "request_stats"): 1,
        }
        for key in ("gpu", "cpu", "pinned"):
            series['nv_trt_llm_runtime_memory_metrics{memory_type="%s"}' % key] = r[key + "MemUsage"]
        return series


def histogram(series, name, bounds, observed):
    label = {"nv_llm_input_token_len": 'response_metric_type="total_input_tokens"',
             "nv_llm_output_token_len": 'response_metric_type="total_output_tokens"'}.get(name)
    limits, inner = [float(bound) for bound in bounds], [0] * (len(bounds) + 1)
    total, count = 0.0, 0
    for value, times in observed:
        inner[next((at for at, limit in enumerate(limits) if value <= limit), len(limits))] += times
        total += value * times
        count += times
    below = 0
    for bound, here in zip([*bounds, "+Inf"], inner):
        below += here
        series[f'{name}_bucket{{{label + "," if label else ""}le="{bound}"}}'] = below
    end = f"{{{label}}}" if label else ""
    series[f"{name}_sum{end}"], series[f"{name}_count{end}"] = total, count


def main():
    fold = Fold()
    with open(sys.argv[1]) as lines:
        for line in lines:
            fold.line(json.loads(line))
    json.dump(fold.page(), sys.stdout)


if __name__ == "__main__":
    main()
