"""Replies that have to begin with one of several sequences of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Openings:
    """A `Constraint`: one of some sequences of tokens, and after that anything.

    Args:
        sequences: of tokens.
        vocab_size: of the model.
    """

    def __init__(self, sequences: Sequence[Sequence[int]], vocab_size: int) -> None:
        self._left = [list(sequence) for sequence in sequences]
        self._vocab_size = vocab_size

    def allowed(self) -> torch.Tensor | None:
        """The tokens that may come next; None when one of the sequences is complete."""
        import torch

        token_ids = sorted({sequence[0] for sequence in self._left if sequence})
        if not token_ids:
            return None
        mask = torch.zeros(self._vocab_size, dtype=torch.bool)
        mask[token_ids] = True
        return mask

    def accept(self, token_id: int) -> None:
        """A token was sampled."""
        self._left = [sequence[1:] for sequence in self._left if sequence[:1] == [token_id]]
