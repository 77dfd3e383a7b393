"""Tokens drawn by the kernel: at evenly spaced random numbers, each as often as its share says."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("triton", reason="needs the extra 'dev' on Linux, or torch's build for CUDA")

from llama_compat.types import (
    GreedySamplingStrategy,
    SamplingParams,
    TopKSamplingStrategy,
    TopPSamplingStrategy,
)
from providers.local.engine import Generation
from providers.local.torch_engine.kernels.sampling import KernelSampler
from providers.local.torch_engine.sampler import Sampler
from providers.local.torch_engine.sequence import Sequence

LOGITS = [1.5, 2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -3.0]
DRAWS = 12


class Even:
    """Random numbers that are not random."""

    def __init__(self, number: float) -> None:
        self.random = lambda: number


def sequence(draw: float, **params: Any) -> Any:
    made = Sequence(Generation((0,), SamplingParams(**params), 9), lambda _: None)
    made.random = Even(draw)  # type: ignore[assignment]
    return made


def shares(kept: list[int], temperature: float = 1.0, logits: list[float] = LOGITS) -> list[float]:
    weights = [
        math.exp(logit / temperature) if token in kept else 0.0
        for token, logit in enumerate(logits)
    ]
    return [weight / sum(weights) for weight in weights]


EVERY = list(range(8))


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"strategy": TopPSamplingStrategy(1.0, 1.0)}, shares(EVERY)),
        ({"strategy": TopPSamplingStrategy(0.5, 1.0)}, shares(EVERY, 0.5)),
        # 0.39 + 0.24 are not yet 0.7, with the third they are.
        ({"strategy": TopPSamplingStrategy(1.0, 0.7)}, shares([0, 1, 2])),
        ({"strategy": TopPSamplingStrategy(1.0, 0.01)}, shares([1])),
        ({"strategy": TopKSamplingStrategy(3)}, shares([0, 1, 2])),
        ({"strategy": TopKSamplingStrategy(1)}, shares([1])),
        ({"strategy": TopKSamplingStrategy(100)}, shares(EVERY)),
        # Half of what five of them have, not of all.
        ({"strategy": TopKSamplingStrategy(5, 1.0, 0.5)}, shares([0, 1])),
        ({"min_p": 0.3, "strategy": TopPSamplingStrategy()}, shares([0, 1, 2])),
        ({"min_p": 0.3, "strategy": TopKSamplingStrategy(2)}, shares([0, 1])),
    ],
    ids=str,
)
def test_shares(device: Any, params: dict[str, Any], expected: list[float]) -> None:
    rows = [sequence((place + 0.5) / DRAWS, **params) for place in range(DRAWS)]
    logits = torch.tensor([LOGITS] * DRAWS, device=device)
    drawn = Counter(KernelSampler(DRAWS, device).sample(logits, rows).tolist())
    for token, share in enumerate(expected):
        assert drawn[token] == pytest.approx(DRAWS * share, abs=1), token
        assert share or not drawn[token]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (TopKSamplingStrategy(2), [3, 3, 4, 4]),
        (TopPSamplingStrategy(1.0, 0.5), [3, 3, 4, 4]),
        (TopPSamplingStrategy(1.0, 0.2), [3, 3, 3, 3]),
        (TopKSamplingStrategy(3, 1.0, 0.5), [3, 3, 4, 4]),
        (TopPSamplingStrategy(1.0, 1.0), [3, 4, 5, 6]),
    ],
    ids=str,
)
def test_of_equals_the_first_are_kept(device: Any, strategy: Any, expected: list[int]) -> None:
    rows = [sequence((place + 0.5) / 4, strategy=strategy) for place in range(4)]
    logits = torch.tensor([[-9e9] * 3 + [2.0] * 4] * 4, device=device)
    assert KernelSampler(4, device).sample(logits, rows).tolist() == expected


def test_greedy_beside_others_over_many_tiles(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the CPU sampler's own random numbers the same tokens, where it does not sort either."""
    monkeypatch.setattr("providers.local.torch_engine.kernels.sampling.LARGEST_TILE", 16)
    torch.manual_seed(0)
    logits = 2 * torch.randn(4, 70)
    strategies = [TopPSamplingStrategy(0.9, 1.0), GreedySamplingStrategy()] * 2

    def rows() -> list[Any]:
        return [
            Sequence(
                Generation((0,), SamplingParams(strategy=strategy, seed=seed), 9), lambda _: None
            )
            for seed, strategy in enumerate(strategies)
        ]

    expected = Sampler(70, [0]).sample(logits.clone(), rows(), [None] * 4)
    found = KernelSampler(9, device).sample(logits.to(device), rows())
    assert found.dtype == torch.int64
    assert found.tolist() == [choice.token_id for choice in expected if choice]


def test_all_greedy(device: Any) -> None:
    logits = torch.tensor([LOGITS, LOGITS[::-1]], device=device)
    rows = [sequence(0.9, strategy=GreedySamplingStrategy()) for _ in range(2)]
    assert KernelSampler(2, device).sample(logits, rows).tolist() == [1, 6]


def test_a_draw_next_to_one_falls_on_what_is_kept(device: Any) -> None:
    rows = [sequence(1 - 2**-53, strategy=TopPSamplingStrategy(1.0, 1.0))]
    logits = torch.tensor([[0.0, 1.0, 2.0, -torch.inf]], device=device)
    assert KernelSampler(1, device).sample(logits, rows).tolist() == [2]
