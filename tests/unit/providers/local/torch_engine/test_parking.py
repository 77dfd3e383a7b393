"""Weights in main memory and back: the same to the bit, wherever something refers to them."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from providers.local.torch_engine import parking
from providers.local.torch_engine.model.linear import PlainLinear
from providers.local.torch_engine.model.norm import Norm
from providers.local.torch_engine.parking import (
    ParkedWeights,
    UnparkableError,
    parked_bytes,
    piece_sizes,
    storages_of,
)


@dataclass(frozen=True, slots=True)
class Model:
    """What holds tensors in all the ways in which a decoder does."""

    table: torch.Tensor
    head: PlainLinear
    layers: list[Any]
    name: str = "model"
    scale: float | None = None


def bits(tensor: torch.Tensor) -> bytes:
    # Of a copy: what numpy has seen can never be made empty.
    return tensor.detach().clone().contiguous().flatten().view(torch.uint8).numpy().tobytes()


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    table = torch.randn(40, 16).bfloat16()
    table[3, 5] = float("nan")
    both = torch.randn(64, 16)
    norm = Norm(torch.randn(16), 1e-6, torch.float32)
    # Tied, two views of one storage, one that is turned round, and what a norm made of its weight.
    layers = [PlainLinear(both[:32], both[32:, 0]), PlainLinear(both[32:].T, None), norm]
    return Model(table, PlainLinear(table, None), layers)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that tensors lie across several of them."""
    monkeypatch.setattr(parking, "PIECE_BYTES", 1024)
    monkeypatch.setattr(parking, "LEAST_PIECE", 64)


def test_what_comes_back_is_the_same_to_the_bit_and_in_the_same_place(model: Model) -> None:
    turned, norm = model.layers[1].weight, model.layers[2]
    before = [bits(each) for each in (model.table, turned, norm._scaled, norm.weight)]
    x = torch.randn(2, 16)
    computed = bits(model.layers[0](x)), bits(norm(x))
    # `_scaled` and `_least` of the norm; the table and `both` once each.
    total = 40 * 16 * 2 + 64 * 16 * 4 + 2 * 16 * 4 + 4
    assert sum(each.nbytes() for each in storages_of(model)) == total
    said = parked_bytes(model)
    parked = ParkedWeights(model)
    assert parked.size == said
    assert total <= parked.size < total + 1024
    assert all(each.nbytes() == 0 for each, _ in parked._storages)
    assert model.table.untyped_storage().nbytes() == 0
    parked.restore()
    assert [bits(each) for each in (model.table, turned, norm._scaled, norm.weight)] == before
    assert (bits(model.layers[0](x)), bits(norm(x))) == computed
    assert model.head.weight is model.table
    assert model.layers[0].weight.data_ptr() != turned.data_ptr()
    assert model.layers[0].weight.untyped_storage().data_ptr() == (
        turned.untyped_storage().data_ptr()
    )


def test_a_module_of_torch_is_parked_with_its_buffers() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).eval()
    x = torch.randn(3, 4)
    with torch.inference_mode():
        before = bits(module(x))
        parked = ParkedWeights(module)
        assert module[1].running_mean.untyped_storage().nbytes() == 0
        parked.restore()
        assert bits(module(x)) == before


def test_weights_that_are_dropped_leave_nothing_behind(model: Model) -> None:
    parked = ParkedWeights(model)
    parked.close()
    assert not parked._pieces


def test_main_memory_that_is_short_leaves_the_weights_where_they_are(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(size: int, *, locked: bool) -> torch.Tensor:
        raise RuntimeError("can't allocate memory")

    before = bits(model.table)
    monkeypatch.setattr(parking, "_main_memory", refuse)
    with pytest.raises(RuntimeError, match="allocate"):
        ParkedWeights(model)
    assert bits(model.table) == before


@pytest.mark.parametrize(
    ("hidden", "words"),
    [
        (lambda x: x, "a function"),
        (torch.ones(4, 4).to_sparse(), "laid out as torch.sparse"),
    ],
)
def test_what_may_hide_numbers_is_not_parked(model: Model, hidden: object, words: str) -> None:
    model.layers.append(hidden)
    with pytest.raises(UnparkableError, match=words):
        storages_of(model)
    assert parked_bytes(model) == 0


@pytest.mark.parametrize("total", [0, 1, 63, 64, 65, 1023, 1024, 1025, 5000])
def test_pieces_hold_what_there_is_and_no_piece_more(total: int) -> None:
    sizes = piece_sizes(total)
    assert sum(sizes) >= total
    assert not sizes or sum(sizes[:-1]) < total
    assert all(size & (size - 1) == 0 for size in sizes), "rounded up to a power of two by PyTorch"
