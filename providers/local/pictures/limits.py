"""Which pictures a request may have."""

from __future__ import annotations

from pydantic import Field

from providers.remote.upstream.images import MAX_IMAGE_BYTES, MAX_IMAGES, ImageLimits


class PictureLimits(ImageLimits):
    """Of the pictures of one request, those that are fetched and those that it brings itself."""

    max_count: int = Field(default=MAX_IMAGES, gt=0)
    """So many pictures a request may have."""

    max_bytes: int = Field(default=MAX_IMAGE_BYTES, gt=0)
    """All that is fetched for one request may come to as many, and so may all that it brings."""

    max_pixels: int = Field(default=50_000_000, gt=0)
    """So many a picture may have once it is unpacked, at 3 bytes each."""
