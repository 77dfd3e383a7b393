"""How weights of 8 and of 4 bits lie in memory, and how they are made.

Weights lie in tiles of `TILE` outputs. A tile is a row of blocks, one for every `GROUP` inputs:
the scales of its outputs (float16, `TILE`), with 4 bits their zeros (uint8, `TILE`), and its
weights. Whoever multiplies reads them from front to end.

- 8 bits: two inputs of each output side by side (`GROUP / 2` times `TILE` times 2 bytes). A weight
  is its integer times the scale.
- 4 bits: of four inputs the first two lie as above in the lower halves of bytes, the others in the
  upper ones (`GROUP / 4` times `TILE` times 2 bytes). A weight is its integer, from 0 to 15, less
  its zero, times the scale: so what checkpoints have as 4 bits (AWQ's, GPTQ's) can be as it was.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

TILE = 16
GROUP = 32
"""Weights with a scale of their own: with 64 of them a third more of the likeliest tokens change
(`bench.quantization`)."""

LARGEST_WEIGHT = 127
"""Of 8 bits."""

LARGEST_CODE = 15
"""Of 4 bits."""

RANGES = (1.07, 0.97, 0.87)
"""Shares of a group's range that its 4 bits may cover: what is outside is cut off, which costs less
than coarser steps where it is a single weight; more than all leave room for a zero that is
whole."""

AT_ONCE = 2**22
"""Weights that are tried together: what that takes of memory is some times as much."""

SMALLEST_STEP = 2.0**-24
"""Float16 has no smaller number."""

LOOKED_AT = 64
"""Outputs that tell whether weights had 4 bits before."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Where things are in a block.

    Attributes:
        bits: of a weight.
        weights_at: the byte of a block where its weights begin.
        block: bytes of it.
    """

    bits: int
    weights_at: int
    block: int


PACKINGS = {
    8: Packing(8, 2 * TILE, 2 * TILE + GROUP * TILE),
    4: Packing(4, 3 * TILE, 3 * TILE + GROUP * TILE // 2),
}
"""By the bits of a weight."""


def quantize(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """Weights as above.

    Args:
        weight: `[outputs, inputs]`, floats.
        bits: one of `PACKINGS`.

    Returns:
        `[tiles, groups, block]`, uint8; outputs and inputs are filled up with zeros.
    """
    outputs, inputs = weight.shape
    missing = (-inputs % GROUP, -outputs % TILE)
    if any(missing):
        weight = torch.nn.functional.pad(weight, (0, missing[0], 0, missing[1]))
    grouped = weight.float().unflatten(1, (-1, GROUP))
    tiles, groups = len(weight) // TILE, grouped.shape[1]
    packing = PACKINGS[bits]
    packed = torch.empty(tiles, groups, packing.block, dtype=torch.uint8)
    body = packed[..., packing.weights_at :]

    def in_tiles(of_groups: torch.Tensor) -> torch.Tensor:
        return of_groups.view(tiles, TILE, groups).transpose(1, 2)

    if bits == 8:
        scales = _rounded_up(grouped.abs().amax(2) / LARGEST_WEIGHT)
        integers = (grouped / scales.float().unsqueeze(2)).round_().to(torch.int8)
        pairs = integers.view(tiles, TILE, groups, GROUP // 2, 2).permute(0, 2, 3, 1, 4)
        body.view(torch.int8).unflatten(2, (GROUP // 2, TILE, 2)).copy_(pairs)
    else:
        scales, zeros, codes = _of_4_bits(grouped)
        packed[..., 2 * TILE : 3 * TILE].copy_(in_tiles(zeros))
        fours = codes.view(tiles, TILE, groups, GROUP // 4, 2, 2).permute(0, 2, 3, 4, 1, 5)
        body.unflatten(2, (GROUP // 4, TILE, 2)).copy_(fours[:, :, :, 0] | fours[:, :, :, 1] << 4)
    packed[..., : 2 * TILE].view(torch.float16).copy_(in_tiles(scales))
    return packed


def _of_4_bits(grouped: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The scales and zeros of groups, and the integers in them, which together miss the weights by
    about the least squares."""
    had_4_bits = _had_4_bits(grouped[:LOOKED_AT])
    rows = max(1, AT_ONCE // grouped[0].numel())
    parts = [_best_of(each, had_4_bits) for each in grouped.split(rows)]
    return tuple(torch.cat(each) for each in zip(*parts, strict=True))


def _best_of(grouped: torch.Tensor, had_4_bits: bool) -> tuple[torch.Tensor, ...]:
    # Zero stays zero.
    low, high = grouped.amin(2).clamp_(max=0), grouped.amax(2).clamp_(min=0)
    if had_4_bits:
        steps = [_smallest_gaps(grouped), (high - low) / LARGEST_CODE]
    else:
        steps = [(high - low) * (share / LARGEST_CODE) for share in RANGES]
    best = _with_steps(grouped, low, high, steps[0])
    for each in steps[1:]:
        found = _with_steps(grouped, low, high, each)
        is_better = found[3] < best[3]
        for place, (mine, other) in enumerate(zip(found, best, strict=True)):
            shape = is_better.unsqueeze(2) if mine.dim() == 3 else is_better
            best[place] = torch.where(shape, mine, other)
    return tuple(best[:3])


def _with_steps(
    grouped: torch.Tensor, low: torch.Tensor, high: torch.Tensor, steps: torch.Tensor
) -> list[torch.Tensor]:
    """Scales, zeros and integers for steps of about this size, and by how much they miss."""
    steps = steps.clamp(min=SMALLEST_STEP)
    # A range that is cut off lies around its middle.
    middle = LARGEST_CODE / 2 - (high + low) / 2 / steps
    whole = (high - low) / steps <= LARGEST_CODE * (1 + 1e-3)
    zeros = torch.where(whole, -low / steps, middle).round_().clamp_(0, LARGEST_CODE)
    codes = (grouped / steps.unsqueeze(2)).round_().add_(zeros.unsqueeze(2))
    codes.clamp_(0, LARGEST_CODE)
    integers = codes - zeros.unsqueeze(2)
    # For these integers that scale misses least.
    fitting = (grouped * integers).sum(2) / integers.square().sum(2).clamp_(min=1)
    scales = fitting.clamp_(min=SMALLEST_STEP).half()
    missed = integers.mul_(scales.float().unsqueeze(2)).sub_(grouped).square_().sum(2)
    return [scales, zeros.to(torch.uint8), codes.to(torch.uint8), missed]


def _had_4_bits(grouped: torch.Tensor) -> bool:
    """Whether nearly all weights of these groups are whole multiples of one step."""
    steps = _smallest_gaps(grouped).unsqueeze(2)
    off = (grouped / steps - (grouped / steps).round()).abs().amax(2)
    spread = (grouped.amax(2) - grouped.amin(2)) / steps.squeeze(2)
    fits = (off < 0.05) & (spread < LARGEST_CODE + 0.1)
    return bool(fits.float().mean() > 0.9)


def _smallest_gaps(grouped: torch.Tensor) -> torch.Tensor:
    """Of each group, between two of its weights that are not the same."""
    gaps = grouped.sort(2).values.diff(dim=2)
    # What conversions leave is no gap.
    real = gaps > 1e-3 * grouped.abs().amax(2, keepdim=True)
    smallest: torch.Tensor = torch.where(real, gaps, torch.inf).amin(2)
    return torch.where(smallest.isinf(), grouped.abs().amax(2).clamp(min=1e-7), smallest)


def _rounded_up(scales: torch.Tensor) -> torch.Tensor:
    """As float16, none smaller than it was, so that the largest weight still fits, and none 0."""
    rounded = scales.half()
    # The bits of positive floats are in their order.
    above = (rounded.view(torch.int16) + 1).view(torch.float16)
    return torch.where((rounded.float() < scales) | (rounded == 0), above, rounded)
