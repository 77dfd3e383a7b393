"""The pictures of a reply in JSON, whichever API's it is: found, judged, and left out.

What an API calls a picture is known by its form; a file of a picture anywhere else by its first
bytes. Where one is left out there is the word for it, or nothing where its API has no place for
words.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from msgspec import Raw

from llama_compat.guardrails.documents import FILES, PICTURES, SEALS
from llama_compat.guardrails.guard import Blocked, Guard
from llama_compat.media.encoded import EncodedFile
from llama_compat.media.images import is_data_url, media_type_of
from llama_compat.off_loop import off_loop
from llama_compat.types import ImageDelta, StreamEvent, StreamProgress, TextDelta
from llama_compat.wire.json_fields import encode_json, from_raw

Hide = Callable[[str], str | None]
"""Told of a picture's URL; the word that is to be in its place, None where it is shown."""

_HOLDERS = ("inlineData", "inline_data", "fileData", "file_data")
_PICTURES = ("image", "image_url", "input_image", "output_image")
_DRAWING = "image_generation_call"
_PARTIAL = "partial_image_b64"
_MEDIA_TYPES = ("mimeType", "mime_type", "media_type")
_ADDRESSES = ("uri", "fileUri", "file_uri", "url", "file_id")

_BEGINNINGS = (*PICTURES, "Qk")
"""How those files begin in base64, and BMP."""

_BASE64 = re.compile(r"[A-Za-z0-9+/=_-]{32,}")

_HINTS = (b"image", *(begin.rstrip("/").encode() for begin in PICTURES))
"""One of these is in each event of a stream that has a picture: in its name, in its media type, or
as its first bytes, in which JSON may have a slash as `\\/`."""


def may_show(raw: bytes) -> bool:
    """Whether there may be a picture in an event of a stream, as far as that is quick to tell."""
    for hint in _HINTS:  # noqa: SIM110 - asked for every event
        if hint in raw:
            return True
    return False


async def seen(raw: bytes, guard: Guard, *, of_images: bool = False) -> bytes:
    """What may be shown of JSON that a reply says; the same object where that is all of it.

    Args:
        raw: the JSON; what is none has no pictures.
        guard: of the request.
        of_images: whether it is the reply of an API for images, which has a place for nothing else.

    Raises:
        Blocked: it may not be shown.
    """
    if not (of_images or may_show(raw)):
        return raw
    try:
        value = await off_loop(len(raw), from_raw, Raw(raw))
    except ValueError:
        return raw
    without = _without_images if of_images else _without
    urls: list[str] = []
    await off_loop(len(raw), without, value, urls.append)
    if not urls:
        return raw
    await guard.look({"output": urls})
    shown = without(value, partial(_word, guard))
    if shown is value:
        return raw
    if of_images and not shown["data"]:
        raise _nothing_left(guard)
    return await off_loop(len(raw), encode_json, shown)


async def seen_image(raw: bytes, guard: Guard) -> bytes:
    """What may be shown of an event of an API for images, which has a place for nothing else: the
    same object, or nothing where it shows how far an image is that may not be seen.

    Raises:
        Blocked: it may not be shown, or it is an image itself in place of which there is nothing.
    """
    try:
        event = await off_loop(len(raw), from_raw, Raw(raw))
    except ValueError:
        return raw
    urls = list(_image_urls(event)) if isinstance(event, dict) else []
    await guard.look({"output": urls})
    if all(_word(guard, url) is None for url in urls):
        return raw
    if "partial_image_index" not in event:
        raise _nothing_left(guard)
    return b""


def _nothing_left(guard: Guard) -> Blocked:
    """A check has hidden the only picture."""
    names = (each.name for each in guard.checks.with_pictures("output"))
    return Blocked(next(name for name in names if name in guard.hid))


def _word(guard: Guard, url: str) -> str | None:
    _, words = guard.shown_pictures([url])
    return words[0] if words else None


async def seen_event(event: StreamEvent, guard: Guard) -> StreamEvent:
    """What may be shown of an event of the vocabulary: words for a picture that is hidden.

    Raises:
        Blocked: it may not be shown.
    """
    if not isinstance(event, StreamProgress) or not isinstance(event.delta, ImageDelta):
        return event
    url = event.delta.image.url
    await guard.look({"output": [url]})
    word = _word(guard, url)
    if word is None:
        return event
    return StreamProgress(TextDelta(word), None, event.completion_tokens, event.part)


def _pictures_in(value: Any, name: str = "") -> list[str]:
    """The URLs of the pictures in JSON; one that is no URL names what only its vendor has."""
    found: list[str] = []
    _without(value, found.append, name)
    return found


