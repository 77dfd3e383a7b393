"""What layers without keys and values keep of the sequences: a state of each, in a slot.

A state is what came of all tokens so far. It is as large after one token as after many, and can't
go back by one. So what a later sequence is to begin with is copied when it is there, into a slot of
its own; and so is, before each token that is guessed, what to go back to if the guess is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch


class StateShape(NamedTuple):
    """What one layer keeps of a sequence, in float32.

    Attributes:
        inputs: of its convolution, the last ones: how many, and how wide each is.
        memory: of its heads what they have stored: heads, width of keys, width of values; None
            for layers that are a convolution alone.
    """

    inputs: tuple[int, int]
    memory: tuple[int, int, int] | None = None

    @property
    def nbytes(self) -> int:
        """What it takes."""
        return 4 * (math.prod(self.inputs) + (math.prod(self.memory) if self.memory else 0))


class LayerStates(NamedTuple):
    """The states of one layer, by slot: what `StateShape` says, `[slots, ...]`."""

    inputs: torch.Tensor
    memory: torch.Tensor | None


class StatePool:
    """The states of all sequences, in slots.

    Args:
        shapes: by the layers that have a state.
        slots: how many there are.
        device: where they are.

    Attributes:
        layers: the states, by layer.
        slots: how many there are.
    """

    def __init__(self, shapes: Mapping[Any, StateShape], slots: int, device: torch.device) -> None:
        self.slots = slots
        # Not zeroed: on Linux memory that nothing was written to is not taken from the system.
        self.layers = {
            layer: LayerStates(
                torch.empty(slots, *each.inputs, device=device),
                None if each.memory is None else torch.empty(slots, *each.memory, device=device),
            )
            for layer, each in shapes.items()
        }

    @property
    def nbytes(self) -> int:
        """What all of them take."""
        return sum(each.nbytes for each in self._tensors())

    def clear(self, slot: int) -> None:
        """Make it the state of no tokens."""
        for each in self._tensors():
            each[slot].zero_()

    def copy(self, source: int, target: int) -> None:
        """Make the state in `target` that in `source`."""
        for each in self._tensors():
            each[target].copy_(each[source])

    def _tensors(self) -> list[torch.Tensor]:
        return [tensor for layer in self.layers.values() for tensor in layer if tensor is not None]


KEPT_EACH = 4
"""States that are kept for later sequences, for each that can run: what one begins with, what it
comes to, and as much of those before it."""


def affordable(
    nbytes: float, state: int, sequences: int, *, keeps: bool, tried: int = 0
) -> tuple[int, int]:
    """How many sequences may have a state, and how many states may be kept besides.

    Args:
        nbytes: what there is for states, and for keys and values; states take half of it at most.
        state: what one takes, in all layers.
        sequences: how many should run at the same time.
        keeps: whether any are to be kept.
        tried: how many there have to be beside them, to go back to from guesses.
    """
    fit = max(0, int(nbytes / 2 / state) - tried)
    running = min(sequences, fit)
    return running, min(KEPT_EACH * sequences, fit - running) if keeps else 0
