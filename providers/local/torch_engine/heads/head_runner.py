"""Runs a head beside its model: in the same blocks of the cache, a step behind it.

The head's keys and values of a token lie where the model's do, in a layer of their own. So what is
found of a prompt in the cache is there for both, and what has to give way goes with the model's.
They are made of the model's states and of the token that follows. That is known of the last token
once it was chosen, so that its state waits until then; and on to the end of its block, if nothing
is guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch

from providers.local.torch_engine.heads.head import GuessingHead, TakenStates
from providers.local.torch_engine.model.attention import SequenceSpan
from providers.local.torch_engine.model.decoder import ForwardStep
from providers.local.torch_engine.model.kv_cache import CacheShape, KVCache
from providers.local.torch_engine.model.torch_step import TorchStep
from providers.local.torch_engine.scheduling.measured import PLACES, as_guessed
from providers.local.torch_engine.scheduling.scheduler import Chunk
from providers.local.torch_engine.scheduling.sequence import TorchSequence


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
        states: of these tokens, `[tokens, hidden]`.
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
        self.token_ids: list[int] = []
        self.positions: list[int] = []
        self.slots: list[int] = []
        self.spans: list[SequenceSpan] = []

    def add(
        self, start: int, states: torch.Tensor, following: Sequence[int], blocks: list[int]
    ) -> None:
        """Add some of a sequence.

        Args:
            start: the place of the first.
            states: of each, `[tokens, hidden]`, or what they are fused of.
            following: the token behind each.
            blocks: of the cache.
        """
        size, end = self._block_size, start + len(following)
        self.spans.append(
            SequenceSpan(len(self.token_ids), len(following), end, blocks, size, states.device)
        )
        self.states.append(states)
        self.token_ids += following
        self.positions += range(start, end)
        self.slots += (blocks[at // size] * size + at % size for at in range(start, end))


class HeadRunner:
    """A head with its cache.

    Args:
        head: the head.
        blocks: of the model's cache, which are numbered alike.
        block_size: tokens in each; more than are guessed at once.
        shape: what a token takes.
    """

    def __init__(self, head: GuessingHead, blocks: int, block_size: int, shape: CacheShape) -> None:
        self._head = head
        self._block_size = block_size
        self._spare = blocks
        # What is guessed may go on behind the blocks that a sequence has yet.
        device = head.inner.embedding.device
        self._cache = KVCache(shape, blocks + PLACES, block_size, device)
        self._waiting: WeakKeyDictionary[TorchSequence, _Waiting] = WeakKeyDictionary()

    @property
    def taken(self) -> TakenStates:
        """What takes the states of a step that the model is about to compute."""
        return TakenStates(self._head.layers)

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
            if chunk.samples and start // size == end // size:
                # All of a block at once takes less than one after the other.
                self._waiting[each] = _Waiting(start, [*states, own.clone()])
                continue
            count = end - start
            if chunk.samples:
                self._waiting[each] = _Waiting(end - 1, [own[chunk.tokens - 1 :].clone()])
                # Of a block that is full there may be others who look at it before it is known
                # what follows here: to them it is as if its last token came again.
                count -= end % size != 0
            following = tokens[start + 1 : start + 1 + count]
            following += tokens[-1:] * (count - len(following))
            states = torch.cat([*states, own[: chunk.tokens]])[:count]
            rows.add(start, states, following, each.blocks)
        if rows.token_ids:
            token_ids, step = self._step(rows)
            states = self._head.fuse(torch.cat(rows.states))
            self._head.write(token_ids, states, step, self._cache.layers[0])

    def _waited(self, sequence: TorchSequence) -> tuple[int, list[torch.Tensor]]:
        """Where the head goes on with a sequence, and what the model has made of it from there."""
        waited = self._waiting.pop(sequence, None)
        known = [] if waited is None else waited.known(sequence)
        return (waited.start, known) if waited is not None and known else (sequence.computed, [])

    def begin(self, sequences: Sequence[TorchSequence]) -> list[Ahead]:
        """Of sequences of which the model has computed all tokens but the last, those that can be
        guessed for: `PLACES` at most."""
        found = []
        for place, each in enumerate(sequences):
            start, known = self._waited(each)
            if known:
                states = self._head.fuse(torch.cat(known))
                blocks = [*each.blocks, self._spare + place]
                found.append(Ahead(each, as_guessed(each), blocks, start, states))
        return found

    def forward(self, going: Sequence[Ahead], vocab_size: int) -> torch.Tensor:
        """Compute what is known of each.

        Args:
            going: which; where they are moves on.
            vocab_size: of the model.

        Returns:
            The logits of their next tokens: float32, `[going, vocab_size]`.
        """
        rows = _Rows(self._block_size)
        for each in going:
            first = each.start + 1
            following = each.own.token_ids[first : first + len(each.states)]
            rows.add(each.start, each.states, following, each.blocks)
            each.start += len(each.states)
        token_ids, step = self._step(rows)
        states = torch.cat(rows.states)
        hidden = self._head.forward(token_ids, states, step, self._cache.layers[0])
        last = [span.rows.stop - 1 for span in rows.spans]
        hidden = hidden[last]
        for each, state in zip(going, hidden.split(1), strict=True):
            each.states = state
        return self._head.logits(hidden, step, vocab_size)

    def _step(self, rows: _Rows) -> tuple[torch.Tensor, ForwardStep]:
        device = self._head.inner.embedding.device
        numbers = [rows.token_ids, rows.positions, rows.slots]
        token_ids, positions, slots = torch.tensor(numbers, dtype=torch.long, device=device)
        return token_ids, TorchStep(self._head.inner, positions, slots, rows.spans)
