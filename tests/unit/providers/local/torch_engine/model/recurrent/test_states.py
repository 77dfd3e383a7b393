"""Slots of states, and how many there is memory for."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from providers.local.torch_engine.model.recurrent.states import StatePool, StateShape, affordable

SHAPES = {"one": StateShape((3, 5), (2, 4, 6)), "two": StateShape((2, 7))}


def test_a_state_is_copied_whole_and_cleared_whole() -> None:
    states = StatePool(SHAPES, 3, torch.device("cpu"))
    assert states.nbytes == 3 * sum(shape.nbytes for shape in SHAPES.values())
    tensors = [each for layer in states.layers.values() for each in layer if each is not None]
    assert [tuple(each.shape) for each in tensors] == [(3, 3, 5), (3, 2, 4, 6), (3, 2, 7)]
    for number, tensor in enumerate(tensors):
        tensor[:] = torch.arange(3).view(3, *[1] * (tensor.dim() - 1)) + 10 * number + 1
    states.copy(2, 0)
    states.clear(1)
    for number, tensor in enumerate(tensors):
        assert [each.unique().tolist() for each in tensor] == [
            [10 * number + 3], [0], [10 * number + 3],
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("nbytes", "keeps", "expected"),
    [
        (1e9, True, (8, 32)),
        (1e9, False, (8, 0)),
        (2 * 100 * 20, True, (8, 12)),
        (2 * 100 * 5, True, (5, 0)),
        (2 * 99, True, (0, 0)),
    ],
)
def test_states_take_half_at_most(nbytes: float, keeps: bool, expected: tuple[int, int]) -> None:
    assert affordable(nbytes, 100, 8, keeps=keeps) == expected
