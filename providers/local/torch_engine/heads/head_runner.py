"""Runs heads beside their model: in the same blocks of the cache, a step behind it.

A head's keys and values of a token lie where the model's do, in a layer of their own. So what is
found of a prompt in the cache is there for both, and what has to give way goes with the model's.
They are made of the model's states and of the token that follows. That is known of the last token
once it was chosen, so that its state waits until then; and on to the end of its block, if nothing
is guessed.

Where a model has several heads, each guesses a token of its own, of what the head before it makes
of the same tokens, and of the token that follows so many places behind each (DeepSeek V3,
arXiv:2412.19437, section 2.2). Of the last few tokens that is a guess, or nothing yet, so that
their states wait, and all heads compute them again. Behind the last head's guess it goes on with
its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch

from providers.local.torch_engine.heads.head import GuessingHead, TakenStates
from providers.local.torch_engine.model.attention import SequenceSpan
from providers.local.torch_engine.model.forward_step import ForwardStep
from providers.local.torch_engine.model.kv_cache import CacheShape, KVCache
from providers.local.torch_engine.model.torch_step import TorchStep
from providers.local.torch_engine.scheduling.measured_guesser import PLACES, as_guessed
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.step import Chunk


class _Waiting(NamedTuple):
    """Of a sequence, what the model made of its last tokens and of those that were guessed then.

    Attributes:
        start: the place of the first of them.
        taken: step by step, `[tokens, layers * hidden]`; the last of its last token, and of those
            that were guessed.
    """

    start: int
    taken: list[torch.Tensor]

    def known(self, sequence: TorchSequence) -> list[torch.Tensor]:
        """The same of the tokens that it has come to, now that it is known what follows each;
        nothing if it was sent back since."""
        *before, last = self.taken
        count = sequence.computed - self.start - sum(map(len, before))
        return [*before, last[:count]] if 0 < count <= len(last) else []


@dataclass(eq=False)
class Ahead:
    """A sequence, and what is guessed of it.

    Attributes:
        sequence: as it is.
        own: with what is guessed.
        blocks: of the cache; one more than the sequence has.
        start: the place of the first token that the head has yet to compute.
        states: of these tokens, `[tokens, hidden]`, as the head that guesses next takes them.
    """

    sequence: TorchSequence
    own: TorchSequence
    blocks: list[int]
    start: int
    states: torch.Tensor

    @property
    def guessed(self) -> tuple[int, ...]:
        """The tokens that are guessed so far."""
        return tuple(self.own.token_ids[len(self.sequence.token_ids) :])


class _Rows:
    """Tokens for the head, of several sequences."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self.states: list[torch.Tensor] = []
        self.following: list[list[int]] = []
        self.positions: list[int] = []
        self.slots: list[int] = []
        self.spans: list[SequenceSpan] = []

    def add(
        self,
        start: int,
        states: torch.Tensor,
        following: Sequence[Sequence[int]],
        blocks: list[int],
    ) -> None:
        """Add some of a sequence.

        Args:
            start: the place of the first.
            states: of each, `[tokens, hidden]`, or what they are fused of.
            following: the token behind each, for one head after the other.
            blocks: of the cache.
        """
        size, count = self._block_size, len(states)
        end = start + count
        before = len(self.positions)
        self.spans.append(SequenceSpan(before, count, end, blocks, size, states.device))
        self.states.append(states)
        self.following = [
            [*told, *more]
            for told, more in zip(self.following or [[]] * len(following), following, strict=True)
        ]
        self.positions += range(start, end)
        self.slots += (blocks[at // size] * size + at % size for at in range(start, end))


class HeadRunner:
    """Heads with their cache.

    Args:
        heads: in the order in which they guess.
        blocks: of the model's cache, which are numbered alike.
        block_size: tokens in each; more than are guessed at once.
        shape: what a token takes.
    """

    def __init__(
        self, heads: Sequence[GuessingHead], blocks: int, block_size: int, shape: CacheShape
    ) -> None:
        self._heads = heads
        self._block_size = block_size
        self._spare = blocks
        # What is guessed may go on behind the blocks that a sequence has yet.
        device = heads[0].inner.embedding.device
        self._cache = KVCache(shape, blocks + PLACES, block_size, device)
        self._waiting: WeakKeyDictionary[TorchSequence, _Waiting] = WeakKeyDictionary()

    @property
    def taken(self) -> TakenStates:
        """What takes the states of a step that the model is about to compute."""
        return TakenStates(self._heads[0].layers)

    def read(self, chunks: Sequence[Chunk], taken: TakenStates) -> None:
        """The model has computed a step.

        Args:
            chunks: of it; their tokens don't count as computed yet.
            taken: what was made of them.
        """
        rows, size, at = _Rows(self._block_size), self._block_size, 0
        everything = taken.together
        for chunk in chunks:
            each, own = chunk.sequence, everything[at : at + chunk.rows]
            at += chunk.rows
            tokens, end = each.token_ids, each.computed + chunk.tokens
            start, states = self._waited(each)
            self._waiting.pop(each, None)
            if chunk.samples and start // size == end // size:
                # All of a block at once takes less than one after the other.
                self._waiting[each] = _Waiting(start, [*states, own.clone()])
                continue
            count = end - start
            known = torch.cat([*states, own[: chunk.tokens]])
            # What some head is to be told of the last ones is not known yet.
            waiting = len(self._heads) if chunk.samples else len(self._heads) - 1
            incomplete = known[max(0, count - waiting) :].clone()
            if chunk.samples:
                last = own[chunk.tokens - 1 :].clone()
                self._waiting[each] = _Waiting(end - len(incomplete), [incomplete[:-1], last])
                # Of a block that is full there may be others who look at it before it is known
                # what follows here: to them it is as if its last token came again.
                count -= end % size != 0
            elif waiting:
                self._waiting[each] = _Waiting(end - len(incomplete), [incomplete])
            following = [
                _padded(tokens[start + ahead : start + ahead + count], tokens[-1], count)
                for ahead in range(1, len(self._heads) + 1)
            ]
            rows.add(start, known[:count], following, each.blocks)
        if rows.positions:
            self._write(rows)

    def _write(self, rows: _Rows) -> None:
        following, step = self._step(rows)
        *before, last = zip(self._heads, following, self._cache.layers, strict=True)
        states = self._heads[0].fuse(torch.cat(rows.states))
        for head, token_ids, cached in before:
            states = head.forward(token_ids, states, step, cached)
        head, token_ids, cached = last
        head.write(token_ids, states, step, cached)

    def _waited(self, sequence: TorchSequence) -> tuple[int, list[torch.Tensor]]:
        """Where the heads go on with a sequence, and what the model has made of it from there."""
        waited = self._waiting.get(sequence)
        known = [] if waited is None else waited.known(sequence)
        return (waited.start, known) if waited is not None and known else (sequence.computed, [])

    def begin(self, sequences: Sequence[TorchSequence]) -> list[Ahead]:
        """Of sequences of which the model has computed all tokens but the last, those that can be
        guessed for: `PLACES` at most."""
        found = []
        for place, each in enumerate(sequences):
            start, known = self._waited(each)
            if known:
                states = self._heads[0].fuse(torch.cat(known))
                blocks = [*each.blocks, self._spare + place]
                found.append(Ahead(each, as_guessed(each), blocks, start, states))
        return found

    def forward(self, going: Sequence[Ahead], vocab_size: int) -> torch.Tensor:
        """Compute what is known of each, by the head whose turn it is.

        Args:
            going: which, of each of which as many tokens are guessed; where they are moves on.
            vocab_size: of the model.

        Returns:
            The logits of their next tokens: float32, `[going, vocab_size]`.
        """
        turn = min(len(going[0].guessed), len(self._heads) - 1)
        head, is_last = self._heads[turn], turn == len(self._heads) - 1
        rows = _Rows(self._block_size)
        for each in going:
            first = each.start + 1 + turn
            following = each.own.token_ids[first : first + len(each.states)]
            rows.add(each.start, each.states, [following], each.blocks)
        [token_ids], step = self._step(rows)
        states = torch.cat(rows.states)
        hidden = head.forward(token_ids, states, step, self._cache.layers[turn])
        last = [span.rows.stop - 1 for span in rows.spans]
        for each, span in zip(going, rows.spans, strict=True):
            each.states = hidden[span.rows]
            if is_last:
                each.start += len(each.states)
                each.states = each.states[-1:]
                self._computed(each.sequence)
        return head.logits(hidden[last], step, vocab_size)

    def _computed(self, sequence: TorchSequence) -> None:
        """All heads have computed what waits of a sequence; the last of it has to come again, as
        some of them were told guesses."""
        waited = self._waiting.pop(sequence, None)
        again = len(self._heads) - 1
        if waited is not None and again:
            known = torch.cat(waited.known(sequence))[-again:]
            self._waiting[sequence] = _Waiting(sequence.computed - len(known), [known])

    def _step(self, rows: _Rows) -> tuple[torch.Tensor, ForwardStep]:
        """What follows, `[heads, tokens]` int64, and where the tokens are."""
        inner = self._heads[0].inner
        device = inner.embedding.device
        numbers = [*rows.following, rows.positions, rows.slots]
        *following, positions, slots = torch.tensor(numbers, dtype=torch.long, device=device)
        return torch.stack(following), TorchStep(inner, positions, slots, rows.spans)


def _padded(tokens: list[int], last: int, count: int) -> list[int]:
    return tokens + [last] * (count - len(tokens))
