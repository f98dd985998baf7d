"""The settings of an engine that explain its performance: the exporter shows them in nv_trt_llm_engine_config_info."""
from __future__ import annotations

from typing import Any

# Each setting, and the arguments of tensorrt_llm.LLM that may contain it. The first argument with a value is used.
_ARGUMENTS = {
    "dtype": ["dtype"],
    # None does not mean "not quantized": a quantized checkpoint needs no argument.
    "quantization": ["quant_config.quant_algo"],
    "tensor_parallel_size": ["tensor_parallel_size"],
    "pipeline_parallel_size": ["pipeline_parallel_size"],
    "expert_parallel_size": ["moe_expert_parallel_size"],
    "kv_cache_dtype": ["kv_cache_config.dtype"],
    "tokens_per_block": ["kv_cache_config.tokens_per_block"],
    "speculative_method": ["speculative_config.decoding_type"],
    "max_batch_size": ["max_batch_size", "build_config.max_batch_size"],
    "max_num_tokens": ["max_num_tokens", "build_config.max_num_tokens"],
}


def engine_settings(engine: Any) -> dict[str, str | int]:
    """The settings of a tensorrt_llm.LLM. Settings that this release or this engine does not have are left out."""
    found = {name: _first(engine, paths) for name, paths in _ARGUMENTS.items()}
    return {name: value for name, value in found.items() if value is not None}


def _first(engine: Any, paths: list[str]) -> str | int | None:
    for path in paths:
        try:
            value = engine.args
            for name in path.split("."):
                value = getattr(value, name)
        except Exception:  # not an LLM, or of another release
            continue
        value = getattr(value, "value", value)  # an enumerator such as QuantAlgo.FP8
        if isinstance(value, str) and value or type(value) is int and value > 0:
            return value
    return None
