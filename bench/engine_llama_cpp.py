"""How fast `local::llama_cpp` generates, beside llama.cpp's own server and llama-cpp-python's.

    python -m bench.engine --engine llama_cpp [--model starter.gguf] [--threads N] [--rounds 3]

All have the same GGUF, the same threads, and the same requests: prompts and replies of fixed
length, greedy, end tokens ignored. They take turns, so that a noisy minute meets all of them;
medians of the rounds are compared. The engine is also measured alone, without HTTP. Prints the
figures and writes them to `bench/results/engine-llama_cpp.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp

from bench.load.llama_servers import (
    CONTEXT,
    SLOTS,
    LlamaServer,
    llama_cpp_server,
    ours,
    xllamacpp,
)
from bench.machine import write_results
from bench.served import serve
from providers.local.engine import Engine
from providers.local.llama_cpp_engine.config import LlamaCppConfig
from providers.local.llama_cpp_engine.engine import LlamaEngine
from providers.local.llama_cpp_engine.loader import cpu_cores, load, open_model
from providers.local.models.store import resolve_gguf
from providers.local.threads.waiting import WAITING
from routing.cli.machine.measuring import Served

CONCURRENCY = (1, 4, 8)
SEQUENTIAL = (4,)
"""Where llama-cpp-python's server, which takes one request at a time, is asked as well."""

PREFIX_TOKENS = 1000


class Alone:
    """An engine without a server."""

    def __init__(self, engine: Engine, name: str = "engine alone") -> None:
        self.engine, self.name = engine, name

    async def serve(self, prompt: str, tokens: int) -> Served:
        """One request, as the engine's event loop sees it."""
        ids = self.engine.model.tokenizer.encode(prompt, add_special_tokens=True)
        return await serve(self.engine, ids, tokens)


def client_session() -> aiohttp.ClientSession:
    """Each request has a connection of its own: some servers close idle ones after seconds."""
    connector = aiohttp.TCPConnector(force_close=True)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(1800))


class OverHTTP:
    """A server."""

    def __init__(self, session: aiohttp.ClientSession, server: LlamaServer) -> None:
        self.name = server.name
        self._session, self._server = session, server

    async def serve(self, prompt: str, tokens: int) -> Served:
        """One streamed request; events that hold no text are no tokens."""
        served = Served(time.perf_counter(), [])
        async with self._session.post(
            self._server.url, json=self._server.body(prompt, tokens)
        ) as reply:
            if reply.status != 200:
                raise RuntimeError(f"{self.name}: {reply.status} {await reply.text()}")
            async for line in reply.content:
                if line.startswith(b"data: {") and _text_of(json.loads(line[6:])):
                    served.tokens.append(time.perf_counter())
        if not served.tokens:
            raise RuntimeError(f"{self.name} said nothing")
        return served


def _text_of(event: dict[str, Any]) -> str:
    choices = event.get("choices")
    found = choices[0].get("text", "") if choices else event.get("content", "")
    return str(found)


Target = Alone | OverHTTP


def throughput(served: Sequence[Served], tokens: int) -> float:
    """Output tokens a second; every reply has `tokens`, however many events they came in."""
    seconds = max(each.tokens[-1] for each in served) - min(each.sent for each in served)
    return len(served) * tokens / seconds


class Words:
    """Prompts of words that are a token each, from a fixed seed."""

    def __init__(self, engine: Engine) -> None:
        vocabulary = engine.model.vocabulary
        pieces = map(vocabulary.token_bytes, range(engine.model.vocab_size))
        self._words = [piece.decode() for piece in pieces if re.fullmatch(b" [a-z]{3,9}", piece)]

    def prompt(self, length: int, *seed: int) -> str:
        """So many words."""
        chosen = random.Random(str(seed))
        return "".join(chosen.choices(self._words, k=length)).lstrip()


