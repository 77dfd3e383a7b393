"""Tokens drawn by the kernel: those that the CPU's sampler draws, of what may come alone."""
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
from providers.local.torch_engine.scheduling.sampler import NO_TOKEN, Sampler
from providers.local.torch_engine.scheduling.sequence import TorchSequence

LOGITS = [1.5, 2.0, 1.0, 0.5, 0.0, -0.5, -1.0, -3.0]
DRAWS = 16
"""Rows: the interpreter takes a tenth of a second for each."""


def sequence(seed: int, **params: Any) -> Any:
    return TorchSequence(Generation((0,), SamplingParams(seed=seed, **params), 9), lambda _: None)


def draws(device: Any, logits: list[float], rows: int = DRAWS, **params: Any) -> list[int]:
    """What as many sequences say, each with a seed of its own."""
    drawn = KernelSampler(rows, device).sample(
        torch.tensor([logits] * rows, device=device),
        [sequence(row, **params) for row in range(rows)],
    )
    found: list[int] = drawn.tolist()
    return found


def cpu_draws(logits: list[float], rows: int = DRAWS, **params: Any) -> list[int]:
    """The same of the CPU's sampler."""
    choices = Sampler(len(logits), []).sample(
        torch.tensor([logits] * rows),
        [sequence(row, **params) for row in range(rows)],
        [None] * rows,
    )
    return [choice.token_id for choice in choices if choice]


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
    """The same seeds say the same as on a CPU, whose shares are tested there."""
    found = draws(device, LOGITS, **params)
    assert set(found) <= {token for token, share in enumerate(expected) if share}
    # But for what rounding decides.
    theirs = cpu_draws(LOGITS, **params)
    assert sum(mine != other for mine, other in zip(found, theirs, strict=True)) <= 1


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (TopKSamplingStrategy(2), {3, 4}),
        (TopPSamplingStrategy(1.0, 0.5), {3, 4}),
        (TopPSamplingStrategy(1.0, 0.2), {3}),
        (TopKSamplingStrategy(3, 1.0, 0.5), {3, 4}),
        (TopPSamplingStrategy(1.0, 1.0), {3, 4, 5, 6}),
    ],
    ids=str,
)
def test_of_equals_the_first_are_kept(device: Any, strategy: Any, expected: set[int]) -> None:
    assert set(draws(device, [-9e9] * 3 + [2.0] * 4, strategy=strategy)) == expected


def test_those_above_equals_count(device: Any) -> None:
    """Of three that are kept one is above, so that two of the equals are."""
    drawn = Counter(
        draws(device, [1.0, 1.0, 1.0 + math.log(2), 1.0], strategy=TopKSamplingStrategy(3))
    )
    assert sorted(drawn) == [0, 1, 2]
    assert drawn[2] == pytest.approx(DRAWS / 2, abs=DRAWS / 3)


def test_greedy_beside_others_over_many_tiles(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tokens as from the CPU's sampler."""
    monkeypatch.setattr("providers.local.torch_engine.kernels.sampling.LARGEST_TILE", 16)
    torch.manual_seed(0)
    logits = 2 * torch.randn(4, 70)
    strategies = [TopPSamplingStrategy(0.9, 1.0), GreedySamplingStrategy()] * 2

    def rows() -> list[Any]:
        return [
            TorchSequence(
                Generation((0,), SamplingParams(strategy=strategy, seed=seed), 9), lambda _: None
            )
            for seed, strategy in enumerate(strategies)
        ]

    expected = Sampler(70, [0]).sample(logits.clone(), rows(), [None] * 4)
    found = KernelSampler(9, device).sample(logits.to(device), rows())
    assert found.dtype == torch.int64
    assert found.tolist() == [choice.token_id for choice in expected if choice]


def test_equals_are_counted_over_all_tiles(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("providers.local.torch_engine.kernels.sampling.LARGEST_TILE", 16)
    drawn = draws(device, [1.0] * 40, rows=6, strategy=TopKSamplingStrategy(17))
    assert max(drawn) == 16  # the last that is kept, and the first of its tile


def test_all_greedy(device: Any) -> None:
    logits = torch.tensor([LOGITS, LOGITS[::-1]], device=device)
    rows = [sequence(9, strategy=GreedySamplingStrategy()) for _ in range(2)]
    assert KernelSampler(2, device).sample(logits, rows).tolist() == [1, 6]


def test_what_may_not_come_never_does(device: Any) -> None:
    said = draws(device, [0.0, 1.0, 2.0, -torch.inf], strategy=TopPSamplingStrategy(1.0, 1.0))
    assert set(said) == {0, 1, 2}


@pytest.mark.parametrize("nothing", [math.nan, math.inf])
@pytest.mark.parametrize("strategy", [TopPSamplingStrategy(), GreedySamplingStrategy()], ids=str)
def test_logits_that_are_no_numbers_give_no_token(
    device: Any, nothing: float, strategy: Any
) -> None:
    rows = [sequence(row, strategy=strategy) for row in range(3)]
    logits = torch.tensor([LOGITS] * 3, device=device)
    logits[1, 5] = nothing
    found = KernelSampler(3, device).sample(logits, rows).tolist()
    assert found[1] == NO_TOKEN
    assert min(found[0], found[2]) >= 0
    # Beside one that is drawn otherwise.
    rows[0] = sequence(0, strategy=TopPSamplingStrategy())
    assert KernelSampler(3, device).sample(logits, rows).tolist()[1] == NO_TOKEN
