"""Sampling: the right distributions, and the same tokens alone as in any batch."""
# ruff: noqa: E402 (what follows needs packages that may not be there)

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs the extra 'torch'")
pytest.importorskip("transformers", reason="needs the extra 'torch'")

from llama_compat.types import (
    GreedySamplingStrategy,
    SamplingParams,
    TopKSamplingStrategy,
    TopPSamplingStrategy,
)
from providers.local.engine import Generation
from providers.local.torch_engine.scheduling.sampler import Sampler
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from tests.examples import examples

LOGITS = [2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -3.0]
STOP = 7
DRAWS = 5000


def sequence(prompt: tuple[int, ...] = (0,), *, logprobs: int | None = None, **params: Any) -> Any:
    sampling = SamplingParams(**{"seed": 1, **params})
    return TorchSequence(Generation(prompt, sampling, 100, logprobs=logprobs), lambda _: None)


def sample(sequences: list[Any], logits: list[list[float]], allowed: Any = None) -> list[int]:
    sampler = Sampler(len(logits[0]), [STOP])
    choices = sampler.sample(torch.tensor(logits), sequences, allowed or [None] * len(sequences))
    for each, choice in zip(sequences, choices, strict=True):
        assert choice is not None
        each.token_ids.append(choice.token_id)
    return [choice.token_id for choice in choices if choice is not None]


