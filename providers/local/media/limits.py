"""Which media a request may have."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import Field

from llama_compat.settings.model import TemplateSettings
from providers.remote.upstream.images import MAX_IMAGE_BYTES, MAX_IMAGES, ImageLimits


class PictureLimits(ImageLimits):
    """Of the pictures of one request, those that are fetched and those that it brings itself."""

    max_count: int = Field(default=MAX_IMAGES, gt=0)
    """So many pictures a request may have."""

    max_bytes: int = Field(default=MAX_IMAGE_BYTES, gt=0)
    """All that is fetched for one request may come to as many, and so may all that it brings."""

    max_pixels: int = Field(default=50_000_000, gt=0)
    """So many a picture may have once it is unpacked, at 3 bytes each."""


class AudioLimits(TemplateSettings):
    """Of the audio of one request."""

    max_count: int = Field(default=32, gt=0)
    """So many files of audio a request may have."""

    max_bytes: int = Field(default=20 * 1024 * 1024, gt=0)
    """All of them together may come to as many."""

    max_seconds: float = Field(default=1800, gt=0)
    """All of them together may take as long; a minute is 4 MB once it is unpacked."""


class MediaLimits(NamedTuple):
    """Of the media of one request.

    Attributes:
        images: of its pictures.
        audio: of its audio.
    """

    images: PictureLimits = PictureLimits()
    audio: AudioLimits = AudioLimits()
