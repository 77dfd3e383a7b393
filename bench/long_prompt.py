"""What a long prompt does to streams beside it: the time between tokens of 8 that decode.

    python -m bench.long_prompt [--model starter] [--device auto] [--quantization auto]
                                [--rounds 3] [--streams 8] [--prompt 4000]

The streams decode by themselves for a while; then somebody comes with a prompt; then they decode by
themselves once more, as each step takes longer the longer they are. Times between tokens are those
before and after, and those from when it comes to its first token; the percentiles of all rounds
count. Beside them stands how long the prompt waits for its first token alone, and beside the
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
from itertools import pairwise
from typing import NamedTuple

import torch

from bench.engine import prompts_of
from bench.machine import write_results
from bench.served import serve
from providers.local.models import store as model_store
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.engine import TorchEngine
from providers.local.torch_engine.loading.loader import load
from providers.local.torch_engine.model.linear import MAKES
from routing.cli.machine.measuring import Served

WANTED = 2.0
"""Times the p99 without, at most."""

STREAM_PROMPT = 32


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def gaps(streams: Sequence[Served], start: float, end: float) -> list[float]:
    """The times between tokens, of those that came in between."""
    return [
        after - before
        for each in streams
        for before, after in pairwise(each.tokens)
        if start <= before and after <= end
    ]


class Round(NamedTuple):
    """Seconds of one round.

    Attributes:
        before, beside, after: between tokens, until the prompt comes, to its first token, and then.
        alone, among: that the prompt waits, by itself and beside the streams.
    """

    before: list[float]
    beside: list[float]
    after: list[float]
    alone: float
    among: float


async def round_of(engine: TorchEngine, options: argparse.Namespace, seed: int) -> Round:
    """One of them."""
    vocab = engine.model.vocab_size
    [alone, long] = prompts_of(2, options.prompt, vocab, seed)
    first = await serve(engine, alone, 1)
    prompts = prompts_of(options.streams, STREAM_PROMPT, vocab, seed + 1)
    # Enough to outlast the prompt, however short the steps are in which it comes.
    tokens = engine.model.context_length - STREAM_PROMPT - 1
    served = [Served(time.perf_counter(), []) for _ in prompts]
    streams = [
        asyncio.create_task(serve(engine, each, tokens, into=into))
        for each, into in zip(prompts, served, strict=True)
    ]
    await asyncio.sleep(options.quiet)
    came = time.perf_counter()
    prompt = await serve(engine, long, 1)
    answered = prompt.tokens[0]
    await asyncio.sleep(options.quiet)
    ended = time.perf_counter()
    for each in streams:
        each.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    begun = max(each.tokens[0] for each in served)
    return Round(
        gaps(served, begun, came),
        gaps(served, came, answered),
        gaps(served, answered, ended),
        first.tokens[0] - first.sent,
        answered - prompt.sent,
    )


async def measure(engine: TorchEngine, options: argparse.Namespace) -> dict[str, float]:
    """All rounds, after one to warm up."""
    _, *rounds = [await round_of(engine, options, 100 * turn) for turn in range(options.rounds + 1)]
    before = [each for one in rounds for each in one.before]
    beside = [each for one in rounds for each in one.beside]
    after = [each for one in rounds for each in one.after]
    named = {"before": before, "after": after, "quiet": before + after, "beside": beside}
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
    parser.add_argument("--quiet", type=float, default=3.0, help="seconds until somebody comes")
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
