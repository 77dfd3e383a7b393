"""What a batch gets out of an engine, what people beside it notice, and what 50,000 lines take.

    python -m bench.batches [--lines 192] [--echo-lines 50000] [--rounds 3] [--only engine|echo]

The starter in int8: a batch's lines/s through a server, beside the engine alone with as many
sequences at a time as suits it best, which the server is told to run as well, and whose threads
wait for each other as a server's do (`providers.local.threads.waiting`); then the TTFT of a
client who asks now and then, alone and beside a batch that never ends, and what that batch still
gets done. And 50,000 lines of 4 KB to `local::echo`: seconds, the most memory that the server ever
had, and what it had after each quarter of them. Each round measures one after the other; the
medians of the rounds' ratios count. Writes `bench/results/batches.json`; with `--only` the other
part's figures stay as they were recorded.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import yaml
from openai.types.batch_request_counts import BatchRequestCounts

from bench.engine import prompts_of
from bench.machine import RESULTS, peak_mib, resident_mib, write_results
from bench.served import serve
from providers.local.models import store as model_store
from providers.local.threads.waiting import WAITING, bounded_waiting
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.engine import TorchEngine
from providers.local.torch_engine.loading.loader import load
from providers.local.torch_engine.provider import TURNS
from providers.local.torch_engine.scheduling.courtesy import PEOPLE_SECONDS
from tests.integration.server_process import COMMAND, ServerProcess, running

WANTED = {"of_the_engine": 0.95, "ttft_p90_ratio": 1.5}
"""A batch's lines/s of those of the engine alone, at least; the TTFT beside it, at most."""

SIZES = (8, 16, 32)
"""So many sequences at a time are tried with the engine alone."""

QUARTERS = 4

INPUT_TOKENS, OUTPUT_TOKENS = 64, 32

PAUSE_SECONDS = 0.5
"""Between two of them."""

LOOK_SECONDS = 0.5
"""So often it is asked how far a batch has come. Twenty times a second, which nobody does, takes a
twentieth of two cores."""

ECHO_BYTES = 4000
"""Of text in a line of echo: 50,000 of them are 200 MB."""

WORD_BYTES = 100
"""Of a word. Echo says word by word: of short ones it would be that which takes the time."""

BATCH_ENDPOINT = "/v1/completions"


@contextmanager
def served(provider: dict[str, Any], model: dict[str, Any]) -> Iterator[ServerProcess]:
    """A server with one model, which works on batches."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        template = {
            "version": 1,
            "server": {
                "storage": f"sqlite:{folder / 'operations.sqlite'}",
                "files": {"path": str(folder / "files")},
                "batches": {},
                "shutdown_grace_seconds": 1,
            },
            "providers": [provider],
            "models": [model],
        }
        path = folder / "template.yaml"
        path.write_text(yaml.safe_dump(template, sort_keys=False))
        with running(path, executable=COMMAND) as server:
            yield server


def client_of(server: ServerProcess) -> openai.OpenAI:
    """OpenAI's own."""
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=1800)


def body_of(prompt: Sequence[int]) -> dict[str, Any]:
    """What a line, and the client beside it, asks."""
    return {
        "model": "m",
        "prompt": list(prompt),
        "max_tokens": OUTPUT_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
    }


def jsonl(bodies: Sequence[dict[str, Any]], endpoint: str) -> bytes:
    """The input of a batch."""
    lines = (
        {"custom_id": f"line-{place}", "method": "POST", "url": endpoint, "body": body}
        for place, body in enumerate(bodies)
    )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def begun(client: openai.OpenAI, data: bytes, endpoint: Any) -> str:
    """The id of a batch that has just begun."""
    file = client.files.create(file=("lines.jsonl", data), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint=endpoint, completion_window="24h")
    return batch.id


def looks_at(client: openai.OpenAI, batch_id: str) -> Iterator[BatchRequestCounts]:
    """How far a batch has come, again and again until its output is there; it may have no errors.

    Raises:
        RuntimeError: it has come to another end, or has errors.
    """
    while (batch := client.batches.retrieve(batch_id)).status != "completed":
        if batch.status in ("failed", "expired", "cancelled"):
            raise RuntimeError(batch)
        if batch.request_counts is not None:
            yield batch.request_counts
        time.sleep(LOOK_SECONDS)
    if batch.request_counts is None or batch.request_counts.failed:
        raise RuntimeError(batch)


def seconds_of(client: openai.OpenAI, batch_id: str) -> float:
    """How long a batch takes from now, until its output is there."""
    began = time.perf_counter()
    for _ in looks_at(client, batch_id):
        pass
    return time.perf_counter() - began


