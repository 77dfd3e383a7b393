"""The model's forward pass over one step's chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

from providers.local.torch_engine.adapters.low_rank import AdaptedRows
from providers.local.torch_engine.media.in_sequence import PromptPart
from providers.local.torch_engine.media.in_step import (
    MediaRows,
    looks_ahead,
    positions_in_grid,
)
from providers.local.torch_engine.model.attention import SequenceSpan, Span
from providers.local.torch_engine.model.decode_group import GATHERED_TOKENS, grouped
from providers.local.torch_engine.model.decoder import Decoder
from providers.local.torch_engine.model.forward_step import ForwardStep
from providers.local.torch_engine.model.kv_cache import KVCache, numbers_of
from providers.local.torch_engine.model.recurrent.states import StatePool
from providers.local.torch_engine.model.recurrent.step_states import StepStates
from providers.local.torch_engine.model.torch_step import TorchStep
from providers.local.torch_engine.scheduling.sequence import TorchSequence
from providers.local.torch_engine.scheduling.step import Chunk

if TYPE_CHECKING:
    from providers.local.torch_engine.heads.head_runner import HeadRunner


class Runner(Protocol):
    """Computes chunks."""

    def forward(self, chunks: Sequence[Chunk], chosen: torch.Tensor | None = None) -> torch.Tensor:
        """Append the tokens of all chunks to what the cache has of their sequences.

        Args:
            chunks: of the step.
            chosen: the tokens of the step before, on the device, where chunks await some of them
                (see `Sequence.awaits_token`).

        Returns:
            The logits after the last `Chunk.logits` tokens of each, one below the other: float32,
            `[sum, vocab_size]`.
        """


MakeStep = Callable[[torch.Tensor, torch.Tensor, Sequence[SequenceSpan]], ForwardStep]
"""Makes a step of the tokens' positions and slots, and of their spans; see `Where`."""


class PagedRunner:
    """Runs a `Decoder` on the tokens of all chunks at once.

    Args:
        decoder: the model.
        cache: of its keys and values.
        make_step: of what computes between the matrix products; PyTorch's operations if None.
        apart: whether each token's attention is computed as if it alone were new, so that it is
            the same in a prompt, in pieces of one, and in a reply.
        as_rows: pieces of up to so many tokens are computed so too, as that is sooner.
        states: of sequences, where layers have some.
        head: guesses by what the model makes of the tokens, where it has one.
    """

    def __init__(
        self,
        decoder: Decoder,
        cache: KVCache,
        make_step: MakeStep | None = None,
        *,
        apart: bool = False,
        as_rows: int = 0,
        states: StatePool | None = None,
        head: HeadRunner | None = None,
    ) -> None:
        self._decoder = decoder
        self._cache = cache
        self._make_step = make_step or TorchSteps(decoder, cache, apart=apart)
        self._apart = apart
        self._as_rows = as_rows
        self._states = states
        self._head = head

    def forward(self, chunks: Sequence[Chunk], chosen: torch.Tensor | None = None) -> torch.Tensor:
        """See `Runner`."""
        with torch.inference_mode():
            token_ids, rows, where = located(
                self._decoder,
                chunks,
                self._cache.block_size,
                apart=self._apart,
                as_rows=self._as_rows,
            )
            fill_in(token_ids, chosen)
            step = self._make_step(*where)
            device = token_ids.device
            step.adapted = AdaptedRows.of(chunks, device)
            step.states = StepStates.of(self._states, chunks, device, apart=self._apart)
            step.seen = MediaRows.of(chunks)
            step.taken = taken = None if self._head is None else self._head.taken
            hidden = self._decoder.hidden_states(token_ids, step, self._cache)
            if self._head is not None and taken is not None:
                self._head.read(chunks, taken)
            if not rows:
                return hidden[:0]
            if len(rows) != len(hidden):
                hidden = hidden.index_select(0, torch.tensor(rows, device=hidden.device))
            return self._decoder.logits(hidden, step)


class TorchSteps:
    """Makes `TorchStep`s, in which short sequences that decode are attended to together.

    Args:
        decoder: the model.
        cache: of its keys and values.
        apart: whether each is attended to by itself, however many there are.
    """

    def __init__(self, decoder: Decoder, cache: KVCache, *, apart: bool = False) -> None:
        self._decoder = decoder
        self._apart = apart
        self._block_size = cache.block_size
        # Kept, since memory that is taken anew for each step has to be mapped anew as well.
        widest = max(math.prod(numbers_of(each)) for each in cache.layers)
        self._gathered = decoder.embedding.new_empty(GATHERED_TOKENS, widest)

    def __call__(
        self, positions: torch.Tensor, slots: torch.Tensor, spans: Sequence[SequenceSpan]
    ) -> TorchStep:
        """See `MakeStep`."""
        together: Sequence[Span] = spans
        if not self._apart:
            together = grouped(spans, self._block_size, self._gathered)
        return TorchStep(self._decoder, positions, slots, together, apart=self._apart)


