"""The keys and values of all sequences that share forward passes.

They are numbers of the model's dtype, or packed, 8 bits each: on a CPU as integers, and behind
those of a head a scale in float32, as 4 bytes more of the row; on a GPU as FP8 (E4M3), without a
scale, so that what is larger than 448 becomes 448.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

SCALE_BYTES = 4
"""Of a packed head: its scale, in float32."""

LEAST_SCALE = 1e-30
"""Of a head, or of any row, whose numbers are all 0."""

E4M3_MOST = 448.0
"""The largest number of FP8 as float8_e4m3fn has it; it has no infinity."""

PACKED: Mapping[str, torch.dtype] = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
"""What a packed cache's tensors are, by what a template calls it as `kv_cache_dtype`."""


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
        dtype: of them; one of `PACKED` where they are packed.
    """

    layers: Sequence[RowShape | int]
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        """In all layers."""
        own = [each for each in self.layers if not isinstance(each, int)]
        return sum(each.rows * self.width(each) for each in own) * int(self.dtype.itemsize)

    def width(self, rows: RowShape) -> int:
        """Of each of `rows`, in numbers of `dtype`."""
        return rows.size + (SCALE_BYTES if self.dtype == torch.int8 else 0)


class KVCache:
    """The keys and values of all sequences, in blocks.

    Args:
        shape: of a token.
        blocks: how many there are.
        block_size: tokens in each.
        device: where they are.

    Attributes:
        layers: one tensor a layer, `[blocks * block_size, rows, width]`: the keys and behind them
            the values of the token in each slot; see `CacheShape`. Layers that look at the same
            have the same tensor.
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
            size = (blocks * block_size, each.rows, shape.width(each))
            self.layers.append(torch.empty(size, dtype=shape.dtype, device=device))


def is_packed(layer: torch.Tensor) -> bool:
    """Whether a layer of the cache has 8 bits a number."""
    return layer.dtype in PACKED.values()


def numbers_of(layer: torch.Tensor) -> RowShape:
    """What a token has in a layer of the cache, scales left out."""
    _, rows, width = layer.shape
    return RowShape(rows, width - SCALE_BYTES if layer.dtype == torch.int8 else width)


def packed(rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Heads `[..., head_dim]` as a cache of this dtype has them: with int8, of heads in float32,
    `[..., head_dim + SCALE_BYTES]`; with one that is not packed as they are."""
    if dtype == torch.float8_e4m3fn:
        return rows.clamp(-E4M3_MOST, E4M3_MOST).to(dtype)
    if dtype != torch.int8:
        return rows
    scales = (rows.abs().amax(-1, keepdim=True) * (1 / 127)).clamp_min_(LEAST_SCALE)
    numbers = torch.round(rows / scales).to(torch.int8)
    return torch.cat([numbers, scales.view(torch.int8)], -1)


def unpacked(rows: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """What `packed` made as `[..., head_dim]`, of this dtype, which for int8 is float32; rows that
    are not packed as they are."""
    if not is_packed(rows):
        return rows
    if rows.dtype == torch.float8_e4m3fn:
        return rows.to(dtype)
    scales = rows[..., -SCALE_BYTES:].contiguous().view(torch.float32)
    return rows[..., :-SCALE_BYTES].float().mul_(scales)


def write(layer: torch.Tensor, slots: torch.Tensor, rows: torch.Tensor) -> None:
    """Write keys and values `[tokens, rows, size]` into slots of a layer."""
    as_bytes(layer).index_copy_(0, slots, as_bytes(packed(rows, layer.dtype)))


def read(layer: torch.Tensor, slots: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Keys and values in these slots of a layer, `[slots, rows, size]`; see `unpacked`."""
    chosen = as_bytes(layer).index_select(0, slots).view(layer.dtype)
    return unpacked(chosen, dtype)


def as_bytes(layer: torch.Tensor) -> torch.Tensor:
    """FP8 as bytes, since PyTorch moves these alone about; others as they are."""
    return layer.view(torch.uint8) if layer.dtype == torch.float8_e4m3fn else layer
