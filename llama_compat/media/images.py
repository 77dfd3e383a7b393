"""Images as a message carries them: a URL to fetch, or the bytes in a `data:` URL (RFC 2397)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Any

from llama_compat.errors import UnsupportedHere, invalid_parameter, unsupported_content
from llama_compat.media.encoded import EncodedFile
from llama_compat.types import Content, ImageContent

_DATA_URL = re.compile(r"data:(image/[\w.+-]+)(?:;[\w.+=-]+)*;base64,", re.IGNORECASE)

_MISSPELT_MEDIA_TYPES = {"image/jpg": "image/jpeg"}


def images_in(content: Content) -> list[ImageContent]:
    """The images of a message."""
    if isinstance(content, str):
        return []
    return [part for part in content if isinstance(part, ImageContent)]


def is_remote(url: str) -> bool:
    """Whether `url` is one to fetch."""
    return url[:8].lower().startswith(("http://", "https://"))


def is_data_url(url: str) -> bool:
    """Whether `url` is the file itself (RFC 2397), be it one that can be read or not."""
    return url[:5].lower() == "data:"


def parse_data_url(url: str, param: str) -> EncodedFile:
    """The image in a `data:` URL, of the type that its bytes begin like; whether they are that
    image is for the model to see.

    OpenAI takes one that is said to be of another type, and Anthropic does not ("The image was
    specified using the image/png media type, but the image appears to be a image/jpeg image",
    home-assistant/core#167208, 2026-11-28).

    Raises:
        APIError: 400 naming `param` if the URL holds no image in base64.
    """
    match = _DATA_URL.match(url)
    if match is None or match.end() == len(url):
        raise invalid_parameter(
            param,
            f"Invalid image in '{param}': expected an http(s) URL or a URL of the form"
            f" 'data:image/png;base64,...', got '{url[:60]}'.",
        )
    media_type, data = match[1].lower(), url[match.end() :]
    said = _MISSPELT_MEDIA_TYPES.get(media_type, media_type)
    found = media_type_of(_beginning(data))
    # The two bytes of a BMP say too little against what somebody says.
    return EncodedFile(said if found is None or found == "image/bmp" else found, data)


def _beginning(data: str) -> bytes:
    """The first bytes of a file that is in base64; nothing if it is not."""
    try:
        return base64.b64decode(data[:24], validate=True)
    except (binascii.Error, ValueError):
        return b""


def no_such_image(param: str, media_type: str, whose: str, taken: Iterable[str]) -> UnsupportedHere:
    """The error for an image of a type that is not `taken`: 400, and another may take it."""
    return unsupported_content(
        param,
        f"'{param}' has an image of the type '{media_type}'; {whose} takes"
        f" {', '.join(sorted(taken))}.",
    )


def misplaced_image(param: str, whose: str) -> UnsupportedHere:
    """The error for an image in what is said by the system or by the model: 400, and another may
    take it there."""
    return unsupported_content(
        param, f"'{param}' has an image; {whose} takes images from users and tools only."
    )


_FIRST_BYTES = (
    (re.compile(rb"\x89PNG"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8"), "image/gif"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "image/webp"),
    (re.compile(rb"BM"), "image/bmp"),
)


def media_type_of(begin: bytes) -> str | None:
    """The type of the image whose first bytes these are; None where they are none's."""
    return next((kind for pattern, kind in _FIRST_BYTES if pattern.match(begin)), None)


def uploaded_type(media_type: str, data: bytes, path: str) -> str:
    """The type of an image that is a file.

    Args:
        media_type: what the file is said to be.
        data: what is in it.
        path: where the request names it.

    Raises:
        APIError: 400 naming `path`, it is no image.
    """
    kind = media_type if media_type.startswith("image/") else media_type_of(data[:12])
    if kind is None:
        raise invalid_parameter(
            path, f"'{path}': the file is '{media_type}', and no image. Upload it as what it is."
        )
    return kind


def image_in_base64(value: Any, param: str) -> ImageContent:
    """The image whose bytes `value` holds in base64, of the type that they begin like.

    Raises:
        APIError: 400 naming `param` if it is none.
    """
    if not isinstance(value, str):
        raise invalid_parameter(param, f"'{param}' must be a string in base64.", "invalid_type")
    if value.startswith("data:"):
        return ImageContent(value)
    media_type = media_type_of(_beginning(value))
    if media_type is not None:
        return ImageContent(EncodedFile(media_type, value).data_url)
    raise invalid_parameter(
        param,
        f"Invalid image in '{param}': expected a PNG, JPEG, GIF, WebP or BMP file in base64.",
    )
