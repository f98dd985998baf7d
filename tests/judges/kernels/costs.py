"""Compares the costs that the exporter has learned with the true times of the batches."""

import math
import statistics

from engine import BLOCK


def predicted(present, context, generation, kv_tokens):
    """The seconds of a batch: the mean of the nearest known work, and the linear fit for the difference. None if no work is
    known."""

    def apart(work):
        def steps(one, other):
            return (math.log2(1 + one) - math.log2(1 + other)) ** 2

        return steps(work["contextTokens"], context) + steps(work["generationTokens"], generation)

    same_phase = [work for work in present["equalWork"] if (work["contextTokens"] > 0) == (context > 0)]
    nearest = min(same_phase or present["equalWork"], key=apart, default=None)
    if nearest is None:
        return None
    prices = present.get("prices") or dict.fromkeys(("contextToken", "generationToken", "kvToken"), 0.0)
    return (
        nearest["seconds"]
        + prices["contextToken"] * (context - nearest["contextTokens"])
        + prices["generationToken"] * (generation - nearest["generationTokens"])
        + prices["kvToken"] * (kv_tokens - nearest["kvTokens"])
    )


def median_errors(present, batches, kind):
    """The median relative errors for batches with and without prompts. None where nothing is known."""
    errors = {True: [], False: []}
    for batch in batches:
        # 1.2 does not report the tokens in the cache that decoding reads; the exporter takes the blocks in use.
        kv_tokens = batch.used * BLOCK if kind == "stable" else batch.kv_tokens
        seconds = predicted(present, batch.context_tokens, len(batch.decoding), kv_tokens)
        if seconds is not None:
            errors[bool(batch.chunks)].append(abs(seconds / batch.took - 1))
    prompts, decoding = (statistics.median(errors[has]) if errors[has] else None for has in (True, False))
    return {"prompts": prompts, "decoding": decoding}
