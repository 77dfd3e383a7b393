"""Where the tokens of one step are, as kernels read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch


class PromptSpan(NamedTuple):
    """How many of a sequence's tokens are in the step, and how many there are with those before."""

    tokens: int
    length: int


@dataclass(frozen=True, slots=True)
class Places:
    """Where the tokens of one step are: in their sequences, and in the KV cache.

    Attributes:
        positions: of each token in its sequence, `[tokens]`, int32 like all of these.
        slots: of each token in the cache, `[tokens]`; -1 for one that is not to be written.
        lengths: how many tokens each sequence has in the cache with the new ones, `[sequences]`; 0
            for one that only fills a batch up.
        starts: the row of each sequence's first token, and behind them the number of all tokens,
            `[sequences + 1]`.
        tables: the blocks of each sequence, in order, `[blocks, sequences]`.
        prompts: the sequences but for the first ones, which have a single token.
    """

    positions: torch.Tensor
    slots: torch.Tensor
    lengths: torch.Tensor
    starts: torch.Tensor
    tables: torch.Tensor
    prompts: Sequence[PromptSpan]

    @property
    def decoding(self) -> int:
        """How many sequences, the first ones, have a single token."""
        return len(self.lengths) - len(self.prompts)
