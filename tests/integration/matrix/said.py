"""What a client asks and what it is told, whatever API it speaks."""

from __future__ import annotations

import random
import wave
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
TIME = {
    "name": "get_time",
    "description": "The time of day",
    "parameters": {"type": "object", "properties": {}},
}

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR"
    "42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A PNG image in base64."""


def _clip() -> str:
    file = BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, 16_000, 0, "NONE", ""))
        writer.writeframes(random.Random(1).randbytes(16_000))
    return b64encode(file.getvalue()).decode()


CLIP = _clip()
"""Half a second of noise: a WAV file in base64."""


@dataclass(frozen=True)
class Ask:
    """A request.

    Attributes:
        text: what the user says.
        tools: `WEATHER`, `TIME`.
        forced: the tool that has to be called.
        image: whether `PIXEL` goes with the text.
        audio: whether `CLIP` does.
        schema: what the text has to be.
        stop: strings that end the text.
        effort: how much to think.
        max_tokens: at most.
    """

    model: str
    text: str = "Hello there"
    tools: Sequence[dict[str, Any]] = ()
    forced: str | None = None
    image: bool = False
    audio: bool = False
    schema: dict[str, Any] | None = None
    stop: Sequence[str] = ()
    effort: str | None = None
    max_tokens: int | None = 24


@dataclass
class Said:
    """The reply.

    Attributes:
        stop: `end`, `calls`, `length` or `filter`.
        calls: name and arguments of each.
        tokens: of the prompt, cached ones included, and of the completion.
    """

    text: str = ""
    thoughts: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    stop: str = ""
    tokens: tuple[int, int] = (0, 0)


@dataclass
class Refused(Exception):
    """An error that the client's own SDK raised.

    Attributes:
        status: HTTP status.
        message: what it says.
    """

    status: int
    message: str
