"""Products with a weight on a GPU, of a few rows and of some more: cuBLAS, and kernels of our own.

    python -m bench.products_cuda [--shapes qkv,gate_up] [--rows 1,16] [--seconds 25]

At the shapes of Llama 3 8B, in bfloat16 and in FP8. What few rows wait for is the weight, so each
time is given as a share of the bandwidth that a large copy reached in the same run. Copies of a
weight take turns, so that none of it is in the GPU's cache, and all of them are launched as one
CUDA graph, as a decode step is. Each way is checked against float64 first: what is further off than
it may be, or fails, is said and left out.

- `cublas`: `torch.nn.functional.linear`, bfloat16
- `scaled_mm`: `torch._scaled_mm` with a scale for each row and each output, both sides FP8; the
  rows' quantisation is not in its time, but in that of `rounded, scaled_mm`
- `bf16 ...`, `fp8 ...`: `kernels.products.few_rows`, by how it cuts the work: `dot` or `sum`,
  outputs x inputs of a program, warps, stages, and between how many programs inputs are split

What is left when `--seconds` are over is left out. Figures go to `bench/results/products-cuda.json`
and to `$OUT` where that is set.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn import functional

from bench.cuda import (
    SHAPES,
    as_graph,
    copies_for,
    error_of,
    fault_of,
    has_cuda,
    measure_peaks,
    median_seconds,
    write_cuda,
)
from providers.local.torch_engine.model.kv_cache import E4M3_MOST

LLAMA = SHAPES["llama 3.1 8b"]

WEIGHTS = {
    "qkv": (LLAMA.qkv, LLAMA.hidden),
    "out": (LLAMA.hidden, LLAMA.heads * LLAMA.head_dim),
    "gate_up": (2 * LLAMA.intermediate, LLAMA.hidden),
    "down": (LLAMA.hidden, LLAMA.intermediate),
    "head": (LLAMA.vocabulary, LLAMA.hidden),
}
"""Outputs and inputs."""

ROWS = (1, 2, 4, 8, 16, 32, 64, 256)
ORDER = (1, 8, 64, 16, 4, 32, 2, 256)
"""The likeliest to be of use first: time may be over."""

OFF = {"cublas": 1e-2, "bf16": 1e-2, "fp8": 1e-2, "scaled_mm": 6e-2}
"""How far a result may be from that of float64 with the same weight, as a part of its length. In
`scaled_mm` the rows are rounded too."""

Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Of rows, a weight and its scales."""


@dataclass
class Case:
    """A weight of one shape, and rows for it.

    Attributes:
        x: `[256, inputs]`, bfloat16.
        weights: copies, bfloat16.
        packed: copies, FP8.
        scales: of the outputs of `packed`, float32.
        expected: by `weights`, float64.
        expected_packed: by `packed` with its scales.
    """

    x: torch.Tensor
    weights: list[torch.Tensor]
    packed: list[torch.Tensor]
    scales: torch.Tensor
    expected: torch.Tensor
    expected_packed: torch.Tensor


def case_of(outputs: int, inputs: int) -> Case:
    """Random numbers of this shape."""
    generator = torch.Generator("cuda").manual_seed(outputs + inputs)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16)

    x, weight = draw(max(ROWS), inputs), draw(outputs, inputs) * inputs**-0.5
    scales = weight.abs().amax(1).float() / E4M3_MOST
    packed = (weight.float() / scales[:, None]).to(torch.float8_e4m3fn)
    expected = [
        torch.cat([x.double() @ part.T for part in parts], 1)
        for parts in (
            [each.double() for each in weight.split(16384)],
            [
                each.double() * own[:, None]
                for each, own in zip(packed.split(16384), scales.double().split(16384), strict=True)
            ],
        )
    ]

    def copies(of: torch.Tensor) -> list[torch.Tensor]:
        return [of, *(of.clone() for _ in range(copies_for(of.nbytes) - 1))]

    return Case(x, copies(weight), copies(packed), scales, *expected)


def ways(rows: int, outputs: int, inputs: int) -> Iterator[tuple[str, str, Product]]:
    """Name, kind and product of each."""
    yield "cublas", "cublas", lambda x, weight, scales: functional.linear(x, weight)
    for name, fast in (("scaled_mm", False), ("scaled_mm fast", True)):
        yield name, "scaled_mm", scaled_product(fast)
    if rows > 16:
        yield "rounded, scaled_mm fast", "scaled_mm", whole_product
    if rows > 64:
        return
    for kind in ("bf16", "fp8"):
        for name, tiling in tilings(kind, rows, outputs, inputs):
            yield f"{kind} {name}", kind, few_rows_product(kind, tiling)


