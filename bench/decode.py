"""How fast `local::torch` decodes: its engine beside transformers' `generate`, in one process.

    python -m bench.decode [--model starter] [--device auto] [--rounds 5] [--tokens 64]

Both run the same model on the same prompt, one request at a time, and never stop early. The engine
is measured as a request sees it, at the end of its event stream in the event loop. They take turns,
so that a noisy minute meets both, and medians are compared: tokens/s from the first generated token
to the last, and seconds to the first. Prints the figures and writes them to
`bench/results/decode-DEVICE.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import statistics
import time
from contextlib import aclosing
from typing import Any

import torch

from bench.machine import write_results
from llama_compat.types import (
    GreedySamplingStrategy,
    SamplingParams,
    SamplingStrategy,
    StreamComplete,
    StreamProgress,
    TopPSamplingStrategy,
)
from providers.local.models import store as model_store
from providers.local.torch_engine.engine import Engine
from providers.local.torch_engine.loader import LoadedModel, load
from providers.local.torch_engine.sequence import Generation

PROMPT_TOKENS = (32, 1024)
MODES: dict[str, tuple[SamplingStrategy, dict[str, Any]]] = {
    "greedy": (GreedySamplingStrategy(), {"do_sample": False}),
    "top_p": (
        TopPSamplingStrategy(0.8, 0.95),
        # top_k is 50 unless it is switched off.
        {"do_sample": True, "temperature": 0.8, "top_p": 0.95, "top_k": 0},
    ),
}
TEXT = "A gateway takes every request that comes, finds a model for it, and relays what it says. "

Timing = dict[str, float]


async def time_engine(
    engine: Engine, prompt_ids: tuple[int, ...], tokens: int, strategy: SamplingStrategy
) -> Timing:
    """One request of the engine."""
    generation = Generation(prompt_ids, SamplingParams(strategy, seed=1), tokens)
    start, times = time.perf_counter(), []
    async with aclosing(engine.generate(generation)) as events:
        async for event in events:
            if isinstance(event, StreamProgress | StreamComplete):
                times.append(time.perf_counter())
    return _timing(start, times[0], times[-1], tokens)


def time_generate(
    loaded: LoadedModel, prompt_ids: tuple[int, ...], tokens: int, options: dict[str, Any]
) -> Timing:
    """One call of `generate`."""
    clock = _Clock()
    ids = torch.tensor([prompt_ids], device=loaded.model.device)
    start = time.perf_counter()
    loaded.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=tokens,
        streamer=clock,
        **options,
    )
    # The streamer is shown the prompt first.
    return _timing(start, clock.times[1], clock.times[-1], tokens)


class _Clock:
    """A streamer that only looks at its watch."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, _: torch.Tensor) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        pass


def _timing(start: float, first: float, last: float, tokens: int) -> Timing:
    return {"first_token_s": first - start, "tokens_per_s": (tokens - 1) / (last - first)}


async def compare(engine: Engine, rounds: int, tokens: int) -> dict[str, Any]:
    """Every mode at every prompt length, both ways, `rounds` times after one to warm up."""
    loaded = engine.loaded
    results = {}
    for prompt_tokens in PROMPT_TOKENS:
        prompt = TEXT * (1 + prompt_tokens // 10)
        prompt_ids = tuple(loaded.tokenizer(prompt).input_ids[:prompt_tokens])
        for mode, (strategy, options) in MODES.items():
            ours, theirs = [], []
            for _ in range(rounds + 1):
                ours.append(await time_engine(engine, prompt_ids, tokens, strategy))
                theirs.append(time_generate(loaded, prompt_ids, tokens, options))
            results[f"{mode}, {prompt_tokens} prompt tokens"] = _summary(ours[1:], theirs[1:])
    return results


def _summary(ours: list[Timing], theirs: list[Timing]) -> dict[str, Any]:
    def median(timings: list[Timing], figure: str) -> float:
        return statistics.median(timing[figure] for timing in timings)

    rates = median(ours, "tokens_per_s"), median(theirs, "tokens_per_s")
    return {
        "engine_tokens_per_s": round(rates[0], 2),
        "generate_tokens_per_s": round(rates[1], 2),
        "ratio": round(rates[0] / rates[1], 3),
        "engine_first_token_s": round(median(ours, "first_token_s"), 4),
        "generate_first_token_s": round(median(theirs, "first_token_s"), 4),
    }


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="starter", help="as in a template (default: starter)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64, help="tokens to generate a request")
    options = parser.parse_args()

    folder = model_store.resolve(options.model)
    loaded = load(
        options.model,
        folder,
        device=options.device,
        dtype=options.dtype,
        context_length=None,
    )
    loaded.model.generation_config.eos_token_id = None
    engine = Engine(dataclasses.replace(loaded, stop_tokens={}))
    engine.start()
    try:
        results = asyncio.run(compare(engine, options.rounds, options.tokens))
    finally:
        engine.stop()
    device = loaded.model.device
    measured = {
        "model": options.model,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "dtype": str(loaded.model.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "rounds": options.rounds,
        "tokens": options.tokens,
        "results": results,
    }
    path = write_results(f"decode-{device.type}", measured, "torch", "transformers")
    print(json.dumps(measured, indent=2))
    print(f"written to {path}")


if __name__ == "__main__":
    main()
