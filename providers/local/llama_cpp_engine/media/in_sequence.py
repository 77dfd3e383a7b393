"""The media of one sequence: which of its tokens stand for them, and at which positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from providers.local.llama_cpp_engine.media.mtmd import Axes, EncodedParts
    from providers.local.llama_cpp_engine.media.sense import LlamaMedium


class LlamaRun(NamedTuple):
    """Tokens of a sequence, one behind the other, that stand for parts of a medium.

    Attributes:
        start, end: which.
        number: which medium it is.
        parts: what the model reads in their place.
        is_whole: whether they have to be computed at once.
        position: of the first of them.
    """

    start: int
    end: int
    number: int
    parts: EncodedParts
    is_whole: bool
    position: int

    def positions(self, start: int, end: int) -> Axes:
        """Those of the tokens from `start` up to `end`, `[tokens]` or `[4, tokens]`."""
        if self.parts.axes is None:
            first = self.position - self.start
            return np.arange(first + start, first + end, dtype=np.int32)
        return self.parts.axes[:, start - self.start : end - self.start] + np.int32(self.position)


class LlamaMedia:
    """The media in a sequence's prompt.

    Args:
        media: in order; none for a prompt of text alone.
    """

    def __init__(self, media: Sequence[LlamaMedium] = ()) -> None:
        self._runs = tuple(_runs_of(media))

    def __iter__(self) -> Iterator[LlamaRun]:
        return iter(self._runs)

    def at(self, token: int) -> LlamaRun | None:
        """That which a token is one of, if it stands for a part of a medium."""
        return next((run for run in self._runs if run.start <= token < run.end), None)

    def end_of_step(self, start: int, end: int) -> int:
        """Where a step ends that begins at `start` and would end at `end`: text and media are
        computed apart from each other, and all of a medium at once that has to be."""
        for run in self._runs:
            if start < run.start < end:
                return run.start
            if run.start <= start < run.end:
                return run.end if run.is_whole else min(run.end, end)
        return end

    def cut(self, tokens: int) -> int:
        """Up to where of the first `tokens` what was computed can be gone on with: not from within
        a medium that is computed at once, nor where positions don't count tokens."""
        for run in self._runs:
            if run.start < tokens < run.end and run.is_whole:
                return run.start
            if run.start < tokens <= run.end and run.parts.axes is not None:
                return run.start
        return tokens

    def position(self, token: int) -> int:
        """That of a token outside of media: the model turns by it, and the cache knows it by
        that."""
        behind = 0
        for run in self._runs:
            if run.end > token:
                break
            behind += run.end - run.start - run.parts.advance
        return token - behind


def _runs_of(media: Sequence[LlamaMedium]) -> Iterator[LlamaRun]:
    behind = 0
    for medium in media:
        for place, parts in zip(medium.runs, medium.parts, strict=True):
            yield LlamaRun(
                place.start,
                place.stop,
                medium.number,
                parts,
                medium.is_whole,
                place.start - behind,
            )
            behind += len(place) - parts.advance
