"""The Triton kernels of `local::torch` on a GPU, one by one, in the shapes of real models.

    python -m bench.kernels_cuda [--shapes 'llama 3.1 8b,...'] [--dtypes bfloat16,float16] [--sweep]

Each is held against PyTorch's operations in float32, on random numbers, in both dtypes, and timed
in bfloat16: microseconds, the bytes that it has to move and the operations that it has to do, and
how much that is of what the card does (`of_copy`: of the bandwidth of a large copy; `of_product`:
of a large matrix product). Many launches are recorded as one CUDA graph, on more inputs than the
card's cache holds. `--sweep` tries attention with other sizes of tiles, warps and stages. Prints
the figures and writes them to `bench/results/kernels-cuda.json`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench.cuda import (
    SHAPES,
    Peaks,
    Shape,
    as_graph,
    copies_for,
    error_of,
    fault_of,
    has_cuda,
    measure_peaks,
    median_seconds,
    print_rows,
    write_cuda,
)
from llama_compat.types import SamplingParams, TopPSamplingStrategy
from providers.local.engine import Generation
from providers.local.torch_engine.kernels import attention
from providers.local.torch_engine.kernels.gates import gated
from providers.local.torch_engine.kernels.heads import turn_and_write
from providers.local.torch_engine.kernels.norms import add_rms_norm
from providers.local.torch_engine.kernels.places import Places, PromptSpan
from providers.local.torch_engine.kernels.sampling import KernelSampler
from providers.local.torch_engine.model.attention import Scores, SequenceSpan, attend
from providers.local.torch_engine.scheduling.sequence import TorchSequence

DEVICE = "cuda"

BLOCK = 16
ROWS = (1, 64, 8192)
REPLIES = ((1, 2048), (64, 2048), (256, 1024), (1, 15000))
"""Sequences, and how many tokens each has."""

REPLY_TUNINGS = [
    attention.Tuning(16, tile, warps, stages)
    for tile in (32, 64, 128)
    for warps in (2, 4, 8)
    for stages in (2, 3, 4)
]
PROMPT_TUNINGS = [
    attention.Tuning(rows, tile, warps, stages)
    for rows in (64, 128)
    for tile in (32, 64, 128)
    for warps in (4, 8)
    for stages in (2, 3)
]

PROMPTS = (((1024, 1024),) * 8, ((8192, 8192),), ((2048, 14000),))
"""New tokens of each sequence, and how many there are with them."""


@dataclass(frozen=True)
class Case:
    """A kernel on some numbers.

    Attributes:
        name: of both.
        run: launches it; which of several copies of the inputs, it is told.
        copies: how many there are.
        check: how far it is off.
        moved: bytes.
        operations: of matrix products; 0 where there are none worth counting.
    """

    name: str
    run: Callable[[int], object]
    copies: int
    check: Callable[[], float]
    moved: float
    operations: float = 0


def drawn(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Random numbers on the card."""
    return torch.randn(*shape, device=DEVICE, dtype=torch.float32).to(dtype)


def norm_case(shape: Shape, rows: int, dtype: torch.dtype) -> Case:
    """The addition to what there is, and the norm of that."""
    nbytes = 2 * rows * shape.hidden * dtype.itemsize
    copies = copies_for(nbytes)
    added = [drawn(rows, shape.hidden, dtype=dtype) for _ in range(copies)]
    hidden = [drawn(rows, shape.hidden, dtype=dtype) for _ in range(copies)]
    weight = torch.rand(shape.hidden, device=DEVICE) + 0.5

    def check() -> float:
        x, before = drawn(rows, shape.hidden, dtype=dtype), drawn(rows, shape.hidden, dtype=dtype)
        summed = (x.float() + before.float()).to(dtype).float()
        expected = summed * torch.rsqrt(summed.square().mean(-1, keepdim=True) + 1e-6) * weight
        return error_of(add_rms_norm(x, before, weight, 1e-6), expected)

    return Case(
        f"add and norm, {rows} rows",
        lambda turn: add_rms_norm(added[turn], hidden[turn], weight, 1e-6),
        copies,
        check,
        2 * nbytes,
    )


