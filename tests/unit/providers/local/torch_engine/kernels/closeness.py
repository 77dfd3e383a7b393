"""How near a kernel comes to PyTorch's operations, in two dtypes."""

from __future__ import annotations

import pytest
import torch

DTYPES = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)], ids=str
)


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> bool:
    """Whether it is as near as that, as a part of the length of what is expected; of one dtype."""
    assert found.dtype == expected.dtype
    return bool((found.float() - expected.float()).norm() <= tolerance * expected.float().norm())
