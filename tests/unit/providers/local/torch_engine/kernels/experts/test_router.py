"""The choice of experts in Triton, beside that in PyTorch's operations."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs the extra 'dev' on Linux, or torch's build for CUDA")

from providers.local.torch_engine.kernels.experts.router import route
from providers.local.torch_engine.model.experts import Router, Rows


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("sigmoid", [True, False])
@pytest.mark.parametrize("corrected", [True, False])
@pytest.mark.parametrize(("experts", "chosen"), [(6, 1), (6, 6), (40, 3)])
def test_beside_the_router(
    device: Any, experts: int, chosen: int, corrected: bool, sigmoid: bool, normalised: bool
) -> None:
    torch.manual_seed(0)
    router = Router(
        Rows(torch.randn(experts, 16, device=device) / 4),
        chosen,
        normalised,
        sigmoid=sigmoid,
        correction=torch.randn(experts, device=device) if corrected else None,
        scale=1.7,
    )
    x = torch.randn(9, 16, device=device)
    expected, which = router(x)
    found, taken = route(
        router.scores(x),
        chosen,
        torch.float32,
        sigmoid=sigmoid,
        correction=router.correction,
        normalised=normalised,
        scale=1.7,
    )
    assert taken.tolist() == which.tolist()
    assert torch.allclose(found, expected, rtol=1e-5)


def test_of_experts_alike_the_first_ones_are_taken_each_once(device: Any) -> None:
    scores = torch.tensor([[1.0, 2.0, 2.0, 2.0, 1.0]] * 2, device=device).half()
    settings: dict[str, Any] = {"sigmoid": False, "correction": None, "scale": 1.0}
    shares, chosen = route(scores, 4, torch.float16, normalised=True, **settings)
    assert chosen.tolist() == [[1, 2, 3, 0]] * 2
    assert shares.dtype == torch.float16
    assert shares.float().sum(-1).tolist() == pytest.approx([1.0, 1.0], abs=1e-3)


def test_what_is_no_number_chooses_an_expert_that_is_there(device: Any) -> None:
    """What follows reads its weights."""
    scores = torch.full((1, 5), torch.nan, device=device)
    settings: dict[str, Any] = {"sigmoid": False, "correction": None, "scale": 1.0}
    _, chosen = route(scores, 3, torch.float32, normalised=False, **settings)
    assert all(0 <= each < 5 for each in chosen.flatten().tolist())


def test_no_tokens(device: Any) -> None:
    settings: dict[str, Any] = {"sigmoid": False, "correction": None, "scale": 1.0}
    scores = torch.zeros(0, 5, device=device)
    shares, chosen = route(scores, 3, torch.float32, normalised=True, **settings)
    assert shares.shape == chosen.shape == (0, 3)