def scaled_product(fast: bool) -> Product:
    """`torch._scaled_mm` of rows that are quantised beforehand."""
    known: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def multiply(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        if len(x) not in known:
            own = x.abs().amax(1, keepdim=True).float() / E4M3_MOST
            known[len(x)] = (x.float() / own).to(torch.float8_e4m3fn), own
        values, own = known[len(x)]
        return torch._scaled_mm(
            values,
            weight.T,
            scale_a=own,
            scale_b=scales[None, :],
            out_dtype=torch.bfloat16,
            use_fast_accum=fast,
        )

    return multiply


def whole_product(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """As a model's product in FP8 is of many rows."""
    from providers.local.torch_engine.kernels.fp8 import many_rows

    return many_rows(x, weight, scales)


def few_rows_product(kind: str, tiling: Any) -> Product:
    """Our own kernel's, of the one weight or the other."""
    from providers.local.torch_engine.kernels.products import few_rows

    if kind == "bf16":
        return lambda x, weight, scales: few_rows(x, weight, tiling=tiling)
    return lambda x, weight, scales: few_rows(x, weight, scales, tiling=tiling)


def tilings(kind: str, rows: int, outputs: int, inputs: int) -> Iterator[tuple[str, Any]]:
    """Ways to cut the work: their names, and what `few_rows` takes."""
    from providers.local.torch_engine.devices import processors
    from providers.local.torch_engine.kernels.products import Tiling

    packed = kind == "fp8"
    wide = 2 if packed else 1
    found = []
    if rows <= 2:
        found += [
            Tiling(False, 4, 1024, warps=4, stages=1),
            Tiling(False, 2, 2048 * wide, warps=4, stages=1),
            Tiling(False, 4, 512 * wide, warps=2, stages=3),
            Tiling(False, 8 // rows, 1024 * wide, warps=8, stages=1),
        ]
    # FP8 is widened in registers, which Hopper's own instructions, of four warps, do not suit.
    for tiling in (
        Tiling(True, 64, 128, warps=2 if packed else 4, stages=4),
        Tiling(True, 64, 128 * wide, warps=2, stages=4)
        if packed
        else Tiling(True, 64, 128, warps=4, stages=6),
        Tiling(True, 32, 128 * wide, warps=2, stages=4),
        Tiling(True, 16, 256 * wide, warps=2, stages=4),
        Tiling(True, 128, 64 * wide, warps=4, stages=4),
    ):
        tiles, steps = -(-outputs // tiling.outputs), -(-inputs // tiling.inputs)
        # Between how many programs the work is cut, for each processor.
        for share in (1, 2, 4):
            wanted = share * processors(torch.device("cuda")) / tiles
            found.append(replace(tiling, splits=max(1, min(round(wanted), steps // 2))))
    known = set()
    for each in found:
        whole = replace(each, splits=each.splits or 1)
        if whole not in known:
            known.add(whole)
            name = "dot" if whole.dot else "sum"
            yield (
                f"{name} {whole.outputs}x{whole.inputs} w{whole.warps} s{whole.stages}"
                f" /{whole.splits}",
                whole,
            )


def compile_all(cases: Sequence[tuple[str, int]], threads: int) -> None:
    """Have the compiler do its work beforehand, in several threads."""
    from providers.local.torch_engine.kernels import products

    def compile_one(kind: str, tiling: Any, rows: int, inputs: int) -> str | None:
        x = torch.zeros(rows, inputs, device="cuda", dtype=torch.bfloat16)
        weight = torch.zeros(256, inputs, device="cuda", dtype=torch.bfloat16)
        scales = None
        if kind == "fp8":
            weight = weight.to(torch.float8_e4m3fn)
            scales = torch.ones(256, device="cuda")
        try:
            products.few_rows(x, weight, scales, tiling=tiling)
        except Exception as error:  # which is said again where it is measured
            return f"{kind} {tiling}: {type(error).__name__}"
        return None

    work = {}
    for (shape, rows), kind in itertools.product(cases, ("bf16", "fp8")):
        if rows > products.MOST_ROWS:
            continue
        outputs, inputs = WEIGHTS[shape]
        for _, tiling in tilings(kind, rows, outputs, inputs):
            split = replace(tiling, splits=min(tiling.splits, 2))
            padded = max(products.FEWEST_FOR_DOT, rows) if tiling.dot else rows
            even = inputs % tiling.inputs == 0
            work[kind, split, padded, even] = (kind, split, padded, inputs)
    with ThreadPoolExecutor(threads) as executor:
        found = executor.map(lambda each: compile_one(*each), work.values())
        failed = [each for each in found if each is not None]
    print(f"compiled {len(work) - len(failed)} of {len(work)} kernels", *failed, sep="\n")


def measure(case: Case, rows: int, kind: str, product: Product) -> dict[str, float]:
    """Microseconds of one product, and how far it is from float64.

    Raises:
        ValueError: it is too far.
    """
    packed = kind in ("fp8", "scaled_mm")
    x, weights = case.x[:rows], case.packed if packed else case.weights
    expected = (case.expected_packed if packed else case.expected)[:rows]
    off = error_of(product(x, weights[0], case.scales), expected)
    if not off <= OFF[kind]:
        raise ValueError(f"it is {off:.4f} from float64, more than {OFF[kind]}")

    def all_copies() -> None:
        for weight in weights:
            product(x, weight, case.scales)

    seconds = median_seconds(as_graph(all_copies), 7) / len(weights)
    outputs = len(weights[0])
    moved = weights[0].nbytes + rows * 2 * (x.shape[1] + outputs) + 4 * outputs * packed
    return {"microseconds": seconds * 1e6, "bytes": moved, "off": off}


def table_row(shape: str, rows: int, found: dict[str, Any]) -> str:
    """The best of each kind."""
    cells = []
    for kind in ("cublas", "bf16 sum", "bf16 dot", "scaled_mm", "fp8 sum", "fp8 dot"):
        own = {
            name: each
            for name, each in found.items()
            if name.startswith(kind) and "failed" not in each
        }
        if not own:
            cells.append(f"{'-':>12}")
            continue
        name = min(own, key=lambda each: own[each]["microseconds"])
        way = name[len(kind) :].strip() if " " in kind else ""
        cells.append(f"{own[name]['microseconds']:7.1f} {own[name]['of_copy']:4.0%} {way}")
    return f"{shape:8} {rows:4} | " + " | ".join(cells)


def measure_shape(
    shape: str, numbers: Sequence[int], bandwidth: float, end: float
) -> dict[str, Any]:
    """All ways, for each number of rows, until the time `end`."""
    case, all_found = case_of(*WEIGHTS[shape]), {}
    for rows in numbers:
        if time.monotonic() > end:
            print(f"{shape} {rows}: no time is left")
            continue
        found: dict[str, Any] = {}
        for name, kind, product in ways(rows, *WEIGHTS[shape]):
            try:
                figures = measure(case, rows, kind, product)
            except Exception as error:  # the others are worth having
                found[name] = {"failed": traceback.format_exc(limit=-3)}
                print(f"{shape} {rows} {name}: {fault_of(error)}")
                continue
            share = figures["bytes"] / figures["microseconds"] * 1e6 / bandwidth
            found[name] = {
                "microseconds": round(figures["microseconds"], 2),
                "of_copy": round(share, 3),
                "off": round(figures["off"], 5),
            }
        all_found[f"{shape}, {rows} rows"] = found
        print(table_row(shape, rows, found), flush=True)
    return all_found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, where there is a GPU."""
    begun = time.monotonic()
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shapes", default=",".join(WEIGHTS))
    parser.add_argument("--rows", default=",".join(map(str, ORDER)))
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args(arguments)
    if not has_cuda():
        return
    end = begun + options.seconds
    shapes = options.shapes.split(",")
    numbers = [int(each) for each in options.rows.split(",")]
    compile_all(list(itertools.product(shapes, numbers)), options.threads)
    print(f"{time.monotonic() - begun:.1f} s until all is compiled", flush=True)
    bandwidth = measure_peaks().bandwidth
    torch.cuda.empty_cache()
    measured: dict[str, Any] = {"copy_bytes_per_second": bandwidth, "results": {}}
    print(f"a copy: {bandwidth / 1e12:.2f} TB/s; microseconds, and their share of that")
    print("shape    rows | cublas | bf16 sum | bf16 dot | scaled_mm | fp8 sum | fp8 dot")
    try:
        with torch.inference_mode():
            for shape in shapes:
                measured["results"].update(measure_shape(shape, numbers, bandwidth, end))
                torch.cuda.empty_cache()
    finally:
        path = write_cuda("products-cuda", measured)
    print(f"written to {path}, {time.monotonic() - begun:.1f} s after the start")


if __name__ == "__main__":
    main()
