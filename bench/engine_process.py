"""What llama.cpp would lose in a process of its own: a hop for each step's tokens.

    python -m bench.engine_process [--model starter.gguf] [--rounds 5] [--tokens 128]

The same engine, once in this process and once in another that is asked over a Unix socket: requests
go there, and what came of a step for all streams comes back as one frame. The two take turns, 1 and
8 streams; the median of their ratios counts. The hop is also measured alone, without a model:
frames of 8 tokens as fast as they go, beside what an engine's thread hands to the event loop
of its own process. Prints the figures and writes them to `bench/results/engine-process.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from bench.machine import write_results
from bench.served import serve
from llama_compat.types import GreedySamplingStrategy, SamplingParams
from providers.local.engine import Ended, Generation, Output, Sampled
from providers.local.llama_cpp_engine.config import LlamaCppConfig
from providers.local.llama_cpp_engine.engine import LlamaEngine
from providers.local.llama_cpp_engine.loader import load, open_model
from providers.local.models.store import resolve_gguf
from routing.cli.machine.measuring import Served

STREAMS = (1, 8)
PROMPT = 64
STEPS = 20_000
"""Of the hop alone."""

ENDED = -1
"""What stands for the end of a stream in a frame; all else are ids of tokens."""


class Ask(msgspec.Struct, array_like=True):
    """One request, on the wire."""

    stream: int
    prompt: list[int]
    tokens: int


Frame = list[tuple[int, list[int]]]
"""What came of a step: for each stream its tokens."""

ASK, FRAME = msgspec.msgpack.Decoder(Ask), msgspec.msgpack.Decoder(Frame)
ENCODER = msgspec.msgpack.Encoder()


def sealed(message: Any) -> bytes:
    """A message as it is sent, with its length before it."""
    body = ENCODER.encode(message)
    return len(body).to_bytes(4, "little") + body


class Messages(asyncio.Protocol):
    """Cuts what a socket gives into messages.

    Args:
        take: is given each.
    """

    def __init__(self, take: Any) -> None:
        self._take = take
        self._rest = bytearray()

    def data_received(self, data: bytes) -> None:
        """Some bytes came."""
        self._rest += data
        at, rest = 0, self._rest
        while len(rest) - at >= 4:
            end = at + 4 + int.from_bytes(rest[at : at + 4], "little")
            if end > len(rest):
                break
            self._take(bytes(rest[at + 4 : end]))
            at = end
        del rest[:at]


# The other process --------------------------------------------------------------------------------


def engine_of(path: str) -> LlamaEngine:
    """The engine, started."""
    config, gguf = LlamaCppConfig(max_sequences=max(STREAMS)), Path(path)
    engine = LlamaEngine(load(path, open_model(path, gguf, config), gguf, config))
    engine.start()
    return engine


def serve_engine(end: socket.socket, path: str) -> None:
    """Answer what comes through `end` until it is closed."""
    asyncio.run(_serve_engine(end, path))


async def _serve_engine(end: socket.socket, path: str) -> None:
    engine = await asyncio.to_thread(engine_of, path)
    loop, closed = asyncio.get_running_loop(), asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()
    made: Frame = []

    def send() -> None:
        transport.write(sealed(made))
        made.clear()

    async def answer(ask: Ask) -> None:
        sampling = SamplingParams(GreedySamplingStrategy(), ignore_eos=True)
        async for outputs in engine.generate(Generation(tuple(ask.prompt), sampling, ask.tokens)):
            if not made:
                # Once all streams have had their share of the step.
                loop.call_soon(send)
            tokens = [each.token_id for each in outputs if isinstance(each, Sampled)]
            if isinstance(outputs[-1], Ended):
                tokens.append(ENDED)
            made.append((ask.stream, tokens))

    def take(body: bytes) -> None:
        task = loop.create_task(answer(ASK.decode(body)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    class Protocol(Messages):
        def connection_lost(self, error: Exception | None) -> None:
            closed.set()

    transport, _ = await loop.create_connection(lambda: Protocol(take), sock=end)
    transport.write(sealed([]))
    await closed.wait()
    await asyncio.to_thread(engine.stop)


class Remote:
    """The engine in another process, as one of this process is asked."""

    def __init__(self, path: str) -> None:
        self._ours, theirs = socket.socketpair()
        spawn = multiprocessing.get_context("spawn")
        self.process = spawn.Process(target=serve_engine, args=(theirs, path), daemon=True)
        self.process.start()
        theirs.close()
        self._queues: dict[int, asyncio.Queue[list[int]]] = {}
        self._ready = asyncio.Event()

    async def connect(self) -> None:
        """Wait until it has loaded the model."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_connection(
            lambda: Messages(self._take), sock=self._ours
        )
        await self._ready.wait()

    def _take(self, body: bytes) -> None:
        self._ready.set()
        for stream, tokens in FRAME.decode(body):
            self._queues[stream].put_nowait(tokens)

    async def generate(self, generation: Generation) -> AsyncGenerator[Sequence[Output], None]:
        """As an engine does."""
        stream = len(self._queues)
        queue = self._queues[stream] = asyncio.Queue()
        ask = Ask(stream, list(generation.prompt_ids), generation.max_tokens)
        self._transport.write(sealed(ask))
        while True:
            tokens = await queue.get()
            yield [Sampled(each) for each in tokens if each != ENDED]
            if tokens and tokens[-1] == ENDED:
                return

    def close(self) -> None:
        """End the process."""
        self._transport.close()
        self.process.join(30)