def softmax(logits: list[float], temperature: float = 1.0) -> list[float]:
    weights = [math.exp(logit / temperature) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def kept(probabilities: list[float], token_ids: set[int]) -> list[float]:
    whole = sum(probabilities[token_id] for token_id in token_ids)
    return [
        probability / whole if token_id in token_ids else 0.0
        for token_id, probability in enumerate(probabilities)
    ]


PLAIN = softmax(LOGITS)

DISTRIBUTIONS: list[tuple[dict[str, Any], list[float]]] = [
    ({"strategy": TopPSamplingStrategy(1.0, 1.0)}, PLAIN),
    ({"strategy": TopPSamplingStrategy(0.5, 1.0)}, softmax(LOGITS, 0.5)),
    ({"strategy": TopPSamplingStrategy(2.0, 1.0)}, softmax(LOGITS, 2.0)),
    # 0.39 + 0.24 are not yet 0.7, with the third they are.
    ({"strategy": TopPSamplingStrategy(1.0, 0.7)}, kept(PLAIN, {0, 1, 2})),
    ({"strategy": TopKSamplingStrategy(3)}, kept(PLAIN, {0, 1, 2})),
    ({"strategy": TopKSamplingStrategy(5, 1.0, 0.5)}, kept(PLAIN, {0, 1})),
    ({"min_p": 0.3}, kept(PLAIN, {0, 1, 2})),
    ({"logit_bias": {4: 2.0, 0: -100.0}}, softmax([-98.0, 1.5, 1.0, 0.5, 2.0, -0.5, -1.0, -3.0])),
    ({"allowed_token_ids": (1, 6)}, kept(PLAIN, {1, 6})),
    ({"min_tokens": 5, "stop_token_ids": (1,)}, kept(PLAIN, {0, 2, 3, 4, 5, 6})),
    ({"frequency_penalty": 0.5}, softmax([2.0, 1.5, 0.0, *LOGITS[3:]])),
    ({"presence_penalty": 0.5}, softmax([2.0, 1.5, 0.5, *LOGITS[3:]])),
    ({"repetition_penalty": 2.0}, softmax([1.0, 1.5, 0.5, *LOGITS[3:]])),
]


@pytest.mark.parametrize(("params", "expected"), DISTRIBUTIONS, ids=str)
def test_distributions(params: dict[str, Any], expected: list[float]) -> None:
    """Pearson's test: prompt [0], and token 2 was said twice."""
    sampling = {"strategy": TopPSamplingStrategy(), **params}
    drawn: Counter[int] = Counter()
    sampler = Sampler(len(LOGITS), [STOP])
    rows = 500
    for turn in range(DRAWS // rows):
        sequences = [sequence(**sampling, seed=turn * rows + row) for row in range(rows)]
        for each in sequences:
            each.token_ids += [2, 2]
        choices = sampler.sample(torch.tensor([LOGITS] * rows), sequences, [None] * rows)
        drawn.update(choice.token_id for choice in choices)
    possible = [token_id for token_id, share in enumerate(expected) if share > 1e-9]
    assert set(drawn) <= set(possible)
    statistic = sum(
        (drawn[token_id] - DRAWS * expected[token_id]) ** 2 / (DRAWS * expected[token_id])
        for token_id in possible
    )
    # The 99.99th percentile for 7 degrees of freedom, which fewer never reach.
    assert statistic < 29.9


STRATEGIES = st.one_of(
    st.just(GreedySamplingStrategy()),
    st.builds(TopPSamplingStrategy, st.floats(0.1, 2), st.sampled_from([0.1, 0.9, 0.999, 1.0])),
    st.builds(TopKSamplingStrategy, st.integers(1, 9), st.floats(0.1, 2), st.floats(0.1, 1)),
)
PARAMS = st.fixed_dictionaries(
    {
        "strategy": STRATEGIES,
        "seed": st.integers(-9, 9),
        "min_p": st.sampled_from([0.0, 0.2]),
        "frequency_penalty": st.sampled_from([0.0, 1.0]),
        "repetition_penalty": st.sampled_from([1.0, 1.5]),
        "min_tokens": st.sampled_from([0, 2]),
        "logit_bias": st.sampled_from([{}, {3: 4.0}]),
    }
)


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(PARAMS, min_size=1, max_size=6), st.integers(0, 5), st.integers(0, 1000))
def test_a_row_does_not_know_the_others(params: list[Any], index: int, noise: int) -> None:
    index %= len(params)
    generator = torch.Generator().manual_seed(noise)
    steps = torch.randn(4, len(params), 2000, generator=generator)
    alone, together = sequence(**params[index]), [sequence(**each) for each in params]
    sampler = Sampler(2000, [STOP])
    for step in steps:
        [mine] = sampler.sample(step[index : index + 1].clone(), [alone], [None])
        theirs = sampler.sample(step.clone(), together, [None] * len(together))
        assert mine.token_id == theirs[index].token_id


@pytest.mark.parametrize(
    "strategy",
    [TopPSamplingStrategy(1.0, 1.0), TopPSamplingStrategy(1.0, 0.9), TopKSamplingStrategy(50)],
    ids=str,
)
def test_logits_that_are_a_thousandth_off_rarely_change_a_token(strategy: Any) -> None:
    """As they are in another batch: an inverse of the cumulated weights changes some hundred."""
    generator = torch.Generator().manual_seed(0)
    rows = 1000
    logits = 2 * torch.randn(rows, 3000, generator=generator)
    moved = logits + 1e-3 * torch.randn(rows, 3000, generator=generator)
    first, second = (
        Sampler(3000, [STOP]).sample(
            each, [sequence(strategy=strategy, seed=row) for row in range(rows)], [None] * rows
        )
        for each in (logits.clone(), moved)
    )
    assert sum(one != other for one, other in zip(first, second, strict=True)) <= 6


def test_a_seed_decides_and_its_negative_is_another() -> None:
    strategy = TopPSamplingStrategy(2.0)
    said = {
        seed: tuple(
            sample([each], [LOGITS])[0]
            for each in [sequence(strategy=strategy, seed=seed)]
            for _ in range(20)
        )
        for seed in (5, -5, 6, 2**63 - 1)
    }
    assert len(set(said.values())) == 4
    again = sequence(strategy=strategy, seed=-5)
    assert tuple(sample([again], [LOGITS])[0] for _ in range(20)) == said[-5]


def test_a_flat_distribution_is_sorted_where_the_guess_is_too_short() -> None:
    logits = [[0.0] * 5000]
    seen = {
        sample([sequence(strategy=TopPSamplingStrategy(1.0, 0.9), seed=seed)], logits)[0]
        for seed in range(400)
    }
    # 1,024 candidates are a fifth of it, and 0.9 were asked for.
    assert len(seen) > 350


def test_scores_are_from_before_everything_else() -> None:
    rows = [
        sequence(logprobs=2, strategy=GreedySamplingStrategy(), logit_bias={5: 100.0}),
        sequence(strategy=GreedySamplingStrategy()),
        sequence(logprobs=0, strategy=TopPSamplingStrategy(0.1), frequency_penalty=2.0),
    ]
    sampler = Sampler(len(LOGITS), [STOP])
    biased, plain, penalised = sampler.sample(torch.tensor([LOGITS] * 3), rows, [None] * 3)
    assert biased.token_id == 5
    assert biased.scores is not None
    assert biased.scores.logprob == pytest.approx(math.log(PLAIN[5]), abs=1e-5)
    assert [token_id for token_id, _ in biased.scores.top] == [0, 1]
    assert [logprob for _, logprob in biased.scores.top] == pytest.approx(
        [math.log(PLAIN[0]), math.log(PLAIN[1])], abs=1e-5
    )
    assert plain.scores is None
    assert penalised.scores is not None
    assert penalised.scores.top == ()


def test_a_grammar_leaves_only_its_tokens() -> None:
    mask = torch.zeros(len(LOGITS), dtype=torch.bool)
    mask[[6, 7]] = True
    free, bound = (sequence(strategy=GreedySamplingStrategy()) for _ in range(2))
    assert sample([free, bound], [LOGITS] * 2, [None, mask]) == [0, 6]


def test_where_nothing_may_come_the_others_get_theirs() -> None:
    rows = [
        sequence(strategy=GreedySamplingStrategy()),
        sequence(allowed_token_ids=(STOP,), min_tokens=3),
        sequence(allowed_token_ids=(STOP,), strategy=TopPSamplingStrategy()),
    ]
    choices = Sampler(len(LOGITS), [STOP]).sample(torch.tensor([LOGITS] * 3), rows, [None] * 3)
    assert [choice and choice.token_id for choice in choices] == [0, None, STOP]


def test_a_grammar_that_is_complete_ends_before_min_tokens() -> None:
    class Complete:
        def allowed(self) -> Any:
            return None

        def accept(self, token_id: int) -> None:
            pass

    mask = torch.zeros(len(LOGITS), dtype=torch.bool)
    mask[STOP] = True
    generation = Generation((0,), SamplingParams(min_tokens=9), 100, constraint=Complete())
    each = TorchSequence(generation, lambda _: None)
    assert sample([each], [LOGITS], [mask]) == [STOP]
