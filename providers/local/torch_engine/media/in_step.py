"""The tokens of a step that stand for parts of media."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from providers.local.torch_engine.media.family import Encoding

if TYPE_CHECKING:
    from providers.local.torch_engine.scheduling.step import Chunk


class _Rows(NamedTuple):
    rows: slice
    encoding: Encoding
    parts: slice


class MediaRows:
    """The rows of a step that stand for parts of media.

    Args:
        rows: which they are, and what is read there.
    """

    def __init__(self, rows: Sequence[_Rows]) -> None:
        self._rows = rows

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> MediaRows | None:
        """Those of `chunks`; None where there are none."""
        if not have_media(chunks):
            return None
        found = []
        at = 0
        for chunk in chunks:
            sequence, start = chunk.sequence, chunk.sequence.computed
            if sequence.media is not None:
                for run in sequence.media.runs(start, start + chunk.tokens):
                    first, end = max(run.start, start), min(run.end, start + chunk.tokens)
                    rows = slice(at + first - start, at + end - start)
                    part = run.first + first - run.start
                    assert run.medium.encoding is not None
                    found.append(_Rows(rows, run.medium.encoding, slice(part, part + end - first)))
            at += chunk.rows
        return cls(found) if found else None

    def put(self, hidden: torch.Tensor) -> None:
        """Put what is read in the place of embeddings, `[tokens, hidden]`."""
        for rows, encoding, parts in self._rows:
            hidden[rows] = encoding.features[parts].to(hidden.device, hidden.dtype)

    def named(self, token_ids: torch.Tensor, stand_in: int) -> torch.Tensor:
        """`token_ids`, `[tokens]`, with `stand_in` in the place of those that stand for media."""
        named = token_ids.clone()
        for rows, _, _ in self._rows:
            named[rows] = stand_in
        return named

    def add(self, layer: int, hidden: torch.Tensor) -> None:
        """Add what is read besides to what comes out of a layer, `[tokens, hidden]`."""
        for rows, encoding, parts in self._rows:
            if layer < len(encoding.deep):
                hidden[rows] += encoding.deep[layer][parts].to(hidden.device, hidden.dtype)


def positions_in_grid(
    chunks: Sequence[Chunk], positions: Sequence[int]
) -> Sequence[Sequence[int]] | None:
    """The positions of a step's tokens on three axes, where these are not all the same; else None.

    Args:
        chunks: of the step.
        positions: on the first axis.
    """
    if not have_media(chunks) or not any(map(turns_in_grid, chunks)):
        return None
    axes: list[list[int]] = [[], [], []]
    at = 0
    for chunk in chunks:
        end = at + chunk.rows
        if turns_in_grid(chunk):
            assert chunk.sequence.media is not None
            start = chunk.sequence.computed
            own = chunk.sequence.media.axes(start, start + chunk.rows)
        else:
            own = [positions[at:end]] * 3
        for axis, values in zip(axes, own, strict=True):
            axis.extend(values)
        at = end
    return axes


def have_media(chunks: Sequence[Chunk]) -> bool:
    """Whether any prompt has."""
    for chunk in chunks:  # noqa: SIM110 (each step asks; a generator takes twice as long)
        if chunk.sequence.media is not None:
            return True
    return False


def turns_in_grid(chunk: Chunk) -> bool:
    """Whether its tokens have other positions on one axis than on another."""
    media, start = chunk.sequence.media, chunk.sequence.computed
    return media is not None and media.turns_in_grid(start, start + chunk.tokens)


def looks_ahead(chunk: Chunk) -> bool:
    """Whether some of its tokens look at those behind them."""
    media, start = chunk.sequence.media, chunk.sequence.computed
    return media is not None and any(
        part.is_whole for part in media.parts(start, start + chunk.tokens)
    )
