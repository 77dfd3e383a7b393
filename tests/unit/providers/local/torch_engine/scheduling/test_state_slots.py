"""Who has which state, and what is kept of them."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")

from providers.local.torch_engine.model.recurrent.states import StatePool, StateShape
from providers.local.torch_engine.scheduling.state_slots import StateSlots


def slots(total: int, sequences: int) -> StateSlots:
    return StateSlots(
        StatePool({"layer": StateShape((1, 1))}, total, torch.device("cpu")), sequences
    )


def numbers(at: StateSlots) -> torch.Tensor:
    return at.states.layers["layer"].inputs[:, 0, 0]


def test_who_begins_gets_the_lowest_and_what_is_kept() -> None:
    at = slots(5, 3)
    numbers(at)[:] = 9
    assert [at.begin(None) for _ in range(3)] == [0, 1, 2]
    assert numbers(at).tolist() == [0, 0, 0, 9, 9]
    kept = at.reserve()
    assert kept in (3, 4)
    numbers(at)[kept] = 5
    assert at.keep(kept, b"key")
    at.end(2)
    at.end(0)
    assert at.begin(b"key") == 0
    assert numbers(at)[0] == 5


def test_what_was_not_of_use_for_longest_makes_room() -> None:
    at = slots(4, 1)
    for key in (b"1", b"2", b"3"):
        slot = at.reserve()
        assert slot is not None
        assert at.keep(slot, key)
    at.end(at.begin(b"1"))
    slot = at.reserve()
    assert slot is not None
    assert [at.is_kept(key) for key in (b"1", b"2", b"3")] == [True, False, True]
    # It is there already: nothing is kept twice.
    assert not at.keep(slot, b"3")
    assert at.reserve() == slot
    at.give_back(slot)
    at.forget(b"3")
    at.forget(b"unknown")
    assert (at.kept, at.is_kept(b"3")) == (1, False)
    # What is kept goes last, and then there is nothing.
    assert {at.reserve() for _ in range(3)} == {1, 2, 3}
    assert (at.kept, at.reserve()) == (0, None)
