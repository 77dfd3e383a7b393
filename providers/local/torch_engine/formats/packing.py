"""Numbers of few bits, and scales for several of them: what formats have in common."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""What the four bits of an FP4 are, without their sign
(https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf)."""

E8M0_BIAS = 127


def unpacked(words: torch.Tensor, bits: int, count: int | None = None) -> torch.Tensor:
    """The numbers in the last dimension of `words`, as uint8.

    Args:
        words: int32, each with its first number in its lowest bits; one that does not fit into a
            word goes on in the next.
        bits: of a number, up to 8.
        count: of numbers; the rest is padding. None for all that there are.
    """
    if count is None:
        count = 32 * words.shape[-1] // bits
    if 8 % bits == 0:
        octets = words.contiguous().view(torch.uint8)
        mask = (1 << bits) - 1
        numbers = [(octets >> shift).bitwise_and_(mask) for shift in range(0, 8, bits)]
        return torch.stack(numbers, -1).flatten(-2)[..., :count]
    first = torch.arange(count, device=words.device) * bits
    word, shift = first // 32, first % 32
    wide = words.to(torch.int64) & 0xFFFFFFFF
    low = wide[..., word] >> shift
    high = wide[..., (word + 1).clamp(max=words.shape[-1] - 1)] << (32 - shift)
    return ((low | high) & ((1 << bits) - 1)).to(torch.uint8)


def looked_up(octets: torch.Tensor, table: torch.Tensor, *, high_first: bool) -> torch.Tensor:
    """What the two halves of each byte stand for: twice as many in the last dimension.

    Args:
        octets: uint8.
        table: of 16 numbers.
        high_first: whether the upper half of a byte is the first.
    """
    every = torch.arange(256, device=octets.device)
    halves = (every >> 4, every & 15) if high_first else (every & 15, every >> 4)
    pairs = torch.stack([table[each] for each in halves], -1)
    found = pairs.index_select(0, octets.flatten().to(torch.int32))
    return found.view(*octets.shape[:-1], -1)


def fp4_table() -> torch.Tensor:
    """What each of the 16 FP4 is, float32."""
    positive = torch.tensor(E2M1)
    return torch.cat([positive, -positive])


def as_scale(stored: torch.Tensor) -> torch.Tensor:
    """A scale in float32; bytes are exponents of 2 (E8M0)."""
    if stored.dtype == torch.uint8:
        exponents = stored.to(torch.int32) - E8M0_BIAS
        return torch.ldexp(torch.ones(exponents.shape), exponents)
    return stored.float()


def spread(
    scales: torch.Tensor, shape: Sequence[int], sizes: Collection[Sequence[int]] = ()
) -> torch.Tensor:
    """Scales for blocks of a weight, so that they can be multiplied with it.

    Args:
        scales: one, one for each row, or one for each block; the last blocks may be smaller.
        shape: of the weight.
        sizes: rows and columns of a block, one of which may be that of these.

    Raises:
        ValueError: there are too few or too many.
    """
    if scales.numel() == 1:
        return scales.reshape(())
    if scales.ndim == 1 and scales.shape[0] == shape[-2]:
        scales = scales.unsqueeze(-1)
    fits = scales.ndim == len(shape) and tuple(scales.shape[:-2]) == tuple(shape[:-2])
    for dim in (-2, -1):
        if not fits or scales.shape[dim] in (1, shape[dim]):
            continue
        length, blocks = shape[dim], scales.shape[dim]
        size = block_size(length, blocks, [each[dim] for each in sizes])
        fits = size is not None
        if size is not None:
            scales = scales.repeat_interleave(size, dim).narrow(dim, 0, length)
    if not fits:
        raise ValueError(f"scales {list(scales.shape)} don't fit a weight {list(shape)}")
    return scales


def block_size(length: int, blocks: int, told: Collection[int] = ()) -> int | None:
    """How long each of so many blocks is, of which the last may be shorter where that is told;
    None if they don't fit."""
    for size in told:
        if size > 0 and -(-length // size) == blocks:
            return size
    return length // blocks if blocks and length % blocks == 0 else None
