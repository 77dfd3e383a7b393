"""Where pictures are in a prompt: a chat template writes one mark for each, and tokens for its
parts take that mark's place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple, Protocol

from llama_compat.errors import invalid_parameter
from providers.local.pictures.files import PictureFile


class Look(NamedTuple):
    """How a picture comes into a prompt.

    Attributes:
        text: what takes the mark's place.
        tokens: how many of the text's tokens stand for parts of the picture.
        grid: the rows and columns of these parts, where the model is told; else None.
    """

    text: str
    tokens: int
    grid: tuple[int, int] | None = None


class Vision(Protocol):
    """What a model makes of pictures in its prompts."""

    @property
    def mark(self) -> str:
        """What its chat template writes for a picture: a control token."""

    @property
    def token_id(self) -> int:
        """The token that stands for a part of a picture."""

    def look(self, picture: PictureFile) -> Look:
        """How a picture comes into a prompt; its size tells.

        Raises:
            APIError: 400; of such a size the model takes none.
        """


@dataclass(frozen=True, slots=True, eq=False)
class PlacedPicture:
    """A picture in a prompt.

    Attributes:
        file: the picture.
        runs: which of the prompt's tokens stand for parts of it, in order.
        grid: see `Look`.
    """

    file: PictureFile
    runs: tuple[range, ...]
    grid: tuple[int, int] | None = None


def expanded(pieces: Sequence[str], mark: str, looks: Sequence[Look]) -> list[str]:
    """The pieces of a prompt, in which each picture's text takes the place of a mark.

    Args:
        pieces: of what a chat template wrote; no mark in them was spelled out by a client.
        mark: see `Vision.mark`.
        looks: of the pictures, in order.

    Raises:
        APIError: 400; there are not as many marks as pictures.
    """
    marks = sum(piece.count(mark) for piece in pieces)
    if marks != len(looks):
        raise invalid_parameter(
            "messages",
            f"The model's chat template wrote places for {marks} pictures, of the {len(looks)} in"
            " this request: it takes none in such messages. Put them into the user's messages.",
            "unsupported_content",
        )
    texts = iter(looks)
    found = []
    for piece in pieces:
        first, *others = piece.split(mark)
        found.append(first + "".join(next(texts).text + each for each in others))
    return found


def placed(
    token_ids: Sequence[int],
    vision: Vision,
    pictures: Sequence[PictureFile],
    looks: Sequence[Look],
) -> tuple[PlacedPicture, ...]:
    """Where the pictures are among the tokens of an expanded prompt.

    Raises:
        RuntimeError: the tokenizer made something else of their texts.
    """
    places = [index for index, each in enumerate(token_ids) if each == vision.token_id]
    if len(places) != sum(look.tokens for look in looks):
        raise RuntimeError(
            f"{len(places)} tokens of a prompt stand for parts of pictures, which have"
            f" {sum(look.tokens for look in looks)} parts"
        )
    found, at = [], 0
    for picture, look in zip(pictures, looks, strict=True):
        own = places[at : at + look.tokens]
        at += look.tokens
        found.append(PlacedPicture(picture, tuple(_runs(own)), look.grid))
    return tuple(found)


def _runs(places: Sequence[int]) -> list[range]:
    runs = []
    for _, group in groupby(enumerate(places), lambda item: item[1] - item[0]):
        own = [place for _, place in group]
        runs.append(range(own[0], own[-1] + 1))
    return runs
