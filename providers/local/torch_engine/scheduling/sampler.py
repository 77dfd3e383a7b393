"""Tokens chosen from logits, each sequence in its own way, all of a step at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch

from llama_compat.types import (
    GreedySamplingStrategy,
    SamplingParams,
    SamplingStrategy,
    TopKSamplingStrategy,
)
from providers.local.draw import LOWEST_TEMPERATURE, DrawKey, draw
from providers.local.engine import TokenScores
from providers.local.torch_engine.scheduling.sequence import TorchSequence

NUCLEUS_GUESS = 1024
"""The nucleus of `top_p` is looked for among so many of the likeliest tokens before all of them are
sorted, which takes ten times as long."""

NO_TOKEN = -1
"""What is chosen from logits that are no numbers."""


class TokenCounts(NamedTuple):
    """How often each token was generated, and whether it is in the prompt or the reply."""

    generated: torch.Tensor
    seen: torch.Tensor


class Choice(NamedTuple):
    """A row's token and, where they are wanted, its scores."""

    token_id: int
    scores: TokenScores | None


class FastSampler(Protocol):
    """Draws tokens for sequences that ask for nothing but what `is_plain` allows."""

    def sample(self, logits: torch.Tensor, sequences: Sequence[TorchSequence]) -> torch.Tensor:
        """A token for each row of `logits`, int64; on the device, and perhaps not there yet.

        It is `NO_TOKEN` where the logits are no numbers.
        """


def is_plain(each: TorchSequence) -> bool:
    """Whether temperature, top-k, top-p and min-p are all that its next token depends on."""
    sampling = each.generation.sampling
    return not (
        sampling.logit_bias
        or sampling.allowed_token_ids
        or _is_penalised(sampling)
        or each.generation.constraint is not None
        or each.generation.logprobs is not None
        or each.completion_tokens < sampling.min_tokens
    )


class Sampler:
    """Chooses the next tokens of sequences.

    What a sequence gets does not depend on the others in the step: its draws have keys of its own
    (see `providers.local.draw`), and every other operation works on its row alone.

    Args:
        vocab_size: length of the logits.
        stop_tokens: those that end a reply, which `min_tokens` keeps back.
        fast: draws for a step in which all sequences are plain, if there is such a sampler.
    """

    def __init__(
        self, vocab_size: int, stop_tokens: Collection[int], fast: FastSampler | None = None
    ) -> None:
        self._fast = fast
        self._vocab_size = vocab_size
        self._stop_tokens = tuple(stop_tokens)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def sample(
        self,
        logits: torch.Tensor,
        sequences: Sequence[TorchSequence],
        allowed: Sequence[torch.Tensor | None],
    ) -> list[Choice | None]:
        """The next token of each of `sequences`; None where none may come.

        The token is `NO_TOKEN` where the logits are no numbers.

        Args:
            logits: float32, `[len(sequences), vocab_size]`; it is changed.
            sequences: one a row.
            allowed: for each the tokens that its grammar has next, boolean, `[vocab_size]`.
        """
        plain = [row for row, each in enumerate(sequences) if is_plain(each)]
        if self._fast is not None and plain:
            return self._sample_plain(self._fast, logits, sequences, allowed, plain)
        sound = are_numbers(logits)
        if not all(sound):
            logits[[not each for each in sound]] = 0
        logprobs = self._logprobs(logits, sequences)
        _apply_penalties(logits, sequences, self._vocab_size)
        possible = [
            self._restrict(logits[row], each, mask)
            for row, (each, mask) in enumerate(zip(sequences, allowed, strict=True))
        ]
        token_ids = _choose(logits, [each.generation.sampling for each in sequences], sequences)
        for each, token_id in zip(sequences, token_ids, strict=True):
            if each.counts is not None and token_id >= 0:
                each.counts.generated[token_id] += 1
                each.counts.seen[token_id] = True
        scores: list[TokenScores | None] = [None] * len(sequences)
        if logprobs is not None:
            rows, values = logprobs
            tops = [sequences[row].generation.logprobs or 0 for row in rows]
            found = _scores(values, [token_ids[row] for row in rows], tops)
            for row, score in zip(rows, found, strict=True):
                scores[row] = score
        return [
            (Choice(token_id, score) if is_possible else None)
            if is_sound
            else Choice(NO_TOKEN, None)
            for token_id, score, is_possible, is_sound in zip(
                token_ids, scores, possible, sound, strict=True
            )
        ]

    def _sample_plain(
        self,
        fast: FastSampler,
        logits: torch.Tensor,
        sequences: Sequence[TorchSequence],
        allowed: Sequence[torch.Tensor | None],
        plain: Sequence[int],
    ) -> list[Choice | None]:
        """As `sample`, the `plain` rows by the fast sampler."""
        choices: list[Choice | None] = [None] * len(sequences)
        others = sorted(set(range(len(sequences))).difference(plain))
        picked = logits[list(plain)] if others else logits
        drawn = fast.sample(picked, [sequences[row] for row in plain])
        if others:
            found = self.sample(
                logits[others],
                [sequences[row] for row in others],
                [allowed[row] for row in others],
            )
            for row, choice in zip(others, found, strict=True):
                choices[row] = choice
        for row, token_id in zip(plain, drawn.tolist(), strict=True):
            choices[row] = Choice(token_id, None)
        return choices

    def _logprobs(
        self, logits: torch.Tensor, sequences: Sequence[TorchSequence]
    ) -> tuple[list[int], torch.Tensor] | None:
        rows = [row for row, each in enumerate(sequences) if each.generation.logprobs is not None]
        return (rows, logits[rows].log_softmax(-1)) if rows else None

    def _restrict(
        self, logits: torch.Tensor, each: TorchSequence, mask: torch.Tensor | None
    ) -> bool:
        """Bias a row, and leave only those tokens in it that may come, in place.

        Returns:
            Whether any is left; if not, the row is as if all were.
        """
        sampling = each.generation.sampling
        if sampling.logit_bias:
            token_ids = torch.tensor(list(sampling.logit_bias), device=logits.device)
            biases = torch.tensor(list(sampling.logit_bias.values()), device=logits.device)
            logits.index_add_(0, token_ids, biases)
        too_short = each.completion_tokens < sampling.min_tokens
        if mask is None and not sampling.allowed_token_ids and not too_short:
            return True
        mask = torch.ones(len(logits), dtype=torch.bool) if mask is None else mask.clone()
        if sampling.allowed_token_ids:
            allowed = torch.zeros_like(mask)
            allowed[torch.tensor(sampling.allowed_token_ids)] = True
            mask &= allowed
        if too_short:
            longer = mask.clone()
            longer[torch.tensor([*self._stop_tokens, *sampling.stop_token_ids]).long()] = False
            # A grammar that is complete has nothing but an end.
            if longer.any() or each.generation.constraint is None:
                mask = longer
        if not mask.any():
            return False
        logits.masked_fill_(~mask.to(logits.device), -torch.inf)
        return True


