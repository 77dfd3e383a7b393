"""OpenAI's calls about images, sound and moderation, and the look at a request of each.

Sources: https://platform.openai.com/docs/api-reference/audio, .../images and .../moderations, and
the types of OpenAI's own client (openai 3.52, 2026-11-23).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_compat.dialects.base import Asked, Operation
from llama_compat.dialects.openai.operations import OPENAI, required_model
from llama_compat.errors import invalid_parameter, missing_parameter
from llama_compat.extent import Extent, Prompt
from llama_compat.types import Units
from llama_compat.wire.json_fields import JSONFields, from_raw

MEDIA = dataclasses.replace(OPENAI, stream_end=b"")
"""OpenAI's API. These streams end with an event of their own, and with `[DONE]` only where the
vendor says so."""

MAX_IMAGES = 128
"""As many are asked for at most; how many one request may ask for is the template's to say."""

_EMPTY = (b"null", b'""', b"[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """The look at a request of one call.

    Attributes:
        required: what it has to have besides a model; of names in a tuple it has one at least.
        read: the members that a model reads.
        extent: what it comes to.
        streams: the member that asks for a stream, and the values with which it does.
    """

    required: Sequence[tuple[str, ...]]
    extent: Callable[[JSONFields], Extent]
    streams: tuple[str, tuple[Any, ...]] = ("stream", (True, "true", "True", "1"))

    def __call__(self, fields: JSONFields, path: Mapping[str, str]) -> Asked:
        model = required_model(fields)
        for names in self.required:
            if all(name not in fields or bytes(fields[name]) in _EMPTY for name in names):
                raise missing_parameter(names[0])
        name, values = self.streams
        stream = name in fields and from_raw(fields[name]) in values
        return Asked(model, stream, self.extent(fields))


def _moderation(fields: JSONFields) -> Extent:
    return Extent(Prompt(fields, "input"), choices=0)


def _images(fields: JSONFields) -> Extent:
    number = _number(fields, "n")
    return Extent(Prompt(fields, "prompt"), choices=number, units=Units(images=number))


def _speech(fields: JSONFields) -> Extent:
    text = from_raw(fields["input"])
    if not isinstance(text, str):
        raise invalid_parameter("input", "'input' must be a string.", "invalid_type")
    prompt = Prompt(fields, "input", "instructions")
    return Extent(prompt, choices=0, units=Units(characters=len(text)))


def _transcription(fields: JSONFields) -> Extent:
    # How long the sound is only its decoder could tell: that is settled by what the vendor says.
    return Extent(Prompt(fields, "prompt"))


def _number(fields: JSONFields, name: str) -> int:
    """How many are wanted; in a form numbers are text."""
    value = from_raw(fields[name]) if name in fields else None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    if value is None:
        return 1
    if type(value) is not int or not 1 <= value <= MAX_IMAGES:
        raise invalid_parameter(
            name, f"Invalid value for '{name}': expected an integer from 1 to {MAX_IMAGES}."
        )
    return value


MODERATIONS = Operation(
    dialect=MEDIA,
    name="moderations",
    kind="moderation",
    look=_Look(required=[("input",)], extent=_moderation, streams=("stream", ())),
    capability="moderations",
)
IMAGES = Operation(
    dialect=MEDIA,
    name="images",
    kind="image",
    look=_Look(required=[("prompt",)], extent=_images),
    capability="making images",
)
IMAGE_EDITS = Operation(
    dialect=MEDIA,
    name="image_edits",
    kind="image",
    look=_Look(required=[("image", "image[]", "images"), ("prompt",)], extent=_images),
    capability="editing images",
    form=True,
)
SPEECH = Operation(
    dialect=MEDIA,
    name="speech",
    kind="speech",
    look=_Look(required=[("input",)], extent=_speech, streams=("stream_format", ("sse",))),
    capability="speech",
)
TRANSCRIPTIONS = Operation(
    dialect=MEDIA,
    name="transcriptions",
    kind="transcription",
    look=_Look(required=[("file",)], extent=_transcription),
    capability="transcriptions",
    form=True,
)
TRANSLATIONS = Operation(
    dialect=MEDIA,
    name="translations",
    kind="transcription",
    look=_Look(required=[("file",)], extent=_transcription, streams=("stream", ())),
    capability="translations of speech",
    form=True,
)