async def measure(
    targets: Sequence[Target], sequential: OverHTTP, words: Words, options: argparse.Namespace
) -> dict[str, Any]:
    """All of it."""
    results: dict[str, Any] = {}
    for concurrency in CONCURRENCY:
        asked = [*targets, sequential] if concurrency in SEQUENTIAL else targets
        found: dict[str, list[float]] = {each.name: [] for each in asked}
        for turn in range(options.rounds + 1):
            for target in asked:
                prompts = [
                    words.prompt(options.input_len, concurrency, turn, n)
                    for n in range(concurrency)
                ]
                served = await asyncio.gather(
                    *(target.serve(prompt, options.output_len) for prompt in prompts)
                )
                if turn:  # after one to warm up
                    found[target.name].append(throughput(served, options.output_len))
        results[f"output tokens/s at concurrency {concurrency}"] = medians(found)
    results[f"ms to the first token behind {PREFIX_TOKENS} warm ones"] = await _warm(
        targets, words, options.rounds
    )
    return results


async def _warm(targets: Sequence[Target], words: Words, rounds: int) -> dict[str, float]:
    found: dict[str, list[float]] = {each.name: [] for each in targets}
    for turn in range(rounds + 1):
        prefix = words.prompt(PREFIX_TOKENS, 9000, turn)
        for target in targets:
            await target.serve(f"{prefix} {words.prompt(16, 1, turn)}", 1)
            served = await target.serve(f"{prefix} {words.prompt(16, 2, turn)}", 1)
            if turn:
                found[target.name].append((served.tokens[0] - served.sent) * 1000)
    return medians(found)


def medians(found: dict[str, list[float]]) -> dict[str, float]:
    """Of each target's values."""
    return {name: round(statistics.median(values), 2) for name, values in found.items()}


def ratios(results: dict[str, Any]) -> dict[str, float]:
    """What is promised, as ratios of the medians."""
    made: dict[str, float] = {}
    for concurrency in CONCURRENCY:
        rates = results[f"output tokens/s at concurrency {concurrency}"]
        alone, served = rates["engine alone"], rates["llama_compat"]
        made[f"of xllamacpp at {concurrency} (>= 0.95)"] = served / rates["xllamacpp"]
        made[f"engine alone, of xllamacpp at {concurrency}"] = alone / rates["xllamacpp"]
        made[f"through HTTP, of the engine alone at {concurrency} (>= 0.9)"] = served / alone
        if concurrency in SEQUENTIAL:
            name = f"of llama_cpp.server at {concurrency} (>= 2)"
            made[name] = served / rates["llama_cpp.server"]
    warm = results[f"ms to the first token behind {PREFIX_TOKENS} warm ones"]
    made["warm first token, of xllamacpp (<= 1.1)"] = warm["llama_compat"] / warm["xllamacpp"]
    return {name: round(value, 3) for name, value in made.items()}


def main(arguments: Sequence[str]) -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="starter.gguf", help="as in a template")
    parser.add_argument("--threads", type=int, default=cpu_cores())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--input-len", type=int, default=64)
    parser.add_argument("--output-len", type=int, default=64)
    options = parser.parse_args(arguments)
    path = resolve_gguf(options.model)
    config = LlamaCppConfig(threads=options.threads, max_sequences=SLOTS)
    model = open_model(options.model, path, config)
    engine = LlamaEngine(load(options.model, model, path, config, CONTEXT))
    engine.start()
    try:
        results = asyncio.run(_with_servers(engine, path, options))
    finally:
        engine.stop()
    measured = {
        "model": options.model,
        "threads": options.threads,
        "threads wait": {name: os.environ.get(name) for name in WAITING},
        "rounds": options.rounds,
        "input_len": options.input_len,
        "output_len": options.output_len,
        "results": results,
        "ratios": ratios(results),
    }
    written = write_results("engine-llama_cpp", measured, "llama-cpp-python")
    print(json.dumps(measured, indent=2))
    print(f"written to {written}")


async def _with_servers(
    engine: LlamaEngine, path: Path, options: argparse.Namespace
) -> dict[str, Any]:
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = [
            stack.enter_context(start(path, options.threads, scratch))
            for start in (ours, xllamacpp)
        ]
        ends = sorted(engine.model.stop_tokens)
        last = stack.enter_context(llama_cpp_server(path, options.threads, scratch, ends))
        async with client_session() as session:
            targets = [Alone(engine), *(OverHTTP(session, server) for server in servers)]
            return await measure(targets, OverHTTP(session, last), Words(engine), options)
