"""What a long prompt does to streams beside it: the time between tokens of 8 that decode.

    python -m bench.long_prompt [--model starter] [--device auto] [--quantization auto]
                                [--rounds 3] [--streams 8] [--prompt 4000]

Each round has the same streams twice: a prompt comes while they decode, and none does. A step takes
the longer the longer they are, so the times between the same tokens of theirs are compared: those
from when the prompt came to its first token, and those in its absence. The percentiles of all
rounds count. Beside them stands how long the prompt waits for its first token alone, and beside the
streams, since a shorter step is bought with that. Prints the figures and writes them to
`bench/results/long-prompt-DEVICE.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch

from bench.engine import prompts_of
from bench.machine import write_results
from bench.served import serve, until_each_has
from providers.local.models import store as model_store
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.engine import TorchEngine
from providers.local.torch_engine.loading.loader import load
from providers.local.torch_engine.model.linear import MAKES
from routing.cli.machine.measuring import Served

WANTED = 2.0
"""Times the p99 without, at most."""

STREAM_PROMPT = 32

SETTLED = 64
"""Tokens that each stream has before somebody comes."""


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Beside(NamedTuple):
    """Streams while a prompt comes in.

    Attributes:
        streams: when their tokens came.
        first, last: the tokens of each between which it did, by their place.
        waited: seconds that the prompt waited.
    """

    streams: list[Served]
    first: list[int]
    last: list[int]
    waited: float


class Round(NamedTuple):
    """Seconds of one round.

    Attributes:
        without, beside: between the same tokens of the streams, without the prompt and with it.
        alone, among: that the prompt waits, by itself and beside the streams.
    """

    without: list[float]
    beside: list[float]
    alone: float
    among: float


def gaps(streams: Sequence[Served], first: Sequence[int], last: Sequence[int]) -> list[float]:
    """The times between tokens of streams, of each from its `first` to its `last`."""
    return [
        after - before
        for each, begin, end in zip(streams, first, last, strict=True)
        for before, after in pairwise(each.tokens[begin : end + 1])
    ]


async def with_prompt(
    engine: TorchEngine, prompts: Sequence[Sequence[int]], long: Sequence[int], tokens: int
) -> Beside:
    """The streams, each with so many tokens at most, and the prompt that comes."""
    streams = [Served(time.perf_counter(), []) for _ in prompts]
    async with asyncio.TaskGroup() as group:
        running = [
            group.create_task(serve(engine, each, tokens, into=into))
            for each, into in zip(prompts, streams, strict=True)
        ]
        await until_each_has(SETTLED, streams)
        first = [len(each.tokens) - 1 for each in streams]
        prompt = await serve(engine, long, 1)
        last = [len(each.tokens) - 1 for each in streams]
        for each in running:
            each.cancel()
    return Beside(streams, first, last, prompt.tokens[0] - prompt.sent)


async def round_of(engine: TorchEngine, options: argparse.Namespace, seed: int) -> Round:
    """One of them."""
    vocab = engine.model.vocab_size
    [alone, long] = prompts_of(2, options.prompt, vocab, seed)
    waited = await serve(engine, alone, 1)
    prompts = prompts_of(options.streams, STREAM_PROMPT, vocab, seed + 1)
    # Enough to outlast the prompt, however short the steps are in which it comes.
    tokens = engine.model.context_length - STREAM_PROMPT - 1
    beside = await with_prompt(engine, prompts, long, tokens)
    lengths = [each + 1 for each in beside.last]
    quiet = await asyncio.gather(*map(partial(serve, engine), prompts, lengths))
    return Round(
        gaps(quiet, beside.first, beside.last),
        gaps(beside.streams, beside.first, beside.last),
        waited.tokens[0] - waited.sent,
        beside.waited,
    )


async def measure(engine: TorchEngine, options: argparse.Namespace) -> dict[str, float]:
    """All rounds, after one to warm up."""
    _, *rounds = [await round_of(engine, options, 100 * turn) for turn in range(options.rounds + 1)]
    named = {
        "quiet": [each for one in rounds for each in one.without],
        "beside": [each for one in rounds for each in one.beside],
    }
    found = {
        f"{name}_p{share}_ms": round(1000 * percentile(values, share / 100), 2)
        for name, values in named.items()
        for share in (50, 99)
    }
    return {
        **found,
        "p99_of_quiet": round(found["beside_p99_ms"] / found["quiet_p99_ms"], 3),
        "wanted": WANTED,
        "prompt_alone_s": round(statistics.median(each.alone for each in rounds), 3),
        "prompt_beside_s": round(statistics.median(each.among for each in rounds), 3),
    }


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="starter", help="as in a template")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quantization", default="auto", choices=["auto", *MAKES])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=4000)
    parser.add_argument("--step-tokens", type=int, help="in place of the engine's own choice")
    options = parser.parse_args()
    config = TorchConfig.model_validate(
        {
            "device": options.device,
            "quantization": options.quantization,
            "max_step_tokens": options.step_tokens,
            "prefix_cache": False,
            "speculation": "none",
        }
    )
    length = options.prompt + 64
    loaded = load(options.model, model_store.resolve(options.model), config, length)
    engine = TorchEngine(loaded)
    engine.start()
    try:
        results = asyncio.run(measure(engine, options))
    finally:
        engine.stop()
    device = loaded.device
    measured = {
        "model": options.model,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "quantization": loaded.quantization,
        "threads": torch.get_num_threads(),
        "rounds": options.rounds,
        "streams": options.streams,
        "prompt": options.prompt,
        "step_tokens": loaded.limits.tokens,
        "results": results,
    }
    path = write_results(f"long-prompt-{device.type}", measured, "torch")
    print(json.dumps(measured, indent=2))
    print(f"written to {path}")


if __name__ == "__main__":
    main()
