"""What loading a model does to who streams from another, and to all else that the process does.

    python -m bench.loading_beside [--model starter] [--quantization int8] [--rounds 3]

A stream decodes by itself, then while the same model is loaded once more from a copy of its folder:
as the first time, when it is read by transformers and packed, and as every time after that, from
what was kept then. Compared are the times between its tokens; beside them stands how late the event
loop was, which every request of a server waits for. Prints the figures and writes them to
`bench/results/loading-beside.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from bench.engine import prompts_of
from bench.long_prompt import percentile
from bench.machine import write_results
from bench.served import serve, until_each_has
from providers.local.models import store as model_store
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.cpu_thread import aside
from providers.local.torch_engine.engine import TorchEngine
from providers.local.torch_engine.loading.loader import load
from providers.local.torch_engine.loading.reading import read_aside
from routing.cli.machine.measuring import Served
from routing.process.server import GARBAGE_THRESHOLD

PROMPT = 32
QUIET_SECONDS = 3.0
TICK_SECONDS = 0.001


class Gaps:
    """Seconds between tokens of a stream, and by which the event loop was late, of some spans."""

    def __init__(self) -> None:
        self.tokens: list[float] = []
        self.late: list[float] = []
        self.seconds = 0.0

    def figures(self) -> dict[str, float]:
        """In milliseconds, and for how long it was in seconds."""
        return {
            "token_p50_ms": round(1000 * percentile(self.tokens, 0.5), 2),
            "token_p99_ms": round(1000 * percentile(self.tokens, 0.99), 2),
            "token_longest_ms": round(1000 * max(self.tokens), 1),
            "loop_p99_late_ms": round(1000 * percentile(self.late, 0.99), 2),
            "loop_latest_ms": round(1000 * max(self.late), 1),
            "seconds": round(self.seconds, 2),
        }


async def watched(engine: TorchEngine, seed: int, gaps: Gaps, work: Callable[[], Any]) -> None:
    """Add the gaps of a stream while `work` goes on in a thread."""
    [prompt] = prompts_of(1, PROMPT, engine.model.vocab_size, seed)
    served = Served(time.perf_counter(), [])
    tokens = engine.model.context_length - PROMPT - 1
    stream = asyncio.create_task(serve(engine, prompt, tokens, into=served))
    await until_each_has(PROMPT, [served], TICK_SECONDS)
    begun, first = time.perf_counter(), len(served.tokens) - 1
    working = asyncio.create_task(asyncio.to_thread(work))
    while not working.done():
        before = time.perf_counter()
        await asyncio.sleep(TICK_SECONDS)
        gaps.late.append(max(0.0, time.perf_counter() - before - TICK_SECONDS))
    await working
    gaps.seconds += time.perf_counter() - begun
    gaps.tokens += [after - before for before, after in pairwise(served.tokens[first:])]
    stream.cancel()
    await asyncio.gather(stream, return_exceptions=True)


async def measure(engine: TorchEngine, name: str, config: TorchConfig, rounds: int) -> Any:
    """Each of the three, in turns."""
    found = {each: Gaps() for each in ("alone", "first load", "later load")}
    source = model_store.resolve(name)
    for turn in range(rounds + 1):
        gaps = found if turn else {each: Gaps() for each in found}  # the first one warms up
        with tempfile.TemporaryDirectory() as place:
            folder = Path(shutil.copytree(source, Path(place) / "copy"))

            def loads(folder: Path = folder) -> None:
                with read_aside(folder, config) as begun:
                    load("copy", folder, config, 512, where=aside, aside=begun)

            def first(folder: Path = folder) -> None:
                shutil.rmtree(folder / ".llama-compat", ignore_errors=True)
                loads(folder)

            await watched(engine, 3 * turn, gaps["alone"], lambda: time.sleep(QUIET_SECONDS))
            await watched(engine, 3 * turn + 1, gaps["first load"], first)
            await watched(engine, 3 * turn + 2, gaps["later load"], loads)
    return {name: gaps.figures() for name, gaps in found.items()}


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="starter", help="as in a template")
    parser.add_argument("--quantization", default="int8")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    settings = {"device": "cpu", "quantization": options.quantization, "speculation": "none"}
    config = TorchConfig.model_validate(settings)
    engine = TorchEngine(load(options.model, model_store.resolve(options.model), config, 4096))
    engine.start()
    # As a server does, or what bench and libraries made is looked through while a stream waits.
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD)
    try:
        results = asyncio.run(measure(engine, options.model, config, options.rounds))
    finally:
        engine.stop()
    measured = {
        "model": options.model,
        "quantization": options.quantization,
        "threads": torch.get_num_threads(),
        "rounds": options.rounds,
        "results": results,
    }
    path = write_results("loading-beside", measured, "torch", "transformers")
    print(json.dumps(measured, indent=2))
    print(f"written to {path}")


if __name__ == "__main__":
    main()