async def alone(engine: TorchEngine, prompts: Sequence[Sequence[int]], size: int) -> float:
    """Sequences a second of the engine with so many at a time."""
    left = iter(prompts)

    async def work() -> None:
        for prompt in left:
            await serve(engine, prompt, OUTPUT_TOKENS)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(size)))
    return len(prompts) / (time.perf_counter() - began)


class EngineAlone:
    """The starter in int8, without a server. Between two measurements its threads wait."""

    def __init__(self, lines: int) -> None:
        folder = model_store.resolve("starter")
        loaded = load("starter", folder, TorchConfig(quantization="int8"), context_length=2048)
        self._engine = TorchEngine(loaded)
        self._lines = lines

    def __enter__(self) -> EngineAlone:
        self._engine.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.stop()

    def lines_per_s(self, size: int, seed: int) -> float:
        """Of a batch's lines, with so many at a time."""
        prompts = prompts_of(self._lines, INPUT_TOKENS, 40_000, seed)
        rate = asyncio.run(alone(self._engine, prompts, size))
        say(f"the engine alone, {size} at a time: {rate:.2f} lines/s")
        return rate


def ttft(client: openai.OpenAI, asked: int, seed: int) -> float:
    """Milliseconds until the first token of a request, the 90th of a hundred of them."""
    found = []
    for prompt in prompts_of(asked, INPUT_TOKENS, 40_000, seed):
        body = body_of(prompt)
        extra = {"ignore_eos": body.pop("ignore_eos")}
        began = time.perf_counter()
        stream = client.completions.create(**body, stream=True, extra_body=extra)
        next(iter(stream))
        found.append((time.perf_counter() - began) * 1000)
        for _ in stream:
            pass
        time.sleep(PAUSE_SECONDS)
    return sorted(found)[int(len(found) * 0.9)]


