"""What holds whatever guesses for a model, asked of an engine without it and of one with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from llama_compat.types import TopPSamplingStrategy
from providers.local.torch_engine.engine import TorchEngine
from tests.unit.providers.local.engines import generate
from tests.unit.providers.local.torch_engine.test_engine import ENDLESS

SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": {"strategy": TopPSamplingStrategy(temperature=0.8, top_p=0.9), "seed": 11},
    "drawn widely": {"strategy": TopPSamplingStrategy(temperature=1.5, top_p=1.0), "seed": 12},
    "penalised and biased": {"frequency_penalty": 0.4, "logit_bias": {5: 2.0}},
}

ALLOWED = (5, 9, 17, 40)

CHANCE = 11.3
"""What chi-squared is beyond once in a hundred times by chance, with 3 degrees of freedom."""


class Guessed(NamedTuple):
    """Tokens that were guessed, how many of them were right, and the steps that there were."""

    tokens: int
    right: int
    steps: int


async def guessed_for_the_same_reply(
    engines: Sequence[TorchEngine], prompt: Sequence[int], tokens: int, sampling: str
) -> Guessed:
    """So many tokens of a reply, which are the same from both engines."""
    plain, guessing = engines
    options = {**ENDLESS, **SAMPLINGS[sampling]}
    before = guessing.stats
    said = [await generate(engine, prompt, tokens, **options) for engine in engines]
    assert said[0].token_ids == said[1].token_ids
    guessed = guessing.stats.guessed_tokens - before.guessed_tokens
    right = guessing.stats.guessed_right_tokens - before.guessed_right_tokens
    assert guessed > 20
    assert guessing.stats.used_blocks == 0
    assert plain.stats.guessed_tokens == 0
    return Guessed(guessed, right, guessing.stats.steps - before.steps)


async def draw_as_the_model_says(engines: Sequence[TorchEngine], prompt: Sequence[int]) -> None:
    """Draw second tokens, of which more than half are guessed and right, and see that they are
    distributed as the model has them."""
    plain, guessing = engines
    sampling = {"strategy": TopPSamplingStrategy(temperature=1.0, top_p=1.0)}
    draws = 80
    counts = dict.fromkeys(ALLOWED, 0)
    await generate(guessing, prompt, 8, **ENDLESS)  # what steps take is known then
    before = guessing.stats.guessed_right_tokens
    for seed in range(draws):
        said = await generate(
            guessing, prompt, 3, **ENDLESS, **sampling, allowed_token_ids=ALLOWED, seed=seed
        )
        counts[said.token_ids[1]] += 1
    assert guessing.stats.guessed_right_tokens - before > draws / 2
    # What the second token is by the model's own probabilities of it, after each of the first.
    expected = dict.fromkeys(ALLOWED, 0.0)
    for first, share in (await _shares(plain, prompt)).items():
        for second, part in (await _shares(plain, (*prompt, first))).items():
            expected[second] += draws * share * part
    difference = sum((counts[each] - expected[each]) ** 2 / expected[each] for each in ALLOWED)
    assert difference < CHANCE


async def _shares(engine: TorchEngine, prompt: Sequence[int]) -> dict[int, float]:
    """How likely each of those allowed comes next."""
    said = await generate(engine, prompt, 1, **ENDLESS, logprobs=400)
    [scores] = said.scores
    found = {token: torch.tensor(logprob).exp().item() for token, logprob in scores.top}
    whole = sum(found[each] for each in ALLOWED)
    return {each: found[each] / whole for each in ALLOWED}


def pay_what_was_expected(guesser: Any, asked: object) -> None:
    """In the place of a guesser's `_pay`: what a guess took is not measured, but as expected."""
    last, guesser._round = guesser._round, None
    if last is not None:
        for each in last.lengths:
            guesser._accounts[each].spend(last.expected)
