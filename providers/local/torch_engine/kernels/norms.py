"""Root-mean-square norms in Triton, with the addition before them where there is one."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def norm_kernel(
    x,
    residual,
    weight,
    out,
    x_stride,
    size,
    epsilon,
    ADDS: tl.constexpr,
    PADDED: tl.constexpr,
):
    """The program is a row; with `ADDS` it first adds `x` to `residual`, in place."""
    row = tl.program_id(0).to(tl.int64)
    places = tl.arange(0, PADDED)
    inside = places < size
    values = tl.load(x + row * x_stride + places, mask=inside, other=0.0).to(tl.float32)
    if ADDS:
        values += tl.load(residual + row * size + places, mask=inside, other=0.0).to(tl.float32)
        rounded = values.to(residual.dtype.element_ty)
        tl.store(residual + row * size + places, rounded, mask=inside)
        values = rounded.to(tl.float32)
    mean = tl.sum(values * values, 0) / size
    scale = tl.load(weight + places, mask=inside, other=0.0)
    normed = values / tl.sqrt(mean + epsilon) * scale
    tl.store(out + row * size + places, normed.to(out.dtype.element_ty), mask=inside)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """`x`, `[rows, size]`, normalised and scaled by `weight`, float32, `[size]`."""
    return _launch(x, None, weight, epsilon)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> torch.Tensor:
    """`x` is added to `residual`, contiguous and of the same shape, in place; that, normalised."""
    return _launch(x, residual, weight, epsilon)


def _launch(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, epsilon: float
) -> torch.Tensor:
    rows, size = x.shape
    out = torch.empty(rows, size, dtype=x.dtype, device=x.device)
    if not rows:
        return out
    padded = triton.next_power_of_2(size)
    norm_kernel[(rows,)](
        x,
        x if residual is None else residual,
        weight,
        out,
        x.stride(0),
        size,
        epsilon,
        ADDS=residual is not None,
        PADDED=padded,
        num_warps=4 if padded <= 2048 else 8,
    )
    return out