def are_numbers(logits: torch.Tensor) -> list[bool]:
    """For each row whether it has a largest number: none is NaN or infinite, unless it is -inf."""
    sound: list[bool] = logits.amax(-1).isfinite().tolist()
    return sound


def _apply_penalties(
    logits: torch.Tensor, sequences: Sequence[TorchSequence], vocab_size: int
) -> None:
    """OpenAI's penalties count what was generated, Hugging Face's the prompt as well; in place."""
    rows = [row for row, each in enumerate(sequences) if _is_penalised(each.generation.sampling)]
    if not rows:
        return
    penalised = [sequences[row] for row in rows]
    counts = [_counts(each, vocab_size, logits.device) for each in penalised]
    generated = torch.stack([each.generated for each in counts])
    seen = torch.stack([each.seen for each in counts])
    samplings = [each.generation.sampling for each in penalised]
    repetition = _column([each.repetition_penalty for each in samplings], logits)
    frequency = _column([each.frequency_penalty for each in samplings], logits)
    presence = _column([each.presence_penalty for each in samplings], logits)
    old = logits[rows]
    less = torch.where(old > 0, old / repetition, old * repetition)
    logits[rows] = torch.where(seen, less, old) - frequency * generated - presence * (generated > 0)


def _is_penalised(sampling: SamplingParams) -> bool:
    return bool(
        sampling.frequency_penalty or sampling.presence_penalty or sampling.repetition_penalty != 1
    )


def _counts(each: TorchSequence, vocab_size: int, device: torch.device) -> TokenCounts:
    if each.counts is None:
        seen = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        seen[torch.tensor(each.token_ids, device=device)] = True
        said = torch.tensor(each.token_ids[each.prompt_tokens :], dtype=torch.long, device=device)
        generated = torch.bincount(said, minlength=vocab_size).float()
        each.counts = TokenCounts(generated, seen)
    return each.counts


def _column(values: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32, device=like.device)[:, None]


# Choosing -----------------------------------------------------------------------------------------


def _choose(
    logits: torch.Tensor, samplings: Sequence[SamplingParams], sequences: Sequence[TorchSequence]
) -> list[int]:
    """A token for each row: the likeliest, or one by the row's own draw."""
    groups: dict[int, list[int]] = {}
    for row, sampling in enumerate(samplings):
        candidates = _candidates(sampling)
        groups.setdefault(candidates, []).append(row)
    chosen = [0] * len(samplings)
    for candidates, rows in groups.items():
        picked = logits if len(rows) == len(logits) else logits[rows]
        if candidates == 1:
            token_ids = picked.argmax(-1).tolist()
        else:
            keys = [sequences[row].draw_key for row in rows]
            token_ids = _draw(picked, [samplings[row] for row in rows], keys, candidates)
        for row, token_id in zip(rows, token_ids, strict=True):
            chosen[row] = token_id
    return chosen


