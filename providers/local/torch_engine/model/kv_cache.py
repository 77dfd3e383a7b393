"""The keys and values of all sequences that share forward passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch


class RowShape(NamedTuple):
    """What a token takes in a layer of the cache.

    Attributes:
        rows: keys, and behind them as many values; a single row is both.
        size: numbers in each.
    """

    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What a token takes in the cache.

    Attributes:
        layers: of the model; a number is that of the layer whose keys and values one looks at.
        dtype: of them.
    """

    layers: Sequence[RowShape | int]
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        """In all layers."""
        own = [each for each in self.layers if not isinstance(each, int)]
        return sum(each.rows * each.size for each in own) * int(self.dtype.itemsize)


class KVCache:
    """The keys and values of all sequences, in blocks.

    Args:
        shape: of a token.
        blocks: how many there are.
        block_size: tokens in each.
        device: where they are.

    Attributes:
        layers: one tensor a layer, `[blocks * block_size, rows, size]`: the keys and behind them
            the values of the token in each slot. Layers that look at the same have the same tensor.
    """

    def __init__(
        self, shape: CacheShape, blocks: int, block_size: int, device: torch.device
    ) -> None:
        self.block_size = block_size
        self.layers: list[torch.Tensor] = []
        for each in shape.layers:
            if isinstance(each, int):
                self.layers.append(self.layers[each])
                continue
            # Not zeroed: on Linux memory that nothing was written to is not taken from the system.
            self.layers.append(
                torch.empty(blocks * block_size, *each, dtype=shape.dtype, device=device)
            )
