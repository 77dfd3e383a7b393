"""How long a step of `local::torch` takes on a CPU, with each kind of weights and kernels.

    python -m bench.decode_step [--model starter] [--rounds 20]

The forward pass alone: no scheduler, no sampling. Sequences have `CONTEXT` tokens and decode one
more, or a prompt of `PROMPT` is computed in one step. All kinds take turns, so that a noisy minute
meets all of them; medians and minima of the rounds, in milliseconds. Prints the figures and writes
them to `bench/results/decode-step.json`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict

from bench.machine import write_results
from llama_compat.types import SamplingParams
from providers.local.block_manager import BLOCK_SIZE
from providers.local.engine import Generation
from providers.local.models import store as model_store
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.cpu_thread import on_cpu_thread
from providers.local.torch_engine.loading.loader import load
from providers.local.torch_engine.model.linear import MAKES
from providers.local.torch_engine.model_runner import Runner
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.step import Chunk

KERNELS = ("sdpa", "llvm")

CONTEXT = 128
PROMPT = 512


def chunks(sequences: int, length: int, new: int) -> list[Chunk]:
    """Sequences of `length` tokens, of which the last `new` are to be computed."""
    blocks = -(-length // BLOCK_SIZE)
    made = []
    for number in range(sequences):
        tokens = tuple(range(5 + number, 5 + number + length))
        sequence = TorchSequence(Generation(tokens, SamplingParams(), 1), lambda _: None)
        sequence.blocks = list(range(number * blocks, (number + 1) * blocks))
        sequence.computed = length - new
        made.append(Chunk(sequence, new))
    return made


WORK = {
    "decode 1": chunks(1, CONTEXT, 1),
    "decode 8": chunks(8, CONTEXT, 1),
    f"prompt of {PROMPT}": chunks(1, PROMPT, PROMPT),
}


def milliseconds(runner: Runner, work: list[Chunk]) -> float:
    """Of one step."""
    begun = time.perf_counter()
    on_cpu_thread(runner.forward, work)
    return 1e3 * (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="starter")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    folder = model_store.resolve(options.model)
    runners = {
        f"{quantization}, {kernels}": load(
            options.model,
            folder,
            TorchConfig.model_validate(
                {
                    "device": "cpu",
                    "quantization": quantization,
                    "kernels": kernels,
                    "max_sequences": 8,
                }
            ),
            2 * PROMPT,
        ).runner
        for quantization in MAKES
        for kernels in KERNELS
    }
    taken: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for turn in range(options.rounds + 1):
        for work, given in WORK.items():
            for name, runner in runners.items():
                found = milliseconds(runner, given)
                if turn:  # after one to warm up
                    taken[name][work].append(found)
    report = {
        name: {
            work: {"median_ms": round(statistics.median(each), 2), "least_ms": round(min(each), 2)}
            for work, each in of_runner.items()
        }
        for name, of_runner in taken.items()
    }
    write_results("decode-step", report, "torch", "transformers", "llvmlite")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
