"""Audio as a message carries it, and what those say to it who take none."""

from __future__ import annotations

from llama_compat.errors import UnsupportedHere, unsupported_content
from llama_compat.types import AudioContent, Content, ReadContent

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


def without_audio(content: Content, path: str, whose: str) -> ReadContent:
    """The content for who hears nothing.

    Args:
        content: of a message.
        path: where it stands in the request.
        whose: what takes no audio, such as `Anthropic's API`.

    Raises:
        UnsupportedHere: 400; there is audio in it.
    """
    if isinstance(content, str):
        return content
    read = tuple(part for part in content if not isinstance(part, AudioContent))
    if len(read) < len(content):
        raise not_taken("audio", path, whose)
    return read


def not_taken(what: str, path: str, whose: str) -> UnsupportedHere:
    """The error for a medium where none of its kind is taken: 400.

    Args:
        what: the medium, for people.
        path: where it stands in the request.
        whose: what takes none.
    """
    return unsupported_content(
        path,
        f"'{path}' has {what}, which {whose} does not take. Leave it out, or choose a model that"
        " takes it there.",
    )
