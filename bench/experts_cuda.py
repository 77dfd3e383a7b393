"""How fast a mixture of experts is on a GPU, beside its memory and PyTorch's grouped product.

    python -m bench.experts_cuda

One layer in the shape of Qwen3 30B-A3B: 128 experts, of which a token takes 8, with hidden states
of 2,048 numbers and 768 within an expert, in bfloat16. Several such layers are computed in turn, in
a CUDA graph, so that no weights are still in the GPU's cache. Ways:

- `triton ROWS x OUTPUTS x INPUTS, WARPS, STAGES`: `kernels/experts/`, by how it is cut up
- `grouped_mm`: PyTorch's, with pairs sorted, gathered and put back by its own operations
- `one by one`: the loop over experts, whose host waits; launched, as no graph can be recorded of it

Beside each: how much of a copy's bandwidth it reaches, counted by the weights of the experts that
were chosen, each read once; products a second; and how far it is from the loop in float64, as a
part of its length. Figures go to `bench/results/experts-cuda.json`, and to `$OUT` where that is
set, after each number of tokens.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from bench.cuda import (
    SHAPES,
    Shape,
    as_graph,
    error_of,
    fault_of,
    has_cuda,
    kernel_times,
    measure_peaks,
    median_seconds,
    write_cuda,
)
from providers.local.torch_engine.kernels.experts.products import Tiles, mix_experts, tiles_of
from providers.local.torch_engine.kernels.experts.router import route
from providers.local.torch_engine.kernels.gates import gated
from providers.local.torch_engine.model.experts import Experts, Router, Rows, StackedMLPs

FEW = (
    *(Tiles(16, 32, 128, 4, 4), Tiles(16, 32, 256, 4, 3), Tiles(16, 64, 64, 4, 5)),
    *(Tiles(16, 64, 128, 4, 3), Tiles(16, 128, 64, 4, 4), Tiles(16, 128, 128, 8, 3)),
)
SOME = (
    *(Tiles(32, 64, 128, 4, 3), Tiles(32, 128, 64, 4, 4)),
    *(Tiles(64, 64, 64, 4, 4), Tiles(64, 128, 64, 8, 3)),
)
MANY = (
    *(Tiles(128, 64, 64, 4, 4), Tiles(128, 128, 64, 8, 3), Tiles(128, 128, 32, 8, 4)),
    *(Tiles(128, 128, 64, 8, 4), Tiles(256, 64, 64, 8, 3)),
)
TRIED: dict[int, Sequence[Tiles]] = {
    1: FEW,
    8: FEW,
    64: (*FEW, *SOME),
    256: (*FEW, *SOME),
    2048: (*SOME, *MANY),
    8192: (*SOME, *MANY),
}
"""By the number of tokens."""


class Work(NamedTuple):
    """What one layer has to do: tokens, `[tokens, hidden]`, and which experts they take."""

    layer: Experts
    x: torch.Tensor
    shares: torch.Tensor
    chosen: torch.Tensor


Way = Callable[[Work], torch.Tensor]


def random_layer(shape: Shape, device: torch.device) -> Experts:
    """One of random weights, such that what goes through keeps its size."""

    def random(*sizes: int) -> torch.Tensor:
        made = torch.empty(sizes, dtype=torch.bfloat16, device=device).normal_()
        return made.mul_(sizes[-1] ** -0.5)

    scores = Rows(random(shape.experts, shape.hidden))
    stacked = StackedMLPs(
        random(shape.experts, 2 * shape.intermediate, shape.hidden),
        random(shape.experts, shape.hidden, shape.intermediate),
    )
    return Experts(Router(scores, shape.chosen, normalised=True), stacked)


def work_of(layer: Experts, tokens: int) -> Work:
    """Random tokens for a layer."""
    weight = layer.router.scores.weight
    x = torch.empty(tokens, weight.shape[1], dtype=weight.dtype, device=weight.device).normal_()
    return Work(layer, x, *layer.router(x))


def gate(gate_up: torch.Tensor) -> torch.Tensor:
    """Of the shape's model."""
    return gated(gate_up, "silu")


def by_kernels(tiles: Tiles) -> Way:
    """Our own kernels, cut up so."""

    def run(work: Work) -> torch.Tensor:
        stacked = work.layer.each
        assert isinstance(stacked, StackedMLPs)
        return mix_experts(
            work.x, stacked.gate_up, stacked.down, work.shares, work.chosen, "silu", tiles
        )

    return run


