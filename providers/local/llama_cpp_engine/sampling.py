"""How a request's tokens are chosen: a chain of llama.cpp's samplers, and masks of our own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from llama_compat.types import GreedySamplingStrategy, SamplingStrategy, TopKSamplingStrategy
from providers.local.draw import LOWEST_TEMPERATURE, draw
from providers.local.engine import TokenScores
from providers.local.llama_cpp_engine.bindings.context import Context
from providers.local.llama_cpp_engine.bindings.sampler import LlamaSampler
from providers.local.llama_cpp_engine.sequence import LlamaSequence

Logits = np.ndarray[Any, np.dtype[np.float32]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


def sampler_for(sequence: LlamaSequence, vocab_size: int) -> LlamaSampler:
    """The chain that chooses the tokens of `sequence`, or leaves what is drawn from; free it.

    The order is that of `local::torch`, and vLLM's: penalties, bias, temperature, `min_p`, `top_k`,
    `top_p`. OpenAI's penalties count what was generated, Hugging Face's the prompt as well.
    """
    generation = sequence.generation
    sampling = generation.sampling
    sampler = LlamaSampler(vocab_size)
    if sampling.repetition_penalty != 1:
        sampler.add_penalties(
            sequence.prompt_tokens + generation.max_tokens,
            repetition=sampling.repetition_penalty,
            seen=sequence.token_ids,
        )
    if sampling.frequency_penalty or sampling.presence_penalty:
        sampler.add_penalties(
            max(1, generation.max_tokens),
            frequency=sampling.frequency_penalty,
            presence=sampling.presence_penalty,
            seen=sequence.token_ids[sequence.prompt_tokens :],
        )
    if sampling.logit_bias:
        sampler.add_biases(sampling.logit_bias)
    strategy = sampling.strategy
    if isinstance(strategy, GreedySamplingStrategy) or is_greedy(strategy):
        sampler.add_greedy()
        return sampler
    if strategy.temperature != 1:
        sampler.add_temperature(strategy.temperature)
    if sampling.min_p:
        sampler.add_min_p(sampling.min_p)
    if isinstance(strategy, TopKSamplingStrategy):
        sampler.add_top_k(strategy.top_k)
    if strategy.top_p < 1:
        sampler.add_top_p(strategy.top_p)
    return sampler


def is_greedy(strategy: SamplingStrategy) -> bool:
    """Whether the likeliest token is chosen."""
    return isinstance(strategy, GreedySamplingStrategy) or strategy.temperature < LOWEST_TEMPERATURE


def choose(sequence: LlamaSequence, context: Context, index: int) -> int:
    """The token that follows the token `index` of the batch, by the sequence's sampler."""
    sampler = sequence.sampler
    assert sampler is not None
    if is_greedy(sequence.generation.sampling.strategy):
        return sampler.sample(context, index)
    token_ids, logits = sampler.kept(context, index)
    token_id = int(token_ids[draw(np.exp(logits - logits.max()), token_ids, sequence.draw_key)])
    sampler.accept(token_id)
    return token_id


def needs_mask(sequence: LlamaSequence) -> bool:
    """Whether some tokens may not come next."""
    generation = sequence.generation
    sampling = generation.sampling
    return bool(
        generation.constraint is not None
        or sampling.allowed_token_ids
        or sequence.completion_tokens < sampling.min_tokens
    )


def forbid(
    logits: Logits, sequence: LlamaSequence, allowed: Mask | None, stop_tokens: Collection[int]
) -> bool:
    """Leave only those tokens in `logits` that may come next, in place.

    Args:
        logits: of the last token, `[vocab_size]`.
        sequence: whose they are.
        allowed: what its grammar has next, `[vocab_size]`; None if it has none, or allows all.
        stop_tokens: those that end a reply, which `min_tokens` keeps back.

    Returns:
        Whether any is left.
    """
    sampling = sequence.generation.sampling
    mask = np.ones(len(logits), np.bool_) if allowed is None else allowed.copy()
    if sampling.allowed_token_ids:
        listed = np.zeros(len(logits), np.bool_)
        listed[list(sampling.allowed_token_ids)] = True
        mask &= listed
    if sequence.completion_tokens < sampling.min_tokens:
        longer = mask.copy()
        longer[[*stop_tokens, *sampling.stop_token_ids]] = False
        # A grammar that is complete has nothing but an end.
        if longer.any() or sequence.generation.constraint is None:
            mask = longer
    logits[~mask] = -np.inf
    return bool(mask.any())


# Log probabilities --------------------------------------------------------------------------------


def log_softmax(logits: Logits) -> Logits:
    """The log probabilities that `logits` `[vocab_size]` stand for, as a new array."""
    shifted: Logits = logits - logits.max()
    # In float64, since so many small numbers are summed.
    total = np.log(np.exp(shifted, dtype=np.float64).sum())
    shifted -= np.float32(total)
    return shifted


def scores_of(logprobs: Logits, token_id: int, top: int) -> TokenScores:
    """The score of one token, and of the `top` likeliest at its place, likeliest first."""
    best: list[int] = []
    if top:
        some = np.argpartition(logprobs, -top)[-top:]
        # Of two that are as likely, the lower id comes first.
        best = some[np.lexsort((some, -logprobs[some]))].tolist()
    return TokenScores(
        float(logprobs[token_id]), tuple((each, float(logprobs[each])) for each in best)
    )
