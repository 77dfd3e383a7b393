"""Where media are in a prompt: a chat template writes one mark for each, and tokens for its parts
take that mark's place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, Protocol

from llama_compat.errors import unsupported_content
from providers.local.media.medium import WORDS, Kind, MediumFile


class Layout(NamedTuple):
    """How a medium comes into a prompt.

    Attributes:
        text: what takes the mark's place.
        tokens: how many of the text's tokens stand for parts of the medium.
        grid: the rows and columns of these parts, where the model is told; else None.
    """

    text: str
    tokens: int
    grid: tuple[int, int] | None = None


class Sense(Protocol):
    """What a model makes of one kind of media in its prompts."""

    @property
    def kind(self) -> Kind:
        """Which kind it is."""

    @property
    def mark(self) -> str:
        """What its chat template writes for a medium: a control token."""

    @property
    def token_id(self) -> int:
        """The token that stands for a part of a medium."""

    def layout(self, file: MediumFile) -> Layout:
        """How a medium comes into a prompt; its extent tells.

        Raises:
            APIError: 400; of such an extent the model takes none.
        """


@dataclass(frozen=True, slots=True, eq=False)
class PlacedMedium:
    """A medium in a prompt.

    Attributes:
        file: the medium.
        runs: which of the prompt's tokens stand for parts of it, in order.
        grid: see `Layout`.
    """

    file: MediumFile
    runs: tuple[range, ...]
    grid: tuple[int, int] | None = None


class SensedFiles(NamedTuple):
    """The media of one kind in a request.

    Attributes:
        sense: what the model makes of them.
        files: they, in order.
        layouts: how each comes into the prompt.
    """

    sense: Sense
    files: Sequence[MediumFile]
    layouts: Sequence[Layout]


def expanded(pieces: Sequence[str], media: SensedFiles) -> list[str]:
    """The pieces of a prompt, in which each medium's text takes the place of a mark.

    Args:
        pieces: of what a chat template wrote; no mark in them was spelled out by a client.
        media: all of one kind.

    Raises:
        APIError: 400; there are not as many marks as media.
    """
    mark, layouts = media.sense.mark, media.layouts
    marks = sum(piece.count(mark) for piece in pieces)
    if marks != len(layouts):
        raise unsupported_content(
            "messages",
            f"The model's chat template wrote places for {marks} {WORDS[media.sense.kind].many}, of"
            f" the {len(layouts)} in this request: it takes none in such messages. Put them into"
            " the user's messages.",
        )
    texts = iter(layouts)
    found = []
    for piece in pieces:
        first, *others = piece.split(mark)
        found.append(first + "".join(next(texts).text + each for each in others))
    return found


def placed(token_ids: Sequence[int], media: Sequence[SensedFiles]) -> tuple[PlacedMedium, ...]:
    """Where media are among the tokens of an expanded prompt, in the order in which they are there.

    Raises:
        RuntimeError: the tokenizer made something else of their texts.
    """
    found = [each for own in media for each in _placed(token_ids, own)]
    return tuple(sorted(found, key=lambda each: each.runs[0].start))


def _placed(token_ids: Sequence[int], media: SensedFiles) -> list[PlacedMedium]:
    sense, files, layouts = media
    places = [index for index, each in enumerate(token_ids) if each == sense.token_id]
    parts = sum(each.tokens for each in layouts)
    if len(places) != parts:
        raise RuntimeError(
            f"{len(places)} tokens of a prompt stand for parts of {WORDS[sense.kind].many}, which"
            f" have {parts} parts"
        )
    found, at = [], 0
    for file, layout in zip(files, layouts, strict=True):
        own = places[at : at + layout.tokens]
        at += layout.tokens
        found.append(PlacedMedium(file, tuple(_runs(own)), layout.grid))
    return found


def _runs(places: Sequence[int]) -> list[range]:
    runs = []
    for _, group in groupby(enumerate(places), lambda item: item[1] - item[0]):
        own = [place for _, place in group]
        runs.append(range(own[0], own[-1] + 1))
    return runs
