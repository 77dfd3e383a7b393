"""How fast `local::torch` generates: its engine beside transformers' `generate`, in one process.

    python -m bench.engine --engine llama_cpp    (see bench/engine_llama_cpp.py)
    python -m bench.engine --engine cuda         (see bench/engine_cuda.py)
    python -m bench.engine [--model starter] [--device auto] [--quantization none] [--rounds 3]

Every request has the same number of prompt and output tokens (random ones, from a fixed seed) and
ignores end tokens. The metrics are those of `vllm bench serve`: TTFT, TPOT and ITL in milliseconds,
throughput in requests and output tokens a second. Engine and `generate` take turns, so that a noisy
minute meets both; medians of the rounds are compared. The same is asked of a server by 32 clients
at once, and of the engine alone. Prints the figures and writes them to
`bench/results/engine-DEVICE.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import torch
from transformers import AutoModelForCausalLM

from bench.load.llama_servers import LlamaServer, our_server
from bench.machine import write_results
from bench.served import serve
from providers.local.models import store as model_store
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.cpu_thread import on_cpu_thread, on_device
from providers.local.torch_engine.engine import TorchEngine
from providers.local.torch_engine.loading.loader import load
from providers.local.torch_engine.model.linear import MAKES
from routing.cli.machine.measuring import metrics

CONCURRENCY = (1, 8)
CLIENTS = 32
"""Of the server, whose provider runs as many at a time."""


def prompts_of(count: int, length: int, vocab_size: int, seed: int) -> list[list[int]]:
    """Prompts that have nothing in common."""
    chosen = random.Random(seed)
    return [[chosen.randrange(vocab_size) for _ in range(length)] for _ in range(count)]


def generated_throughput(model: Any, prompts: list[list[int]], tokens: int, batch: int) -> float:
    """Output tokens a second of `generate` over `prompts`, `batch` at a time."""
    start = time.perf_counter()
    for at in range(0, len(prompts), batch):
        ids = torch.tensor(prompts[at : at + batch], device=model.device)
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
        )
    return len(prompts) * tokens / (time.perf_counter() - start)


async def beside_generate(
    engine: TorchEngine, model: Any, options: argparse.Namespace
) -> dict[str, Any]:
    """Both at every concurrency, `rounds` times after one to warm up."""
    results: dict[str, Any] = {}
    for concurrency in CONCURRENCY:
        ours: list[dict[str, float]] = []
        sequential, static = [], []
        for turn in range(options.rounds + 1):
            prompts = prompts_of(
                concurrency, options.input_len, engine.model.vocab_size, 100 * concurrency + turn
            )
            served = await asyncio.gather(
                *(serve(engine, prompt, options.output_len) for prompt in prompts)
            )
            ours.append(metrics(served))
            for into, batch in ((sequential, 1), (static, concurrency)):
                # In the engine's thread, or both would be slower (see `cpu_thread`).
                asked = (model, prompts, options.output_len, batch)
                into.append(on_device(engine.loaded.device, generated_throughput, *asked))
        throughput = statistics.median(each["output_throughput"] for each in ours[1:])
        results[f"concurrency {concurrency}"] = {
            **{name: statistics.median(each[name] for each in ours[1:]) for name in ours[0]},
            "of_generate_sequential": round(throughput / statistics.median(sequential[1:]), 3),
            "of_generate_static_batch": round(throughput / statistics.median(static[1:]), 3),
        }
    return results


async def shared_prefix(engine: TorchEngine, rounds: int) -> dict[str, float]:
    """TTFT with a prefix of 1,000 tokens that is not, and that is in the cache."""
    cold, warm = [], []
    for turn in range(rounds + 1):
        prefix, *endings = prompts_of(3, 1000, engine.model.vocab_size, 9000 + turn)
        for into, ending in zip((cold, warm), endings, strict=True):
            served = await serve(engine, [*prefix, *ending[:16]], 1)
            into.append((served.tokens[0] - served.sent) * 1000)
    medians = statistics.median(cold[1:]), statistics.median(warm[1:])
    return {
        "cold_ttft_ms": round(medians[0], 2),
        "warm_ttft_ms": round(medians[1], 2),
        "warm_of_cold": round(medians[1] / medians[0], 4),
    }


async def through_http(
    engine: TorchEngine, server: LlamaServer, options: argparse.Namespace
) -> dict[str, float]:
    """Output tokens a second of the same requests, to the engine and through a server."""
    alone, behind = [], []
    timeout = aiohttp.ClientTimeout(1800)
    connector = aiohttp.TCPConnector(limit=CLIENTS)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        for turn in range(options.rounds + 1):
            prompts = prompts_of(CLIENTS, options.input_len, engine.model.vocab_size, 7000 + turn)
            for into, ask in (
                (alone, partial(serve, engine)),
                (behind, partial(post, session, server)),
            ):
                began = time.perf_counter()
                await asyncio.gather(*(ask(prompt, options.output_len) for prompt in prompts))
                into.append(CLIENTS * options.output_len / (time.perf_counter() - began))
    medians = statistics.median(alone[1:]), statistics.median(behind[1:])
    return {
        "engine_output_throughput": round(medians[0], 2),
        "http_output_throughput": round(medians[1], 2),
        "of_the_engine": round(medians[1] / medians[0], 3),
    }


async def post(
    session: aiohttp.ClientSession, server: LlamaServer, prompt: Sequence[int], tokens: int
) -> None:
    """One streamed request, read to its end."""
    async with session.post(server.url, json=server.body(prompt, tokens)) as reply:
        events = await reply.text()
        if reply.status != 200 or "data: [DONE]" not in events:
            raise RuntimeError(f"{reply.status} {events[-500:]}")


async def measure(engine: TorchEngine, model: Any, options: argparse.Namespace) -> dict[str, Any]:
    """All of it."""
    results = {
        **await beside_generate(engine, model, options),
        "shared prefix of 1000 tokens": await shared_prefix(engine, options.rounds),
    }
    config = {name: getattr(options, name) for name in ("device", "dtype", "quantization")}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(our_server("local::torch", config, options.model, scratch))
        results[f"HTTP with {CLIENTS} clients"] = await through_http(engine, server, options)
    return results


def main() -> None:
    """Run the comparison."""
    chooser = argparse.ArgumentParser(add_help=False)
    chooser.add_argument("--engine", default="torch", choices=("torch", "llama_cpp", "cuda"))
    chosen, arguments = chooser.parse_known_args()
    if chosen.engine == "llama_cpp":
        from bench import engine_llama_cpp

        engine_llama_cpp.main(arguments)
        return
    if chosen.engine == "cuda":
        from bench import engine_cuda

        engine_cuda.main(arguments)
        return
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else None, parents=[chooser]
    )
    parser.add_argument("--model", default="starter", help="as in a template (default: starter)")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--quantization", default="none", choices=list(MAKES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--input-len", type=int, default=64)
    parser.add_argument("--output-len", type=int, default=48)
    options = parser.parse_args(arguments)
    folder = model_store.resolve(options.model)
    loaded = load(
        options.model,
        folder,
        TorchConfig(device=options.device, dtype=options.dtype, quantization=options.quantization),
        context_length=2048,
    )
    model = on_cpu_thread(AutoModelForCausalLM.from_pretrained, folder, dtype=loaded.dtype)
    model = model.to(loaded.device).eval()
    engine = TorchEngine(loaded)
    engine.start()
    try:
        results = asyncio.run(measure(engine, model, options))
    finally:
        engine.stop()
    device = loaded.device
    measured = {
        "model": options.model,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "dtype": str(loaded.dtype).removeprefix("torch."),
        "quantization": options.quantization,
        "threads": torch.get_num_threads(),
        "rounds": options.rounds,
        "input_len": options.input_len,
        "output_len": options.output_len,
        "results": results,
    }
    suffix = "" if options.quantization == "none" else f"-{options.quantization}"
    path = write_results(f"engine-{device.type}{suffix}", measured, "torch", "transformers")
    print(json.dumps(measured, indent=2))
    print(f"written to {path}")
    if not torch.cuda.is_available():
        print("no CUDA here")


if __name__ == "__main__":
    main()
