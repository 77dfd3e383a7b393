"""The media of a request: found, bounded, and opened as far as their first bytes tell."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Sequence

from llama_compat.errors import invalid_parameter
from llama_compat.media.images import parse_data_url
from llama_compat.types import AudioContent, DocumentContent, ImageContent, Medium, Message
from providers.local.media.audio import audio_file
from providers.local.media.limits import AudioLimits, MediaLimits, PictureLimits
from providers.local.media.medium import (
    WORDS,
    Kind,
    MediumFile,
    SentKind,
    invalid_medium,
    too_large,
)
from providers.local.media.pictures import picture_file

OpenedMedium = ImageContent | AudioContent


def kind_of(medium: Medium) -> SentKind:
    """What kind of medium a part of a message is."""
    if isinstance(medium, DocumentContent):
        return "document"
    return _opened_kind(medium)


def _opened_kind(medium: OpenedMedium) -> Kind:
    return "image" if isinstance(medium, ImageContent) else "audio"


def media_of(messages: Sequence[Message]) -> list[tuple[Medium, str]]:
    """The media of `messages` in their order, each with its place in the request."""
    return [
        (part, f"messages[{index}].content[{place}]")
        for index, message in enumerate(messages)
        if not isinstance(message.content, str)
        for place, part in enumerate(message.content)
        if isinstance(part, Medium)
    ]


def media_files(messages: Sequence[Message], limits: MediaLimits) -> list[MediumFile]:
    """The media of `messages`, in their order; all have been fetched.

    Raises:
        APIError: 400; there are too many, or one is none that can be read, or too large.
    """
    found = [
        (medium, param)
        for medium, param in media_of(messages)
        if not isinstance(medium, DocumentContent)  # No model here reads any: they are refused.
    ]
    bounds: dict[Kind, PictureLimits | AudioLimits] = {
        "image": limits.images,
        "audio": limits.audio,
    }
    counts: Counter[Kind] = Counter(_opened_kind(each) for each, _ in found)
    for kind, count in counts.items():
        most = bounds[kind].max_count
        if count > most:
            over = [param for each, param in found if _opened_kind(each) == kind][most]
            raise invalid_parameter(
                over,
                f"{count} {WORDS[kind].many} are in this request, and no more than {most} may be."
                f" Send fewer, or raise `{WORDS[kind].setting}.max_count` for this provider in the"
                " template.",
                WORDS[kind].too_many,
            )
    left = {kind: bounds[kind].max_bytes for kind in counts}
    seconds = limits.audio.max_seconds
    files: list[MediumFile] = []
    for medium, param in found:
        kind = _opened_kind(medium)
        content = _bytes_of(medium, param)
        left[kind] -= len(content)
        if left[kind] < 0:
            raise too_large(
                kind,
                param,
                f"The {WORDS[kind].many} of this request are larger than {bounds[kind].max_bytes}"
                f" bytes together. Send smaller ones, or raise `{WORDS[kind].setting}.max_bytes`"
                " for this provider in the template.",
            )
        if kind == "image":
            files.append(picture_file(content, param, limits.images))
            continue
        file = audio_file(content, param)
        seconds -= file.seconds
        if seconds < 0:
            raise too_large(
                kind,
                param,
                f"The audio in '{param}' takes {file.seconds:.1f} s, and all of a request may take"
                f" {limits.audio.max_seconds:g} s. Send less, or raise `audio.max_seconds` for this"
                " provider in the template.",
            )
        files.append(file)
    return files


def _bytes_of(medium: OpenedMedium, param: str) -> bytes:
    if isinstance(medium, ImageContent):
        encoded = parse_data_url(medium.url, param).base64
    else:
        encoded = medium.base64
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid_medium(_opened_kind(medium), param, f"is not in base64: {error}.") from error
