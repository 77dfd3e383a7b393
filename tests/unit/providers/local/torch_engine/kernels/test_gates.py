"""The gates of MLPs, beside PyTorch's operations."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs the extra 'dev' on Linux, or torch's build for CUDA")

from providers.local.torch_engine.kernels.gates import gated
from providers.local.torch_engine.model.torch_step import ACTIVATIONS
from tests.unit.providers.local.torch_engine.kernels.closeness import DTYPES, close


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@DTYPES
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gates(device: Any, activation: str, dtype: Any, tolerance: float) -> None:
    gate_up = (3 * torch.randn(3, 2 * 1100, device=device)).to(dtype)
    gate, up = gate_up.float().chunk(2, -1)
    expected = (ACTIVATIONS[activation](gate.clone()) * up).to(dtype)
    assert close(gated(gate_up, activation), expected, tolerance)
    assert gated(gate_up[:0], activation).shape == (0, 1100)
