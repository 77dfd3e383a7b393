"""Which rows of a step go on from which states.

Tokens of a sequence change its state one after the other. Those of different sequences have nothing
to do with each other: the next tokens of all that decode are computed together, and pieces of
prompts a chunk of each at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import torch

CHUNK = 64
"""Tokens of a prompt that are computed at once: more take more products among themselves, and fewer
more steps one after the other."""


class Saved(NamedTuple):
    """A copy of a state: after so many of a span's tokens, and the slot that it goes to."""

    after: int
    slot: int


class StateSpan(NamedTuple):
    """A sequence's tokens in a step.

    Attributes:
        start: the row of the first.
        tokens: how many.
        slot: of its state.
        saved: copies of it, in order.
    """

    start: int
    tokens: int
    slot: int
    saved: tuple[Saved, ...] = ()


class Copies(NamedTuple):
    """Slots, and those that their states are copied to, int64."""

    sources: torch.Tensor
    targets: torch.Tensor

    def of(self, states: torch.Tensor) -> None:
        """Copy some of them, `[slots, ...]`."""
        states[self.targets] = states[self.sources]


class Singles(NamedTuple):
    """Sequences with one token each, whose states lie side by side.

    Attributes:
        rows: of their tokens.
        slots: of their states, in the same order.
        copies: of their states, once they are computed.
    """

    rows: slice | torch.Tensor
    slots: slice
    copies: Copies | None


class Round(NamedTuple):
    """Chunks that are computed together, one of each sequence that has so many.

    Attributes:
        chunks: which, of all in `Chunks.rows`.
        slots: of their states, int64.
        copies: of their states, once they are computed.
    """

    chunks: slice
    slots: torch.Tensor
    copies: Copies | None


class Chunks(NamedTuple):
    """Prompts, cut into chunks.

    Attributes:
        rows: of the tokens of each, `[chunks, tokens]`; what fills up a short one is one of its
            own once more.
        filled: where there is a token, and nothing that fills up, `[chunks, tokens]`.
        rounds: what can be computed together, in order.
    """

    rows: torch.Tensor
    filled: torch.Tensor
    rounds: list[Round]


class StateRows:
    """The rows of a step.

    Args:
        spans: of its sequences, in order.
        device: of the states.

    Attributes:
        singles: those that decode.
        prompts: with more tokens than one.
        chunks: of the prompts; None where there are none.
    """

    def __init__(self, spans: Sequence[StateSpan], device: torch.device) -> None:
        self.prompts = [span for span in spans if span.tokens > 1]
        singles = sorted((span for span in spans if span.tokens == 1), key=lambda each: each.slot)
        self.singles = [_together(each, device) for each in _side_by_side(singles)]
        self.chunks = _chunks(self.prompts, device) if self.prompts else None


def one_by_one(spans: Iterable[StateSpan], device: torch.device) -> list[StateRows]:
    """Each of the tokens as a step of its own, in which it has row 0."""
    return [
        StateRows(
            [StateSpan(0, 1, span.slot, tuple(Saved(1, s) for n, s in span.saved if n == after))],
            device,
        )
        for span in spans
        for after in range(1, span.tokens + 1)
    ]


def _side_by_side(spans: Sequence[StateSpan]) -> list[list[StateSpan]]:
    """Spans whose slots are numbers without a gap, of those in the order of their slots."""
    numbered = enumerate(spans)
    return [
        [span for _, span in group]
        for _, group in groupby(numbered, key=lambda each: each[1].slot - each[0])
    ]


def _together(spans: Sequence[StateSpan], device: torch.device) -> Singles:
    starts = [span.start for span in spans]
    rows: slice | torch.Tensor = slice(starts[0], starts[0] + len(starts))
    if starts != list(range(starts[0], starts[0] + len(starts))):
        rows = torch.tensor(starts, device=device)
    first = spans[0].slot
    copies = [(span.slot, saved.slot) for span in spans for saved in span.saved]
    return Singles(rows, slice(first, first + len(spans)), _copies(copies, device))


class _Piece(NamedTuple):
    """Tokens of one chunk: their first row, how many, the state's slot, and where it is copied."""

    start: int
    tokens: int
    slot: int
    copied_to: tuple[int, ...]


def _pieces(span: StateSpan) -> list[_Piece]:
    """A prompt's chunks, of which one ends wherever its state is copied."""
    ends = {*range(CHUNK, span.tokens, CHUNK), *(saved.after for saved in span.saved), span.tokens}
    pieces, before = [], 0
    for end in sorted(ends):
        copied_to = tuple(saved.slot for saved in span.saved if saved.after == end)
        pieces.append(_Piece(span.start + before, end - before, span.slot, copied_to))
        before = end
    return pieces


def _chunks(prompts: Sequence[StateSpan], device: torch.device) -> Chunks:
    cut = [_pieces(span) for span in prompts]
    rounds: list[Round] = []
    every: list[_Piece] = []
    for number in range(max(map(len, cut))):
        pieces = [each[number] for each in cut if number < len(each)]
        copies = [(piece.slot, slot) for piece in pieces for slot in piece.copied_to]
        rounds.append(
            Round(
                slice(len(every), len(every) + len(pieces)),
                torch.tensor([piece.slot for piece in pieces], device=device),
                _copies(copies, device),
            )
        )
        every += pieces
    longest = max(piece.tokens for piece in every)
    places = torch.arange(longest, device=device)
    starts, tokens = torch.tensor(
        [[piece.start for piece in every], [piece.tokens for piece in every]], device=device
    ).unsqueeze(-1)
    filled = places < tokens
    return Chunks(starts + places.where(filled, torch.zeros_like(places)), filled, rounds)


def _copies(pairs: Sequence[tuple[int, int]], device: torch.device) -> Copies | None:
    if not pairs:
        return None
    return Copies(*torch.tensor(pairs, device=device).T)
