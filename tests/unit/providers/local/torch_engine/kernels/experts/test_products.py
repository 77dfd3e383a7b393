"""Experts in Triton, beside one after the other in PyTorch's operations."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs the extra 'dev' on Linux, or torch's build for CUDA")

from providers.local.torch_engine.kernels.experts.products import (
    Tiles,
    mix_experts,
    most_tiles,
    tiles_of,
)
from providers.local.torch_engine.model.experts import Experts, Router, Rows, StackedMLPs
from providers.local.torch_engine.model.torch_step import ACTIVATIONS

SMALL = Tiles(16, 16, 16, 4, 2)
ROUNDED = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def layer(experts: int, hidden: int, intermediate: int, device: Any, dtype: Any) -> Experts:
    gate_up = torch.randn(experts, 2 * intermediate, hidden, device=device) / hidden**0.5
    down = torch.randn(experts, hidden, intermediate, device=device) / intermediate**0.5
    router = Router(Rows(torch.randn(experts, hidden, device=device)), 2, normalised=True)
    return Experts(router, StackedMLPs(gate_up.to(dtype), down.to(dtype)))


def exact(of: Experts, x: Any, shares: Any, chosen: Any, activation: str = "silu") -> Any:
    """What the loop gives, in float64."""

    def gate(gate_up: Any) -> Any:
        gates, up = gate_up.chunk(2, -1)
        return ACTIVATIONS[activation](gates) * up

    assert isinstance(of.each, StackedMLPs)
    stacked = StackedMLPs(of.each.gate_up.double(), of.each.down.double())
    return Experts(of.router, stacked).mixed(x.double(), shares.double(), chosen, gate)


def mixed(
    of: Experts,
    x: Any,
    shares: Any,
    chosen: Any,
    activation: str = "silu",
    tiles: Tiles | None = SMALL,
) -> Any:
    assert isinstance(of.each, StackedMLPs)
    return mix_experts(x, of.each.gate_up, of.each.down, shares, chosen, activation, tiles)


def error(found: Any, expected: Any) -> float:
    return float((found.double() - expected).norm() / expected.norm())


CHOICES = {
    "one token": [[3, 1]],
    "one expert has more than two tiles of rows, one has a tile to the row, others nothing": [
        *[[4, 0]] * 16,
        *[[4, 2]] * 21,
    ],
    "each expert some": [[at % 5, (at + 1 + at % 3) % 5] for at in range(23)],
    "one expert for all": [[2]] * 3,
    "every expert": [[0, 3, 1, 4, 2]] * 2,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("case", CHOICES)
def test_beside_one_after_the_other(device: Any, case: str, dtype: Any) -> None:
    """Of sizes that no tile fits."""
    of = layer(5, 24, 20, device, dtype)
    chosen = torch.tensor(CHOICES[case], device=device)
    x = torch.randn(len(chosen), 24, device=device).to(dtype)
    shares = torch.rand(chosen.shape, device=device).to(dtype)
    found = mixed(of, x, shares, chosen)
    assert found.dtype == dtype
    assert error(found, exact(of, x, shares, chosen)) <= ROUNDED[dtype]


@pytest.mark.parametrize(("dtype", "rows"), [(torch.float16, 128), (torch.float32, 32)], ids=str)
def test_the_tiles_that_suit_many_tokens(device: Any, dtype: Any, rows: int) -> None:
    of = layer(3, 96, 160, device, dtype)
    chosen = torch.tensor([[0, 2], [2, 0], [2, 1]], dtype=torch.int32, device=device).repeat(67, 1)
    assert tiles_of(chosen.numel(), 3, dtype).rows == rows
    x = torch.randn(len(chosen), 96, device=device).to(dtype)
    shares = torch.rand(chosen.shape, device=device).to(dtype)
    found = mixed(of, x, shares, chosen, tiles=None)
    assert error(found, exact(of, x, shares, chosen)) <= ROUNDED[dtype]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(device: Any, activation: str) -> None:
    of = layer(2, 16, 16, device, torch.float32)
    chosen = torch.tensor([[1], [0]], device=device)
    x, shares = 2 * torch.randn(2, 16, device=device), torch.rand(2, 1, device=device)
    found = mixed(of, x, shares, chosen, activation)
    assert error(found, exact(of, x, shares, chosen, activation)) <= 1e-5


def test_no_tokens(device: Any) -> None:
    of = layer(2, 16, 16, device, torch.float32)
    nothing = torch.zeros(0, 1, device=device)
    assert mixed(of, torch.zeros(0, 16, device=device), nothing, nothing.long()).shape == (0, 16)


@pytest.mark.parametrize("experts", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("pairs", [1, 2, 5, 8])
def test_there_is_room_for_all_tiles_and_no_more(pairs: int, experts: int, rows: int) -> None:
    """However the pairs fall."""
    counts = product(range(pairs + 1), repeat=experts)
    tiles = [sum(-(-own // rows) for own in each) for each in counts if sum(each) == pairs]
    assert most_tiles(pairs, experts, rows) == max(tiles)


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("tokens", "dtype"),
    [(each, torch.bfloat16) for each in (1, 8, 64, 256, 2048)] + [(8, torch.float16)],
    ids=str,
)
@pytest.mark.parametrize("size", [(128, 8, 2048, 768), (8, 2, 4096, 3584)], ids=str)
def test_real_shapes(device: Any, size: tuple[int, int, int, int], tokens: int, dtype: Any) -> None:
    if device.type != "cuda":
        pytest.skip("takes too long in the interpreter, which does not know bfloat16 either")
    experts, each, hidden, intermediate = size
    of = layer(experts, hidden, intermediate, device, dtype)
    x = torch.randn(tokens, hidden, device=device).to(dtype)
    # Some experts are liked better than others.
    scores = torch.randn(tokens, experts, device=device)
    scores += torch.linspace(0, 3, experts, device=device)
    shares, chosen = scores.softmax(-1).topk(each)
    shares = shares.to(dtype)
    found = mixed(of, x, shares, chosen, tiles=None)
    assert error(found, exact(of, x, shares, chosen)) <= ROUNDED[dtype]
    again = mixed(of, x, shares, chosen, tiles=None)
    assert torch.equal(found, again)


@pytest.mark.cuda
def test_a_graph_goes_by_what_is_chosen_then(device: Any) -> None:
    """It was recorded while other experts were."""
    if device.type != "cuda":
        pytest.skip("graphs need a CUDA GPU")
    of = layer(16, 256, 128, device, torch.bfloat16)
    x = torch.randn(9, 256, device=device).bfloat16()
    shares = torch.rand(9, 4, device=device).bfloat16()
    chosen = torch.zeros(9, 4, dtype=torch.int32, device=device)
    chosen[:] = torch.arange(4, device=device)
    mixed(of, x, shares, chosen, tiles=None)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = mixed(of, x, shares, chosen, tiles=None)
    for seed in range(3):
        generator = torch.Generator(device).manual_seed(seed)
        scores = torch.rand(9, 16, generator=generator, device=device)
        chosen.copy_(scores.topk(4).indices)
        graph.replay()
        assert error(found, exact(of, x, shares, chosen)) <= ROUNDED[torch.bfloat16]
