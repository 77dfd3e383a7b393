"""The states of a step's sequences, and how its rows go on from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from providers.local.torch_engine.model.recurrent.rows import (
    Saved,
    StateRows,
    StateSpan,
    one_by_one,
)
from providers.local.torch_engine.model.recurrent.states import LayerStates, StatePool, StateShape

if TYPE_CHECKING:
    from providers.local.torch_engine.model.decoder import Layer
    from providers.local.torch_engine.scheduling.step import Chunk


class Recurrence(Protocol):
    """What a layer that has a state computes between its two products."""

    @property
    def state_shape(self) -> StateShape:
        """Of what it keeps of a sequence."""

    def __call__(
        self, projected: torch.Tensor, x: torch.Tensor, states: LayerStates, rows: StateRows
    ) -> torch.Tensor:
        """What comes of each token and of those before it; the states go on.

        Args:
            projected: the first product's, `[tokens, outputs]`.
            x: what that was of, `[tokens, hidden]`.
            states: of the layer.
            rows: where the sequences are among the tokens, and in the states.

        Returns:
            What the last product takes, `[tokens, inputs]`.
        """


class StepStates:
    """What a step's rows go on from.

    Args:
        states: of all sequences.
        spans: of those in the step, in order; together they are all rows.
        device: of the states.
        apart: whether what a token gets is the same to the bit whatever else is in the step: each
            is computed by itself then, in prompts too.
    """

    def __init__(
        self,
        states: StatePool,
        spans: Sequence[StateSpan],
        device: torch.device,
        *,
        apart: bool = False,
    ) -> None:
        self._states = states
        self._apart = one_by_one(spans, device) if apart else []
        self._rows = StateRows([] if apart else spans, device)

    @classmethod
    def of(
        cls,
        states: StatePool | None,
        chunks: Sequence[Chunk],
        device: torch.device,
        *,
        apart: bool = False,
    ) -> StepStates | None:
        """Those of `chunks`; None where the model has none."""
        if states is None:
            return None
        spans = []
        at = 0
        for chunk in chunks:
            each = chunk.sequence
            saved = tuple(
                Saved(save.tokens - each.computed, save.slot)
                for save in sorted(each.saves)
                if each.computed < save.tokens <= each.computed + chunk.tokens
            )
            saved += tuple(
                Saved(chunk.tokens + right, slot) for right, slot in enumerate(chunk.tried)
            )
            # One that is a trial has no state of its own.
            spans.append(StateSpan(at, chunk.rows, each.state or 0, saved))
            at += chunk.rows
        return cls(states, spans, device, apart=apart)

    def go_on(self, layer: Layer, projected: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """What `layer.recurrence` makes of all rows; see there."""
        assert layer.recurrence is not None
        states = self._states.layers[layer]
        if not self._apart:
            return layer.recurrence(projected, x, states, self._rows)
        alone = zip(projected.split(1), x.split(1), self._apart, strict=True)
        return torch.cat([layer.recurrence(row, of, states, rows) for row, of, rows in alone])
