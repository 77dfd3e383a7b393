"""Images as Google's APIs take them from clients: in base64, or by their address."""

from __future__ import annotations

from llama_compat.errors import invalid_parameter, missing_parameter
from llama_compat.images import EncodedImage, is_remote
from llama_compat.types import ImageContent

_GOOGLES_FILES = ("https://generativelanguage.googleapis.com/", "https://www.youtube.com/")
"""Addresses that are no image's, but mean something to Google alone."""

_STANDARD_ALPHABET = str.maketrans("-_", "+/")


def parse_inline(
    media_type: str, encoded: str | None, type_path: str, data_path: str
) -> ImageContent:
    """The image that is `encoded`.

    Raises:
        APIError: 400 naming `type_path` or `data_path`, it is none.
    """
    if not encoded:
        raise missing_parameter(data_path)
    if not media_type.startswith("image/"):
        raise invalid_parameter(
            type_path,
            f"Invalid value: {media_type!r}. This model's provider takes images only.",
        )
    # Google takes both of the alphabets of base64, and its own clients write the other one.
    return ImageContent(EncodedImage(media_type, _standard(encoded)).data_url)


def _standard(encoded: str) -> str:
    standard = encoded.translate(_STANDARD_ALPHABET)
    return standard + "=" * (-len(standard) % 4)


def parse_file(uri: str, media_type: str, path: str, *, inline: str) -> ImageContent:
    """The image at `uri`.

    Args:
        uri: its address.
        media_type: what it is, or may be.
        path: where the address stands.
        inline: where an image may stand itself.

    Raises:
        APIError: 400 naming `path`, it is none that can be fetched.
    """
    is_image = uri.startswith("data:image/") or (
        is_remote(uri) and not uri.startswith(_GOOGLES_FILES)
    )
    if not is_image or not media_type.startswith("image/"):
        raise invalid_parameter(
            path,
            f"Invalid value: '{uri[:60]}'. This server keeps no files, and of others it takes"
            f" images with an http(s) address; send the file as '{inline}'.",
        )
    return ImageContent(uri)
