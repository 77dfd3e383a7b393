"""Audio as a message carries it, and what those say to it who take none."""

from __future__ import annotations

from collections.abc import Sequence

from llama_compat.errors import UnsupportedHere
from llama_compat.types import AudioContent, Content, ContentPart, SeenContent, SeenPart

_FORMATS = {"audio/mp3": "audio/mpeg", "audio/wave": "audio/wav", "audio/x-wav": "audio/wav"}
"""Other words for a media type."""

_SHORT = {"mp3": "audio/mpeg"}
"""Formats, in OpenAI's words, whose media type is not called after them."""


def audio_of(media_type: str, base64: str) -> AudioContent:
    """The audio of a type that may be called by another word for it, `audio/x-wav` for one."""
    media_type = media_type.lower()
    return AudioContent(_FORMATS.get(media_type, media_type), base64)


def media_type_of(format: str) -> str:
    """The media type of a `format` as OpenAI calls it: `wav`, `mp3`."""
    return _SHORT.get(format.lower(), f"audio/{format.lower()}")


def format_of(audio: AudioContent) -> str:
    """What OpenAI calls its format."""
    own = {media_type: format for format, media_type in _SHORT.items()}
    return own.get(audio.media_type) or audio.media_type.removeprefix("audio/")


def without_audio(content: Content, path: str, whose: str) -> SeenContent:
    """The content for who takes texts and images alone; see `parts_without_audio`."""
    return content if isinstance(content, str) else parts_without_audio(content, path, whose)


def parts_without_audio(
    parts: Sequence[ContentPart], path: str, whose: str
) -> tuple[SeenPart, ...]:
    """The parts of a content for who takes texts and images alone.

    Args:
        parts: of a message.
        path: where they stand in the request.
        whose: what takes no audio, such as `Anthropic's API`.

    Raises:
        UnsupportedHere: 400; there is audio among them.
    """
    seen = tuple(part for part in parts if not isinstance(part, AudioContent))
    if len(seen) < len(parts):
        raise UnsupportedHere(
            400,
            f"'{path}' has audio, which {whose} does not take. Leave it out, or choose a model that"
            " takes it there.",
            param=path,
            code="unsupported_content",
        )
    return seen
