"""What all media have in common: a file that stands in a request, and what is wrong with it."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

from llama_compat.errors import APIError, invalid_parameter

Kind = Literal["image", "audio"]
"""Kinds of media that engines open, in the catalogue's words for what models read."""

SentKind = Kind | Literal["document"]
"""Kinds that a request may have."""


class Words(NamedTuple):
    """How a kind of media is called.

    Attributes:
        one, many: by people.
        setting: by a template, which bounds it there.
        invalid, too_large, too_many: by the codes of errors.
    """

    one: str
    many: str
    setting: str
    invalid: str
    too_large: str
    too_many: str


WORDS: dict[Kind, Words] = {
    "image": Words(
        "picture", "pictures", "images", "invalid_image", "image_too_large", "too_many_images"
    ),
    "audio": Words(
        "audio", "audio files", "audio", "invalid_audio", "audio_too_large", "too_many_audio"
    ),
}


@dataclass(frozen=True)
class MediumFile(ABC):
    """A medium as it came.

    Attributes:
        content: the file's bytes.
        param: which part of the request it is, such as `messages[0].content[1]`.
    """

    kind: ClassVar[Kind]

    content: bytes = field(repr=False)
    param: str

    @property
    def key(self) -> bytes:
        """What tells it from all others: a hash of its bytes."""
        person = WORDS[self.kind].one.encode()
        return hashlib.blake2b(self.content, digest_size=16, person=person).digest()

    @property
    @abstractmethod
    def extent(self) -> str:
        """How large it is, for people."""

    def broken(self, error: Exception) -> APIError:
        """The error for one that can't be unpacked, or that a model can't be shown."""
        return broken_medium(self.kind, self.param, error)


def broken_medium(kind: Kind, param: str, error: Exception) -> APIError:
    """The error for a file that can't be read."""
    why = str(error).strip().rstrip(".") or type(error).__name__
    return invalid_medium(kind, param, f"can't be read: {why}.")


def invalid_medium(kind: Kind, param: str, why: str) -> APIError:
    """400: `why` the file is none that can be taken; the end of a sentence."""
    said = f"The {WORDS[kind].one} in '{param}' {why}"
    return invalid_parameter(param, said, WORDS[kind].invalid)


def too_large(kind: Kind, param: str, said: str) -> APIError:
    """400: a file is larger than may be; `said` is the whole message."""
    return invalid_parameter(param, said, WORDS[kind].too_large)
