"""The keys and values of all sequences that share forward passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What a token takes in the cache.

    Attributes:
        attends: of each layer, whether it has keys and values.
        kv_heads: keys, and as many values, a layer.
        head_dim: numbers in each.
        dtype: of them.
    """

    attends: Sequence[bool]
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        """In all layers."""
        return int(sum(self.attends) * 2 * self.kv_heads * self.head_dim * self.dtype.itemsize)


class KVCache:
    """The keys and values of all sequences, in blocks.

    Args:
        shape: of a token.
        blocks: how many there are.
        block_size: tokens in each.
        device: where they are.

    Attributes:
        layers: one tensor a layer, `[blocks * block_size, 2 * kv_heads, head_dim]`: the keys and
            behind them the values of the token in each slot; without slots where it has none.
    """

    def __init__(
        self, shape: CacheShape, blocks: int, block_size: int, device: torch.device
    ) -> None:
        self.kv_heads = shape.kv_heads
        self.block_size = block_size
        # Not zeroed: on Linux memory that nothing was written to is not taken from the system.
        self.layers = [
            torch.empty(
                blocks * block_size if attends else 0,
                2 * shape.kv_heads,
                shape.head_dim,
                dtype=shape.dtype,
                device=device,
            )
            for attends in shape.attends
        ]
