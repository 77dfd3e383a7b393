"""A request as a client of an engine sees it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from itertools import pairwise

from llama_compat.types import GreedySamplingStrategy, SamplingParams, TopPSamplingStrategy
from providers.local.engine import Engine, Generation, Sampled
from routing.cli.machine.measuring import Served

LOOK_SECONDS = 0.01


async def serve(
    engine: Engine,
    prompt: Sequence[int],
    output_tokens: int,
    temperature: float = 0.0,
    into: Served | None = None,
) -> Served:
    """One request of the engine as its event loop sees it; greedy where the temperature is 0.

    End tokens are ignored. What has come of one that is broken off is in `into`.
    """
    sampling = SamplingParams(GreedySamplingStrategy(), ignore_eos=True)
    if temperature:
        strategy = TopPSamplingStrategy(temperature, 1.0)
        sampling = SamplingParams(strategy, ignore_eos=True, seed=1)
    served = Served(time.perf_counter(), []) if into is None else into
    async for outputs in engine.generate(Generation(tuple(prompt), sampling, output_tokens)):
        now = time.perf_counter()
        served.tokens.extend(now for output in outputs if isinstance(output, Sampled))
    return served


async def until_each_has(
    tokens: int, streams: Sequence[Served], every: float = LOOK_SECONDS
) -> None:
    """Wait until so many tokens of each have come, looking `every` so many seconds."""
    while min(len(each.tokens) for each in streams) < tokens:  # noqa: ASYNC110 (they tell nobody)
        await asyncio.sleep(every)


def gaps_within(streams: Sequence[Served], start: float, end: float) -> list[float]:
    """The times between tokens of streams, of those that came in between."""
    return [
        after - before
        for each in streams
        for before, after in pairwise(each.tokens)
        if start <= before and after <= end
    ]