def _without(value: Any, hide: Hide, name: str = "") -> Any:
    """`value` without the pictures that are hidden."""
    if isinstance(value, str):
        url = _file(value, name)
        word = None if url is None else hide(url)
        return value if word is None else word
    if isinstance(value, list):
        items = [_without(each, hide, name) for each in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else items
    if not isinstance(value, dict):
        return value
    urls = list(_own_pictures(value))
    if urls:
        words = [word for word in map(hide, urls) if word is not None]
        return _worded(value, words[0]) if words else value
    drawn = value.get("images")
    if isinstance(drawn, list):
        value = _with_words(value, drawn, hide)
    changed = {
        member: each if member == "images" and drawn else _without(each, hide, member)
        for member, each in value.items()
    }
    same = all(changed[member] is each for member, each in value.items())
    return value if same else changed


def _with_words(message: dict[str, Any], drawn: list[Any], hide: Hide) -> dict[str, Any]:
    """A message of a chat, of whose pictures those that are hidden are words behind its text."""
    kept: list[Any] = []
    words: list[str] = []
    for each in drawn:
        urls = _pictures_in(each, "images")
        hidden = [word for word in map(hide, urls) if word is not None]
        if hidden:
            words.append(hidden[0])
        else:
            kept.append(each)
    if not words:
        return message
    content = message.get("content")
    if isinstance(content, list):
        said: Any = [*content, *({"type": "text", "text": word} for word in words)]
    else:
        said = (content if isinstance(content, str) else "") + "".join(words)
    return {**message, "content": said, "images": kept}


def _worded(picture: dict[str, Any], word: str) -> dict[str, Any]:
    """What is there in place of what an API calls a picture."""
    kind = picture.get("type")
    if kind == _DRAWING:
        return {**picture, "result": None, "status": "failed"}
    if _PARTIAL in picture:
        return {**picture, _PARTIAL: ""}
    if kind in _PICTURES:
        return {"type": "text", "text": word}
    left_out = {*_HOLDERS, *SEALS}  # a seal is that of what was there
    return {**{name: each for name, each in picture.items() if name not in left_out}, "text": word}


def _own_pictures(value: Mapping[str, Any]) -> Iterator[str]:
    """The URLs of what an object is a picture of."""
    kind = value.get("type")
    if kind == _DRAWING:
        yield from _drawing(value.get("result"))
    yield from _drawing(value.get(_PARTIAL))
    for holder in _HOLDERS:
        file = value.get(holder)
        if isinstance(file, dict):
            yield from _of_file(file, is_picture=False)
    if kind in _PICTURES:
        for file in (value, value.get("source"), value.get("image_url")):
            if isinstance(file, dict):
                yield from _of_file(file, is_picture=True)
            elif isinstance(file, str):
                yield file


def _of_file(file: Mapping[str, Any], *, is_picture: bool) -> Iterator[str]:
    kinds = (file.get(name) for name in _MEDIA_TYPES)
    kind = next((each.lower() for each in kinds if isinstance(each, str)), "")
    data = file.get("data")
    if isinstance(data, str) and data:
        if kind.startswith("image/"):
            yield EncodedFile(kind, data).data_url
        elif is_picture:
            yield from _drawing(data)
        elif (url := _file(data, "data")) is not None:
            yield url
    if is_picture or kind.startswith("image/"):
        for name in _ADDRESSES:
            address = file.get(name)
            if isinstance(address, str) and address:
                yield address


def _drawing(data: Any) -> Iterator[str]:
    """The URL of what an API says is a picture in base64."""
    if isinstance(data, str) and data:
        if is_data_url(data):
            yield data
        else:
            yield EncodedFile(_media_type(data) or "image/png", data).data_url


def _file(text: str, name: str) -> str | None:
    """The URL of the picture whose file a text is; None where it is none."""
    if text[:11].lower() == "data:image/":
        return text
    is_file = text.startswith(_BEGINNINGS) and (name in FILES or not text.startswith("Qk"))
    if not is_file or _BASE64.fullmatch(text) is None:
        return None
    kind = _media_type(text)
    return None if kind is None else EncodedFile(kind, text).data_url


def _media_type(data: str) -> str | None:
    try:
        return media_type_of(base64.b64decode(data[:24]))
    except (binascii.Error, ValueError):
        return None


def _without_images(value: Any, hide: Hide) -> Any:
    """The reply of an API for images without those that are hidden."""
    images = value.get("data") if isinstance(value, dict) else None
    if not isinstance(images, list):
        return value  # its provider has seen to that there is a list
    kept: list[Any] = []
    for each in images:
        urls = list(_image_urls(each)) if isinstance(each, dict) else list(_drawing(each))
        words = [word for word in map(hide, urls) if word is not None]
        if not words:
            kept.append(each)
    return value if len(kept) == len(images) else {**value, "data": kept}


def _image_urls(image: Mapping[str, Any]) -> Iterator[str]:
    """The URLs of one image: each of its members that may be one."""
    yield from _drawing(image.get("b64_json"))
    url = image.get("url")
    if isinstance(url, str) and url:
        yield url
    rest = {name: each for name, each in image.items() if name not in ("b64_json", "url")}
    yield from _pictures_in(rest)
