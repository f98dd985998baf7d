"""Times of TensorRT-LLM's kernels on an H100, as NVIDIA has measured them, and the time of an iteration as their sum.

The tables are in the Python package aiconfigurator-core (Apache-2.0). Sizes between two measured ones are interpolated.
"""

import bisect
import dataclasses
import importlib.util
import math
import pathlib

import numpy
import pandas

KERNELS = "1.3.0rc20"  # the release of TensorRT-LLM that ran the kernels
MOST_TOKENS = 16384
# Batch sizes with a CUDA graph. A batch that only decodes is padded to the next of these. Larger batches run without a graph.
GRAPHS = [1, 2, 4, *range(8, 129, 8), 256, 512]
# Milliseconds that the host needs to start the kernels of a layer without a CUDA graph. The GPU cannot be faster.
EAGER_LAYER = 0.12
# Norms, rotary embedding, activation: milliseconds per layer, and how often they read or write the hidden state.
POINTWISE, POINTWISE_PASSES, MEMORY_BYTES_PER_MS = 0.006, 10, 2.7e9


@dataclasses.dataclass(frozen=True)
class Model:
    """The part of a model that one GPU computes. `products`: n and k of the matrix products of a layer."""

    layers: int
    hidden: int
    products: tuple
    head: tuple
    heads: int
    kv_heads: int
    dtype: str = "bfloat16"
    gpus: int = 1
    experts: tuple = ()  # inner size, experts per token, experts

    @property
    def kv_dtype(self):
        return "fp8" if self.dtype == "fp8" else "bfloat16"


LLAMA_8B = Model(32, 4096, ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)), (128256, 4096), 32, 8)
LLAMA_70B = Model(80, 8192, ((1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584)), (16032, 8192), 8, 1, "fp8", 8)
QWEN_30B_A3B = Model(48, 2048, ((5120, 2048), (2048, 4096), (128, 2048)), (151936, 2048), 32, 4, experts=(768, 8, 128))
MODELS = {
    "llama-8b": LLAMA_8B,
    "llama-8b-fp8": dataclasses.replace(LLAMA_8B, dtype="fp8"),
    "llama-70b-fp8-tp8": LLAMA_70B,
    "qwen3-30b-a3b": QWEN_30B_A3B,
}


def table(folder, name):
    package = pathlib.Path(importlib.util.find_spec("aiconfigurator_core").origin).parent
    return pandas.read_parquet(package / f"systems/data/h100_sxm/{folder}/trtllm/{KERNELS}/{name}_perf.parquet")


def linear(points, rows, at):
    """The row at this point, or between the two next to it. Beyond the last point, the last two continue."""
    right = min(max(bisect.bisect_left(points, at), 1), len(points) - 1)
    left = right - 1
    share = (at - points[left]) / (points[right] - points[left])
    return rows[left] * (1 - share) + rows[right] * share


class Surface:
    """Times of two sizes on logarithmic scales. A batch that was too large to be measured costs twice its half."""

    def __init__(self, rows, batch, length):
        pivot = rows.pivot_table(index=batch, columns=length, values="latency", aggfunc="median")
        values = pivot.to_numpy().copy()
        for row in range(1, len(values)):
            missing = numpy.isnan(values[row])
            values[row][missing] = values[row - 1][missing] * pivot.index[row] / pivot.index[row - 1]
        self.batches, self.lengths = [[math.log(size) for size in axis] for axis in (pivot.index, pivot.columns)]
        self.values = numpy.log(values).tolist()

    def __call__(self, batch, length):
        x, y = math.log(max(batch, 1)), math.log(max(length, 1))
        row = min(max(bisect.bisect_left(self.batches, x), 1), len(self.batches) - 1)
        column = min(max(bisect.bisect_left(self.lengths, y), 1), len(self.lengths) - 1)
        x = (x - self.batches[row - 1]) / (self.batches[row] - self.batches[row - 1])
        y = (y - self.lengths[column - 1]) / (self.lengths[column] - self.lengths[column - 1])
        above, below = self.values[row - 1], self.values[row]
        first = above[column - 1] * (1 - y) + above[column] * y
        second = below[column - 1] * (1 - y) + below[column] * y
        return math.exp(first * (1 - x) + second * x)


