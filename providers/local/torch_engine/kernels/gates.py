"""The MLP's gate in Triton: the activation of one half times the other."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

TILE = 1024


@triton.jit
def activated(gate, ACTIVATION: tl.constexpr):
    """The activation of `gate`, in float32; see `gated`."""
    if ACTIVATION == "silu":
        gate = gate * tl.sigmoid(gate)
    elif ACTIVATION == "gelu":
        gate = 0.5 * gate * (1.0 + tl.erf(gate * 0.7071067811865476))
    else:
        tl.static_assert(ACTIVATION == "gelu_pytorch_tanh")
        # (1 + tanh(z)) / 2 is the sigmoid of 2z.
        z = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
        gate = gate * tl.sigmoid(2.0 * z)
    return gate


@triton.jit
def gate_kernel(gate_up, out, size, ACTIVATION: tl.constexpr, TILE: tl.constexpr):
    """The program is a row and a tile of it."""
    row = tl.program_id(0).to(tl.int64)
    places = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = places < size
    gate = tl.load(gate_up + row * 2 * size + places, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + (row * 2 + 1) * size + places, mask=inside, other=0.0).to(tl.float32)
    gate = activated(gate, ACTIVATION)
    # As in PyTorch the activation is rounded before it is multiplied.
    gate = gate.to(out.dtype.element_ty).to(tl.float32)
    tl.store(out + row * size + places, (gate * up).to(out.dtype.element_ty), mask=inside)


def gated(gate_up: torch.Tensor, activation: str) -> torch.Tensor:
    """The activation of the first half of each row times the second half.

    Args:
        gate_up: `[rows, 2 * size]`, contiguous.
        activation: as transformers' configs call it: `silu`, `gelu` or `gelu_pytorch_tanh`.

    Returns:
        `[rows, size]`.
    """
    rows, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(rows, size, dtype=gate_up.dtype, device=gate_up.device)
    if rows:
        gate_kernel[(rows, triton.cdiv(size, TILE))](
            gate_up, out, size, ACTIVATION=activation, TILE=TILE
        )
    return out