def by_grouped_mm(work: Work) -> torch.Tensor:
    """PyTorch's grouped product, with the ends of groups on the device."""
    product = getattr(functional, "grouped_mm", None) or torch._grouped_mm
    stacked = work.layer.each
    assert isinstance(stacked, StackedMLPs)
    tokens, each = work.chosen.shape
    owners, order = work.chosen.flatten().sort(stable=True)
    numbers = torch.arange(len(stacked), device=owners.device)
    ends = torch.searchsorted(owners, numbers, right=True).to(torch.int32)
    rows = work.x.index_select(0, order // each)
    inner = gate(product(rows, stacked.gate_up.transpose(1, 2), offs=ends))
    parts = product(inner, stacked.down.transpose(1, 2), offs=ends)
    parts *= work.shares.flatten()[order, None]
    back = torch.empty_like(parts).index_copy_(0, order, parts)
    return back.view(tokens, each, -1).sum(1)


def one_by_one(work: Work) -> torch.Tensor:
    """The loop, for which the host waits."""
    return work.layer.mixed(work.x, work.shares, work.chosen, gate)


def exact(work: Work) -> torch.Tensor:
    """What the loop comes to in float64, where no expert's weights are there a second time but
    those of the one that is computed."""
    stacked = work.layer.each
    assert isinstance(stacked, StackedMLPs)
    found = torch.zeros(work.x.shape, dtype=torch.float64, device=work.x.device)
    for number in range(len(stacked)):
        tokens, places = (work.chosen == number).nonzero(as_tuple=True)
        gates, up = (work.x[tokens].double() @ stacked.gate_up[number].double().T).chunk(2, -1)
        computed = (functional.silu(gates) * up) @ stacked.down[number].double().T
        found.index_add_(0, tokens, computed * work.shares[tokens, places, None].double())
    return found


def measured(
    way: Way, works: Sequence[Work], expected: torch.Tensor, *, launched: bool = False
) -> dict[str, Any]:
    """How long a layer takes, and how far the first's is from what it should be."""
    found = way(works[0])

    def run() -> None:
        for work in works:
            way(work)

    repeats = 3 if launched else 10
    seconds = median_seconds(run if launched else as_graph(run), repeats) / len(works)
    error = error_of(found, expected)
    return {"microseconds": round(seconds * 1e6, 1), "error": float(f"{error:.2g}")}


def parts(way: Way, works: Sequence[Work]) -> dict[str, float]:
    """Microseconds of a layer in each of its kernels."""

    def run() -> None:
        for work in (*works,) * 5:
            way(work)

    times = kernel_times(run).items()
    return {name[:60]: round(taken / 5 / len(works), 2) for name, (_, taken) in times}


def measure(tokens: int, shape: Shape, layers: Sequence[Experts], bandwidth: float) -> Any:
    """All ways, for so many tokens."""
    works = [work_of(layer, tokens) for layer in layers]
    expected = exact(works[0])
    read = sum(int(work.chosen.unique().numel()) for work in works) / len(works)
    sizes = 3 * shape.hidden * shape.intermediate
    weight_bytes, products = 2 * sizes * read, 2 * sizes * tokens * shape.chosen
    ways: dict[str, tuple[Way, bool]] = {
        f"triton {each.rows} x {each.outputs} x {each.inputs}, {each.warps}, {each.stages}": (
            by_kernels(each),
            False,
        )
        for each in TRIED[tokens]
    }
    ways |= {"grouped_mm": (by_grouped_mm, False), "one by one": (one_by_one, True)}
    found: dict[str, Any] = {}
    for name, (way, launched) in ways.items():
        try:
            figures = measured(way, works, expected, launched=launched)
        except Exception as error:
            # The others are worth having.
            found[name] = {"failed": fault_of(error)}
            continue
        seconds = figures["microseconds"] / 1e6
        found[name] = figures | {
            "of_copy_bandwidth": round(weight_bytes / seconds / bandwidth, 3),
            "teraflops": round(products / seconds / 1e12, 1),
        }
    taken = {name: each["microseconds"] for name, each in found.items() if "failed" not in each}
    chosen = tiles_of(tokens * shape.chosen, shape.experts, torch.bfloat16)
    try:
        kernels = parts(by_kernels(chosen), works)
    except Exception as error:
        kernels = {fault_of(error): 0.0}
    return {
        "rows_of_an_expert": round(tokens * shape.chosen / read, 1),
        "experts_read": round(read, 1),
        "weights_mb": round(weight_bytes / 1e6, 1),
        "roofline_microseconds": round(weight_bytes / bandwidth * 1e6, 1),
        "gigaflop": round(products / 1e9, 2),
        "chosen": list(chosen),
        "quickest": min(taken, key=lambda name: taken[name]),
        "router_microseconds": measure_router(works),
        "kernels_microseconds": kernels,
        "ways": found,
    }


def measure_router(works: Sequence[Work]) -> dict[str, float]:
    """The choice of experts, from the product for their scores on."""

    def by_kernel() -> None:
        for work in works:
            router = work.layer.router
            settings: dict[str, Any] = {"sigmoid": False, "correction": None, "scale": 1.0}
            scores = router.scores(work.x)
            route(scores, router.chosen, work.x.dtype, normalised=router.normalised, **settings)

    def by_operations() -> None:
        for work in works:
            work.layer.router(work.x)

    return {
        name: round(median_seconds(as_graph(run), 10) / len(works) * 1e6, 1)
        for name, run in (("kernel", by_kernel), ("operations", by_operations))
    }


def show(tokens: int, figures: dict[str, Any]) -> None:
    """Print what `measure` found: a line for each way."""
    print(tokens, json.dumps({name: each for name, each in figures.items() if name != "ways"}))
    for name, each in figures["ways"].items():
        print("  ", name, json.dumps(each), flush=True)


def compile_for(tiles: Tiles, shape: Shape) -> None:
    """Compile what a way needs, into Triton's cache: in a process of its own, of many at once."""
    layer = Experts(
        Router(Rows(torch.empty(0)), shape.chosen, normalised=True),
        StackedMLPs(
            torch.empty(shape.experts, 2 * shape.intermediate, shape.hidden, **ON_GPU),
            torch.empty(shape.experts, shape.hidden, shape.intermediate, **ON_GPU),
        ),
    )
    for tokens in (1, 1024):
        x = torch.zeros(tokens, shape.hidden, **ON_GPU)
        chosen = torch.zeros(tokens, shape.chosen, dtype=torch.int64, device="cuda")
        by_kernels(tiles)(Work(layer, x, torch.zeros(tokens, shape.chosen, **ON_GPU), chosen))
    torch.cuda.synchronize()


ON_GPU: dict[str, Any] = {"dtype": torch.bfloat16, "device": "cuda"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, where there is a GPU."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tokens", default=",".join(map(str, TRIED)), help="which, in this order")
    parser.add_argument("--layers", type=int, default=4, help="computed in turn")
    options = parser.parse_args(arguments)
    start, shape = time.perf_counter(), SHAPES["qwen3 30b-a3b"]
    numbers = [int(each) for each in options.tokens.split(",")]
    # Before this process has anything to do with the GPU, which it would share with its forks.
    context = multiprocessing.get_context("fork")
    compiling = [
        context.Process(target=compile_for, args=(tiles, shape))
        for tiles in dict.fromkeys(each for tokens in numbers for each in TRIED[tokens])
    ]
    if torch.version.cuda is None:
        print("this torch knows no CUDA")
        return
    for process in compiling:
        process.start()
    for process in compiling:
        process.join(60)
    if not has_cuda():
        return
    device = torch.device("cuda")
    torch.manual_seed(0)
    peaks = measure_peaks()
    found: dict[str, Any] = {
        "dtype": "bfloat16",
        "peaks": peaks._asdict(),
        "compiled_seconds": round(time.perf_counter() - start, 1),
        "tokens": {},
    }
    with torch.inference_mode():
        layers = [random_layer(shape, device) for _ in range(options.layers)]
        for tokens in numbers:
            found["tokens"][str(tokens)] = measure(tokens, shape, layers, peaks.bandwidth)
            found["seconds"] = round(time.perf_counter() - start, 1)
            show(tokens, found["tokens"][str(tokens)])
            path = write_cuda("experts-cuda", found)
    print(f"{found['seconds']} seconds; written to {path}")


if __name__ == "__main__":
    main()