def gate_case(shape: Shape, rows: int, dtype: torch.dtype) -> Case:
    """The gate of an MLP; of experts, of as many rows as tokens take."""
    rows *= max(1, shape.chosen)
    activation = "gelu_pytorch_tanh" if shape.kind.startswith("gemma") else "silu"
    nbytes = 3 * rows * shape.intermediate * dtype.itemsize
    copies = copies_for(nbytes)
    inputs = [drawn(rows, 2 * shape.intermediate, dtype=dtype) for _ in range(copies)]

    def check() -> float:
        gate, up = inputs[0].float().chunk(2, -1)
        if activation == "silu":
            expected = functional.silu(gate) * up
        else:
            expected = functional.gelu(gate, approximate="tanh") * up
        return error_of(gated(inputs[0], activation), expected)

    return Case(
        f"gate, {rows} rows", lambda turn: gated(inputs[turn], activation), copies, check, nbytes
    )


def heads_case(shape: Shape, rows: int, dtype: torch.dtype) -> Case:
    """What happens to queries, keys and values before attention."""
    nbytes = 2 * rows * shape.qkv * dtype.itemsize
    copies = copies_for(nbytes)
    inputs = [drawn(rows, shape.qkv, dtype=dtype) for _ in range(copies)]
    cached = drawn(rows, 2 * shape.kv_heads, shape.head_dim, dtype=dtype)
    pairs = shape.head_dim // 2
    angles = torch.rand(rows, pairs, device=DEVICE) * 6
    turns = torch.view_as_real(torch.polar(torch.ones_like(angles), angles))
    numbers = torch.arange(rows, device=DEVICE, dtype=torch.int32)
    places = Places(numbers, numbers.flip(0).contiguous(), numbers, numbers, numbers, ())
    weight = torch.rand(shape.head_dim, device=DEVICE) + 0.5
    norms = None if shape.kind == "llama" else ((weight, 1e-6), (weight, 1e-6))

    def run(x: torch.Tensor) -> torch.Tensor:
        return turn_and_write(
            x, cached, turns, norms, places, heads=shape.heads, kv_heads=shape.kv_heads
        )

    def check() -> float:
        given = drawn(rows, shape.qkv, dtype=dtype)
        whole = given.float().view(rows, -1, shape.head_dim)
        turned = whole[:, : shape.heads + shape.kv_heads]
        if norms is not None:
            turned = turned * torch.rsqrt(turned.square().mean(-1, keepdim=True) + 1e-6) * weight
        by = torch.polar(torch.ones_like(angles), angles).unsqueeze(1)
        turned = torch.view_as_real(
            torch.view_as_complex(turned.reshape(rows, -1, pairs, 2)) * by
        ).flatten(-2)
        expected = torch.cat([turned, whole[:, shape.heads + shape.kv_heads :]], 1)
        queries = run(given)
        found = torch.cat([queries, cached.flip(0)], 1)
        return error_of(found, expected)

    return Case(f"heads, {rows} rows", lambda turn: run(inputs[turn]), copies, check, nbytes)


