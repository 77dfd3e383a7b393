"""What an engine keeps of its speed on a CPU beside a process that keeps one core busy.

    python -m bench.busy_neighbour [--engine torch|llama_cpp] [--model starter] [--rounds 5]
                                   [--quantization int8]

A step of a model is some hundred products, behind each of which threads wait for each other. Each
way of waiting has a process of its own, since OpenMP reads it when it is loaded; they take turns,
alone and beside the neighbour. As it is, fewer threads are tried now and then; the others keep
theirs. One sequence decodes, and eight at a time; medians of the rounds, in tokens a second, and as
a part of what the same process does alone. Prints the figures and writes them to
`bench/results/busy-neighbour.json`, those of llama.cpp to `busy-neighbour-llama_cpp.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from bench.machine import write_results
from providers.local.threads.waiting import WAITING

AS_IT_IS = "as it is"
WAYS: dict[str, dict[str, str]] = {
    AS_IT_IS: {},
    # What it does if it is told nothing.
    "OpenMP's own": {"GOMP_SPINCOUNT": "300000"},
    **{
        f"{turns} turns": {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": str(turns)}
        for turns in (0, 300, 1000, 20_000)
    },
    "one thread": {"OMP_NUM_THREADS": "1"},
}
"""The ways of waiting, and the environment that says each."""

SEQUENCES = (1, 8)
PROMPT_TOKENS = 32
NEW_TOKENS = 192
CONTEXT = 512

BUSY = "while True: pass"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=["torch", "llama_cpp"], default="torch")
    parser.add_argument("--model", help="the starter, unless said otherwise")
    parser.add_argument("--quantization", default="int8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.model = options.model or ("starter" if options.engine == "torch" else "starter.gguf")
    if options.child:
        _answer(options)
    else:
        _compare(options)


def _compare(options: argparse.Namespace) -> None:
    base = {name: value for name, value in os.environ.items() if name not in WAITING}
    command = [sys.executable, "-m", "bench.busy_neighbour", "--engine", options.engine]
    command += ["--model", options.model, "--quantization", options.quantization, "--child"]
    children = {
        way: subprocess.Popen(
            [*command, way],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**base, **environment},
        )
        for way, environment in WAYS.items()
    }
    measured: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    try:
        for child in children.values():
            _ask(child, 1)  # loaded, and warm
        for _ in range(options.rounds):
            for sequences in SEQUENCES:
                for way, child in children.items():
                    measured[way][f"{sequences} alone"].append(_ask(child, sequences))
                    with _neighbour():
                        measured[way][f"{sequences} beside"].append(_ask(child, sequences))
    finally:
        for child in children.values():
            child.kill()
            child.wait()
    report = {}
    for way, speeds in measured.items():
        medians = {name: statistics.median(each) for name, each in speeds.items()}
        report[way] = {name: round(value, 1) for name, value in medians.items()} | {
            f"{sequences} beside, of alone": round(
                medians[f"{sequences} beside"] / medians[f"{sequences} alone"], 2
            )
            for sequences in SEQUENCES
        }
    if options.engine == "torch":
        write_results("busy-neighbour", report, "torch", "llvmlite")
    else:
        write_results("busy-neighbour-llama_cpp", report, "llama-cpp-python")
    print(json.dumps(report, indent=2))


def _ask(child: subprocess.Popen[str], sequences: int) -> float:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{sequences}\n")
    child.stdin.flush()
    return float(child.stdout.readline())


@contextmanager
def _neighbour() -> Iterator[None]:
    busy = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        time.sleep(0.3)
        yield
    finally:
        busy.kill()
        busy.wait()


def _torch(options: argparse.Namespace) -> Any:
    from providers.local.threads.waiting import bounded_waiting
    from providers.local.torch_engine.provider import TURNS

    with bounded_waiting(TURNS):
        import torch  # it reads how to wait now
    from providers.local.models import store as model_store
    from providers.local.torch_engine.config import TorchConfig
    from providers.local.torch_engine.engine import TorchEngine
    from providers.local.torch_engine.loading.loader import load

    config = TorchConfig.model_validate(
        {
            "device": "cpu",
            "quantization": options.quantization,
            "prefix_cache": False,
            "max_sequences": max(SEQUENCES),
            "threads": None if options.child == AS_IT_IS else torch.get_num_threads(),
        }
    )
    return TorchEngine(load(options.model, model_store.resolve(options.model), config, CONTEXT))


def _llama_cpp(options: argparse.Namespace) -> Any:
    from providers.local.llama_cpp_engine import loader
    from providers.local.llama_cpp_engine.config import LlamaCppConfig
    from providers.local.llama_cpp_engine.engine import LlamaEngine
    from providers.local.models import store as model_store

    path = model_store.resolve_gguf(options.model)
    config = LlamaCppConfig.model_validate(
        {
            "prefix_cache": False,
            "max_sequences": max(SEQUENCES),
            "threads": None if options.child == AS_IT_IS else _threads(),
        }
    )
    model = loader.open_model(options.model, path, config)
    return LlamaEngine(loader.load(options.model, model, path, config, CONTEXT))


def _threads() -> int:
    from providers.local.llama_cpp_engine.loader import cpu_cores

    return int(os.environ.get("OMP_NUM_THREADS") or cpu_cores())


def _answer(options: argparse.Namespace) -> None:
    """Tokens a second of as many sequences as each line of stdin says."""
    engine = _torch(options) if options.engine == "torch" else _llama_cpp(options)
    engine.start()

    from bench.served import serve

    async def speed(sequences: int) -> float:
        prompts = [
            [5 + (place * 7 + number) % 1000 for place in range(PROMPT_TOKENS)]
            for number in range(sequences)
        ]
        served = await asyncio.gather(*(serve(engine, prompt, NEW_TOKENS) for prompt in prompts))
        # From the first token of the last on: decoding alone.
        start = max(each.tokens[0] for each in served)
        end = max(each.tokens[-1] for each in served)
        return sum(at > start for each in served for at in each.tokens) / (end - start)

    with suppress(KeyboardInterrupt):
        for line in sys.stdin:
            print(asyncio.run(speed(int(line))), flush=True)
    engine.stop()


if __name__ == "__main__":
    main()
