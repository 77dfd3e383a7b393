"""What clients see of a model that streams: when each request was sent, and when its tokens came.

The figures have the names of `vllm bench serve`. `bench/` measures engines by them too.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Served(NamedTuple):
    """One request: when it was sent, and when each of its tokens came, in seconds."""

    sent: float
    tokens: list[float]


def metrics(requests: Sequence[Served], until: float | None = None) -> dict[str, float]:
    """What `vllm bench serve` reports of the same requests: throughput a second, TTFT, TPOT and ITL
    in milliseconds.

    Args:
        requests: those of which a token came; one at least.
        until: when it was over, if they were cut off then; else their last token was the end.
    """
    began = min(request.sent for request in requests)
    seconds = (until or max(request.tokens[-1] for request in requests)) - began
    ttft = [request.tokens[0] - request.sent for request in requests]
    tpot = [
        (request.tokens[-1] - request.tokens[0]) / (len(request.tokens) - 1)
        for request in requests
        if len(request.tokens) > 1
    ]
    itl = [
        after - before
        for request in requests
        for before, after in zip(request.tokens, request.tokens[1:], strict=False)
    ]
    tokens = sum(len(request.tokens) for request in requests)
    found = {
        "request_throughput": len(requests) / seconds,
        "output_throughput": tokens / seconds,
    }
    for name, values in (("ttft", ttft), ("tpot", tpot), ("itl", itl)):
        ordered = sorted(values) or [0.0]
        found[f"mean_{name}_ms"] = statistics.mean(ordered) * 1000
        found[f"median_{name}_ms"] = statistics.median(ordered) * 1000
        found[f"p99_{name}_ms"] = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000
    return {name: round(value, 3) for name, value in found.items()}