class Where(NamedTuple):
    """Where a step's tokens are.

    Attributes:
        positions: in their sequences, int64: `[tokens]`, or `[3, tokens]` where some are in grids.
        slots: in the cache, `[tokens]` int64.
        spans: of all of them.
    """

    positions: torch.Tensor
    slots: torch.Tensor
    spans: list[SequenceSpan]


def located(
    decoder: Decoder,
    chunks: Sequence[Chunk],
    block_size: int,
    *,
    apart: bool = False,
    as_rows: int = 0,
) -> tuple[torch.Tensor, list[int], Where]:
    """The tokens of all chunks, `[tokens]`, those whose logits are wanted, and where they are.

    Args:
        decoder: the model.
        chunks: of the step.
        block_size: tokens in a block of the cache.
        apart, as_rows: see `PagedRunner`.
    """
    device = decoder.embedding.device
    spans = []
    at = 0
    for chunk in chunks:
        each, tokens = chunk.sequence, chunk.tokens
        end = each.computed + tokens
        each_alone = apart or tokens <= as_rows
        if each.media is not None and looks_ahead(chunk):
            for part in each.media.parts(each.computed, end):
                spans += _spans_of(part, at, each, block_size, device, apart=apart)
                at += part.end - part.start
            each_alone = False
        elif not each_alone:
            spans.append(SequenceSpan(at, tokens, end, each.blocks, block_size, device))
            at += tokens
        # As if each were another sequence's, so that all that decode are computed together: what
        # it looks at is written before anything is read.
        for length in range(each.computed if each_alone else end, end + len(chunk.guessed)):
            spans.append(
                SequenceSpan(at, 1, length + 1, each.blocks, block_size, device, copied=apart)
            )
            at += 1
    *numbers, rows = flattened(chunks, block_size)
    token_ids, positions, slots = torch.tensor(numbers, dtype=torch.long, device=device)
    axes = positions_in_grid(chunks, numbers[1])
    if axes is not None:
        positions = torch.tensor(axes, device=device)
    return token_ids, rows, Where(positions, slots, spans)


def _spans_of(
    part: PromptPart,
    at: int,
    sequence: TorchSequence,
    block_size: int,
    device: torch.device,
    *,
    apart: bool,
) -> list[SequenceSpan]:
    """The spans of tokens that look at each other, or of some beside them; from the row `at` on."""
    tokens = part.end - part.start
    alone = apart and not part.is_whole
    return [
        SequenceSpan(
            at + length - part.start - (1 if alone else tokens),
            1 if alone else tokens,
            length,
            sequence.blocks,
            block_size,
            device,
            copied=apart,
            is_whole=part.is_whole,
        )
        for length in (range(part.start + 1, part.end + 1) if alone else (part.end,))
    ]


def fill_in(token_ids: torch.Tensor, chosen: torch.Tensor | None) -> None:
    """Put what a step chose in the place of the tokens that stand for it.

    Args:
        token_ids: of the next step, on the device.
        chosen: by the step before, int64.
    """
    if chosen is not None:
        # Where none was chosen the sequence ends when that is read; any token does until then.
        known = chosen[(-1 - token_ids).clamp_min_(0)].clamp_min_(0)
        token_ids.copy_(torch.where(token_ids < 0, known, token_ids))


class FlatChunks(NamedTuple):
    """The tokens of a step's chunks, one behind the other.

    Attributes:
        token_ids: what they are.
        positions: where each is in its sequence: the row of the rotations that it turns by.
        slots: where each is in the cache.
        rows: whose logits are wanted.
    """

    token_ids: list[int]
    positions: list[int]
    slots: list[int]
    rows: list[int]


def flattened(chunks: Sequence[Chunk], block_size: int) -> FlatChunks:
    """The tokens of `chunks`, whose cache has blocks of `block_size` tokens."""
    flat = FlatChunks([], [], [], [])
    for chunk in chunks:
        each = chunk.sequence
        start, end, blocks = each.computed, each.computed + chunk.rows, each.blocks
        flat.token_ids.extend(each.token_ids[start : start + chunk.tokens])
        flat.token_ids.extend(chunk.guessed)
        if each.media is None:
            flat.positions.extend(range(each.turns_from + start, each.turns_from + end))
        else:
            flat.positions.extend(each.media.positions(start, end))
        flat.slots.extend(
            blocks[place // block_size] * block_size + place % block_size
            for place in range(start, end)
        )
        flat.rows.extend(range(len(flat.token_ids) - chunk.logits, len(flat.token_ids)))
    return flat
