"""What a model of llama.cpp makes of media: how each comes into a prompt, and what it reads."""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

from providers.local.llama_cpp_engine.bindings.library import LlamaError
from providers.local.llama_cpp_engine.media.mtmd import (
    EncodedParts,
    MediumParts,
    MediumText,
    Pixels,
    Projector,
    Raw,
    Sound,
)
from providers.local.media.audio import AudioFile
from providers.local.media.encoding import KeptEncodings
from providers.local.media.medium import Kind, MediumFile
from providers.local.media.pictures import PictureFile
from providers.local.media.placing import Layout, PlacedMedium

TOKENS: Mapping[Kind, Sequence[str]] = {
    "image": ("<|image_pad|>", "<image_soft_token>", "<|image|>", "<image>", "[IMG]"),
    "audio": ("<|AUDIO|>", "<|audio_pad|>", "<audio_soft_token>", "<|audio|>", "[AUDIO]"),
}
"""What models call the token that stands for a part of a medium."""

KNOWN_LAYOUTS = 256
"""Extents of media whose layout is kept."""


@dataclass(frozen=True, slots=True, eq=False)
class LlamaMedium(PlacedMedium):
    """A medium in a prompt, as the model reads it.

    Attributes:
        parts: one for each of the `runs`.
        number: what tells it from all others that the engine has seen.
        is_whole: whether its parts look at each other, and not back alone.
    """

    parts: tuple[EncodedParts, ...] = ()
    number: int = 0
    is_whole: bool = False


@dataclass(frozen=True)
class LlamaSense:
    """Media of one kind in the prompts of one model; see `placing.Sense`.

    The tokens of a medium are not made of a text: what takes its mark's place names its extent, and
    `LlamaSenses.token_ids` says what that stands for.

    Attributes:
        kind: of the media.
        mark: what stands for one where a template has a text.
        token_id: what stands for a part of one in a prompt's tokens; the model does not read it.
        rate: of audio, how many samples a second.
        largest: how many parts the model can be shown at once, where it has to be shown all.
        layout_of: what takes the place of a medium of some extent.
    """

    kind: Kind
    mark: str
    token_id: int
    rate: int
    largest: int
    layout_of: Callable[[Raw], tuple[MediumText | MediumParts, ...]]

    def layout(self, file: MediumFile) -> Layout:
        """See `placing.Sense`."""
        extent = _extent(file, self.rate)
        try:
            parts = [each for each in self.layout_of(extent) if isinstance(each, MediumParts)]
        except LlamaError as error:
            raise file.broken(error) from error
        at_once = max((each.places for each in parts if each.is_whole), default=0)
        if at_once > self.largest:
            raise file.broken(
                LlamaError(
                    f"the model would have to look at {at_once} parts of it at once, and has room"
                    f" for {self.largest}"
                )
            )
        text = f"{self.mark[:-1]}:{_name_of(extent)}>"
        return Layout(text, sum(each.places for each in parts))


class LlamaSenses:
    """All media in the prompts of one model, by its projector.

    Args:
        projector: the model's.
        token_ids: what stands for a part of a medium of each kind.
        largest: see `LlamaSense`.
        room: bytes in which media are kept as the model reads them, for requests with the same.

    Attributes:
        by_kind: the senses.
        kept: what is.
    """

    def __init__(
        self, projector: Projector, token_ids: Mapping[Kind, int], largest: int, room: int
    ) -> None:
        self._projector = projector
        # No template escapes it, and no client knows it.
        secret = secrets.token_hex(6)
        self._named = re.compile(f"<{secret}[a-z]+:([0-9x]+)>")
        self._layout = lru_cache(KNOWN_LAYOUTS)(projector.layout)
        self.by_kind: Mapping[Kind, LlamaSense] = {
            kind: LlamaSense(
                kind, f"<{secret}{kind}>", token_ids[kind], projector.rate, largest, self._layout
            )
            for kind in projector.kinds
        }
        self._token_of = {Pixels: token_ids["image"], Sound: token_ids["audio"]}
        self.kept: KeptEncodings[_Parts] = KeptEncodings(room)
        self._numbers: OrderedDict[bytes, int] = OrderedDict()
        self._next_number = count(1)

    def token_ids(
        self, text: str, encode: Callable[[str], tuple[int, ...]]
    ) -> tuple[int, ...] | None:
        """The tokens of a text with media in it; None if there are none.

        Args:
            text: in which `Layout.text` stands for each medium.
            encode: gives the tokens of what is between them.
        """
        between = self._named.split(text)
        if len(between) == 1:
            return None
        found = list(encode(between[0]) if between[0] else ())
        for named, behind in zip(between[1::2], between[2::2], strict=True):
            extent = _extent_named(named)
            for piece in self._layout(extent):
                if isinstance(piece, MediumText):
                    found += piece.token_ids
                else:
                    found += [self._token_of[type(extent)]] * piece.places
            found += encode(behind) if behind else ()
        return tuple(found)

    def encode(self, medium: PlacedMedium) -> LlamaMedium:
        """The medium as the model reads it; one thread at a time may ask.

        Raises:
            APIError: 400; its file is damaged, or the model can't be shown it.
        """
        file = medium.file
        parts = self.kept.get(file.key, lambda: self._encoded(file)).parts
        return LlamaMedium(
            file,
            medium.runs,
            medium.grid,
            parts,
            self._number_of(file.key),
            any(each.is_whole for each in parts),
        )

    def _encoded(self, file: MediumFile) -> _Parts:
        raw = _raw(file, self._projector.rate)
        try:
            return _Parts(tuple(self._projector.encode(raw)))
        except LlamaError as error:
            raise file.broken(error) from error

    def _number_of(self, key: bytes) -> int:
        number = self._numbers.pop(key, None) or next(self._next_number)
        self._numbers[key] = number
        if len(self._numbers) > _REMEMBERED:
            self._numbers.popitem(last=False)
        return number


@dataclass(frozen=True)
class _Parts:
    parts: tuple[EncodedParts, ...]

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self.parts)


def _extent(file: MediumFile, rate: int) -> Raw:
    if isinstance(file, PictureFile):
        return Pixels(file.width, file.height)
    assert isinstance(file, AudioFile)
    return Sound(file.samples_at(rate))


def _name_of(extent: Raw) -> str:
    if isinstance(extent, Pixels):
        return f"{extent.width}x{extent.height}"
    return str(extent.samples)


def _extent_named(name: str) -> Raw:
    """The extent with this name; see `_name_of`."""
    numbers = [int(each) for each in name.split("x")]
    return Pixels(numbers[0], numbers[1]) if len(numbers) > 1 else Sound(numbers[0])


def _raw(file: MediumFile, rate: int) -> Raw:
    if isinstance(file, PictureFile):
        image = file.unpacked()
        return Pixels(image.width, image.height, image.tobytes())
    assert isinstance(file, AudioFile)
    samples = file.unpacked(rate)
    return Sound(len(samples), samples)


_SIZES = ((4096, 4096), (4096, 256), (256, 4096), (16, 16))
"""Of pictures in pixels: one of them has as many parts as any that a model takes."""


def largest_at_once(projector: Projector) -> int:
    """About how many parts of a picture the model has to be shown at once at most.

    Raises:
        LlamaError: it can't be told.
    """
    if "image" not in projector.kinds:
        return 0
    layouts = [projector.layout(Pixels(*size)) for size in _SIZES]
    return max(
        (
            piece.places
            for layout in layouts
            for piece in layout
            if isinstance(piece, MediumParts) and piece.is_whole
        ),
        default=0,
    )


_REMEMBERED = 100_000
"""Media that are known again."""
