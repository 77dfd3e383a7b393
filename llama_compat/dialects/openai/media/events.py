"""The streams of these calls, and a whole reply as the events of one.

Source: openai.types (TranscriptionStreamEvent, ImageGenStreamEvent, ImageEditStreamEvent) and
https://platform.openai.com/docs/api-reference/audio/speech-audio-delta-event, 2026-11-23.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from llama_compat.wire import sse
from llama_compat.wire.json_fields import encode_json

LAST = {
    "images": "image_generation.completed",
    "image_edits": "image_edit.completed",
    "speech": "speech.audio.done",
    "transcriptions": "transcript.text.done",
}
"""The event that ends a stream of each operation; of several images each has one."""

_OF_ALL_IMAGES = ("background", "output_format", "quality", "size")


def encode(event: Mapping[str, Any]) -> bytes:
    """One event, by the name that is its `type`."""
    return named(str(event["type"]).encode(), encode_json(event))


def named(name: bytes, data: bytes) -> bytes:
    """One event; most vendors leave the name out, which is then empty."""
    return (b"event: %b\n" % name if name else b"") + sse.encode_data(data)


def image_events(operation: str, reply: Mapping[str, Any]) -> Iterator[bytes]:
    """A whole reply with images. Its usage is told once, with the last of them.

    Raises:
        ValueError: it has none.
    """
    images = reply.get("data")
    if not isinstance(images, list) or not all(isinstance(each, dict) for each in images):
        raise ValueError("'data' is no array of images")
    common = {name: reply[name] for name in _OF_ALL_IMAGES if name in reply}
    common["created_at"] = reply.get("created")
    for number, image in enumerate(images, 1):
        usage = {"usage": reply["usage"]} if number == len(images) and "usage" in reply else {}
        yield encode({"type": LAST[operation], **image, **common, **usage})


def text_events(reply: Mapping[str, Any]) -> Iterator[bytes]:
    """A whole transcript.

    Raises:
        ValueError: it has no text.
    """
    text = reply.get("text")
    if not isinstance(text, str):
        raise ValueError("'text' is no string")
    more = {name: reply[name] for name in ("logprobs", "usage") if name in reply}
    yield encode({"type": "transcript.text.delta", "delta": text})
    yield encode({"type": LAST["transcriptions"], "text": text, **more})


def audio_event(audio: bytes) -> bytes:
    """A piece of sound."""
    return encode({"type": "speech.audio.delta", "audio": base64.b64encode(audio).decode()})


def audio_end() -> bytes:
    """The end of sound of which nobody says what it has cost."""
    return encode({"type": LAST["speech"]})