def _candidates(sampling: SamplingParams) -> int:
    """Among how many of the likeliest tokens to look; 0 for all of them, in their own order.

    It depends on the row's own parameters alone, so that it is the same in any batch.
    """
    strategy = sampling.strategy
    if isinstance(strategy, GreedySamplingStrategy):
        return 1
    if isinstance(strategy, TopKSamplingStrategy):
        return max(2, 1 << (strategy.top_k - 1).bit_length())
    return NUCLEUS_GUESS if strategy.top_p < 1 else 0


def _draw(
    logits: torch.Tensor,
    samplings: Sequence[SamplingParams],
    keys: Sequence[DrawKey],
    candidates: int,
) -> list[int]:
    strategies = [each.strategy for each in samplings]
    temperatures, top_ks, top_ps = zip(*map(truncation, strategies), strict=True)
    # The largest logit is made 0 first, so that no temperature can overflow.
    scaled = (logits - logits.amax(-1, keepdim=True)) / _column(temperatures, logits)
    weights = scaled.exp_()
    if any(each.min_p for each in samplings):
        # The likeliest token's weight is 1.
        weights = weights.where(weights >= _column([each.min_p for each in samplings], logits), 0)
    if candidates == 0:
        every = torch.arange(weights.shape[1], dtype=torch.int32).expand(weights.shape)
        return _race(weights, every, keys)
    best, token_ids = weights.topk(min(candidates, weights.shape[1]))
    kept, enough = _nucleus(best.double(), weights, top_ks, top_ps)
    chosen = _race(kept, token_ids, keys)
    short = [row for row, is_enough in enumerate(enough) if not is_enough]
    if short:
        weights = weights[short]
        best, token_ids = weights.sort(descending=True)
        kept, _ = _nucleus(best.double(), weights, [0] * len(short), [top_ps[row] for row in short])
        found = _race(kept, token_ids, [keys[row] for row in short])
        for row, token_id in zip(short, found, strict=True):
            chosen[row] = token_id
    return chosen


def truncation(strategy: SamplingStrategy) -> tuple[float, int, float]:
    """Temperature, `top_k` (0: off) and `top_p`."""
    assert not isinstance(strategy, GreedySamplingStrategy)
    top_k = strategy.top_k if isinstance(strategy, TopKSamplingStrategy) else 0
    return max(strategy.temperature, LOWEST_TEMPERATURE), top_k, strategy.top_p


def _nucleus(
    best: torch.Tensor,
    weights: torch.Tensor,
    top_ks: Sequence[int],
    top_ps: Sequence[float],
) -> tuple[torch.Tensor, list[bool]]:
    """`best` (float64, best first) with zeros after the fewest that make `top_p` of the whole.

    Returns:
        That, and for each row whether `best` was long enough to tell.
    """
    ranks = torch.arange(best.shape[1], device=best.device)
    limits = torch.tensor([top_k or best.shape[1] for top_k in top_ks], device=best.device)
    best = best.where(ranks < limits[:, None], 0)
    summed = best.cumsum(-1)
    whole = weights.sum(-1, dtype=torch.float64)
    whole = torch.where(torch.tensor([k > 0 for k in top_ks]).to(best.device), summed[:, -1], whole)
    wanted = torch.tensor(top_ps, dtype=torch.float64, device=best.device) * whole
    keep = summed - best < wanted[:, None]
    # The likeliest always stays, however small top_p is.
    keep[:, 0] = True
    enough = (summed[:, -1] >= wanted) | torch.tensor(
        [top_p >= 1 or top_k > 0 for top_k, top_p in zip(top_ks, top_ps, strict=True)]
    ).to(best.device)
    if best.shape[1] == weights.shape[1]:
        enough[:] = True
    return best.where(keep, 0), enough.tolist()


def _race(weights: torch.Tensor, token_ids: torch.Tensor, keys: Sequence[DrawKey]) -> list[int]:
    """A token for each row of `weights` `[rows, candidates]`, of those in `token_ids`."""
    rows = zip(
        weights.float().cpu().numpy(), token_ids.to("cpu", torch.int32).numpy(), keys, strict=True
    )
    return [int(ids[draw(row, ids.view(np.uint32), key)]) for row, ids, key in rows]


# Log probabilities --------------------------------------------------------------------------------


def score_tokens(logits: torch.Tensor, token_ids: Sequence[int], top: int) -> list[TokenScores]:
    """How likely the model itself found `token_ids`, before penalties, bias and temperature.

    Args:
        logits: float32, shape `[len(token_ids), vocab_size]`.
        token_ids: one a row.
        top: how many of the likeliest are wanted beside it.
    """
    return _scores(logits.log_softmax(-1), token_ids, [top] * len(token_ids))


def _scores(
    logprobs: torch.Tensor, token_ids: Sequence[int], tops: Sequence[int]
) -> list[TokenScores]:
    chosen = logprobs.gather(1, torch.tensor(token_ids, device=logprobs.device)[:, None])[:, 0]
    best = logprobs.topk(min(max(tops), logprobs.shape[-1]))
    return [
        TokenScores(logprob, tuple(zip(ids[:top], values[:top], strict=True)))
        for logprob, ids, values, top in zip(
            chosen.tolist(), best.indices.tolist(), best.values.tolist(), tops, strict=True
        )
    ]
