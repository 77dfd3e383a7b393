"""What happens to heads before attention, beside PyTorch's operations."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs the extra 'dev' on Linux, or torch's build for CUDA")

from providers.local.torch_engine.kernels.heads import turn_and_write
from providers.local.torch_engine.kernels.places import Places
from providers.local.torch_engine.model.kv_cache import as_bytes, packed, write
from providers.local.torch_engine.model.norm import Norm
from providers.local.torch_engine.model.rope import Rope
from tests.unit.providers.local.torch_engine.kernels.closeness import DTYPES, close


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


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
