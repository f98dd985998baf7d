"""Publishes TensorRT-LLM's statistics from a Python server to trtllm-exporter's socket. Uses only the standard library.

    from trtllm_exporter_publisher import publishing

    llm = LLM(model, enable_iter_perf_stats=True)
    with publishing(llm) as publisher:
        for output in llm.generate(prompts, SamplingParams(return_perf_metrics=True)):
            publisher.observe(output)

In an asyncio server, use `async with publishing(llm)`. `publishing` also takes a tensorrt_llm.bindings.executor.Executor.
Records wait in a buffer while the exporter is slow or not running; the log says why the exporter cannot be reached.
The engine returns each statistics record once, so nothing else may read its statistics meanwhile. For a server that reads
them itself, use `with copying(llm)`, or start it with `python3 -m trtllm_exporter_publisher MODULE`.
"""
from .copies import copying
from .engine import publishing
from .publisher import Publisher, engine_name

__all__ = ["Publisher", "copying", "engine_name", "publishing"]
