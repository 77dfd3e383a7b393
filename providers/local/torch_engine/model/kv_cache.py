"""The keys and values of all sequences that share forward passes.

They are numbers of the model's dtype, or, on a CPU, packed: 8 bits each, and behind those of a head
a scale in float32, as 4 bytes more of the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

SCALE_BYTES = 4
"""Of a packed head: its scale, in float32."""

LEAST_SCALE = 1e-30
"""Of a head whose numbers are all 0."""


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What a token takes in the cache.

    Attributes:
        attends: of each layer, whether it has keys and values.
        kv_heads: keys, and as many values, a layer.
        head_dim: numbers in each.
        dtype: of them; int8 where they are packed.
    """

    attends: Sequence[bool]
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        """In all layers."""
        return int(sum(self.attends) * 2 * self.kv_heads * self.width * self.dtype.itemsize)

    @property
    def width(self) -> int:
        """Of a head, in numbers of `dtype`."""
        return self.head_dim + (SCALE_BYTES if self.dtype == torch.int8 else 0)


class KVCache:
    """The keys and values of all sequences, in blocks.

    Args:
        shape: of a token.
        blocks: how many there are.
        block_size: tokens in each.
        device: where they are.

    Attributes:
        layers: one tensor a layer, `[blocks * block_size, 2 * kv_heads, width]`: the keys and
            behind them the values of the token in each slot; without slots where it has none. See
            `CacheShape`.
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
                shape.width,
                dtype=shape.dtype,
                device=device,
            )
            for attends in shape.attends
        ]


def is_packed(layer: torch.Tensor) -> bool:
    """Whether a layer of the cache has 8 bits a number."""
    return bool(layer.dtype == torch.int8)


def packed(rows: torch.Tensor) -> torch.Tensor:
    """Heads `[..., head_dim]` in float32 as `[..., head_dim + SCALE_BYTES]`, int8."""
    scales = (rows.abs().amax(-1, keepdim=True) * (1 / 127)).clamp_min_(LEAST_SCALE)
    numbers = torch.round(rows / scales).to(torch.int8)
    return torch.cat([numbers, scales.view(torch.int8)], -1)


def unpacked(rows: torch.Tensor) -> torch.Tensor:
    """What `packed` made as float32 `[..., head_dim]`; rows that are none as they are."""
    if not is_packed(rows):
        return rows
    scales = rows[..., -SCALE_BYTES:].contiguous().view(torch.float32)
    return rows[..., :-SCALE_BYTES].float().mul_(scales)


def write(layer: torch.Tensor, slots: torch.Tensor, rows: torch.Tensor) -> None:
    """Write keys and values `[tokens, 2 * kv_heads, head_dim]` into slots of a layer."""
    layer.index_copy_(0, slots, packed(rows) if is_packed(layer) else rows)
