"""How fast `local::torch` is on a GPU, beside what its memory and its arithmetic allow.

    python -m bench.engine --engine cuda [--parts generate,decode,prompts,...] [--fp8]

Models have the shapes of real ones and random weights, so that nothing is downloaded. A roofline is
the time that the memory needs to give every byte that has to be read once, at the bandwidth that a
large copy on the same card reached a minute before: for a step of replies the weights (without the
table of embeddings, of which a few rows are read) and the keys and values of all tokens so far.
That of prompts is the time that a large matrix product takes for as many operations.

All but the last are of Llama 3.1 8B's shape (`--shape` takes another) in bfloat16; with `--fp8`
weights and KV cache have 8 bits a number:

- `generate`: 64 prompts of 32 to 1,024 tokens, beside transformers' `generate` on one static batch
- `decode`: a step of 1, 8, 64 and 256 replies behind 1,024 tokens
- `launches`: the same for 1 and 64, without overlap, without CUDA graphs, and without both
- `prompts`: tokens of prompts a second, in steps of 2,048 and of 8,192 tokens
- `mixed`: the time between tokens of 32 streams while prompts of 4,000 tokens come in, and without
- `profile`: which kernels a step of replies, and one of prompts, consists of
- `host`: what of the host's functions takes its time where a step is not one graph
- `batch`: nano-vllm's workload: 256 requests of 100 to 1,024 tokens in and as many out, in the
  shape of Qwen3 0.6B

Each part's figures are printed when they are there and written to `bench/results/engine-cuda.json`
(or `engine-cuda-fp8.json`, or by the name of `--shape`), and to `$OUT` where that is set, so that a
part that fails takes nothing with it.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
import random
import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bench.cuda import (
    SHAPES,
    Peaks,
    Shape,
    has_cuda,
    kernel_times,
    measure_peaks,
    print_rows,
    write_cuda,
)
from bench.engine import prompts_of
from bench.long_prompt import percentile
from bench.served import gaps_within, serve, until_each_has
from providers.local.engine import LocalModel
from providers.local.torch_engine.config import TorchConfig
from providers.local.torch_engine.engine import TorchEngine
from providers.local.torch_engine.kernels.kernel_runner import KernelRunner
from providers.local.torch_engine.loading.loader import LoadedModel
from providers.local.torch_engine.loading.paged import paged
from providers.local.torch_engine.loading.weights import decoder_of
from providers.local.torch_engine.model import linear
from providers.local.torch_engine.scheduling.scheduler import StepLimits
from routing.cli.machine.measuring import Served, metrics

LLAMA = "llama 3.1 8b"
SEQUENCES = 256
CONTEXT = 16384
LARGEST_STEP = 8192

Work = Sequence[tuple[Sequence[int], int]]
"""Prompts, and how many tokens are wanted of each."""


class Opened(NamedTuple):
    """An engine that runs, and what bounds it."""

    engine: TorchEngine
    shape: Shape
    peaks: Peaks
    options: argparse.Namespace

    def roofline(self, read: float, steps: int, tokens: float) -> float:
        """Seconds that the memory needs for so many steps of replies.

        Args:
            read: numbers of the weights, in all steps together.
            steps: in each of which the head is read, which has 16 bits a number.
            tokens: whose keys and values are read, in all steps together.
        """
        each = 1 if self.options.fp8 else 2
        head = steps * self.shape.hidden * self.shape.vocabulary
        nbytes = each * (read - head + tokens * self.shape.kv) + 2 * head
        return nbytes / self.peaks.bandwidth


@contextmanager
def opened(
    name: str, module: Any, peaks: Peaks, options: argparse.Namespace, sequences: int = SEQUENCES
) -> Iterator[Opened]:
    """An engine on a transformers model, which is used up."""
    shape, device = SHAPES[name], module.device
    limits = StepLimits(sequences=sequences, tokens=LARGEST_STEP, scored_tokens=128)
    with torch.inference_mode():
        quantization = "fp8" if options.fp8 else "none"
        make = linear.MAKES[quantization]
        decoder = decoder_of(module, make, linear.HEADS.get(quantization))
    del module
    torch.cuda.empty_cache()
    config = TorchConfig(
        kv_cache=0.85,
        kernels=options.kernels,
        kv_cache_dtype="fp8" if options.fp8 else "auto",
        prefix_cache=False,
        max_waiting=999,
    )
    began = time.perf_counter()
    made = paged(name, decoder, CONTEXT, limits, config)
    print(f"{name}: tried and recorded in {time.perf_counter() - began:.1f} s", flush=True)
    loaded = LoadedModel(
        config=config,
        # No text is made here, so that nobody asks for the tokenizer.
        model=LocalModel(name, None, None, shape.vocabulary, CONTEXT, {}, None),  # type: ignore[arg-type]
        runner=made.runner,
        blocks=made.blocks,
        limits=limits,
        device=device,
        dtype=torch.bfloat16,
        quantization=quantization,
        batched=True,
        kernels=made.kernels,
    )
    engine = TorchEngine(loaded)
    engine.start()
    try:
        yield Opened(engine, shape, peaks, options)
    finally:
        engine.stop()


async def serve_all(engine: TorchEngine, work: Work, temperature: float = 0.0) -> list[Served]:
    """All at once."""
    return list(
        await asyncio.gather(
            *(serve(engine, prompt, tokens, temperature) for prompt, tokens in work)
        )
    )


def alike(on: Opened, count: int, length: int, tokens: int, seed: int) -> Work:
    """Requests of one size."""
    prompts = prompts_of(count, length, on.shape.vocabulary, seed)
    return [(prompt, tokens) for prompt in prompts]


def step_seconds(served: Sequence[Served]) -> float:
    """The median time of a step while all of them were there; 0 where they never were at once."""
    first = max(request.tokens[0] for request in served)
    last = min(request.tokens[-1] for request in served)
    return statistics.median(gaps_within(served[:1], first, last) or [0.0])


def measure_decode(on: Opened, batches: Sequence[int] = (1, 8, 64, 256)) -> dict[str, Any]:
    """Steps of replies beside their roofline."""
    prompt_len, reply_len = on.options.input_len, on.options.output_len
    found: dict[str, Any] = {}
    for batch in batches:
        work = alike(on, batch, prompt_len, reply_len, batch)
        for temperature in (0.0, 0.8) if batch == 64 else (0.0,):
            # The first time products of new numbers of rows are set up.
            asyncio.run(serve_all(on.engine, [(each, 4) for each, _ in work], temperature))
            served = asyncio.run(serve_all(on.engine, work, temperature))
            seconds = step_seconds(served)
            tokens = batch * (prompt_len + reply_len / 2)
            roofline = on.roofline(on.shape.read_by(batch), 1, tokens)
            of_step = {}
            if seconds:
                of_step = {
                    "step_ms": round(seconds * 1000, 3),
                    "roofline_ms": round(roofline * 1000, 3),
                    "of_roofline": round(roofline / seconds, 3),
                }
            found[f"{batch} {'sampled' if temperature else 'greedy'}"] = {
                **of_step,
                **metrics(served),
            }
    return found


def measure_launches(on: Opened) -> dict[str, Any]:
    """What overlap and graphs save."""
    engine, runner = on.engine, on.engine.loaded.runner
    assert isinstance(runner, KernelRunner)
    graphs, config = runner._graphs, engine.loaded.config
    found = {}
    for overlap in (True, False):
        for recorded in (True, False):
            engine.loaded.config.overlap = overlap
            runner._graphs = graphs if recorded else {}
            steps = {
                f"step_ms of {batch}": round(
                    step_seconds(asyncio.run(serve_all(engine, alike(on, batch, 1024, 48, batch))))
                    * 1000,
                    3,
                )
                for batch in (1, 64)
            }
            found[f"overlap {overlap}, graphs {recorded}"] = steps
    runner._graphs, config.overlap = graphs, True
    return found


def prompt_operations(shape: Shape, length: int) -> float:
    """Operations of a prompt: its products, and those of its attention."""
    reach = shape.window or length
    seen = sum(min(place + 1, reach) for place in range(length))
    attention = 4 * seen * shape.heads * shape.head_dim * shape.layers
    return 2 * length * shape.layers * shape.layer_weights + attention


def measure_prompts(on: Opened) -> dict[str, Any]:
    """Prompts beside what the card computes."""
    found = {}
    for step in (2048, 8192):
        on.engine.loaded.limits.tokens = step
        for count, length in ((32, 1024), (8, 4096), (2, 15000)):
            for turn in range(2):
                work = alike(on, count, length, 1, 50 + turn)
                served = asyncio.run(serve_all(on.engine, work))
            seconds = max(each.tokens[0] for each in served) - min(each.sent for each in served)
            operations = count * prompt_operations(on.shape, length)
            found[f"steps of {step}: {count} of {length}"] = {
                "tokens_per_second": round(count * length / seconds),
                "of_product": round(operations / seconds / on.peaks.operations, 3),
            }
    on.engine.loaded.limits.tokens = LARGEST_STEP
    return found


def measure_mixed(on: Opened) -> dict[str, Any]:
    """The time between tokens of streams while prompts come in."""
    engine = on.engine

    async def streams_and_prompts(every: float | None) -> dict[str, float]:
        into = [Served(time.perf_counter(), []) for _ in range(32)]
        streams = [
            asyncio.create_task(serve(engine, prompt, tokens, into=each))
            for each, (prompt, tokens) in zip(into, alike(on, 32, 256, 400, 3), strict=True)
        ]
        await until_each_has(50, into)
        start, prompts = time.perf_counter(), []
        if every is not None:
            for prompt, _ in alike(on, 8, 4000, 1, 4):
                prompts.append(asyncio.create_task(serve(engine, prompt, 1)))
                await asyncio.sleep(every)
            first = [each.tokens[0] - each.sent for each in await asyncio.gather(*prompts)]
        else:
            await asyncio.sleep(1)
            first = []
        end = time.perf_counter()
        await asyncio.gather(*streams)
        between = gaps_within(into, start, end)
        return {
            "itl_p50_ms": round(percentile(between, 0.5) * 1000, 2),
            "itl_p99_ms": round(percentile(between, 0.99) * 1000, 2),
            **({"ttft_median_ms": round(statistics.median(first) * 1000, 1)} if first else {}),
        }

    found: dict[str, Any] = {}
    for step in (2048, 8192):
        engine.loaded.limits.tokens = step
        for _ in range(2):
            found[f"steps of {step}, no prompts"] = asyncio.run(streams_and_prompts(None))
        found[f"steps of {step}, one every 0.25 s"] = asyncio.run(streams_and_prompts(0.25))
    engine.loaded.limits.tokens = LARGEST_STEP
    return found


def measure_profile(on: Opened) -> dict[str, Any]:
    """The kernels of steps, by the time that they take."""
    found = {}
    for name, work in (
        ("1 reply", alike(on, 1, 1024, 33, 1)),
        ("64 replies", alike(on, 64, 1024, 33, 2)),
        ("8 prompts of 1024", alike(on, 8, 1024, 1, 3)),
    ):
        kernels = kernel_times(lambda work=work: asyncio.run(serve_all(on.engine, work)))
        total = sum(taken for _, taken in kernels.values())
        found[name] = [
            {
                "kernel": kernel[:70],
                "count": count,
                "mean_us": round(taken / count, 2),
                "share": round(taken / total, 4),
            }
            for kernel, (count, taken) in list(kernels.items())[:16]
        ]
    return found


def measure_host(on: Opened) -> dict[str, Any]:
    """What the host does to launch a step of 64 replies without a graph, by its own time."""
    runner = on.engine.loaded.runner
    assert isinstance(runner, KernelRunner)
    profile = cProfile.Profile()
    with torch.inference_mode():
        inputs = runner._inputs.load((), padded=64)
        for turn in range(13):
            if turn == 3:
                profile.enable()
            runner._compute(inputs)
        profile.disable()
        torch.cuda.synchronize()
    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    rows = [
        {
            "function": f"{Path(file).name}:{line} {name}"[-70:],
            "calls": calls // 10,
            "own_ms": round(own * 100, 3),
        }
        for (file, line, name), (_, calls, own, _, _) in stats.items()
    ]
    rows.sort(key=lambda each: -float(str(each["own_ms"])))
    return {"a step": rows[:20]}


def ragged(shape: Shape, most: int) -> list[list[int]]:
    """64 prompts of 32 to `most` tokens."""
    chosen = random.Random(5)
    lengths = [chosen.randint(32, most) for _ in range(64)]
    return [[chosen.randrange(1, shape.vocabulary) for _ in range(length)] for length in lengths]


def their_throughput(shape: Shape, module: Any, options: argparse.Namespace) -> float:
    """Output tokens a second of transformers' `generate`, on one batch padded on the left."""
    prompts, tokens = ragged(shape, options.input_len), options.output_len
    width = max(map(len, prompts))
    ids = [[0] * (width - len(each)) + each for each in prompts]
    mask = [[0] * (width - len(each)) + [1] * len(each) for each in prompts]
    seconds = 0.0
    for _ in range(2):
        start = time.perf_counter()
        module.generate(
            torch.tensor(ids, device=module.device),
            attention_mask=torch.tensor(mask, device=module.device),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            pad_token_id=0,
        )
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    return len(prompts) * tokens / seconds


