"""Norms, gates, and what happens to heads before attention, beside PyTorch's operations."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs the extra 'dev' on Linux, or torch's build for CUDA")

from providers.local.torch_engine.kernels.gates import gated
from providers.local.torch_engine.kernels.heads import turn_and_write
from providers.local.torch_engine.kernels.norms import add_rms_norm, rms_norm
from providers.local.torch_engine.kernels.places import Places
from providers.local.torch_engine.model.decoder import Norm, Rope
from providers.local.torch_engine.model.kv_cache import as_bytes, packed, write
from providers.local.torch_engine.model.torch_step import ACTIVATIONS

DTYPES = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)], ids=str
)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def close(found: Any, expected: Any, tolerance: float) -> bool:
    assert found.dtype == expected.dtype
    return bool((found.float() - expected.float()).norm() <= tolerance * expected.float().norm())


@DTYPES
@pytest.mark.parametrize("size", [24, 64])
def test_norms(device: Any, size: int, dtype: Any, tolerance: float) -> None:
    # Small enough for the epsilon to matter.
    x, residual = (0.02 * torch.randn(5, size, device=device).to(dtype) for _ in range(2))
    weight = torch.randn(size, device=device)
    norm = Norm(weight, 1e-3, dtype)
    assert close(rms_norm(x, weight, 1e-3), norm(x), tolerance)
    added = residual.clone()
    found = add_rms_norm(x, added, weight, 1e-3)
    # Not equal, as the interpreter cuts off what the device rounds.
    assert close(added, residual + x, tolerance)
    assert close(found, norm(residual + x), tolerance)
    assert rms_norm(x[:0], weight, 1e-3).shape == (0, size)


@DTYPES
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gates(device: Any, activation: str, dtype: Any, tolerance: float) -> None:
    gate_up = (3 * torch.randn(3, 2 * 1100, device=device)).to(dtype)
    gate, up = gate_up.float().chunk(2, -1)
    expected = (ACTIVATIONS[activation](gate.clone()) * up).to(dtype)
    assert close(gated(gate_up, activation), expected, tolerance)
    assert gated(gate_up[:0], activation).shape == (0, 1100)


@DTYPES
@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize("rotated", [12, 24])
@pytest.mark.parametrize("in_fp8", [False, True])
def test_heads(
    device: Any, in_fp8: bool, rotated: int, normed: bool, dtype: Any, tolerance: float
) -> None:
    heads, kv_heads, head_dim, slots = 3, 2, 24, 9
    qkv = torch.randn(3, (heads + 2 * kv_heads) * head_dim, device=device).to(dtype)
    rope = Rope(torch.rand(rotated // 2, device=device) * 6, 1.5)
    rope.reach(40)
    positions, written = torch.tensor([[39, 0, 7], [8, 0, 3]], device=device)
    norms = [Norm(torch.randn(head_dim, device=device), epsilon, dtype) for epsilon in (1e-2, 1e-1)]

    expected = qkv.clone().view(3, -1, head_dim)
    if normed:
        expected[:, :heads] = norms[0](expected[:, :heads])
        expected[:, heads:-kv_heads] = norms[1](expected[:, heads:-kv_heads])
    rope.apply(expected[:, :-kv_heads], rope.rotations[positions].unsqueeze(1))
    cached = torch.randn(slots, 2 * kv_heads, head_dim, device=device).to(dtype)
    if in_fp8:
        cached = packed(cached, torch.float8_e4m3fn)
        # Of values, which are not turned.
        qkv.view(3, -1, head_dim)[0, -1, :2] = torch.tensor([1e4, -1e4])
        expected[0, -1, :2] = torch.tensor([448.0, -448.0])
    expected_cache = cached.clone()
    write(expected_cache, written[:2], expected[:2, heads:])

    nothing = torch.zeros(0, dtype=torch.int32, device=device)
    # The last is only there to fill the batch up.
    places = Places(
        positions.int(),
        torch.tensor([8, 0, -1], dtype=torch.int32, device=device),
        nothing,
        nothing,
        nothing,
        (),
    )
    queries = turn_and_write(
        qkv,
        cached,
        torch.view_as_real(rope.rotations),
        tuple((norm.weight, norm.epsilon) for norm in norms) if normed else None,  # type: ignore[arg-type]
        places,
        heads=heads,
        kv_heads=kv_heads,
    )
    assert close(queries, expected[:, :heads], tolerance)
    assert close(cached, expected_cache, tolerance)
    if in_fp8:
        assert cached[8, -1, :2].tolist() == [448.0, -448.0]
    untouched = [slot for slot in range(slots) if slot not in (8, 0)]
    assert torch.equal(as_bytes(cached)[untouched], as_bytes(expected_cache)[untouched])
