"""Tokens guessed by a smaller model, which goes ahead of the one that is asked.

The draft draws by the numbers that the model itself will draw by (see `providers.local.draw`). So
where both find the same tokens likely they mostly draw the same one, whatever the temperature: of
two distributions that differ by a part d, 1 - d of 1 + d at least (arXiv:2408.07978). And a reply
is what it is without a draft, so that its distribution is the model's own. Rejection sampling, as
in arXiv:2211.17192, would keep the distribution, too, but not the reply that goes with a seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from itertools import takewhile
from operator import eq
from typing import NamedTuple

import torch
from torch.nn.functional import pad

from llama_compat.types import SamplingParams
from providers.local.engine import Generation
from providers.local.torch_engine.model_runner import Runner
from providers.local.torch_engine.scheduling.measured_guesser import (
    PLACES,
    MeasuredGuesser,
    as_guessed,
    nobody,
)
from providers.local.torch_engine.scheduling.sampler import NO_TOKEN, Sampler
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.step import Chunk


class Draft(NamedTuple):
    """A model that goes ahead of another one.

    Attributes:
        runner: of it, with a KV cache of `PLACES` times as many blocks as the longest sequence has.
        blocks: of the longest sequence.
        longest: the most tokens of a sequence.
        step_tokens: of a prompt, at once.
        most: how many it guesses at most.
    """

    runner: Runner
    blocks: int
    longest: int
    step_tokens: int
    most: int


class DraftGuesser(MeasuredGuesser):
    """Has a draft say what may come; see `Guesser`.

    Args:
        draft: the smaller model.
        vocab_size: of the model that is asked.
        stop_tokens: see `Sampler`.
        clock: seconds, of no certain beginning.
    """

    def __init__(
        self,
        draft: Draft,
        vocab_size: int,
        stop_tokens: Collection[int] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(draft.most, draft.longest, clock)
        self._draft = draft
        self._vocab_size = vocab_size
        self._sampler = Sampler(vocab_size, stop_tokens)
        blocks = range(PLACES * draft.blocks)
        self._places = [
            _Place(list(blocks[at * draft.blocks : (at + 1) * draft.blocks]))
            for at in range(PLACES)
        ]
        self._turns = 0

    def _guess(self, wanted: dict[TorchSequence, int]) -> dict[TorchSequence, tuple[int, ...]]:
        places = {each: self._place_of(each, wanted) for each in wanted}
        for each, place in places.items():
            place.follow(each)
        guesses: dict[TorchSequence, tuple[int, ...]] = dict.fromkeys(wanted, ())
        going = list(wanted)
        while going:
            chosen = self._step([places[each].own for each in going])
            for each in going:
                token_id = chosen.get(places[each].own)
                if token_id is not None:
                    guesses[each] += (token_id,)
            going = [
                each
                for each in going
                if places[each].own in chosen and len(guesses[each]) < wanted[each]
            ]
        return {each: guessed for each, guessed in guesses.items() if guessed}

    def _step(self, sequences: Sequence[TorchSequence]) -> dict[TorchSequence, int]:
        """Have the draft compute what it can of these sequences, its own; the next tokens of those
        of which that was all. A long prompt comes in by parts, each beside a step of the model."""
        began = self._clock()
        chunks, budget = [], self._draft.step_tokens
        for each in sequences:
            tokens = min(each.uncomputed, budget)
            if tokens:
                chunks.append(Chunk(each, tokens))
                budget -= tokens
        logits = self._draft.runner.forward(chunks)
        sampling = [chunk.sequence for chunk in chunks if chunk.samples]
        for chunk in chunks:
            chunk.sequence.computed += chunk.tokens
        if not sampling:
            return {}
        # The tables of models that have the same tokens are filled up to different sizes.
        logits = pad(logits, (0, self._vocab_size - logits.shape[1]), value=-torch.inf)
        choices = self._sampler.sample(logits, sampling, [None] * len(sampling))
        chosen = {
            each: choice.token_id
            for each, choice in zip(sampling, choices, strict=True)
            if choice is not None and choice.token_id != NO_TOKEN
        }
        for each, token_id in chosen.items():
            each.token_ids.append(token_id)
        # What is a token more is one that was guessed rightly.
        if all(chunk.tokens <= 2 for chunk in chunks):
            self._took(began)
        return chosen

    def _place_of(self, sequence: TorchSequence, beside: dict[TorchSequence, int]) -> _Place:
        """Where it is in the draft's cache: where it was, else where most of it is already, of the
        places whose sequences are not guessed for now; the one that was left longest ago among
        equals."""
        self._turns += 1
        place = next((each for each in self._places if each.whose is sequence), None)
        if place is None:
            free = [each for each in self._places if each.whose not in beside]
            tokens = sequence.token_ids
            place = max(free, key=lambda each: (each.same_as(tokens), -each.used))
            place.take(sequence)
        place.used = self._turns
        return place


class _Place:
    """Room for one sequence in the draft's cache.

    Args:
        blocks: of the cache.

    Attributes:
        whose: the sequence that it was last taken for.
        own: that sequence as the draft knows it.
        used: when, in turns.
    """

    def __init__(self, blocks: list[int]) -> None:
        self._blocks = blocks
        self._followed = 0
        self.whose: TorchSequence | None = None
        self.used = 0
        self.own = TorchSequence(Generation((), SamplingParams(), 1), nobody)

    def take(self, sequence: TorchSequence) -> None:
        """It is for another sequence from now on; what both begin with is kept."""
        same = self.same_as(sequence.token_ids)
        self.own = as_guessed(sequence)
        self.own.blocks = self._blocks
        self.own.computed = same
        self.whose, self._followed = sequence, len(sequence.token_ids)

    def follow(self, sequence: TorchSequence) -> None:
        """Know its tokens: those that were said since, in the place of those that were guessed."""
        own, tokens = self.own, sequence.token_ids
        same = self._followed
        while same < min(len(own.token_ids), len(tokens)) and own.token_ids[same] == tokens[same]:
            same += 1
        own.token_ids[same:] = tokens[same:]
        # The last one is always computed: it gives the logits of the next.
        own.computed = min(own.computed, same, len(tokens) - 1)
        self._followed = len(tokens)

    def same_as(self, tokens: Sequence[int]) -> int:
        """With how many of what is computed here `tokens` begin."""
        known = self.own.token_ids[: self.own.computed]
        return sum(takewhile(bool, map(eq, known, tokens)))