def measure_generate(on: Opened, theirs: float) -> dict[str, Any]:
    """The same prompts here."""
    work = [(each, on.options.output_len) for each in ragged(on.shape, on.options.input_len)]
    rounds = [asyncio.run(serve_all(on.engine, work)) for _ in range(2)]
    ours = metrics(rounds[-1])
    return {
        **ours,
        "generate_output_throughput": round(theirs, 1),
        "of_generate": round(ours["output_throughput"] / theirs, 2),
    }


def measure_batch(on: Opened) -> dict[str, Any]:
    """nano-vllm's workload beside its roofline: every reply in one batch, all from the start."""
    chosen, shape = random.Random(0), on.shape
    most = min(1024, on.options.input_len)
    work = [
        (
            [chosen.randrange(10000) for _ in range(chosen.randint(100, most))],
            chosen.randint(100, most),
        )
        for _ in range(on.options.requests)
    ]
    asyncio.run(serve_all(on.engine, [(prompt[:50], 8) for prompt, _ in work], 0.6))
    served = asyncio.run(serve_all(on.engine, work, 0.6))
    figures = metrics(served)
    steps = max(tokens for _, tokens in work)
    cached = sum(len(prompt) * tokens + tokens * (tokens - 1) // 2 for prompt, tokens in work)
    read = steps * shape.read_by(len(work))
    roofline = on.roofline(read, steps, cached)
    seconds = len(work) / figures["request_throughput"]
    return {
        "preempted": on.engine.stats.preempted,
        **figures,
        "seconds": round(seconds, 2),
        "roofline_seconds": round(roofline, 2),
        "of_roofline": round(roofline / seconds, 3),
    }


ON_ONE: dict[str, Callable[[Opened], dict[str, Any]]] = {
    "decode": measure_decode,
    "launches": measure_launches,
    "prompts": measure_prompts,
    "mixed": measure_mixed,
    "profile": measure_profile,
    "host": measure_host,
}
"""What is measured on the same engine."""

PARTS = ("generate", *ON_ONE, "batch")


class Report:
    """What was measured so far, written down after each part."""

    def __init__(self, peaks: Peaks, options: argparse.Namespace) -> None:
        self._results: dict[str, Any] = {}
        self._name = "engine-cuda"
        if options.shape != LLAMA:
            self._name += f"-{options.shape.replace(' ', '-')}"
        if options.fp8:
            self._name += "-fp8"
        self._measured = {
            "dtype": "fp8" if options.fp8 else "bfloat16",
            "peaks": peaks._asdict(),
            "options": vars(options),
            "results": self._results,
        }

    def take(self, name: str, measure: Callable[[], dict[str, Any]]) -> None:
        """Measure a part; where that fails the others are worth having."""
        began = time.perf_counter()
        try:
            self._results[name] = found = measure()
        except Exception:
            self._results[name] = found = {"failed": traceback.format_exc()}
        print(f"{name}, {time.perf_counter() - began:.1f} s")
        for case, row in found.items():
            if isinstance(row, list):
                print_rows(case, row)
            else:
                print(f"  {case}: {json.dumps(row) if isinstance(row, dict) else row}", flush=True)
        write_cuda(self._name, self._measured)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, where there is a GPU."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parts", default=",".join(PARTS), help="which")
    parser.add_argument("--kernels", default="triton", choices=("auto", "triton", "sdpa"))
    parser.add_argument("--fp8", action="store_true", help="weights and KV cache of 8 bits")
    parser.add_argument("--shape", choices=SHAPES, default=LLAMA)
    parser.add_argument("--input-len", type=int, default=1024)
    parser.add_argument("--output-len", type=int, default=128)
    parser.add_argument("--requests", type=int, default=256)
    options = parser.parse_args(arguments)
    if not has_cuda():
        return
    device, parts = torch.device("cuda"), options.parts.split(",")
    peaks = measure_peaks()
    print_rows("peaks", [peaks._asdict()])
    report = Report(peaks, options)
    on_one = [name for name in ON_ONE if name in parts]
    if on_one or "generate" in parts:
        module = SHAPES[options.shape].model(device)
        theirs = 0.0
        if "generate" in parts:
            theirs = their_throughput(SHAPES[options.shape], module, options)
        with opened(options.shape, module, peaks, options) as on:
            del module
            if "generate" in parts:
                report.take("generate", lambda: measure_generate(on, theirs))
            for name in on_one:
                report.take(name, lambda name=name: ON_ONE[name](on))
        del on
        torch.cuda.empty_cache()
    if "batch" in parts:
        name = "qwen3 0.6b"
        with opened(name, SHAPES[name].model(device), peaks, options, options.requests) as on:
            report.take("batch", lambda: measure_batch(on))


if __name__ == "__main__":
    main()
