"""The picture files of a request: found, bounded, and unpacked.

A file of some kilobytes may say that it holds a picture of gigabytes. So its size is read from its
first bytes, and it is unpacked only where that is within bounds.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from llama_compat.errors import APIError, invalid_parameter
from llama_compat.images import parse_data_url
from llama_compat.types import ImageContent, Message
from providers.local.pictures.limits import PictureLimits

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")
"""What files are read as: what OpenAI's API takes, and BMP. Pillow knows sixty more, most of them
for old programs, whose readers nobody need be able to reach."""

MOVING = ("GIF", "PNG", "WEBP")
"""Files whose frames come one after the other. In others, such as photographs of telephones (MPO),
they are other views of what the first one shows."""

_ORIENTATION = 0x0112
"""The EXIF tag that says how a camera was held."""

_ON_ITS_SIDE = range(5, 9)
"""Values of it; there are no higher ones, and who writes one means nothing by it."""


@dataclass(frozen=True)
class PictureFile:
    """A picture as it came.

    Attributes:
        content: the file's bytes.
        width, height: pixels, as it is to be seen: turned as its EXIF says.
        param: which part of the request it is, such as `messages[0].content[1]`.
    """

    content: bytes
    width: int
    height: int
    param: str

    @property
    def key(self) -> bytes:
        """What tells it from all others: a hash of its bytes."""
        return hashlib.blake2b(self.content, digest_size=16, person=b"picture").digest()

    def unpacked(self) -> Image:
        """Its pixels, in RGB.

        Raises:
            APIError: 400; the file is damaged behind its first bytes.
        """
        from PIL import Image, ImageOps

        try:
            with Image.open(BytesIO(self.content), formats=FORMATS) as image:
                turned = ImageOps.exif_transpose(image)
                return _with_8_bits(turned).convert("RGB")
        except Exception as error:  # of a damaged file, whatever its reader stumbles over
            raise broken_picture(self.param, error) from error


def picture_files(messages: Sequence[Message], limits: PictureLimits) -> list[PictureFile]:
    """The pictures of `messages`, in their order; all have been fetched.

    Raises:
        APIError: 400; there are too many, or one is no picture, too large, or moves.
    """
    found = [
        (part, f"messages[{index}].content[{place}]")
        for index, message in enumerate(messages)
        if not isinstance(message.content, str)
        for place, part in enumerate(message.content)
        if isinstance(part, ImageContent)
    ]
    if len(found) > limits.max_count:
        raise invalid_parameter(
            found[limits.max_count][1],
            f"{len(found)} pictures are in this request, and no more than {limits.max_count} may"
            " be. Send fewer, or raise `images.max_count` for this provider in the template.",
            "too_many_images",
        )
    files = []
    left = limits.max_bytes
    for image, param in found:
        content = _bytes_of(image, param)
        left -= len(content)
        if left < 0:
            raise invalid_parameter(
                param,
                f"The pictures of this request are larger than {limits.max_bytes} bytes together."
                " Send smaller ones, or raise `images.max_bytes` for this provider in the"
                " template.",
                "image_too_large",
            )
        files.append(_file_of(content, param, limits))
    return files


def broken_picture(param: str, error: Exception) -> APIError:
    """The error for a picture that can't be unpacked, or that a model can't be shown."""
    why = str(error).strip().rstrip(".") or type(error).__name__
    return invalid_parameter(
        param, f"The picture in '{param}' can't be read: {why}.", "invalid_image"
    )


def _bytes_of(image: ImageContent, param: str) -> bytes:
    encoded = parse_data_url(image.url, param)
    try:
        return base64.b64decode(encoded.base64, validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid_parameter(
            param, f"The picture in '{param}' is not in base64: {error}.", "invalid_image"
        ) from error


def _file_of(content: bytes, param: str, limits: PictureLimits) -> PictureFile:
    """The file, as far as its first bytes tell."""
    from PIL import Image, UnidentifiedImageError

    try:
        # Pillow's own bound on pixels, a warning and an error, is above every bound here.
        with Image.open(BytesIO(content), formats=FORMATS) as image:
            width, height = image.size
            if not width or not height:
                raise invalid_parameter(
                    param, f"The picture in '{param}' has no pixels.", "invalid_image"
                )
            if width * height > limits.max_pixels:
                raise invalid_parameter(
                    param,
                    f"The picture in '{param}' has {width} x {height} pixels, and no more than"
                    f" {limits.max_pixels} may be unpacked. Send a smaller one, or raise"
                    " `images.max_pixels` for this provider in the template.",
                    "image_too_large",
                )
            # From here on it may be unpacked: where a PNG's EXIF is behind its pixels, it is.
            frames = int(getattr(image, "n_frames", 1)) if image.format in MOVING else 1
            is_turned = image.getexif().get(_ORIENTATION) in _ON_ITS_SIDE
    except UnidentifiedImageError as error:
        raise invalid_parameter(
            param,
            f"The picture in '{param}' is none that can be read: send a PNG, JPEG, WebP, BMP or GIF"
            " file.",
            "invalid_image",
        ) from error
    except Image.DecompressionBombError:
        raise invalid_parameter(
            param,
            f"The picture in '{param}' has far more pixels than the {limits.max_pixels} that it may"
            " have. Send a smaller one.",
            "image_too_large",
        ) from None
    except APIError:
        raise
    except Exception as error:  # of a damaged file, whatever its reader stumbles over
        raise broken_picture(param, error) from error
    if frames > 1:
        raise invalid_parameter(
            param,
            f"The picture in '{param}' moves: it has {frames} frames. Send one of them.",
            "invalid_image",
        )
    if is_turned:
        width, height = height, width
    return PictureFile(content, width, height, param)


def _with_8_bits(image: Any) -> Any:
    """Greys of 16 bits as such of 8; Pillow would cut them off at 255."""
    if not image.mode.startswith(("I", "F")):
        return image
    import numpy
    from PIL import Image

    return Image.fromarray((numpy.asarray(image).clip(0, 65535) / 257).astype(numpy.uint8))