class Iterations:
    """The milliseconds that the GPU needs for a batch of one model."""

    def __init__(self, name):
        model = self.model = MODELS[name]
        tokens = numpy.arange(MOST_TOKENS + 1)
        products = table("gemm", "gemm")
        products = products[products.gemm_dtype == model.dtype]
        layer = sum(self.product(products, *size, tokens) for size in model.products)
        layer = layer + POINTWISE + tokens * model.hidden * 2 * POINTWISE_PASSES / MEMORY_BYTES_PER_MS
        if model.experts:
            layer = layer + self.mixture(tokens)
        if model.gpus > 1:
            sums = table("comm", "custom_allreduce")
            sums = sums[sums.num_gpus == model.gpus].sort_values("message_size")
            layer = layer + 2 * numpy.interp(tokens * model.hidden, sums.message_size, sums.latency)
        self.layers = (layer * model.layers).tolist()
        # Rows of the head are computed with bfloat16 weights.
        head = table("gemm", "gemm")
        self.head = self.product(head[head.gemm_dtype == "bfloat16"], *model.head, tokens[:2049]).tolist()
        self.context, self.generation = (self.attention(phase) for phase in ("context", "generation"))

    def product(self, rows, n, k, tokens):
        pivot = rows.pivot_table(index="m", columns=["n", "k"], values="latency", aggfunc="median")
        pivot = pivot[pivot.index <= MOST_TOKENS]
        # The largest depth was not measured with the largest width.
        widths, depths = (sorted(set(pivot.columns.get_level_values(size))) for size in ("n", "k"))
        depths.pop()
        by_depth = [linear(widths, [pivot[(width, depth)].to_numpy() for width in widths], n) for depth in depths]
        return numpy.interp(tokens, pivot.index, linear(depths, by_depth, k))

    def mixture(self, tokens):
        inner, top, experts = self.model.experts
        rows = table("moe", "moe")
        rows = rows[(rows.moe_dtype == self.model.dtype) & (rows.hidden_size == self.model.hidden)]
        rows = rows[(rows.inter_size == inner) & (rows.topk == top) & (rows.num_experts == experts)]
        rows = rows[(rows.moe_tp_size == 1) & (rows.moe_ep_size == 1)]
        rows = rows[rows.distribution == "power_law_1.2"].sort_values("num_tokens")
        return numpy.interp(tokens, rows.num_tokens, rows.latency)

    def attention(self, phase):
        model, rows = self.model, table("attention", f"{phase}_attention")
        rows = rows[(rows.num_heads == model.heads) & (rows.num_key_value_heads == model.kv_heads)]
        rows = rows[rows.head_dim == 128]
        rows = rows[(rows.window_size == 0) & (rows.kv_cache_dtype == model.kv_dtype) & (rows.attn_dtype == "bfloat16")]
        return Surface(rows, "batch_size", "isl" if phase == "context" else "step")

    def uses_graph(self, chunks, decoding):
        return not chunks and decoding <= GRAPHS[-1]

    def milliseconds(self, chunks, decoding, kv_tokens):
        """`chunks`: for each prompt the tokens before the chunk and in it. `kv_tokens`: the cache that `decoding` requests
        read."""
        tokens = decoding + sum(new for _, new in chunks)
        graph = self.uses_graph(chunks, decoding)
        if graph:
            tokens = GRAPHS[bisect.bisect_left(GRAPHS, decoding)]
        time = self.layers[min(tokens, MOST_TOKENS)] + self.head[min(decoding + len(chunks), 2048)]
        if chunks:
            # A chunk after others attends to all tokens before it: the square of the end less the square of the begin.
            square = sum((before + new) ** 2 - before**2 for before, new in chunks) / len(chunks)
            time += self.model.layers * self.context(len(chunks), math.sqrt(square))
        if decoding:
            time += self.model.layers * self.generation(tokens if graph else decoding, kv_tokens / decoding)
        return time if graph else max(time, self.model.layers * EAGER_LAYER)
