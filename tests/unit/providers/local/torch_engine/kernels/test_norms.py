"""Norms, beside PyTorch's operations."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs the extra 'dev' on Linux, or torch's build for CUDA")

from providers.local.torch_engine.kernels.norms import add_rms_norm, rms_norm
from providers.local.torch_engine.model.norm import Norm
from tests.unit.providers.local.torch_engine.kernels.closeness import DTYPES, close


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


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