# What is measured ---------------------------------------------------------------------------------


async def tokens_per_second(engine: Any, streams: int, tokens: int, seed: int) -> float:
    """All streams' tokens, from the first of the last to begin until the first to end."""
    made: list[Served] = await asyncio.gather(
        *(
            serve(engine, [(seed + stream * 31 + at) % 1000 for at in range(PROMPT)], tokens)
            for stream in range(streams)
        )
    )
    start = max(each.tokens[0] for each in made)
    end = min(each.tokens[-1] for each in made)
    counted = sum(start <= at <= end for each in made for at in each.tokens)
    return counted / (end - start)


async def with_model(path: str, rounds: int, tokens: int) -> dict[str, Any]:
    """Tokens/s of both, taking turns."""
    here, there = await asyncio.to_thread(engine_of, path), Remote(path)
    await there.connect()
    measured: dict[str, Any] = {}
    try:
        for streams in STREAMS:
            speeds: dict[str, list[float]] = {"in_process": [], "own_process": []}
            for turn in range(rounds + 1):
                pairs = [("in_process", here), ("own_process", there)]
                for name, engine in pairs if turn % 2 else reversed(pairs):
                    speed = await tokens_per_second(engine, streams, tokens, turn * 7919 + streams)
                    # The first round warms both up.
                    speeds[name] += [speed] if turn else []
            medians = {name: statistics.median(each) for name, each in speeds.items()}
            ratios = [b / a for a, b in zip(*speeds.values(), strict=True)]
            measured[f"{streams} streams"] = {
                **{f"{name}_tokens_s": round(each, 1) for name, each in medians.items()},
                # Of what ran one after the other: a noisy minute meets both.
                "ratio": round(statistics.median(ratios), 3),
                "ratios": [round(each, 3) for each in sorted(ratios)],
                "step_ms": round(1e3 * streams / medians["in_process"], 2),
            }
    finally:
        there.close()
        await asyncio.to_thread(here.stop)
    return measured


def flood(end: socket.socket) -> None:
    """Send frames of 8 tokens, as fast as they are taken, and say what processor time they took."""
    step: Frame = [(stream, [1000 + stream]) for stream in range(8)]
    began = time.process_time()
    with suppress(BrokenPipeError):
        for _ in range(STEPS):
            end.sendall(sealed(step))
        end.sendall(sealed([(0, [round(1e6 * (time.process_time() - began)), ENDED])]))
    end.close()


async def hop_alone() -> dict[str, Any]:
    """Microseconds of processor time that a step of 8 tokens takes, in each way."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    ours, theirs = socket.socketpair()
    queues: list[list[int]] = [[] for _ in range(8)]
    sender = 0

    def take(body: bytes) -> None:
        nonlocal sender
        for stream, tokens in FRAME.decode(body):
            if tokens[-1] == ENDED:
                sender = tokens[0]
                done.set()
            else:
                queues[stream] += tokens

    process = multiprocessing.get_context("spawn").Process(target=flood, args=(theirs,))
    process.start()
    theirs.close()
    began = time.process_time()
    transport, _ = await loop.create_connection(lambda: Messages(take), sock=ours)
    await done.wait()
    receiver = time.process_time() - began
    transport.close()
    await asyncio.to_thread(process.join)

    def put(items: list[tuple[int, int]]) -> None:
        for stream, token in items:
            queues[stream].append(token)

    def hand_over() -> None:
        for _ in range(STEPS):
            loop.call_soon_threadsafe(put, [(stream, 1000 + stream) for stream in range(8)])
        loop.call_soon_threadsafe(done.set)

    done.clear()
    thread = threading.Thread(target=hand_over)
    began = time.process_time()
    thread.start()
    await done.wait()
    threads = time.process_time() - began
    thread.join()
    return {
        "sender_us": round(sender / STEPS, 2),
        "receiver_us": round(1e6 * receiver / STEPS, 2),
        "in_process_us": round(1e6 * threads / STEPS, 2),
    }


async def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="starter.gguf")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    given = parser.parse_args()
    path = str(resolve_gguf(given.model))
    measured = {
        "model": given.model,
        "load_average_before": round(os.getloadavg()[0], 2),
        "a_step_of_8_tokens": await hop_alone(),
        "with_the_model": await with_model(path, given.rounds, given.tokens),
    }
    print(json.dumps(measured, indent=2))
    print(write_results("engine-process", measured, "llama-cpp-python", "msgspec"))


if __name__ == "__main__":
    asyncio.run(main())
