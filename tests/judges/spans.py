"""Sends spans as trtllm-serve does, with the official SDK of OpenTelemetry.

usage: spans.py ENDPOINT PROTOCOL COMPRESSION    PROTOCOL: grpc or http/protobuf; COMPRESSION: none or gzip

The spans and their attributes follow `do_tracing` of tensorrt_llm/executor/result.py and `SpanAttributes` of
tensorrt_llm/llmapi/tracing.py. Prints a JSON object with the number of spans that were sent.
"""
import json
import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult

START = 1_790_000_000.0  # seconds since 1970


class Counting(SimpleSpanProcessor):
    """Fails if an export fails: the SDK only logs that."""

    def __init__(self, exporter):
        super().__init__(exporter)
        self.failed = 0
        export = exporter.export

        def counted(spans):
            result = export(spans)
            self.failed += result is not SpanExportResult.SUCCESS
            return result

        exporter.export = counted


def exporter(endpoint, protocol, compression):
    if protocol == "grpc":
        from grpc import Compression
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        packed = Compression.Gzip if compression == "gzip" else Compression.NoCompression
        return OTLPSpanExporter(endpoint=endpoint, insecure=True, compression=packed)
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    packed = Compression.Gzip if compression == "gzip" else Compression.NoCompression
    return OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces", compression=packed)


def request(tracer, number, parent=None, reason="stop", transfer=None, **changed):
    """One finished request: 4 s, of which 0.25 s in the queue and 0.5 s until the first token, with 100 tokens in and 15 out."""
    start = START + number
    attributes = {
        "gen_ai.request.temperature": 0.7, "gen_ai.request.top_p": 1.0, "gen_ai.request.top_k": 0,
        "gen_ai.request.max_tokens": 128, "gen_ai.request.n": 1, "gen_ai.request.id": number,
        "gen_ai.usage.prompt_tokens": 100, "gen_ai.usage.completion_tokens": 15,
        "gen_ai.latency.time_to_first_token": 0.5, "gen_ai.latency.e2e": 4.0, "gen_ai.latency.time_in_queue": 0.25,
        "gen_ai.latency.kv_cache_transfer_time": 0.0, "gen_ai.response.finish_reasons": json.dumps([reason]), **changed,
    }
    context = trace.set_span_in_context(parent) if parent else None
    with tracer.start_as_current_span("llm_request", context, trace.SpanKind.SERVER, start_time=int(start * 1e9)) as span:
        for name, value in attributes.items():
            span.set_attribute(name, value)
        if transfer:
            for name, at in zip(("kv_cache_transfer_start", "kv_cache_transfer_end"), transfer):
                span.add_event(name, timestamp=int((start + at) * 1e9))


def main():
    endpoint, protocol, compression = sys.argv[1:]
    processor = Counting(exporter(endpoint, protocol, compression))
    provider = TracerProvider()
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("trt.llm")
    for number in range(3):
        request(tracer, number)
    # Times that the engine does not know are -1.
    request(tracer, 3, reason="length", **{"gen_ai.latency.time_to_first_token": -1, "gen_ai.latency.time_in_queue": -1})
    request(tracer, 4, reason="cancelled")
    # A span of the HTTP server is the parent of both parts of a request in disaggregated serving.
    with tracer.start_as_current_span("POST /v1/completions", kind=trace.SpanKind.SERVER) as parent:
        request(tracer, 5, parent, "not_finished", **{"gen_ai.usage.completion_tokens": 1, "gen_ai.latency.e2e": 0.5})
        generation = {"gen_ai.latency.time_in_queue": 0.125, "gen_ai.latency.time_to_first_token": 0.25, "gen_ai.latency.e2e": 2.0}
        request(tracer, 5.5, parent, "stop", (0.03125, 0.09375), **{**generation, "gen_ai.request.id": 5})
    # A program that calls the engine writes a span with the same lengths, and no times of the engine.
    with tracer.start_as_current_span("chat llama", kind=trace.SpanKind.CLIENT) as span:
        for name, value in {"gen_ai.usage.completion_tokens": 15, "gen_ai.response.finish_reasons": ("stop",)}.items():
            span.set_attribute(name, value)
    provider.shutdown()
    print(json.dumps({"sent": 9, "failed": processor.failed}))
    sys.exit(processor.failed > 0)


if __name__ == "__main__":
    main()