def beside_people(
    client: openai.OpenAI, engine: EngineAlone, best: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Rounds of the engine alone, of a batch, of a client, and of both at a time."""
    alone_rates, rates, quiet, beside, left = [], [], [], [], []
    for turn in range(options.rounds):
        prompts = prompts_of(options.lines, INPUT_TOKENS, 40_000, 5000 + turn)
        data = jsonl([body_of(each) for each in prompts], BATCH_ENDPOINT)
        # Until then it is made room for people who may ask again.
        time.sleep(PEOPLE_SECONDS)
        alone_rates.append(engine.lines_per_s(best, 4000 + turn))
        rates.append(options.lines / seconds_of(client, begun(client, data, BATCH_ENDPOINT)))
        say(f"a batch: {rates[-1]:.2f} lines/s")
        quiet.append(ttft(client, options.asked, 6000 + turn))
        say(f"a client alone: {quiet[-1]:.0f} ms to the first token")
        many = prompts_of(8 * options.lines, INPUT_TOKENS, 40_000, 7000 + turn)
        endless = jsonl([body_of(each) for each in many], BATCH_ENDPOINT)
        batch_id = begun(client, endless, BATCH_ENDPOINT)
        time.sleep(3)
        before, began = _done(client, batch_id), time.perf_counter()
        beside.append(ttft(client, options.asked, 8000 + turn))
        say(f"beside a batch: {beside[-1]:.0f} ms")
        done = _done(client, batch_id) - before
        left.append(done / (time.perf_counter() - began))
        client.batches.cancel(batch_id)
        while client.batches.retrieve(batch_id).status not in ("cancelled", "completed"):
            time.sleep(0.05)
    return {
        "of_the_engine": ratio_of(rates, alone_rates),
        "engine_lines_per_s": round(statistics.median(alone_rates), 3),
        "batch_lines_per_s": round(statistics.median(rates), 3),
        "ttft_p90_ms": round(statistics.median(quiet), 1),
        "ttft_p90_ms_beside_a_batch": round(statistics.median(beside), 1),
        "ttft_p90_ratio": ratio_of(beside, quiet),
        "batch_lines_per_s_beside_people": round(statistics.median(left), 3),
    }


def ratio_of(these: Sequence[float], those: Sequence[float]) -> float:
    """The median of the rounds' ratios."""
    return round(statistics.median(a / b for a, b in zip(these, those, strict=True)), 3)


def say(what: str) -> None:
    """Tell who waits how far it has come."""
    print(what, file=sys.stderr, flush=True)


def _done(client: openai.OpenAI, batch_id: str) -> int:
    counts = client.batches.retrieve(batch_id).request_counts
    assert counts is not None
    return counts.completed


def on_the_engine(options: argparse.Namespace) -> dict[str, Any]:
    """The starter in int8."""
    with EngineAlone(options.lines) as engine:
        engine.lines_per_s(SIZES[0], 0)  # warms it up
        sizes = {size: engine.lines_per_s(size, size) for size in SIZES}
        best = max(sizes, key=sizes.__getitem__)
        config = {"quantization": "int8", "max_sequences": best}
        provider = {"id": "torch", "type": "local::torch", "config": config}
        model = {
            "id": "m",
            "provider": "torch",
            "provider_model": "starter",
            "context_length": 2048,
        }
        with served(provider, model) as server, client_of(server) as client:
            ttft(client, 5, 1)  # warms it up
            found = beside_people(client, engine, best, options)
    return {
        "lines": options.lines,
        "input_tokens": INPUT_TOKENS,
        "output_tokens": OUTPUT_TOKENS,
        "rounds": options.rounds,
        "engine_lines_per_s_by_size": {str(size): round(rate, 3) for size, rate in sizes.items()},
        "best_size": best,
        "wanted": WANTED,
        **found,
    }


def of_echo(options: argparse.Namespace) -> dict[str, Any]:
    """Many lines of a model that answers at once."""
    text = f"{'w' * (WORD_BYTES - 1)} " * (ECHO_BYTES // WORD_BYTES)
    bodies: list[dict[str, Any]] = [
        {"model": "m", "messages": [{"role": "user", "content": f"{number} {text}"}]}
        for number in range(options.echo_lines)
    ]
    data = jsonl(bodies, "/v1/chat/completions")
    del bodies
    provider, model = {"id": "echo", "type": "local::echo"}, {"id": "m", "provider": "echo"}
    with served(provider, model) as server, client_of(server) as client:
        idle = resident_mib(server.process.pid)
        began = time.perf_counter()
        batch_id = begun(client, data, "/v1/chat/completions")
        uploaded = time.perf_counter() - began
        quarters = memory_of(client, batch_id, server.process.pid)
        seconds = time.perf_counter() - began - uploaded
        return {
            "lines": options.echo_lines,
            "megabytes": round(len(data) / 1e6, 1),
            "upload_s": round(uploaded, 2),
            "batch_s": round(seconds, 2),
            "lines_per_s": round(options.echo_lines / seconds, 1),
            "idle_mib": round(idle, 1),
            "peak_mib": round(peak_mib(server.process.pid), 1),
            "mib_after_each_quarter": quarters,
        }


def memory_of(client: openai.OpenAI, batch_id: str, pid: int) -> list[float]:
    """What the server `pid` has resident after each quarter of a batch's lines, until it has
    ended."""
    found: list[float] = []
    for counts in looks_at(client, batch_id):
        done = counts.completed / counts.total if counts.total else 0
        if done * QUARTERS >= len(found) + 1:
            found.append(round(resident_mib(pid), 1))
    return [*found[: QUARTERS - 1], round(resident_mib(pid), 1)]


def recorded() -> dict[str, Any]:
    """What an earlier run has recorded: with `--only` the other part stays."""
    path = RESULTS / "batches.json"
    if not path.exists():
        return {}
    report: dict[str, Any] = json.loads(path.read_text())
    return {name: report[name] for name in ("engine", "echo") if name in report}


def waiting_as_served() -> None:
    """Begin anew with threads that wait as a server's do, which is read when torch is loaded."""
    if not set(WAITING) & os.environ.keys():
        with bounded_waiting(TURNS):
            os.execv(sys.executable, [sys.executable, "-m", "bench.batches", *sys.argv[1:]])


def main() -> None:
    """Measure all of it."""
    waiting_as_served()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--lines", type=int, default=192, help="of a batch for the engine")
    parser.add_argument("--echo-lines", type=int, default=50_000)
    parser.add_argument("--asked", type=int, default=20, help="by the client, a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("engine", "echo"), help="this part alone")
    parser.add_argument("--no-record", action="store_true", help="print the figures, no more")
    options = parser.parse_args()
    measured = recorded() if options.only is not None else {}
    if options.only != "echo":
        measured["engine"] = on_the_engine(options)
    if options.only != "engine":
        measured["echo"] = of_echo(options)
    print(json.dumps(measured, indent=2))
    if not options.no_record:
        print(f"written to {write_results('batches', measured, 'torch')}")


if __name__ == "__main__":
    main()
