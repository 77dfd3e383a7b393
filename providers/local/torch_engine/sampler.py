"""How the next token is chosen, and how likely tokens were."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import NamedTuple

import torch

from llama_compat.types import (
    GreedySamplingStrategy,
    SamplingParams,
    SamplingStrategy,
    TopKSamplingStrategy,
)

NUCLEUS_GUESS = 1024
"""The nucleus of `top_p` is looked for among so many of the likeliest tokens before all of them are
sorted, which takes ten times as long."""

LOWEST_TEMPERATURE = 1e-5
"""Below this, float32 can't tell the likeliest token's share from 1 any more."""


class TokenScores(NamedTuple):
    """The log probability of one token, and of the likeliest at its place (id, log probability)."""

    logprob: float
    top: tuple[tuple[int, float], ...]


class Sampler:
    """Chooses the tokens of one sequence; its random numbers are nobody else's.

    Args:
        params: temperature, penalties and so on; checked already.
        prompt_ids: what the repetition penalty counts in.
        vocab_size: length of the logits.
        device: where the logits are.
        openings: what is sampled begins with one of these sequences of tokens, if there are any.
    """

    def __init__(
        self,
        params: SamplingParams,
        prompt_ids: Sequence[int],
        vocab_size: int,
        device: torch.device,
        openings: Sequence[Sequence[int]] = (),
    ) -> None:
        self._strategy = params.strategy
        self._generator = torch.Generator(device)
        seed = secrets.randbits(64) if params.seed is None else params.seed
        self._generator.manual_seed(seed % 2**64)
        self._bias: torch.Tensor | None = None
        if params.logit_bias:
            self._bias = torch.zeros(vocab_size, device=device)
            token_ids = torch.tensor(list(params.logit_bias), device=device)
            self._bias[token_ids] = torch.tensor(list(params.logit_bias.values()), device=device)
        self._openings = _Openings(openings)
        self._penalties: _Penalties | None = None
        if params.frequency_penalty or params.presence_penalty or params.repetition_penalty != 1:
            self._penalties = _Penalties(params, prompt_ids, vocab_size, device)

    def sample(self, logits: torch.Tensor) -> int:
        """The next token, from its logits (float32, shape `[vocab_size]`)."""
        if self._penalties is not None:
            logits = self._penalties.apply(logits)
        if self._bias is not None:
            logits = logits + self._bias
        allowed = self._openings.next_tokens()
        if allowed:
            # Only now, so that neither penalties nor a bias can keep a reply from its opening.
            logits = _only(logits, allowed)
        if isinstance(self._strategy, GreedySamplingStrategy):
            token_id = int(logits.argmax())
        else:
            token_ids, probabilities = _candidates(logits, self._strategy)
            chosen = torch.multinomial(probabilities, 1, generator=self._generator)
            token_id = int(chosen if token_ids is None else token_ids[chosen])
        if self._penalties is not None:
            self._penalties.count(token_id)
        self._openings.take(token_id)
        return token_id


class _Openings:
    """Sequences of tokens with one of which a reply begins, and how far it has come."""

    def __init__(self, sequences: Sequence[Sequence[int]]) -> None:
        self._left = [list(sequence) for sequence in sequences]

    def next_tokens(self) -> list[int]:
        """The tokens that may come next; none when one of the sequences is complete."""
        return sorted({sequence[0] for sequence in self._left if sequence})

    def take(self, token_id: int) -> None:
        """A token was sampled."""
        self._left = [sequence[1:] for sequence in self._left if sequence[:1] == [token_id]]


def _only(logits: torch.Tensor, token_ids: list[int]) -> torch.Tensor:
    """`logits` with which no other token than these can be sampled."""
    chosen = torch.tensor(token_ids, device=logits.device)
    masked = torch.full_like(logits, -torch.inf)
    masked[chosen] = logits[chosen]
    return masked


class _Penalties:
    """OpenAI's penalties count what was generated, Hugging Face's the prompt as well."""

    def __init__(
        self,
        params: SamplingParams,
        prompt_ids: Sequence[int],
        vocab_size: int,
        device: torch.device,
    ) -> None:
        self._frequency = params.frequency_penalty
        self._presence = params.presence_penalty
        self._repetition = params.repetition_penalty
        self._counts = torch.zeros(vocab_size, device=device)
        self._seen = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        self._seen[torch.tensor(prompt_ids, device=device)] = True

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self._repetition != 1:
            less = torch.where(logits > 0, logits / self._repetition, logits * self._repetition)
            logits = torch.where(self._seen, less, logits)
        return logits - self._frequency * self._counts - self._presence * (self._counts > 0)

    def count(self, token_id: int) -> None:
        self._counts[token_id] += 1
        self._seen[token_id] = True


def _candidates(
    logits: torch.Tensor, strategy: SamplingStrategy
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """The token ids that may be sampled (None: all) and their probabilities, up to a factor."""
    assert not isinstance(strategy, GreedySamplingStrategy)
    # The largest logit is made 0 first, so that no temperature can overflow.
    scaled = (logits - logits.max()) / max(strategy.temperature, LOWEST_TEMPERATURE)
    if isinstance(strategy, TopKSamplingStrategy):
        best, token_ids = scaled.topk(min(strategy.top_k, scaled.numel()))
        return token_ids, _nucleus(best.softmax(-1), strategy.top_p)
    probabilities = scaled.softmax(-1)
    if strategy.top_p >= 1:
        return None, probabilities
    best, token_ids = probabilities.topk(min(NUCLEUS_GUESS, probabilities.numel()))
    if float(best.sum()) < strategy.top_p:
        best, token_ids = probabilities.sort(descending=True)
    return token_ids, _nucleus(best, strategy.top_p)


def _nucleus(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """`probabilities`, best first, with zeros after the fewest that make `top_p`."""
    if top_p >= 1:
        return probabilities
    before = probabilities.cumsum(-1) - probabilities
    # The likeliest always stays, however small top_p is.
    before[0] = -1
    return probabilities.where(before < top_p, 0)


def score_tokens(logits: torch.Tensor, token_ids: Sequence[int], top: int) -> list[TokenScores]:
    """How likely the model itself found `token_ids`, before penalties, bias and temperature.

    Args:
        logits: float32, shape `[len(token_ids), vocab_size]`.
        token_ids: one a row.
        top: how many of the likeliest are wanted beside it.
    """
    logprobs = logits.log_softmax(-1)
    chosen = logprobs.gather(1, torch.tensor(token_ids, device=logits.device)[:, None])[:, 0]
    best = logprobs.topk(min(top, logprobs.shape[-1]))
    return [
        TokenScores(logprob, tuple(zip(ids, values, strict=True)))
        for logprob, ids, values in zip(
            chosen.tolist(), best.indices.tolist(), best.values.tolist(), strict=True
        )
    ]
