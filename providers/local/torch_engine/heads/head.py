"""What a head is: a layer that guesses a model's next tokens from what goes on inside the model."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

import torch

from providers.local.torch_engine.model.decoder import Decoder
from providers.local.torch_engine.model.forward_step import ForwardStep


class HeadError(ValueError):
    """There is no head that goes with the model; the message says why, after "as"."""


class GuessingHead(Protocol):
    """The weights of a head, as functions."""

    @property
    def inner(self) -> Decoder:
        """Its layer, with embedding, last norm and what makes logits, as a model of one layer."""

    @property
    def layers(self) -> tuple[int, ...]:
        """Of the model, which give it states, ascending; see `TakenStates`."""

    @property
    def fuse(self) -> Callable[[torch.Tensor], torch.Tensor]:
        """What these layers give, `[tokens, layers * hidden]`, to states."""

    def forward(
        self, token_ids: torch.Tensor, states: torch.Tensor, step: ForwardStep, cached: torch.Tensor
    ) -> torch.Tensor:
        """What the layer makes of some tokens; writes the cache.

        Args:
            token_ids: each the one that follows where its state is, `[tokens]`.
            states: `[tokens, hidden]`; they stay as they are.
            step: where they are.
            cached: the head's layer of the cache.

        Returns:
            States to go on from, and to make logits of: `[tokens, hidden]`.
        """

    def write(
        self, token_ids: torch.Tensor, states: torch.Tensor, step: ForwardStep, cached: torch.Tensor
    ) -> None:
        """As `forward`, of tokens that are looked at later, and nothing is asked of now."""

    def logits(self, hidden: torch.Tensor, step: ForwardStep, vocab_size: int) -> torch.Tensor:
        """The logits of what `forward` gave, of the model's tokens: float32, `[rows, vocab_size]`;
        of those that the head does not know -infinity."""


class TakenStates:
    """What comes into some of a model's layers in one step.

    Args:
        layers: which; the number of layers is what comes out of the last.
    """

    def __init__(self, layers: Collection[int]) -> None:
        self._layers = layers
        self._found: list[torch.Tensor] = []

    def look(self, layer: int, hidden: torch.Tensor, product: torch.Tensor | None) -> None:
        """Take what comes into `layer`, if that is one of them.

        Args:
            layer: its number.
            hidden: `[tokens, hidden]`; it changes later.
            product: what is still to be added to it; None for nothing.
        """
        if layer in self._layers:
            self._found.append(hidden.clone() if product is None else hidden + product)

    @property
    def together(self) -> torch.Tensor:
        """Of all these layers, ascending: `[tokens, layers * hidden]`."""
        return torch.cat(self._found, -1)