def attention_case(
    name: str,
    shape: Shape,
    sequences: Sequence[tuple[int, int]],
    dtype: torch.dtype,
    **settings: Any,
) -> Case:
    """Attention over the cache; with a window, which most layers of some models have."""
    heads, kv_heads, size = shape.heads, shape.kv_heads, shape.head_dim
    counts = [-(-length // BLOCK) for _, length in sequences]
    total, tokens = sum(counts), sum(new for new, _ in sequences)
    order = torch.randperm(total, device=DEVICE, dtype=torch.int32)
    tables = torch.zeros(max(counts), len(sequences), dtype=torch.int32, device=DEVICE)
    at = 0
    for column, count in enumerate(counts):
        tables[:count, column] = order[at : at + count]
        at += count
    starts = [0]
    for new, _ in sequences:
        starts.append(starts[-1] + new)
    int32 = partial(torch.tensor, dtype=torch.int32, device=DEVICE)
    lengths = int32([length for _, length in sequences])
    replies = next((n for n, (new, _) in enumerate(sequences) if new > 1), len(sequences))
    prompts = [PromptSpan(*each) for each in sequences[replies:]]
    nothing = int32([])
    places = Places(nothing, nothing, lengths, int32(starts), tables, prompts)
    queries = drawn(tokens, heads, size, dtype=dtype)
    first = drawn(total * BLOCK, 2 * kv_heads, size, dtype=dtype)
    caches = [first]
    scale, window = size**-0.5, shape.window

    def run(turn: int) -> torch.Tensor:
        # Made once it is to be timed: a check has memory for one.
        while turn >= len(caches):
            caches.append(first.clone())
        return attention.paged_attention(
            queries,
            caches[turn],
            places,
            block_size=BLOCK,
            scale=scale,
            window=window,
            **settings,
        )

    def check() -> float:
        device = queries.device
        spans = [
            SequenceSpan(start, new, length, tables[:count, column].tolist(), BLOCK, device)
            for column, (start, (new, length), count) in enumerate(
                zip(starts, sequences, counts, strict=False)
            )
        ]
        expected = attend(queries.float(), first.float(), spans, Scores(scale, window))
        return error_of(run(0), expected)

    seen = 0
    read = 0
    for new, length in sequences:
        reach = length if window is None else window
        seen += sum(min(place + 1, reach) for place in range(length - new, length))
        read += min(length, reach + new - 1)
    token_bytes = 2 * kv_heads * size * dtype.itemsize
    moved = read * token_bytes + 2 * tokens * heads * size * dtype.itemsize
    return Case(name, run, copies_for(first.nbytes), check, moved, 4 * seen * heads * size)


def sampler_case(shape: Shape, rows: int) -> Case:
    """Drawing by temperature and top-p, which goes through a row some thirty times."""
    logits = [4 * drawn(rows, shape.vocabulary, dtype=torch.float32) for _ in range(2)]
    sampler = KernelSampler(rows, logits[0].device)
    strategy = TopPSamplingStrategy(0.8, 0.95)
    sequences = [
        TorchSequence(Generation((0,), SamplingParams(strategy, seed=n), 9), lambda _: None)
        for n in range(rows)
    ]

    def check() -> float:
        """The part of tokens that lie outside of what top-p leaves."""
        chosen = sampler.sample(logits[0], sequences)
        shares = (logits[0] / 0.8).softmax(-1)
        ordered = shares.sort(-1, descending=True)
        before = ordered.values.cumsum(-1) - ordered.values
        least = ordered.values.masked_fill(before >= 0.95, 2).amin(-1)
        return float((shares.gather(1, chosen[:, None])[:, 0] < least * 0.999).double().mean())

    return Case(
        f"sampling, {rows} rows",
        lambda turn: sampler.sample(logits[turn], sequences),
        1,
        check,
        logits[0].nbytes,
    )


def cases(shape: Shape, dtype: torch.dtype) -> Iterator[Callable[[], Case]]:
    """What makes each kernel's cases, so that one has the card's memory at a time."""
    for rows in ROWS:
        yield partial(norm_case, shape, rows, dtype)
        yield partial(heads_case, shape, rows, dtype)
        yield partial(gate_case, shape, rows, dtype)
    for batch, length in REPLIES:
        name = f"attention, {batch} replies of {length}"
        yield partial(attention_case, name, shape, ((1, length),) * batch, dtype)
    for sequences in PROMPTS:
        new, length = sequences[0]
        name = f"attention, {len(sequences)} prompts of {new} behind {length - new}"
        yield partial(attention_case, name, shape, sequences, dtype)


def pytorch_case(shape: Shape, batch: int, length: int, backend: SDPBackend) -> Case:
    """PyTorch's own attention of as many prompts, whose keys and values lie side by side."""
    queries = drawn(batch, shape.heads, length, shape.head_dim, dtype=torch.bfloat16)
    keys, values = (
        drawn(batch, shape.kv_heads, length, shape.head_dim, dtype=torch.bfloat16) for _ in range(2)
    )

    def run(_: int) -> torch.Tensor:
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(
                queries, keys, values, is_causal=True, enable_gqa=True
            )

    seen = batch * length * (length + 1) / 2
    return Case(
        f"PyTorch's by {backend.name}, {batch} prompts of {length}",
        run,
        1,
        lambda: 0.0,
        (queries.nbytes + keys.nbytes) * 2,
        4 * seen * shape.heads * shape.head_dim,
    )


def pytorch_cases(shape: Shape) -> Iterator[Callable[[], Case]]:
    """What the prompts' attention is beside."""
    if shape.window is None:
        for batch, length in ((8, 1024), (1, 8192)):
            for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
                yield partial(pytorch_case, shape, batch, length, backend)


def timed(case: Case, peaks: Peaks) -> dict[str, Any]:
    """A launch's time beside what the card does."""

    def all_copies() -> None:
        for turn in range(case.copies):
            case.run(turn)

    seconds = median_seconds(as_graph(all_copies), 10) / case.copies
    return {
        "microseconds": round(seconds * 1e6, 2),
        "megabytes": round(case.moved / 1e6, 3),
        "of_copy": round(case.moved / seconds / peaks.bandwidth, 3),
        "of_product": round(case.operations / seconds / peaks.operations, 3),
    }


class Trial(NamedTuple):
    """Attention in some tiles: of these sequences, in this model's shape."""

    model: str
    sequences: tuple[tuple[int, int], ...]
    tuning: attention.Tuning
    splits: int | None

    def case(self, sequences: tuple[tuple[int, int], ...] | None = None) -> Case:
        """Of other sequences, if there are some."""
        return attention_case(
            "",
            SHAPES[self.model],
            sequences or self.sequences,
            torch.bfloat16,
            tuning=self.tuning,
            splits=self.splits,
        )

    def compile(self) -> str | None:
        """Compile it, for this process and for others; what was wrong with it."""
        try:
            self.case(((1, 64),) if self.sequences[0][0] == 1 else ((64, 64),)).run(0)
            torch.cuda.synchronize()
        except Exception as error:
            return fault_of(error)
        return None


def trials() -> list[Trial]:
    """What the sweep tries."""
    found = []
    for model in ("llama 3.1 8b", "gemma3 12b"):
        for batch, length, splits in ((64, 2048, 2), (1, 15000, 32)):
            replies = ((1, length),) * batch
            found += [Trial(model, replies, tuning, splits) for tuning in REPLY_TUNINGS]
        for prompts in (((1024, 1024),) * 8, ((8192, 8192),)):
            found += [Trial(model, prompts, tuning, None) for tuning in PROMPT_TUNINGS]
    for batch, length in ((64, 2048), (8, 1024), (1, 1024), (1, 15000)):
        for splits in (1, 2, 4, 8, 16, 32, 64):
            tuning = attention.reply_tuning(128, torch.bfloat16)
            found.append(Trial("llama 3.1 8b", ((1, length),) * batch, tuning, splits))
    return found


def sweep(peaks: Peaks) -> list[dict[str, Any]]:
    """Attention of replies and of prompts, in other tiles and splits; compiled side by side."""
    tried = trials()
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawned) as pool:
        faults = list(pool.map(Trial.compile, tried, chunksize=2))
    rows = []
    for trial, fault in zip(tried, faults, strict=True):
        row: dict[str, Any] = {
            "model": trial.model,
            "sequences": f"{len(trial.sequences)} of {trial.sequences[0]}",
            "tuning": tuple(trial.tuning),
            "splits": trial.splits,
        }
        try:
            if fault is None:
                case = trial.case()
                row |= {"error": round(case.check(), 5), **timed(case, peaks)}
        except Exception as error:
            fault = fault_of(error)
        rows.append(row if fault is None else row | {"failed": fault})
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, where there is a GPU."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shapes", default=",".join(list(SHAPES)[:4]))
    parser.add_argument("--dtypes", default="bfloat16,float16")
    parser.add_argument("--sweep", action="store_true", help="other tiles of attention, alone")
    options = parser.parse_args(arguments)
    if not has_cuda():
        return
    peaks = measure_peaks()
    if options.sweep:
        rows = sweep(peaks)
        write_cuda("attention-cuda", {"peaks": peaks._asdict(), "sweep": rows})
        best = sorted(rows, key=lambda each: each.get("microseconds", 1e9))
        kinds = dict.fromkeys((each["model"], each["sequences"]) for each in rows)
        for kind in kinds:
            ours = [each for each in best if (each["model"], each["sequences"]) == kind]
            print_rows(" ".join(kind), ours[:6])
        print_rows("failed", [each for each in rows if "failed" in each][:5])
        return
    measured: dict[str, Any] = {"peaks": peaks._asdict(), "kernels": []}
    for name in options.shapes.split(","):
        shape = SHAPES[name]
        found: dict[str, dict[str, Any]] = {}
        for dtype_name in options.dtypes.split(","):
            dtype = getattr(torch, dtype_name)
            beside = pytorch_cases(shape) if dtype is torch.bfloat16 else ()
            for make in [*cases(shape, dtype), partial(sampler_case, shape, 64), *beside]:
                try:
                    case = make()
                    row = found.setdefault(case.name, {"model": name, "kernel": case.name})
                    row[f"error_{dtype_name}"] = round(case.check(), 6)
                    if dtype is torch.bfloat16 and "sampling" not in case.name:
                        row |= timed(case, peaks)
                except Exception:
                    # The others are worth having.
                    print(traceback.format_exc(), flush=True)
        measured["kernels"] += found.values()
        print_rows(name, list(found.values()))
        write_cuda("kernels-cuda", measured)
    print_rows("peaks", [peaks._asdict()])


if __name__ == "__main__":
    main()
