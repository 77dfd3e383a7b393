"""Weights in FP8 on a GPU: a byte a number (E4M3, arXiv:2209.05433), a scale for each output.

For a few rows the weights are read once and widened on the way, and activations stay as they are.
For many, tensor cores multiply FP8 by FP8, and so each row of activations is rounded too, with a
scale of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from providers.local.torch_engine.kernels.products import few_rows
from providers.local.torch_engine.model.kv_cache import E4M3_MOST, LEAST_SCALE

FEW_ROWS = 32
"""Up to so many rows the weights are what a product waits for, see `bench.products_cuda`: an H100
took as long for 32 rows as with all in FP8, less for fewer, and for 64 a third more."""

LARGEST = (E4M3_MOST, 416.0, 384.0, 352.0, 320.0, 288.0, 256.0, 240.0)
"""What the largest of an output's weights may become: each of the 8 numbers that differ by more
than a power of 2."""

ROWS_AT_ONCE = 4096
"""Outputs that are rounded together, which takes several times their memory."""

TILE = 4096


@triton.jit
def quantise_kernel(
    x, values, scales, size, stride, MOST: tl.constexpr, LEAST: tl.constexpr, TILE: tl.constexpr
):
    """The program is a row: its scale, and its numbers divided by that."""
    row = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, TILE)
    largest = tl.zeros([TILE], tl.float32)
    for at in range(0, size, TILE):
        inside = at + places < size
        numbers = tl.load(x + row * stride + at + places, mask=inside, other=0.0)
        largest = tl.maximum(largest, tl.abs(numbers.to(tl.float32)))
    scale = tl.maximum(tl.max(largest, 0) / MOST, LEAST)
    tl.store(scales + row, scale)
    for at in range(0, size, TILE):
        inside = at + places < size
        numbers = tl.load(x + row * stride + at + places, mask=inside, other=0.0)
        # What is rounded up would be no number any more.
        small = tl.minimum(tl.maximum(numbers.to(tl.float32) / scale, -MOST), MOST)
        tl.store(values + row * size + at + places, small.to(values.dtype.element_ty), mask=inside)


def quantised_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Activations `[rows, inputs]` as float8_e4m3fn, and their scales, float32 `[rows, 1]`."""
    rows, size = x.shape
    values = torch.empty(rows, size, dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty(rows, 1, dtype=torch.float32, device=x.device)
    if rows:
        tile = min(TILE, triton.next_power_of_2(size))
        quantise_kernel[(rows,)](
            x,
            values,
            scales,
            size,
            x.stride(0),
            MOST=E4M3_MOST,
            LEAST=LEAST_SCALE,
            TILE=tile,
            num_warps=8,
        )
    return values, scales


def many_rows(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The product of many rows with a weight in FP8; each row is rounded to FP8 too.

    Args:
        x: `[rows, inputs]`.
        weight: float8_e4m3fn, `[outputs, inputs]`, contiguous; both are multiples of 16.
        scales: of the outputs, float32.

    Returns:
        `[rows, outputs]`, in the dtype of `x`, rounded to bfloat16.
    """
    values, own = quantised_rows(x)
    return torch._scaled_mm(
        values,
        weight.T,
        scale_a=own,
        scale_b=scales[None, :],
        # PyTorch has no other with scales for rows.
        out_dtype=torch.bfloat16,
        # Up to a third quicker, and as near: sums have fewer bits, but inputs have four.
        use_fast_accum=True,
    ).to(x.dtype)


def quantised_weight(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A weight `[outputs, inputs]` as float8_e4m3fn, and the scales of its outputs, float32.

    Of several scales each output gets the one that loses least. So one that was FP8 before, with a
    scale for each output or for all, has the very numbers again that it had.
    """
    parts = [_quantised(part.float()) for part in weight.split(ROWS_AT_ONCE)]
    values, scales = zip(*parts, strict=True)
    return torch.cat(values), torch.cat(scales)


def _quantised(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    most = weight.abs().amax(1, keepdim=True).clamp_min_(LEAST_SCALE)
    best = torch.empty_like(weight, dtype=torch.float8_e4m3fn)
    scales = torch.zeros_like(most)
    least = torch.full_like(most, torch.inf)
    for largest in LARGEST:
        values = (weight * (largest / most)).clamp_(-E4M3_MOST, E4M3_MOST)
        values = values.to(torch.float8_e4m3fn)
        widened = values.float()
        # By which these numbers come nearest to the weight.
        scale = (weight * widened).sum(1, keepdim=True) / widened.square().sum(1, keepdim=True)
        scale = scale.nan_to_num_(0.0)
        lost = (widened.mul_(scale) - weight).square_().sum(1, keepdim=True)
        better = lost < least
        best = torch.where(better, values.view(torch.uint8), best.view(torch.uint8)).view(
            torch.float8_e4m3fn
        )
        scales, least = torch.where(better, scale, scales), torch.where(better, lost, least)
    return best, scales.squeeze(1)


@dataclass(frozen=True, slots=True, eq=False)
class FP8Linear:
    """The product with a weight in FP8.

    Attributes:
        weight: float8_e4m3fn, `[outputs, inputs]`; both are multiples of 16.
        scales: of the outputs, float32.
        bias: `[outputs]`, if there is one.
    """

    weight: torch.Tensor
    scales: torch.Tensor
    bias: torch.Tensor | None

    @classmethod
    def of(cls, weight: torch.Tensor, bias: torch.Tensor | None) -> FP8Linear:
        """That of a weight of more bits."""
        return cls(*quantised_weight(weight), bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The product of `x`, `[tokens, inputs]`, in its dtype."""
        if len(x) <= FEW_ROWS:
            return few_rows(x, self.weight, self.scales, self.bias)
        product = many_rows(x, self.weight, self.scales)
        return product if self.bias is None else product.add_(self.bias)
