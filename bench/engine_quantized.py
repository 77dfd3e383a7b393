"""How fast `local::torch` is on a CPU with each kind of weights, beside llama.cpp's own server.

    python -m bench.engine_quantized [--model starter] [--gguf starter.gguf] [--rounds 3]

llama.cpp runs the same model as a GGUF (the starter's is Q4_1), on as many threads, in its server
(the wheel `xllamacpp`); of `local::torch` the engine alone is asked, without a server. All get the
same requests, prompts and replies of fixed length, greedy, end tokens ignored, and take turns, so
that a noisy minute meets all of them; medians of the rounds are compared.

Decoding is measured from the moment when all requests have their first token until the first of
them has its last; a prompt by the time to its first token. Prints the figures and writes them to
`bench/results/engine-quantized.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from bench.engine_llama_cpp import (
    Alone,
    OverHTTP,
    Words,
    client_session,
    medians,
    throughput,
)
from bench.load.llama_servers import CONTEXT, SLOTS, LlamaServer, xllamacpp
from bench.machine import write_results
from providers.local.models import store as model_store
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.engine import TorchEngine
from providers.local.torch_engine.loading.loader import load
from providers.local.torch_engine.model.linear import MAKES
from routing.cli.machine.measuring import Served

CONCURRENCY = (1, 8)
PREFILLED = 512
"""Tokens of the prompt that prefill is measured with."""

Target = Alone | OverHTTP


def decode_rate(served: Sequence[Served]) -> float:
    """Output tokens a second while all requests have tokens and none is at its end."""
    began = max(each.tokens[0] for each in served)
    ended = min(each.tokens[-1] for each in served)
    tokens = sum(began < token <= ended for each in served for token in each.tokens)
    return tokens / (ended - began)


async def measure(
    targets: Sequence[Target], words: Words, options: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """All of it."""
    results: dict[str, dict[str, float]] = {}

    async def in_turn(name: str, ask: Callable[[Target, int], Awaitable[list[float]]]) -> None:
        names = name.split(", ")
        found: list[dict[str, list[float]]] = [{} for _ in names]
        for turn in range(options.rounds + 1):
            for target in targets:
                for into, value in zip(found, await ask(target, turn), strict=True):
                    if turn:  # after one to warm up
                        into.setdefault(target.name, []).append(value)
        results.update(zip(names, map(medians, found), strict=True))

    for concurrency in CONCURRENCY:

        async def replies(target: Target, turn: int, at_once: int = concurrency) -> list[float]:
            prompts = [words.prompt(options.input_len, at_once, turn, n) for n in range(at_once)]
            served = await asyncio.gather(
                *(target.serve(prompt, options.output_len) for prompt in prompts)
            )
            return [decode_rate(served), throughput(served, options.output_len)]

        what = "decoded tokens/s at {0}, output tokens/s with the prompts at {0}"
        await in_turn(what.format(concurrency), replies)

    async def prompt(target: Target, turn: int) -> list[float]:
        began = time.perf_counter()
        served = await target.serve(words.prompt(PREFILLED, 7000, turn), 1)
        return [PREFILLED / (served.tokens[0] - began)]

    await in_turn("prompt tokens/s", prompt)
    return results


def ratios(results: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Every kind of weights, of llama.cpp's."""
    return {
        what: {
            name: round(value / rates["xllamacpp"], 3)
            for name, value in rates.items()
            if name != "xllamacpp"
        }
        for what, rates in results.items()
    }


async def beside(engines: dict[str, TorchEngine], server: LlamaServer, options: Any) -> Any:
    """Ask all of them."""
    async with client_session() as session:
        targets: list[Target] = [Alone(engine, name) for name, engine in engines.items()]
        targets.append(OverHTTP(session, server))
        return await measure(targets, Words(next(iter(engines.values()))), options)


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="starter", help="as in a template (default: starter)")
    parser.add_argument("--gguf", default="starter.gguf", help="the same model for llama.cpp")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--input-len", type=int, default=64)
    parser.add_argument("--output-len", type=int, default=64)
    options = parser.parse_args()
    folder, gguf = model_store.resolve(options.model), model_store.resolve_gguf(options.gguf)
    threads = torch.get_num_threads()
    with ExitStack() as stack:
        engines = {}
        for name in MAKES:
            config = TorchConfig.model_validate(
                {
                    "device": "cpu",
                    "quantization": name,
                    "max_sequences": SLOTS,
                    "prefix_cache": False,
                }
            )
            engines[name] = TorchEngine(load(options.model, folder, config, CONTEXT))
            engines[name].start()
            stack.callback(engines[name].stop)
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(xllamacpp(gguf, threads, scratch))
        results = asyncio.run(beside(engines, server, options))
    measured = {
        "model": options.model,
        "gguf": options.gguf,
        "threads": threads,
        "rounds": options.rounds,
        "input_len": options.input_len,
        "output_len": options.output_len,
        "prefilled": PREFILLED,
        "results": results,
        "of xllamacpp": ratios(results),
    }
    path = write_results("engine-quantized", measured, "torch", "transformers")
    print(json.dumps(measured, indent=2))
    print(f"written to {path}")


if __name__ == "__main__":
    main()
