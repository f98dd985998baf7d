#!/usr/bin/env python3
"""Judges the OTLP receiver and --otlp.endpoint with real OpenTelemetry Collectors:

    official Python SDK -> Collector -> exporter -> Collector

The exporter must count the requests, and the second Collector must get each span as the first one sent it. The first Collector must log
what the exporter refuses. Once over gRPC and once over HTTP, packed with gzip, the default of the Collector.

    usage: otlp_collector.py EXPORTER COLLECTOR     COLLECTOR: built from tests/go/collector
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from exporter import ROOT, Exporter, Program, until
from free_port import free_port
from spans import exporter as sdk_exporter

SPANS = 9


class Collector(Program):
    """Receives OTLP over gRPC and HTTP, prints each span, and sends it to an exporter of spans if there is one."""

    def __init__(self, program, folder, name, exporter=None):
        self.grpc, self.http = free_port(), free_port()
        exporters = {"debug": {"verbosity": "detailed"}, **(exporter or {})}
        config = {
            "receivers": {"otlp": {"protocols": {
                "grpc": {"endpoint": f"127.0.0.1:{self.grpc}"}, "http": {"endpoint": f"127.0.0.1:{self.http}"}}}},
            # The numbers of docs/sources.md.
            "processors": {"batch": {"send_batch_size": 512, "send_batch_max_size": 1024}},
            "exporters": exporters,
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"traces": {"receivers": ["otlp"], "processors": ["batch"], "exporters": list(exporters)}},
            },
        }
        file = folder / f"{name}.yaml"
        file.write_text(json.dumps(config))
        super().__init__([program, "--config", f"file:{file}"], folder / f"{name}.log")
        self.until_ready(lambda: "Everything is ready" in self.log())

    def spans(self):
        """Each span as the Collector prints it: ids, times, status, attributes and events."""
        blocks = re.split(r"^(?:Span #\d+|ScopeSpans #\d+.*|ResourceSpans #\d+.*|\t?\{.*|\d{4}-.*)$", self.log(), flags=re.M)
        return sorted(block for block in blocks if "Trace ID" in block)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def judge(exporter_program, program, protocol, folder):
    port = free_port()
    last = Collector(program, folder, f"last-{protocol}")
    arguments = ["--source", f"otlp:127.0.0.1:{port}", "--otlp.endpoint", f"http://127.0.0.1:{last.http}", "--model", "m"]
    exporter = Exporter(exporter_program, *arguments)
    kind, endpoint = ("otlp_grpc", f"127.0.0.1:{port}") if protocol == "grpc" else ("otlp_http", f"http://127.0.0.1:{port}")
    first = Collector(program, folder, f"first-{protocol}", {kind: {"endpoint": endpoint, "tls": {"insecure": True}}})
    try:
        to = first.grpc if protocol == "grpc" else first.http
        target = [f"http://127.0.0.1:{to}", "grpc" if protocol == "grpc" else "http/protobuf", "gzip"]
        command = [sys.executable, ROOT / "tests/judges/spans.py", *target]
        sent = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        assert sent == {"sent": SPANS, "failed": 0}, sent
        page = until("six requests", lambda: (page := exporter.page()).values("nv_trt_llm_e2e_request_latency_seconds_count") == [6] and page)
        assert page.value("nv_llm_output_token_len_sum") == 90
        assert page.value("nv_trt_llm_requests_finished_total", reason="stop") == 4
        until("all spans forwarded", lambda: exporter.page().values("trtllm_exporter_spans_forwarded_total") == [SPANS])
        assert page.value("trtllm_exporter_spans_dropped_total", reason="not_a_request") == 2
        until("all spans at the last collector", lambda: len(last.spans()) == SPANS)
        assert first.spans() == last.spans(), "the spans differ"
        for name in ("gen_ai.latency.e2e", "gen_ai.usage.prompt_tokens", "kv_cache_transfer_start"):
            assert any(name in span for span in last.spans()), name
        troubles = [line for line in first.log().splitlines() if "\twarn\t" in line or "\terror\t" in line]
        assert not troubles, troubles
        send_incomplete(target)
        until("the remedy in the Collector's log", lambda: "set return_perf_metrics: true" in first.log())
    finally:
        for part in (first, exporter, last):
            part.stop()
    print(f"{protocol}: {SPANS} spans through two Collectors and the exporter, unchanged; 6 requests counted")


def send_incomplete(target):
    """Sends a span of a request whose times and lengths the engine does not know."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(sdk_exporter(*target)))
    with provider.get_tracer("trt.llm").start_as_current_span("llm_request") as span:
        span.set_attribute("gen_ai.latency.e2e", -1.0)
    provider.shutdown()


def main():
    exporter_program, program = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        for protocol in ("grpc", "http"):
            judge(exporter_program, program, protocol, pathlib.Path(folder))


if __name__ == "__main__":
    main()
