"""The media of one sequence: which of its tokens stand for them, and where these are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy

if TYPE_CHECKING:
    from providers.local.torch_engine.media.sense import TorchMedium


class PromptPart(NamedTuple):
    """Tokens of a sequence one behind the other.

    Attributes:
        start, end: which.
        is_whole: whether they look at each other, and not back alone.
    """

    start: int
    end: int
    is_whole: bool = False


class MediumRun(NamedTuple):
    """Tokens one behind the other that stand for parts of a medium.

    Attributes:
        start, end: which.
        medium: which medium it is.
        first: which of the medium's parts the first of them stands for.
    """

    start: int
    end: int
    medium: TorchMedium
    first: int


class SequenceMedia:
    """The media in a sequence's prompt.

    Args:
        media: in order, at least one.
        tokens: of the prompt.
    """

    def __init__(self, media: Sequence[TorchMedium], tokens: int) -> None:
        self._runs = list(chain.from_iterable(map(_runs_of, media)))
        self._axes: numpy.ndarray[tuple[int, int], numpy.dtype[numpy.int64]] | None = None
        self._shift = 0
        if any(each.grid is not None for each in media):
            self._axes, self._shift = _grid_positions(media, tokens)

    def runs(self, start: int, end: int) -> Iterator[MediumRun]:
        """Those that have tokens among those from `start` up to `end`."""
        for run in self._runs:
            if run.start < end and run.end > start:
                yield run

    # What its tokens turn by ----------------------------------------------------------------------

    def positions(self, start: int, end: int) -> Sequence[int]:
        """Those of the tokens from `start` up to `end`, of the first axis where there are three."""
        if self._axes is None:
            return range(start, end)
        return self.axes(start, end)[0]

    def axes(self, start: int, end: int) -> Sequence[Sequence[int]]:
        """The same of three axes: of time, of rows and of columns.

        A picture's tokens have the place of its beginning in time, and their own rows and columns
        from there on; what follows it comes behind the last of these. (M-RoPE, arXiv:2409.12191.)
        """
        assert self._axes is not None
        prompt = self._axes.shape[1]
        behind = range(max(start, prompt) + self._shift, end + self._shift)
        return [[*axis, *behind] for axis in self._axes[:, start:end].tolist()]

    def turns_in_grid(self, start: int, end: int) -> bool:
        """Whether the axes of these tokens are not all the same."""
        return self._axes is not None and any(self.runs(start, end))

    # What has to be computed at once --------------------------------------------------------------

    def end_of_step(self, start: int, end: int) -> int:
        """Where a step ends that begins at `start` and would end at `end`: not within tokens that
        look at each other, but before them, or behind them if it begins with them."""
        for run in self.runs(start, end):
            if run.medium.is_whole and run.end > end:
                return run.start if run.start > start else run.end
        return end

    def begin_of_step(self, start: int) -> int:
        """Where a step begins that would begin at `start`, not within such tokens."""
        for run in self.runs(start, start + 1):
            if run.medium.is_whole:
                return run.start
        return start

    def parts(self, start: int, end: int) -> Iterator[PromptPart]:
        """The tokens from `start` up to `end`; those that look at each other apart from others."""
        at = start
        for run in self.runs(start, end):
            if run.medium.is_whole:
                if at < run.start:
                    yield PromptPart(at, run.start)
                yield PromptPart(run.start, run.end, is_whole=True)
                at = run.end
        if at < end:
            yield PromptPart(at, end)

    # What its blocks are known by -----------------------------------------------------------------

    def key(self, start: int, end: int) -> bytes:
        """What tells the media apart that begin among these tokens."""
        return b"".join(
            run.medium.key + run.start.to_bytes(8)
            for run in self.runs(start, end)
            if run.start >= start
        )


def _runs_of(medium: TorchMedium) -> Iterator[MediumRun]:
    first = 0
    for each in medium.runs:
        yield MediumRun(each.start, each.stop, medium, first)
        first += len(each)


def _grid_positions(
    pictures: Sequence[TorchMedium], tokens: int
) -> tuple[numpy.ndarray[tuple[int, int], numpy.dtype[numpy.int64]], int]:
    """The three positions of a prompt's tokens, `[3, tokens]`, and what is added to the number of
    a token behind it to have its position."""
    axes = numpy.empty((3, tokens), numpy.int64)
    at = position = 0
    for picture in pictures:
        assert picture.grid is not None
        (run,) = picture.runs
        axes[:, at : run.start] = position + numpy.arange(run.start - at)
        position += run.start - at
        rows, columns = picture.grid
        axes[0, run.start : run.stop] = position
        axes[1, run.start : run.stop] = position + numpy.repeat(numpy.arange(rows), columns)
        axes[2, run.start : run.stop] = position + numpy.tile(numpy.arange(columns), rows)
        position += max(rows, columns)
        at = run.stop
    axes[:, at:] = position + numpy.arange(tokens - at)
    return axes, position - at
