"""What a model of llama.cpp makes of pictures: how each comes into a prompt, and what it reads."""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

from providers.local.llama_cpp_engine.bindings.library import LlamaError
from providers.local.llama_cpp_engine.pictures.mtmd import (
    EncodedParts,
    PictureParts,
    PictureText,
    Projector,
)
from providers.local.pictures.files import PictureFile, broken_picture
from providers.local.pictures.placing import Look, PlacedPicture

PICTURE_TOKENS = ("<|image_pad|>", "<image_soft_token>", "<|image|>", "<image>", "[IMG]")
"""What models call the token that stands for a part of a picture."""

KNOWN_LAYOUTS = 256
"""Sizes of pictures whose layout is kept."""


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPicture(PlacedPicture):
    """A picture in a prompt, as the model reads it.

    Attributes:
        parts: one for each of the `runs`.
        number: what tells it from all others that the engine has seen.
        is_whole: whether its parts look at each other, and not back alone.
    """

    parts: tuple[EncodedParts, ...] = ()
    number: int = 0
    is_whole: bool = False


class LlamaVision:
    """Pictures in the prompts of one model, by its projector; see `Vision`.

    The tokens of a picture are not made of a text: what takes its mark's place names its size, and
    `token_ids` says what that stands for.

    Args:
        projector: the model's.
        token_id: what stands for a part of a picture in a prompt's tokens; the model does not read
            it.
        largest: how many parts the model can be shown at once, where it has to be shown all.
        room: bytes in which pictures are kept as the model reads them, for requests with the same.
    """

    def __init__(self, projector: Projector, token_id: int, largest: int, room: int) -> None:
        self._room = room
        self._projector = projector
        self._token_id = token_id
        self._largest = largest
        secret = secrets.token_hex(6)
        # No template escapes it, and no client knows it.
        self._mark = f"<{secret}>"
        self._sized = re.compile(f"<{secret}:([0-9]+)x([0-9]+)>")
        self._layout = lru_cache(KNOWN_LAYOUTS)(projector.layout)
        self._kept: OrderedDict[bytes, tuple[EncodedParts, ...]] = OrderedDict()
        self._kept_bytes = 0
        self._numbers: OrderedDict[bytes, int] = OrderedDict()
        self._next_number = count(1)

    @property
    def mark(self) -> str:
        """See `Vision.mark`."""
        return self._mark

    @property
    def token_id(self) -> int:
        """See `Vision.token_id`."""
        return self._token_id

    def look(self, picture: PictureFile) -> Look:
        """See `Vision.look`."""
        try:
            layout = self._layout(picture.width, picture.height)
        except LlamaError as error:
            raise broken_picture(picture.param, error) from error
        counts = [piece.places for piece in layout if isinstance(piece, PictureParts)]
        if self._projector.is_whole and max(counts, default=0) > self._largest:
            raise broken_picture(
                picture.param,
                LlamaError(
                    f"the model would have to look at {max(counts)} parts of it at once, and has"
                    f" room for {self._largest}"
                ),
            )
        text = f"{self._mark[:-1]}:{picture.width}x{picture.height}>"
        return Look(text, sum(counts))

    def token_ids(
        self, text: str, encode: Callable[[str], tuple[int, ...]]
    ) -> tuple[int, ...] | None:
        """The tokens of a text with pictures in it; None if there are none.

        Args:
            text: in which `Look.text` stands for each picture.
            encode: gives the tokens of what is between them.
        """
        between = self._sized.split(text)
        if len(between) == 1:
            return None
        found = list(encode(between[0]) if between[0] else ())
        for width, height, behind in zip(between[1::3], between[2::3], between[3::3], strict=True):
            for piece in self._layout(int(width), int(height)):
                if isinstance(piece, PictureText):
                    found += piece.token_ids
                else:
                    found += [self._token_id] * piece.places
            found += encode(behind) if behind else ()
        return tuple(found)

    def see(self, picture: PlacedPicture) -> EncodedPicture:
        """The picture as the model reads it; one thread at a time may ask.

        Raises:
            APIError: 400; its file is damaged, or the model can't be shown it.
        """
        file = picture.file
        key = file.key
        parts = self._kept.pop(key, None)
        if parts is None:
            image = file.unpacked()
            try:
                encoded = self._projector.encode(image.tobytes(), *image.size)
            except LlamaError as error:
                raise broken_picture(file.param, error) from error
            parts = tuple(encoded)
            self._kept_bytes += _bytes_of(parts)
        self._kept[key] = parts
        while self._kept_bytes > self._room:
            self._kept_bytes -= _bytes_of(self._kept.popitem(last=False)[1])
        return EncodedPicture(
            file, picture.runs, picture.grid, parts, self._number_of(key), self._projector.is_whole
        )

    def _number_of(self, key: bytes) -> int:
        number = self._numbers.pop(key, None) or next(self._next_number)
        self._numbers[key] = number
        if len(self._numbers) > _REMEMBERED:
            self._numbers.popitem(last=False)
        return number


_SIZES = ((4096, 4096), (4096, 256), (256, 4096), (16, 16))
"""Of pictures in pixels: one of them has as many parts as any that a model takes."""


def largest_picture(projector: Projector) -> int:
    """About how many parts a picture has at most that come one behind the other.

    Raises:
        LlamaError: the projector takes no pictures.
    """
    layouts = [projector.layout(*size) for size in _SIZES]
    return max(
        (piece.places for layout in layouts for piece in layout if isinstance(piece, PictureParts)),
        default=0,
    )


_REMEMBERED = 100_000
"""Pictures that are known again."""


def _bytes_of(parts: tuple[EncodedParts, ...]) -> int:
    return sum(each.embeddings.nbytes for each in parts)
