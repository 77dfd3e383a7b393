"""Images as a message carries them: a URL to fetch, or the bytes in a `data:` URL (RFC 2397)."""

from __future__ import annotations

import re
from typing import NamedTuple

from llama_compat.errors import invalid_parameter
from llama_compat.types import Content, ImageContent

_DATA_URL = re.compile(r"data:(image/[\w.+-]+)(?:;[\w.+=-]+)*;base64,", re.IGNORECASE)

_MISSPELT_MEDIA_TYPES = {"image/jpg": "image/jpeg"}


class EncodedImage(NamedTuple):
    """An image's bytes in base64, and their media type, such as `image/png`."""

    media_type: str
    base64: str

    @property
    def data_url(self) -> str:
        """The `data:` URL that holds the image."""
        return f"data:{self.media_type};base64,{self.base64}"


def images_in(content: Content) -> list[ImageContent]:
    """The images of a message."""
    if isinstance(content, str):
        return []
    return [part for part in content if isinstance(part, ImageContent)]


def is_remote(url: str) -> bool:
    """Whether `url` is one to fetch."""
    return url[:8].lower().startswith(("http://", "https://"))


def parse_data_url(url: str, param: str) -> EncodedImage:
    """The image in a `data:` URL; whether its bytes are that image is for the model to see.

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
    media_type = match[1].lower()
    return EncodedImage(_MISSPELT_MEDIA_TYPES.get(media_type, media_type), url[match.end() :])
